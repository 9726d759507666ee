/* SPDX-License-Identifier: MIT */
/*
 * The system calls about signals. sigaction and sigaltstack are answered from the agent's own
 * tables. Masks are handed to the kernel without the reserved signals. sigreturn is let through
 * after its frame names the agent's alternate stack. Answers, error codes included, are the
 * kernel's (kernel/signal.c).
 */
#include "base/copy.h"
#include "os/signal.h"
#include "intercept/intercept.h"
#include "intercept/actions.h"

#define MASK_SIZE          8
#define SS_AUTODISARM_FLAG (1 << 31)
#define ALTSTACK_MIN       2048
#define KEEP_FLAGS         (SA_NOCLDSTOP | SA_NOCLDWAIT | SA_RESTART)
#define UNBLOCKABLE        (CRN_SIG(SIGKILL) | CRN_SIG(SIGSTOP))
#define IGNORED_BY_DEFAULT \
	(CRN_SIG(SIGCHLD) | CRN_SIG(SIGCONT) | CRN_SIG(SIGURG) | CRN_SIG(SIGWINCH))

static bool reserved(int sig)
{
	return CRN_SIG(sig) & CRN_SIG_RESERVED;
}

bool crn_signal_is_deadly(int sig)
{
	return !(CRN_SIG(sig) & (UNBLOCKABLE | IGNORED_BY_DEFAULT | CRN_SIG(SIGTSTP) |
		CRN_SIG(SIGTTIN) | CRN_SIG(SIGTTOU)));
}

/* A summary at the end needs a handler also where the default action is the program's end. */
static bool wants_last_word(int sig, const struct crn_ksigaction *act)
{
	return crn_here.agent.config.stats && act->handler == (uintptr_t)SIG_DFL &&
		crn_signal_is_deadly(sig);
}

/* Does the signal come to our entry? */
static bool enters(int sig, const struct crn_ksigaction *act)
{
	return reserved(sig) || act->handler > (uintptr_t)SIG_IGN || wants_last_word(sig, act);
}

/* Tell the kernel what the program's action needs. */
static void kernel_action(int sig, const struct crn_ksigaction *act)
{
	struct crn_ksigaction k = { .handler = act->handler,
		.flags = act->flags & ~CRN_SA_RESTORER };

	if (enters(sig, act)) {
		k.handler = (uintptr_t)crn_signal_entry;
		k.flags = (act->flags & KEEP_FLAGS) | SA_SIGINFO | SA_ONSTACK | CRN_SA_RESTORER;
		k.restorer = (uintptr_t)crn_sigreturn;
		k.mask = crn_signals_all();
	}
	crn_signal_action(sig, &k, NULL);
}

uint64_t crn_signals_ignored(void)
{
	return __atomic_load_n(&crn_here.ignored, __ATOMIC_RELAXED);
}

uint64_t crn_signals_all(void)
{
	return CRN_SIG_ALL & ~crn_signals_ignored();
}

static bool is_ignored(int sig)
{
	uintptr_t handler = crn_here.actions[sig].handler;

	return !reserved(sig) &&
		(handler == (uintptr_t)SIG_IGN ||
			(handler == (uintptr_t)SIG_DFL && (CRN_SIG(sig) & IGNORED_BY_DEFAULT)));
}

/*
 * The table says something new of this signal. Where it is ignored from now on, or no longer, the
 * mask of every handler changes. (A thread that is in one has the old mask: see postpone.)
 */
static void action_changed(int sig)
{
	uint64_t ignored = crn_here.ignored & ~CRN_SIG(sig);

	if (is_ignored(sig))
		ignored |= CRN_SIG(sig);
	if (ignored != crn_here.ignored) {
		__atomic_store_n(&crn_here.ignored, ignored, __ATOMIC_RELAXED);
		for (int s = 1; s <= 64; s++)
			if (s != sig && enters(s, &crn_here.actions[s]))
				kernel_action(s, &crn_here.actions[s]);
	}
	kernel_action(sig, &crn_here.actions[sig]);
}

void crn_sigaction_get(int sig, struct crn_ksigaction *out)
{
	crn_spin_lock(&crn_here.actions_lock);
	*out = crn_here.actions[sig];
	crn_spin_unlock(&crn_here.actions_lock);
}

