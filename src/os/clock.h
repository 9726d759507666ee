/* SPDX-License-Identifier: MIT */
/*
 * Time for statistics: nanoseconds from the time stamp counter, which is calibrated once and then
 * read without a system call. If the counter is not invariant or not allowed, clock_gettime by
 * system call. Differences are good to about 0.1 %; it is no wall clock.
 */
#ifndef CRN_OS_CLOCK_H
#define CRN_OS_CLOCK_H

#include <stdint.h>

struct crn_clock {
	uint64_t tsc, ns; /* a moment in both scales */
	uint64_t mult;    /* nanoseconds per tick, times 2^32; 0: ask the kernel */
};

/* A quarter of a millisecond for the first caller; those after it, and children of fork, know. */
void crn_clock_init(struct crn_clock *c);

/* CLOCK_MONOTONIC by system call. */
uint64_t crn_clock_kernel_ns(void);

static inline uint64_t crn_clock_ticks(void)
{
	uint32_t lo, hi;

	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

/* ticks * mult / 2^32 */
static inline uint64_t crn_clock_scale(uint64_t ticks, uint64_t mult)
{
#ifdef __SIZEOF_INT128__
	return (uint64_t)((unsigned __int128)ticks * mult >> 32);
#else
	uint64_t low = (uint32_t)ticks, high = ticks >> 32;

	return high * mult + low * (mult >> 32) + (low * (uint32_t)mult >> 32);
#endif
}

static inline uint64_t crn_clock_ns(const struct crn_clock *c)
{
	uint64_t ticks;

	if (!c->mult)
		return crn_clock_kernel_ns();
	ticks = crn_clock_ticks() - c->tsc;
	return c->ns + crn_clock_scale(ticks, c->mult);
}

#endif
