/* SPDX-License-Identifier: MIT */
/*
 * Signals on their way to the program. For the kernel, every handler that the program installs is
 * crn_signal_entry, on the agent's alternate stack, with everything blocked but the reserved
 * signals. The entry defers a signal or delivers it: frames.c builds the frame that the program's
 * handler expects, and the return from the entry is the jump into that handler. gate.S has the
 * table of instants.
 *
 * A reserved signal that is sent while the entry runs for another one is held until that is done.
 * Signals that the program ignores are not blocked, neither then nor while signals are deferred:
 * the kernel drops them, as it would without us.
 *
 * SAFETY: the entry runs with asynchronous signals blocked. It touches the thread's own struct
 * crn_thread, the action table under a lock that no interrupted code of the same thread can hold
 * (such code is in_agent, where signals are deferred), and the program's stack through
 * crn_user_copy.
 */
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/signal.h"
#include "os/sys.h"
#include "os/thread.h"
#include "intercept/intercept.h"
#include "intercept/actions.h"

/* The signal trackers' share of SIGSEGV and SIGBUS: the first write to a protected page. */
extern bool crn_faults_serve(int sig, siginfo_t *info, void *ucontext)
	__attribute__((weak, visibility("hidden")));

#define TRAPS_MAX 64

static uint64_t *uc_mask(ucontext_t *uc)
{
	return (uint64_t *)&uc->uc_sigmask;
}

static bool is_fault(int sig)
{
	return sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL;
}

/* Raised by an instruction, not sent. */
static bool raised_here(int sig, const siginfo_t *info)
{
	return is_fault(sig) &&
		info->si_code > 0; /* SIGTRAP comes behind its instruction: as if sent */
}

/*
 * Let the kernel's default action happen: at once for a signal that was sent, by refaulting for a
 * fault. A fault whose signal is blocked ends the process, whatever the action: that takes no call,
 * which a filter of the program's might forbid.
 */
static void act_default(int sig, const siginfo_t *info, ucontext_t *uc)
{
	struct crn_ksigaction dfl = { 0 };

	if (raised_here(sig, info)) {
		*uc_mask(uc) |= CRN_SIG(sig);
		return;
	}
	crn_signal_action(sig, &dfl, NULL);
	*uc_mask(uc) &= ~CRN_SIG(sig);
	crn_signal_requeue(crn_getpid(), crn_gettid(), sig, info);
}

/*
 * The mask that was in force when the signal came. A call like ppoll that was cut short waited
 * under a mask of its own, while the kernel's frame already tells the one from before the call.
 */
static uint64_t mask_in_force(struct crn_thread *t, ucontext_t *uc)
{
	const greg_t *g = uc->uc_mcontext.gregs;
	uintptr_t rip = (uintptr_t)g[REG_RIP];

	if (!crn_in_stubs(rip) || rip - (uintptr_t)crn_stub_of(rip) != CRN_STUB_CALL + 2)
		return *uc_mask(uc);
	for (uint32_t i = t->pending_count; i-- > 0;)
		if (t->pending[i].waits && t->pending[i].rsp == (uint64_t)g[REG_RSP])
			return t->pending[i].words[0];
	return *uc_mask(uc);
}

/*
 * A signal comes though all are blocked: the program ignored it until just now, and another thread
 * has changed that. It waits until the mask of before is put back.
 */
static void postpone(int sig, const siginfo_t *info, ucontext_t *uc)
{
	crn_signal_requeue(crn_getpid(), crn_gettid(), sig, info);
	*uc_mask(uc) |= CRN_SIG(sig);
}

/* The reserved signals, which the kernel never blocks, in the order of held_info. */
static unsigned held_slot(int sig)
{
	unsigned n = 0;

	for (int s = 1; s < sig; s++)
		n += (CRN_SIG_RESERVED & CRN_SIG(s)) != 0;
	return n;
}

/* As the kernel does with a standard signal, the first one that waits stands for all. */
static void hold(struct crn_thread *t, int sig, const siginfo_t *info)
{
	if (t->held & CRN_SIG(sig))
		return;
	crn_copy(&t->held_info[held_slot(sig)], info, sizeof(*info));
	__atomic_fetch_or(&t->held, CRN_SIG(sig), __ATOMIC_RELAXED);
}

int crn_signals_take(struct crn_thread *t, uint64_t set, siginfo_t *info)
{
	uint64_t due = t->held & set;
	int sig = due ? __builtin_ctzll(due) + 1 : 0;

	if (sig) {
		crn_copy(info, &t->held_info[held_slot(sig)], sizeof(*info));
		__atomic_fetch_and(&t->held, ~CRN_SIG(sig), __ATOMIC_RELAXED);
	}
	return sig;
}