void crn_sigaction_put(int sig, const struct crn_ksigaction *in)
{
	crn_spin_lock(&crn_here.actions_lock);
	crn_here.actions[sig] = *in;
	action_changed(sig);
	crn_spin_unlock(&crn_here.actions_lock);
}

void crn_action_take(int sig, struct crn_ksigaction *out)
{
	crn_spin_lock(&crn_here.actions_lock);
	*out = crn_here.actions[sig];
	if ((out->flags & SA_RESETHAND) && out->handler > (uintptr_t)SIG_IGN) {
		crn_here.actions[sig].handler = (uintptr_t)SIG_DFL;
		if (!reserved(sig))
			action_changed(sig);
	}
	crn_spin_unlock(&crn_here.actions_lock);
}

void crn_actions_clear(bool own)
{
	const struct crn_ksigaction dfl = { 0 };

	for (int sig = 1; sig <= 64; sig++) {
		if (crn_here.actions[sig].handler == (uintptr_t)SIG_IGN)
			continue;
		if (own)
			crn_sigaction_put(sig, &dfl);
		else if (enters(sig, &crn_here.actions[sig]) && !reserved(sig))
			crn_signal_action(sig, &dfl, NULL);
	}
}

void crn_signals_init(void)
{
	struct crn_ksigaction old;

	for (int sig = 1; sig <= 64; sig++) {
		if (crn_signal_action(sig, NULL, &old) < 0)
			continue;
		crn_here.actions[sig] = old;
		if (is_ignored(sig))
			crn_here.ignored |= CRN_SIG(sig);
	}
	for (int sig = 1; sig <= 64; sig++)
		if (enters(sig, &crn_here.actions[sig]))
			kernel_action(sig, &crn_here.actions[sig]);
}

/* The vfork child's own table is the kernel's; only our entry must not show in it. */
static long action_in_vfork(const struct crn_call *c)
{
	static const struct crn_ksigaction none;
	struct crn_ksigaction old;
	long r = crn_sys4(c->nr, c->args[0], c->args[1], c->args[2], c->args[3]);

	if (r == 0 && c->args[2] && crn_user_copy(&old, (void *)c->args[2], sizeof(old)) == 0 &&
		old.handler == (uintptr_t)crn_signal_entry)
		crn_user_copy((void *)c->args[2],
			c->thread->clears_handlers ? &none : &crn_here.actions[c->args[0]],
			sizeof(old));
	return r;
}

static long call_sigaction(const struct crn_call *c)
{
	int sig = (int)c->args[0];
	struct crn_ksigaction act, old;

	if (c->args[3] != MASK_SIZE)
		return -EINVAL;
	if (c->args[1] && crn_user_copy(&act, (void *)c->args[1], sizeof(act)) < 0)
		return -EFAULT;
	if (sig < 1 || sig > 64 || (c->args[1] && (CRN_SIG(sig) & UNBLOCKABLE)))
		return -EINVAL;
	if (c->args[1])
		act.mask &= ~UNBLOCKABLE;
	crn_spin_lock(&crn_here.actions_lock);
	old = crn_here.actions[sig];
	if (c->args[1]) {
		crn_here.actions[sig] = act;
		action_changed(sig);
	}
	crn_spin_unlock(&crn_here.actions_lock);
	if (c->args[2] && crn_user_copy((void *)c->args[2], &old, sizeof(old)) < 0)
		return -EFAULT;
	return 0;
}

static long call_sigaltstack(struct crn_thread *t, const struct crn_call *c, uint64_t rsp)
{
	bool on = crn_on_program_altstack(t, rsp);
	stack_t new, old = t->program_altstack;

	if (c->args[0] && crn_user_copy(&new, (void *)c->args[0], sizeof(new)) < 0)
		return -EFAULT;
	if (!old.ss_size)
		old.ss_flags = SS_DISABLE;
	else if (on)
		old.ss_flags |= SS_ONSTACK;
	if (c->args[0]) {
		int mode = new.ss_flags & ~SS_AUTODISARM_FLAG;

		if (on)
			return -EPERM;
		if (mode != SS_DISABLE && mode != SS_ONSTACK && mode != 0)
			return -EINVAL;
		if (mode == SS_DISABLE) {
			new.ss_size = 0;
			new.ss_sp = NULL;
		} else if (new.ss_size < ALTSTACK_MIN) {
			return -ENOMEM;
		}
		new.ss_flags &= ~SS_ONSTACK;
		t->program_altstack = new;
	}
	if (c->args[1] && crn_user_copy((void *)c->args[1], &old, sizeof(old)) < 0)
		return -EFAULT;
	return 0;
}

