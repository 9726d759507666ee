/* SPDX-License-Identifier: MIT */
/*
 * Time for statistics: nanoseconds from the time stamp counter, calibrated once; no system call
 * afterwards. Where the counter is not invariant or not allowed, clock_gettime by system call.
 * Differences are good to about 0.1 %; it is no wall clock.
 */
#ifndef CRN_OS_CLOCK_H
#define CRN_OS_CLOCK_H

#include <stdint.h>

struct crn_clock {
	uint64_t tsc, ns; /* a moment in both scales */
	uint64_t mult;    /* nanoseconds per tick, times 2^32; 0: ask the kernel */
};

/* Takes about a quarter of a millisecond. */
void crn_clock_init(struct crn_clock *c);

/* CLOCK_MONOTONIC by system call. */
uint64_t crn_clock_kernel_ns(void);

static inline uint64_t crn_clock_ticks(void)
{
	uint32_t lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

static inline uint64_t crn_clock_ns(const struct crn_clock *c)
{
	unsigned __int128 wide;

	if (!c->mult)
		return crn_clock_kernel_ns();
	wide = (unsigned __int128)(crn_clock_ticks() - c->tsc) * c->mult;
	return c->ns + (uint64_t)(wide >> 32);
}

#endif