void crn_signals_release(struct crn_thread *t)
{
	siginfo_t info;
	int sig;

	while ((sig = crn_signals_take(t, ~t->program_blocked, &info)))
		crn_signal_requeue(crn_getpid(), crn_gettid(), sig, &info);
}

/*
 * It has come just before a sigtimedwait, which must look anew for what is held. To the kernel it
 * is not blocked; once the call has begun, the kernel itself hands it over.
 */
static void look_again(ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	uintptr_t rip = (uintptr_t)g[REG_RIP], stub = (uintptr_t)crn_stub_of(rip);

	if (crn_in_stubs(rip) && g[REG_RAX] == SYS_rt_sigtimedwait &&
		(rip - stub == CRN_STUB_CALL || rip - stub == CRN_STUB_BARE))
		g[REG_RIP] = (greg_t)(stub + CRN_STUB_AGAIN);
}

static void deliver(struct crn_thread *t, int sig, siginfo_t *info, ucontext_t *uc, uint64_t mask);

/*
 * There is no room for the frame of a handler. As from the kernel the program gets a SIGSEGV in its
 * place, of which it may die. It is a crash like any other.
 */
static void deliver_no_room(struct crn_thread *t, int sig, ucontext_t *uc, uint64_t mask)
{
	struct crn_ksigaction dfl = { 0 };
	siginfo_t info = { .si_signo = SIGSEGV, .si_code = SI_KERNEL };
	struct crn_ksigaction act = { 0 };

	if (sig != SIGSEGV && !t->in_vfork) {
		if (crn_fault(t, SIGSEGV, &info, uc))
			return;
		crn_sigaction_get(SIGSEGV, &act);
	}
	if (act.handler > (uintptr_t)SIG_IGN && !(t->program_blocked & CRN_SIG(SIGSEGV))) {
		deliver(t, SIGSEGV, &info, uc, mask);
		return;
	}
	if (!t->in_vfork)
		crn_call_process_dies();
	crn_signal_action(SIGSEGV, &dfl, NULL);
	*uc_mask(uc) &= ~CRN_SIG(SIGSEGV);
	crn_signal_thread(crn_getpid(), crn_gettid(), SIGSEGV);
}

/* Make uc continue as the program would with this signal delivered to it there. */
static void deliver(struct crn_thread *t, int sig, siginfo_t *info, ucontext_t *uc, uint64_t mask)
{
	const greg_t *g = uc->uc_mcontext.gregs;
	uintptr_t at = (uintptr_t)g[REG_RIP];
	struct crn_ksigaction act;

	if ((t->program_blocked & CRN_SIG(sig)) && !raised_here(sig, info)) {
		hold(t, sig, info);
		look_again(uc);
		return;
	}
	if (t->in_vfork && t->clears_handlers)
		act = (struct crn_ksigaction){ 0 }; /* the table is the parent's */
	else
		crn_action_take(sig, &act);
	if (act.handler == (uintptr_t)SIG_IGN && !raised_here(sig, info))
		return;
	if (act.handler <= (uintptr_t)SIG_IGN ||
		(raised_here(sig, info) && (t->program_blocked & CRN_SIG(sig)))) {
		if (!t->in_vfork && crn_signal_is_deadly(sig))
			crn_call_process_dies();
		act_default(sig, info, uc);
		return;
	}
	/* The handler's frame may come to lie on pages that a tracker has closed. */
	if ((sig == SIGSEGV || sig == SIGBUS) && crn_agent && crn_agent->session)
		crn_signal_mask(SIG_UNBLOCK, CRN_SIG(sig));
	if (!t->in_vfork) {
		crn_signal_delivered(t, sig, info, &act);
		crn_call_left(t);
	}
	if (!crn_frame_push(t, sig, info, uc, &act, mask)) {
		deliver_no_room(t, sig, uc, mask);
	} else if (raised_here(sig, info) && !t->in_vfork) {
		/* its return address is popped before the sigreturn */
		crn_fault_forwarded(t, sig, act.handler, at, (uintptr_t)g[REG_RSP] + 8);
	}
}

/* Its hook before it has taken the number away already. */
static bool closes(long nr)
{
	return nr == SYS_close || nr == SYS_dup2 || nr == SYS_dup3 || nr == SYS_close_range;
}

/*
 * A call was made, and its after-hook, which knows what it did to the world, is still to come: were
 * the program's handler to run here, and crash, a restore would know nothing of the call. A call
 * that waited under a mask of its own takes nothing, and that mask is over behind it.
 */
