/* SPDX-License-Identifier: MIT */
/* The processor's trap flag: SIGTRAP after each instruction of this thread, its hooks included. */
#ifndef TEST_SINGLE_STEP_H
#define TEST_SINGLE_STEP_H

#include <stdbool.h>

#define TRAP_ON 0x100 /* of REG_EFL: a handler clears it to end this */

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
