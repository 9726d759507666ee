/* SPDX-License-Identifier: MIT */
/*
 * One system call of the program, before and after. It runs on the agent's stack while the
 * program's signal handlers are deferred. The registers that it leaves in *regs are the program's
 * when gate.S returns.
 *
 * A call is kept in a small per-thread list from its before-hook to its after-hook, and found again
 * by the program's stack pointer. Calls nest when a handler runs in one, and are abandoned when the
 * handler leaves by siglongjmp. An abandoned call is replaced by the next one at the same depth, or
 * pushed out of the list.
 */
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/sys.h"
#include "os/thread.h"
#include "intercept/intercept.h"

/* Who in intercept/ has a say in a call. */
enum { OTHERS, SIGNALS, CLONES, GUARD };

static const uint8_t owner[512] = {
	[SYS_rt_sigaction] = SIGNALS,
	[SYS_rt_sigprocmask] = SIGNALS,
	[SYS_rt_sigreturn] = SIGNALS,
	[SYS_sigaltstack] = SIGNALS,
	[SYS_rt_sigpending] = SIGNALS,
	[SYS_rt_sigtimedwait] = SIGNALS,
	[SYS_rt_sigsuspend] = SIGNALS,
	[SYS_ppoll] = SIGNALS,
	[SYS_pselect6] = SIGNALS,
	[SYS_epoll_pwait] = SIGNALS,
	[SYS_epoll_pwait2] = SIGNALS,
	[SYS_clone] = CLONES,
	[SYS_clone3] = CLONES,
	[SYS_fork] = CLONES,
	[SYS_vfork] = CLONES,
	[SYS_close] = GUARD,
	[SYS_dup2] = GUARD,
	[SYS_dup3] = GUARD,
	[SYS_close_range] = GUARD,
	[SYS_exit] = GUARD,
	[SYS_prctl] = GUARD,
	[SYS_seccomp] = GUARD,
	[SYS_arch_prctl] = GUARD,
	[SYS_getpid] = GUARD,
	[SYS_wait4] = GUARD,
	[SYS_waitid] = GUARD,
	[SYS_execve] = GUARD,
	[SYS_execveat] = GUARD,
};

static unsigned owner_of(long nr)
{
	return (unsigned long)nr < sizeof(owner) ? owner[nr] : OTHERS;
}

/*
 * Around every change of the list: a checkpoint of another thread reads it, to learn which memory
 * the kernel may be writing. The stores stay in their order, which is free on x86; a full fence,
 * which would cost as much as the rest of the hook, is where an answer of the others is awaited:
 * in crn_output_ready, and in the locks.
 */