static bool amid_call(const struct crn_thread *t, const ucontext_t *uc)
{
	const greg_t *g = uc->uc_mcontext.gregs;
	uintptr_t rip = (uintptr_t)g[REG_RIP], at = 0;

	if (rip != (uintptr_t)crn_leave) {
		at = rip - (uintptr_t)crn_stub_of(rip);
		if (!crn_in_stubs(rip) || at < CRN_STUB_CALL || at >= CRN_STUB_CLONE)
			return false;
	}
	for (uint32_t i = t->pending_count; i-- > 0;) {
		const struct crn_pending *p = &t->pending[i];

		if (p->rsp == (uint64_t)g[REG_RSP])
			return p->after && !p->waits &&
				(at != CRN_STUB_CALL || closes(p->call.nr));
	}
	return false;
}

/*
 * In a hook: remember it, and block what can be blocked until the hook is left. What cannot may
 * come again, and is then one with the first. While the agent or the engine has signals blocked
 * itself, it will put back the program's mask, and must not meet another.
 */
static void put_off(struct crn_thread *t, const siginfo_t *info, int sig, ucontext_t *uc)
{
	bool own = *uc_mask(uc) & CRN_SIG(SIGSYS);

	if (!(CRN_SIG(sig) & CRN_SIG_RESERVED) &&
		(own || (t->put_off && t->put_off_mask != CRN_MASK_IN_FORCE))) {
		postpone(sig, info, uc);
		return;
	}
	for (uint32_t i = 0; i < t->put_off; i++)
		if (t->put_off_info[i].si_signo == sig)
			return;
	CRN_ASSERT(t->put_off < CRN_PUT_OFF_MAX);
	crn_copy(&t->put_off_info[t->put_off], info, sizeof(*info));
	t->put_off_info[t->put_off].si_signo = sig;
	if (!t->put_off)
		t->put_off_mask = CRN_MASK_IN_FORCE;
	t->put_off++;
	if (own)
		return;
	if (t->put_off_mask == CRN_MASK_IN_FORCE)
		t->put_off_mask = *uc_mask(uc);
	*uc_mask(uc) |= crn_signals_all();
}

/* The program's registers as the hook would leave them, and the hook left. */
static void leave_hook(struct crn_thread *t, ucontext_t *uc)
{
	crn_uc_from_regs(uc, t->regs, t->regs->rip);
	t->in_agent = 0;
}

/*
 * All that was put off, oldest first, each on top of the one before unless that one's mask keeps it
 * back.
 */
static void deliver_put_off(struct crn_thread *t, ucontext_t *uc)
{
	siginfo_t info[CRN_PUT_OFF_MAX];
	uint32_t count = t->put_off;

	crn_copy(info, t->put_off_info, count * sizeof(info[0]));
	if (t->put_off_mask != CRN_MASK_IN_FORCE)
		*uc_mask(uc) = t->put_off_mask;
	t->put_off = 0;
	for (uint32_t i = 0; i < count; i++) {
		int sig = info[i].si_signo;

		if (i && (*uc_mask(uc) & CRN_SIG(sig)))
			crn_signal_requeue(crn_getpid(), crn_gettid(), sig, &info[i]);
		else
			deliver(t, sig, &info[i], uc, mask_in_force(t, uc));
	}
}

/*
 * gate.S: signals were put off in this hook. Comes back in crn_signal_entry: at once, unless a
 * timer's SIGSYS was pending, which ours then was one with. Returns where a filter of the program's
 * forbids one of the calls, or says that it was made.
 */
void crn_exit_trap(void)
{
	crn_thread_self()->trapping = 1;
	for (int i = 0; i < TRAPS_MAX; i++)
		if (crn_signal_thread(crn_getpid(), crn_gettid(), SIGSYS) < 0)
			return;
}

/* Ours; or the instruction behind it, for which no call is needed. */
static bool is_exit_trap(const struct crn_thread *t, int sig, uintptr_t rip)
{
	return t->trapping &&
		(sig == SIGSYS || (sig == SIGILL && rip == (uintptr_t)crn_exit_undefined));
}

static void die_in_agent(int sig, const siginfo_t *info, ucontext_t *uc)
{
	crn_error("signal %d inside the agent at %llx (agent at %lx), address %p: this is a bug of "
		  "cairn",
		sig, uc->uc_mcontext.gregs[REG_RIP], crn_here.image_begin, info->si_addr);
	act_default(sig, info, uc);
}