/*
 * Leave the call alone if no reserved signal is in play; else let the kernel see words[0] and fix
 * the rest afterwards.
 */
static void call_sigprocmask(struct crn_thread *t, struct crn_pending *p)
{
	struct crn_call *c = &p->call;
	uint64_t set = 0, blocked = t->program_blocked;

	if (c->args[3] != MASK_SIZE)
		return;
	if (c->args[1]) {
		if (crn_user_copy(&set, (void *)c->args[1], sizeof(set)) < 0)
			return;
		if (c->args[0] == SIG_BLOCK)
			blocked |= set & CRN_SIG_RESERVED;
		else if (c->args[0] == SIG_UNBLOCK)
			blocked &= ~set;
		else
			blocked = set & CRN_SIG_RESERVED;
	}
	if (!(set & CRN_SIG_RESERVED) && !t->program_blocked)
		return;
	p->words[0] = set & ~CRN_SIG_RESERVED;
	p->words[1] = blocked;
	p->masked = true;
	if (c->args[1])
		c->args[1] = (long)&p->words[0];
}

static void sigprocmask_after(struct crn_thread *t, struct crn_pending *p)
{
	uint64_t old, was = t->program_blocked;

	if (p->call.result < 0)
		return;
	t->program_blocked = p->words[1];
	crn_signals_release(t);
	if (p->original[2] && was &&
		crn_user_copy(&old, (void *)p->original[2], sizeof(old)) == 0) {
		old |= was;
		crn_user_copy((void *)p->original[2], &old, sizeof(old));
	}
}

/* What we hold is pending, too. */
static long call_sigpending(struct crn_thread *t, const struct crn_call *c)
{
	uint64_t set;
	long ret = crn_sys2(SYS_rt_sigpending, &set, sizeof(set));

	if ((size_t)c->args[1] > sizeof(set))
		return -EINVAL;
	set |= t->held & t->program_blocked;
	return ret < 0 ? ret : crn_user_copy((void *)c->args[0], &set, (size_t)c->args[1]);
}

/*
 * Does it find what it looks for among those that we hold? SIGSYS it must not take from the kernel:
 * it would be ours. One that is sent cuts the wait short, and the next look finds it.
 */
static bool call_sigtimedwait(struct crn_thread *t, struct crn_pending *p)
{
	struct crn_call *c = &p->call;
	siginfo_t info;
	uint64_t set;
	int sig;

	if (c->args[3] != MASK_SIZE ||
		crn_user_copy(&set, (void *)c->args[0], sizeof(set)) < 0)
		return false;
	sig = crn_signals_take(t, set, &info);
	if (!sig && (set & CRN_SIG(SIGSYS))) {
		p->words[0] = set & ~CRN_SIG(SIGSYS);
		c->args[0] = (long)&p->words[0];
	}
	if (!sig)
		return false;
	c->result = sig;
	if (c->args[1] && crn_user_copy((void *)c->args[1], &info, sizeof(info)) < 0)
		c->result = -EFAULT;
	return true;
}

/* The calls that wait under a mask: remember it, for handlers that they let in. */
static void call_waits(struct crn_pending *p)
{
	struct {
		uintptr_t mask;
		uint64_t size;
	} pair;
	const struct crn_call *c = &p->call;
	uintptr_t at = 0;

	switch (c->nr) {
	case SYS_rt_sigsuspend:
		at = (uintptr_t)c->args[0];
		break;
	case SYS_ppoll:
		at = (uintptr_t)c->args[3];
		break;
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
		at = (uintptr_t)c->args[4];
		break;
	case SYS_pselect6:
		if (c->args[5] && crn_user_copy(&pair, (void *)c->args[5], sizeof(pair)) == 0)
			at = pair.mask;
		break;
	}
	if (at && crn_user_copy(&p->words[0], (void *)at, MASK_SIZE) == 0)
		p->waits = true;
}

/*
 * The frame from which the call is made where sigreturn goes, its registers in g: NULL if the call
 * is over there, or none. Its result stands then, EINTR too: a handler has run.
 */
