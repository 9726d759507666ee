/* SPDX-License-Identifier: MIT */
/* The processor's trap flag: SIGTRAP after each instruction of this thread, its hooks included. */
#ifndef TEST_SINGLE_STEP_H
#define TEST_SINGLE_STEP_H

#include <stdbool.h>
#include <ucontext.h>

#define TRAP_ON 0x100 /* of REG_EFL */

/* Code of a handler that has no hooks: with one at each step the undo log would never get on. */
#define UNHOOKED __attribute__((disable_sanitizer_instrumentation))

/* In the handler: has this been instruction n? Then the rest goes at full speed. */
UNHOOKED static inline bool stepped_to(volatile long *steps, long n, void *context)
{
	ucontext_t *u = context;

	if ((*steps)++ != n)
		return false;
	u->uc_mcontext.gregs[REG_EFL] &= ~TRAP_ON;
	return true;
}

#ifdef __i386__
#define SET_FLAGS(change, bits)                                                            \
	__asm__ volatile("pushfl\n\t" change "l %0, (%%esp)\n\tpopfl" : : "i"(bits)      \
			 : "memory", "cc")
#else
/* Below the red zone. */
#define SET_FLAGS(change, bits)                                                            \
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" change "q %0, (%%rsp)\n\t" \
			 "popfq\n\tlea 128(%%rsp), %%rsp" : : "i"(bits) : "memory", "cc")
#endif

static inline void single_step(bool on)
{
	if (on)
		SET_FLAGS("or", TRAP_ON);
	else
		SET_FLAGS("and", ~TRAP_ON);
}

#endif