/* Faults that are ours to solve. */
static bool solved(int sig, siginfo_t *info, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;

	if ((sig == SIGSEGV || sig == SIGBUS) && crn_faults_serve &&
		crn_faults_serve(sig, info, uc))
		return true;
	if ((uintptr_t)g[REG_RIP] >= (uintptr_t)crn_user_copy_begin &&
		(uintptr_t)g[REG_RIP] < (uintptr_t)crn_user_copy_end && info->si_code > 0) {
		g[REG_RIP] = (greg_t)(uintptr_t)crn_user_copy_failed;
		return true;
	}
	return false;
}

static void entry_in_agent(struct crn_thread *t, int sig, siginfo_t *info, ucontext_t *uc)
{
	uintptr_t rip = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];

	if (is_exit_trap(t, sig, rip)) {
		t->trapping = 0;
		leave_hook(t, uc);
		if (!amid_call(t, uc)) /* else its after-hook comes, and leaves as we do */
			deliver_put_off(t, uc);
	} else if (raised_here(sig, info)) {
		die_in_agent(sig, info, uc);
	} else if (rip >= (uintptr_t)crn_exit_begin && rip <= (uintptr_t)crn_exit_jump &&
		!t->put_off) {
		leave_hook(t, uc);
		if (amid_call(t, uc))
			put_off(t, info, sig, uc);
		else
			deliver(t, sig, info, uc, mask_in_force(t, uc));
	} else {
		put_off(t, info, sig, uc);
	}
}

/* ---- The entry ------------------------------------------------------------------------------- */

/* Has it come in the middle of crn_signal_entry? Nothing else runs on that stack. */
static bool amid_entry(const struct crn_thread *t, const ucontext_t *uc)
{
	uintptr_t rsp = (uintptr_t)uc->uc_mcontext.gregs[REG_RSP];

	return rsp - (uintptr_t)t->altstack.ss_sp <= t->altstack.ss_size;
}

/* And behind its look at what is held? crn_sigreturn is two instructions. */
static bool at_its_end(const ucontext_t *uc)
{
	uintptr_t rip = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];

	return (rip >= (uintptr_t)crn_signal_end && rip < (uintptr_t)crn_signal_over) ||
		rip - (uintptr_t)crn_sigreturn < 9;
}

/*
 * gate.S: the entry is over, something is held, and all signals are blocked until it returns. If it
 * has interrupted another entry, that one gives back what is held, or is over as well: then it must
 * not be disturbed again.
 */
void crn_signal_ends(ucontext_t *uc)
{
	struct crn_thread *t = crn_thread_self();

	if (amid_entry(t, uc)) {
		if (!at_its_end(uc))
			return;
		*uc_mask(uc) |= t->held & ~t->program_blocked;
	}
	crn_signals_release(t);
}

void crn_signal_serve(int sig, siginfo_t *info, void *ucontext)
{
	struct crn_thread *t = crn_thread_self();
	ucontext_t *uc = ucontext;
	greg_t *g = uc->uc_mcontext.gregs;

	if (is_fault(sig) && solved(sig, info, uc))
		return;
	if (!raised_here(sig, info) && (sig != SIGSYS || info->si_code <= 0))
		crn_dispatch_again(t, sig, uc);
	if (sig == SIGSYS && (crn_timer_signal(t, info, uc) || crn_late_signal(t, info, uc)))
		return;
	if (sig == SIGSYS && (t->in_agent || amid_entry(t, uc)) && crn_dispatch_inside(info, uc))
		return;
	if (amid_entry(t, uc)) {
		if (raised_here(sig, info))
			die_in_agent(sig, info, uc);
		else if (CRN_SIG(sig) & CRN_SIG_RESERVED)
			hold(t, sig, info);
		else
			postpone(sig, info, uc);
		return;
	}
	if (t->in_agent) {
		entry_in_agent(t, sig, info, uc);
		return;
	}
	if ((sig == SIGSYS && crn_dispatch_signal(t, info, uc)) ||
		(sig == SIGTRAP && crn_function_trap(t, info, uc)))
		return;
	if ((uintptr_t)g[REG_RIP] == (uintptr_t)crn_exit_jump)
		g[REG_RIP] = (greg_t)t->target;
	if (!t->in_vfork && !raised_here(sig, info))
		crn_rest_ends(t, sig, uc);
	if (!t->in_vfork && !raised_here(sig, info) && amid_call(t, uc)) {
		put_off(t, info, sig, uc);
		return;
	}
	/* A vfork child's crash is not the parent's, whose memory it borrows. */
	if (raised_here(sig, info) && !t->in_vfork && crn_fault(t, sig, info, uc))
		return;
	deliver(t, sig, info, uc, mask_in_force(t, uc));
}
