/* SPDX-License-Identifier: MIT */
/*
 * A system call of which no hook wants anything, instruction by instruction: from each of them the
 * stack unwinds to main, as a handler that throws or a cancelled thread need it.
 */
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>
#include <unwind.h>
#include "expect.h"

#define TRAP_FLAG "0x100"

static uintptr_t here; /* the function that makes the call */
static volatile sig_atomic_t steps, lost;

static _Unwind_Reason_Code look(struct _Unwind_Context *at, void *found)
{
	*(int *)found |= _Unwind_GetRegionStart(at) == here;
	return _URC_NO_REASON;
}

/* Not in that function itself, which pushes flags that nobody tells the unwinder of. */
static void step(int sig, siginfo_t *info, void *ucontext)
{
	uintptr_t pc = (uintptr_t)((ucontext_t *)ucontext)->uc_mcontext.gregs[REG_RIP];
	int found = 0;

	if (_Unwind_FindEnclosingFunction((void *)(pc + 1)) == (void *)here)
		return;
	_Unwind_Backtrace(look, &found);
	steps++;
	lost += !found;
}

static __attribute__((noinline)) void call_by_steps(void)
{
	__asm__ volatile("pushfq; orq $" TRAP_FLAG ", (%%rsp); popfq" : : : "cc", "memory");
	(void)getppid();
	__asm__ volatile("pushfq; andq $~" TRAP_FLAG ", (%%rsp); popfq" : : : "cc", "memory");
}

int main(void)
{
	struct sigaction trap = { .sa_sigaction = step, .sa_flags = SA_SIGINFO };
	int found = 0;

	here = (uintptr_t)call_by_steps;
	/* the linker's part of the calls, which has no way back */
	EXPECT(getppid() > 0);
	_Unwind_Backtrace(look, &found);
	EXPECT(!found);
	EXPECT(sigaction(SIGTRAP, &trap, NULL) == 0);
	for (int i = 0; i < 3; i++)
		EXPECT(poll(NULL, 0, 1) == 0);
	for (int i = 0; i < 2; i++)
		call_by_steps();
	EXPECT(steps > 0);
	EXPECT(lost == 0);
	dprintf(1, "unwound: ok\n");
	return 0;
}