static void pending_turns_odd(struct crn_thread *t)
{
	__atomic_store_n(&t->pending_turn, t->pending_turn + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

static void pending_turns_even(struct crn_thread *t)
{
	__atomic_store_n(&t->pending_turn, t->pending_turn + 1, __ATOMIC_RELEASE);
}

uint32_t crn_calls_in_flight(const struct crn_thread *t, struct crn_in_flight *out)
{
	uint32_t turn, n;

	do {
		while ((turn = __atomic_load_n(&t->pending_turn, __ATOMIC_ACQUIRE)) & 1)
			crn_yield();
		n = CRN_MIN(t->pending_count, (uint32_t)CRN_PENDING_MAX);
		for (uint32_t i = 0; i < n; i++) {
			const struct crn_call *call = &t->pending[i].call;

			out[i].nr = call->nr;
			for (int k = 0; k < 6; k++)
				out[i].args[k] = call->args[k];
		}
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (__atomic_load_n(&t->pending_turn, __ATOMIC_RELAXED) != turn);
	if (t->in_vfork)
		out[n++] = t->borrowed;
	return n;
}

bool crn_thread_in_call(const struct crn_thread *t)
{
	uint32_t turn = __atomic_load_n(&t->pending_turn, __ATOMIC_ACQUIRE);
	const struct crn_pending *p;
	bool in;

	if (turn & 1 || !t->pending_count || t->pending_count > CRN_PENDING_MAX)
		return false;
	p = &t->pending[t->pending_count - 1];
	in = __atomic_load_n(&p->after, __ATOMIC_ACQUIRE) && !p->left;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return in && __atomic_load_n(&t->pending_turn, __ATOMIC_RELAXED) == turn;
}

void crn_call_left(struct crn_thread *t)
{
	if (t->pending_count)
		t->pending[t->pending_count - 1].left = true;
}

static void call_from_regs(struct crn_pending *p, const struct crn_regs *regs, const uint8_t *stub)
{
	struct crn_call *call = &p->call;

	call->nr = (long)regs->rax;
	call->args[0] = (long)regs->rdi;
	call->args[1] = (long)regs->rsi;
	call->args[2] = (long)regs->rdx;
	call->args[3] = (long)regs->r10;
	call->args[4] = (long)regs->r8;
	call->args[5] = (long)regs->r9;
	for (int i = 0; i < 6; i++)
		p->original[i] = call->args[i];
	call->site = *(const uintptr_t *)(stub + CRN_STUB_SITE);
	call->result = 0;
	call->spec = 0;
	call->again = false;
	call->effect = 0;
	call->covered = false;
	call->waits = 0;
	p->began_ns = crn_timer_began_ns(call);
	p->rsp = regs->rsp;
	p->moved = 0;
	p->waits = false;
	p->masked = false;
	p->left = false;
	p->undone = false;
}

/*
 * A call joins the list before anything is done about it, so that a checkpoint that comes between
 * the opening of its buffers and the call knows of it.
 */
static struct crn_pending *pending_push(
	struct crn_thread *t, const struct crn_regs *regs, const uint8_t *stub)
{
	struct crn_pending *p;

	pending_turns_odd(t);
	while (t->pending_count && t->pending[t->pending_count - 1].rsp == regs->rsp)
		t->pending_count--;
	if (t->pending_count == CRN_PENDING_MAX) {
		uint32_t half = CRN_PENDING_MAX / 2;

		crn_copy(t->pending, t->pending + half, half * sizeof(t->pending[0]));
		t->pending_count = half;
	}
	p = &t->pending[t->pending_count++];
	call_from_regs(p, regs, stub);
	p->call.thread = t;
	p->after = false;
	pending_turns_even(t);
	return p;
}

static void pending_remove(struct crn_thread *t, struct crn_pending *p)
{
	struct crn_pending *last;

	pending_turns_odd(t);
	last = &t->pending[--t->pending_count];
	for (; p < last; p++)
		crn_copy(p, p + 1, sizeof(*p));
	pending_turns_even(t);
}

static bool args_changed(const struct crn_pending *p)
{
	long diff = 0;

	for (int i = 0; i < 6; i++)
		diff |= p->original[i] ^ p->call.args[i];
	return diff != 0;
}

/*
 * A checkpoint of this thread lies here, which may be in a handler. Calls that it has interrupted
 * go on behind it, and are on the list when a restore comes back. The present one is over, or made
 * anew.
 */
void crn_calls_keep(struct crn_thread *t)
{
	t->kept_count = 0;
	for (uint32_t i = 0; i < t->pending_count; i++)
		if (t->pending[i].rsp != t->regs->rsp)
			crn_copy(&t->kept[t->kept_count++], &t->pending[i], sizeof(t->kept[0]));
}

void crn_calls_put_back(struct crn_thread *t)
{
	pending_turns_odd(t);
	crn_copy(t->pending, t->kept, t->kept_count * sizeof(t->kept[0]));
	t->pending_count = t->kept_count;
	for (uint32_t i = 0; i < t->pending_count; i++)
		t->pending[i].undone = true;
	pending_turns_even(t);
}

bool crn_call_is_undone(struct crn_thread *t, long nr, uint64_t rsp)
{
	const struct crn_pending *p = crn_pending_at(t, rsp);

	return p && p->undone && p->call.nr == nr && !p->moved && !args_changed(p);
}

static void args_to_regs(struct crn_regs *regs, const long *args)
{
	regs->rdi = (uint64_t)args[0];
	regs->rsi = (uint64_t)args[1];
	regs->rdx = (uint64_t)args[2];
	regs->r10 = (uint64_t)args[3];
	regs->r8 = (uint64_t)args[4];
	regs->r9 = (uint64_t)args[5];
}

/* The call is not made: the program goes on behind it. */
static void answer(struct crn_regs *regs, struct crn_pending *p, const uint8_t *stub,
	void (*then)(struct crn_call *call))
{
	struct crn_thread *t = p->call.thread;

	/* a checkpoint taken now runs on behind the call */
	regs->rip = (uintptr_t)stub + CRN_STUB_RETURN;
	if (then) {
		t->call = &p->call;
		then(&p->call);
		t->call = NULL;
	}
	regs->rax = (uint64_t)p->call.result;
}

/* A vfork child shares our memory with the parent that waits for it: leave no trace. */
static void before_in_vfork(struct crn_thread *t, struct crn_regs *regs, const uint8_t *stub)
{
	struct crn_pending p;
	unsigned who = owner_of((long)regs->rax);

	regs->rip = (uintptr_t)stub + CRN_STUB_BARE;
	call_from_regs(&p, regs, stub);
	p.call.thread = t;
	p.after = false;
	if (!crn_call_borrowed(&p.call)) {
		answer(regs, &p, stub, NULL);
		return;
	}
	if (who != GUARD && who != SIGNALS)
		return;
	if (who == GUARD ? crn_guard_call(regs, &p) : crn_signal_call(regs, &p))
		answer(regs, &p, stub, NULL);
}

/* True if the call is made and comes back to its after-hook. */
static bool begin(
	struct crn_thread *t, struct crn_regs *regs, struct crn_pending *p, const uint8_t *stub)
{
	enum crn_verdict verdict;
	unsigned who = owner_of(p->call.nr);

	/* a checkpoint taken now makes the call again */
	regs->rip = (uintptr_t)stub + CRN_STUB_AGAIN;
	verdict = crn_call_before(&p->call);
	if (verdict == CRN_CALL_ANSWERED) {
		answer(regs, p, stub, crn_call_answered);
		return false;
	}
	p->after = verdict == CRN_CALL_RUN_THEN;
	regs->rip = (uintptr_t)stub + (p->after ? CRN_STUB_CALL : CRN_STUB_BARE);
	if (who == CLONES) {
		if (!crn_clone_before(regs, p, stub))
			return true;
		if (regs->rip != (uintptr_t)stub + CRN_STUB_AGAIN)
			answer(regs, p, stub, p->after ? crn_call_after : NULL);
		return false;
	}
	if ((who == SIGNALS && crn_signal_call(regs, p)) ||
		(who == GUARD && crn_guard_call(regs, p))) {
		answer(regs, p, stub, p->after ? crn_call_after : NULL);
		return false;
	}
	if (args_changed(p)) {
		args_to_regs(regs, p->call.args);
		regs->rip = (uintptr_t)stub + CRN_STUB_CALL;
	} else if (p->waits || p->masked) {
		regs->rip = (uintptr_t)stub + CRN_STUB_CALL;
	}
	return regs->rip == (uintptr_t)stub + CRN_STUB_CALL;
}

void crn_hook_before(struct crn_regs *regs, const uint8_t *stub)
{
	struct crn_thread *t = crn_thread_self();
	struct crn_pending *p;

	if (t->in_vfork) {
		before_in_vfork(t, regs, stub);
		return;
	}
	p = pending_push(t, regs, stub);
	t->last_nr = (long)regs->rax;
	if (!begin(t, regs, p, stub))
		pending_remove(t, p);
}

void crn_hook_after(struct crn_regs *regs, const uint8_t *stub)
{
	struct crn_thread *t = crn_thread_self();
	struct crn_pending *p = crn_pending_at(t, regs->rsp);

	regs->rip = (uintptr_t)stub + CRN_STUB_RETURN;
	if (!p)
		return;
	args_to_regs(regs, p->original);
	p->call.result = (long)regs->rax;
	if (p->moved) {
		p->call.result = p->moved + CRN_MAX(p->call.result, 0l);
		regs->rax = (uint64_t)p->call.result;
	}
	switch (owner_of(p->call.nr)) {
	case SIGNALS:
		crn_signal_call_after(regs, p);
		break;
	case CLONES:
		crn_clone_after(regs, p);
		break;
	}
	if (p->after) {
		t->call = &p->call;
		crn_call_after(&p->call);
		t->call = NULL;
		regs->rax = (uint64_t)p->call.result;
		if (p->call.again) {
			regs->rax = (uint64_t)p->call.nr;
			regs->rip = (uintptr_t)stub + CRN_STUB_AGAIN;
		}
	}
	pending_remove(t, p);
}