static ucontext_t *frame_of_call(ucontext_t *uc, gregset_t *g)
{
	while (crn_user_copy(g, &uc->uc_mcontext.gregs, sizeof(*g)) == 0) {
		uintptr_t rip = (uintptr_t)(*g)[REG_RIP], at = rip - (uintptr_t)crn_stub_of(rip);

		if (!crn_in_stubs(rip) || (at != CRN_STUB_CALL && at != CRN_STUB_BARE))
			return NULL;
		if ((*g)[REG_RAX] != SYS_rt_sigreturn)
			return uc;
		/* the handler came before another one's sigreturn, whose frame lies above */
		if ((uintptr_t)(*g)[REG_RSP] <= (uintptr_t)uc)
			return NULL;
		uc = (ucontext_t *)(uintptr_t)(*g)[REG_RSP];
	}
	return NULL;
}

bool crn_call_resumes_call(const struct crn_call *call)
{
	const struct crn_pending *p = (const void *)call; /* its first member */
	gregset_t g;

	return frame_of_call((ucontext_t *)(uintptr_t)p->rsp, &g) != NULL;
}

/*
 * The call that is made where sigreturn goes, or -1. After a restore to the handler that had
 * interrupted it it is made with its hooks: what it took before the crash is to be given again.
 */
static long call_returned_to(struct crn_thread *t, ucontext_t *uc)
{
	gregset_t g;
	uintptr_t stub;
	greg_t again;

	uc = frame_of_call(uc, &g);
	if (!uc)
		return -1;
	stub = (uintptr_t)crn_stub_of((uintptr_t)g[REG_RIP]);
	again = (greg_t)(stub + CRN_STUB_AGAIN);
	if ((uintptr_t)g[REG_RIP] - stub == CRN_STUB_CALL &&
		crn_call_is_undone(t, (long)g[REG_RAX], (uint64_t)g[REG_RSP]))
		(void)crn_user_copy(&uc->uc_mcontext.gregs[REG_RIP], &again, sizeof(again));
	return (long)g[REG_RAX];
}

/*
 * The frame that sigreturn is about to take: its alternate stack is the program's business, the
 * kernel's is ours.
 */
static void call_sigreturn(struct crn_thread *t, const struct crn_regs *regs)
{
	ucontext_t *uc = (void *)regs->rsp;
	greg_t rip = 0;
	uint64_t mask;
	stack_t s;

	t->last_nr = call_returned_to(t, uc);
	if (crn_user_copy(&s, &uc->uc_stack, sizeof(s)) < 0 ||
		crn_user_copy(&mask, &uc->uc_sigmask, sizeof(mask)) < 0)
		return;
	s.ss_flags &= ~SS_ONSTACK;
	if (!crn_on_program_altstack(t, regs->rsp))
		t->program_altstack = s;
	t->program_blocked = mask & CRN_SIG_RESERVED;
	crn_signals_release(t);
	if (crn_user_copy(&rip, &uc->uc_mcontext.gregs[REG_RIP], sizeof(rip)) == 0)
		crn_fault_returns(t, regs->rsp, (uintptr_t)rip);
	mask &= ~CRN_SIG_RESERVED;
	crn_user_copy(&uc->uc_stack, &t->altstack, sizeof(t->altstack));
	crn_user_copy(&uc->uc_sigmask, &mask, sizeof(mask));
}

bool crn_signal_call(struct crn_regs *regs, struct crn_pending *p)
{
	struct crn_thread *t = p->call.thread;

	switch (p->call.nr) {
	case SYS_rt_sigaction:
		p->call.result = t->in_vfork ? action_in_vfork(&p->call) : call_sigaction(&p->call);
		return true;
	case SYS_sigaltstack:
		p->call.result = call_sigaltstack(t, &p->call, regs->rsp);
		return true;
	case SYS_rt_sigprocmask:
		if (!t->in_vfork)
			call_sigprocmask(t, p);
		return false;
	case SYS_rt_sigreturn:
		call_sigreturn(t, regs);
		return false;
	case SYS_rt_sigpending:
		p->call.result = t->in_vfork ? 0 : call_sigpending(t, &p->call);
		return !t->in_vfork;
	case SYS_rt_sigtimedwait:
		return !t->in_vfork && call_sigtimedwait(t, p);
	default:
		if (!t->in_vfork)
			call_waits(p);
		return false;
	}
}

void crn_signal_call_after(struct crn_regs *regs, struct crn_pending *p)
{
	if (p->masked)
		sigprocmask_after(p->call.thread, p);
}
