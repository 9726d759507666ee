/* SPDX-License-Identifier: MIT */
#include <ucontext.h>
#include "os/signal.h"
#include "os/thread.h"

#ifdef __i386__
#define REG_RIP REG_EIP
#endif

int crn_signal_action(int sig, const struct crn_ksigaction *in, struct crn_ksigaction *old)
{
	return (int)crn_sys4(SYS_rt_sigaction, sig, in, old, 8);
}

uintptr_t crn_signal_pc(const void *ucontext)
{
	return (uintptr_t)((const ucontext_t *)ucontext)->uc_mcontext.gregs[REG_RIP];
}

void crn_signal_pc_set(void *ucontext, uintptr_t pc)
{
	((ucontext_t *)ucontext)->uc_mcontext.gregs[REG_RIP] = (greg_t)pc;
}

bool crn_signal_is_store(const void *ucontext)
{
	/* Bit 1 of the processor's page fault error code. */
	return ((const ucontext_t *)ucontext)->uc_mcontext.gregs[REG_ERR] & 2;
}

bool crn_signal_is_own_fault(int sig, const siginfo_t *info)
{
	return info->si_code > 0 &&
		(sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL ||
			sig == SIGTRAP);
}

static void default_action(int sig, siginfo_t *info)
{
	struct crn_ksigaction action = { .handler = (uintptr_t)SIG_DFL };

	crn_signal_action(sig, &action, NULL);
	/*
	 * A synchronous fault comes again by itself when we return, with everything a core dump
	 * should show. Any other is sent again: it stays pending, blocked by our mask, until we
	 * return.
	 */
	if (!crn_signal_is_own_fault(sig, info) &&
		crn_signal_requeue(crn_getpid(), crn_gettid(), sig, info) < 0)
		crn_signal_thread(crn_getpid(), crn_gettid(), sig);
}

void crn_signal_chain(int sig, const struct crn_ksigaction *action, siginfo_t *info, void *ucontext)
{
	ucontext_t *uc = ucontext;
	uint64_t mask;

	if (action->handler == (uintptr_t)SIG_IGN && !crn_signal_is_own_fault(sig, info))
		return;
	if (action->handler == (uintptr_t)SIG_IGN || action->handler == (uintptr_t)SIG_DFL) {
		default_action(sig, info);
		return;
	}
	/* SAFETY: the kernel's 64-bit mask is the first word of libc's sigset_t in the frame. */
	mask = *(const uint64_t *)&uc->uc_sigmask | action->mask;
	if (!(action->flags & SA_NODEFER))
		mask |= 1ull << (sig - 1);
	crn_signal_mask(SIG_SETMASK, mask);
	if (action->flags & SA_SIGINFO)
		((void (*)(int, siginfo_t *, void *))action->handler)(sig, info, ucontext);
	else
		((void (*)(int))action->handler)(sig);
}
