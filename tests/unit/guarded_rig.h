/* SPDX-License-Identifier: MIT */
/* Two pages, for what compares and copies pages by each kind of registers. */
#ifndef CRN_TEST_GUARDED_RIG_H
#define CRN_TEST_GUARDED_RIG_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>
#include <cmocka.h>
#include "base/bits.h"
#include "os/guarded.h"

#define WORDS 512u

static uint64_t a[WORDS] __attribute__((aligned(4096), unused));
static uint64_t b[WORDS] __attribute__((aligned(4096), unused));
static uint64_t out[WORDS + 9] __attribute__((aligned(64), unused)); /* a delta of everything */

static inline void fill(void)
{
	for (unsigned i = 0; i < WORDS; i++)
		a[i] = b[i] = i * 0x9e3779b97f4a7c15;
}

static inline void resume(int sig, siginfo_t *info, void *context)
{
	greg_t *pc = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

	*pc = (greg_t)crn_guarded_resume((uintptr_t)*pc);
	if (!*pc)
		abort();
}

static inline bool has(enum crn_registers kind)
{
	if (kind == CRN_LINES_HASHED && !(__builtin_cpu_supports("avx512vl") &&
						__builtin_cpu_supports("vpclmulqdq")))
		return false;
	if (kind >= CRN_LINES_WHOLE)
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
			__builtin_cpu_supports("avx512bw");
	return kind != CRN_HALVES || __builtin_cpu_supports("avx2");
}

/* By the registers that every processor has, and by larger ones if there are any. */
static inline int for_all_registers(int (*run)(void))
{
	int failed = 0;

	for (uint8_t kind = CRN_QUARTERS; kind <= CRN_LINES_HASHED; kind++) {
		if (!has(kind))
			continue;
		crn_guarded_registers = kind;
		failed += run();
	}
	return failed;
}

#endif
