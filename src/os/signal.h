/* SPDX-License-Identifier: MIT */
/* Signals below libc: the kernel's own structures, with a restorer of ours. */
#ifndef CRN_OS_SIGNAL_H
#define CRN_OS_SIGNAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include "os/sys.h"

/* The kernel's struct sigaction. */
struct crn_ksigaction {
	uintptr_t handler;
	unsigned long flags;
	uintptr_t restorer;
	uint64_t mask;
};

#define CRN_SA_RESTORER 0x04000000ul

/* rt_sigreturn. The bytes that gdb and unwinders recognise as the end of a signal frame. Hidden. */
void crn_sigreturn(void);

/* Either pointer may be NULL. `in` is used as it is. 0 or -errno. */
int crn_signal_action(int sig, const struct crn_ksigaction *in, struct crn_ksigaction *old);

/* What an instruction raises: a thread that has them blocked dies of one. */
#define CRN_SIGNALS_OF_FAULTS                                                        \
	(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGFPE - 1) |       \
		1ull << (SIGILL - 1) | 1ull << (SIGTRAP - 1))

static inline uint64_t crn_signal_mask(int how, uint64_t mask)
{
	uint64_t old = 0;

	crn_sys4(SYS_rt_sigprocmask, how, &mask, &old, 8);
	return old;
}

static inline uint64_t crn_signal_mask_get(void)
{
	uint64_t old = 0;

	crn_sys4(SYS_rt_sigprocmask, 0, 0, &old, 8);
	return old;
}

/*
 * What the program ignores, as far as we know: in the library nothing, the agent has the table.
 * Such a signal the kernel drops, but queues it where it is blocked; then it wakes another thread,
 * whose call may end short.
 */
extern uint64_t crn_signals_ignored(void) __attribute__((weak, visibility("hidden")));

/*
 * Block all that is not ignored; the mask before. What is ignored and blocked already stays so: if
 * it waits, somebody may still take it, by a signalfd for one, but not once it was let in.
 */
static inline uint64_t crn_signals_block(void)
{
	return crn_signal_mask(SIG_BLOCK, crn_signals_ignored ? ~crn_signals_ignored() : ~0ull);
}

static inline int crn_signal_altstack(const stack_t *in, stack_t *old)
{
	return (int)crn_sys2(SYS_sigaltstack, in, old);
}

static inline int crn_signal_thread(int pid, int tid, int sig)
{
	return (int)crn_sys3(SYS_tgkill, pid, tid, sig);
}

/* The same signal again, with its siginfo. */
static inline int crn_signal_requeue(int pid, int tid, int sig, const siginfo_t *info)
{
	return (int)crn_sys4(SYS_rt_tgsigqueueinfo, pid, tid, sig, info);
}

/*
 * The interrupted instruction of a signal frame, and whether the page fault that it caused was a
 * store.
 */
uintptr_t crn_signal_pc(const void *ucontext);
void crn_signal_pc_set(void *ucontext, uintptr_t pc);
bool crn_signal_is_store(const void *ucontext);

/*
 * Has the kernel itself raised it at the thread's instruction? Then it comes again by itself when
 * the thread returns there unchanged.
 */
bool crn_signal_is_own_fault(int sig, const siginfo_t *info);

/*
 * Do with a signal what `action` says, from inside a handler of ours: call its function under its
 * mask, or arrange for the default action as soon as we return. For handlers that sit in front of
 * the program's.
 */
void crn_signal_chain(
	int sig, const struct crn_ksigaction *action, siginfo_t *info, void *ucontext);

#endif
