/* SPDX-License-Identifier: MIT */
/*
 * How long checkpoints take. To read the clock twice is a sixth of one that has nothing to save. So
 * after a short one, only the first of the next seven is timed, and stands for all of them. Whether
 * it does is settled before it is timed: in the mean, long ones among short ones count as they are,
 * unless they come every seventh time.
 *
 * Thread-safety: the session's lock is held.
 */
#ifndef CRN_TIMING_H
#define CRN_TIMING_H

#include <stdint.h>
#include "base/bits.h"
#include "os/clock.h"

#define CRN_TIMING_SHORT 2000u /* nanoseconds */
#define CRN_TIMING_GROUP 7u

struct crn_timing {
	uint64_t last; /* nanoseconds of the one that was timed last */
	uint32_t left; /* of its group, which are not timed */
	uint32_t next; /* how many more than one the next group has */
};

static inline bool crn_timing_due(const struct crn_timing *t)
{
	return !t->left;
}

/* The nanoseconds to count for one that has not been timed. */
static inline uint64_t crn_timing_follow(struct crn_timing *t)
{
	t->left--;
	return t->last;
}

/* It was due, and took so long: that is counted for it. */
static inline void crn_timing_note(struct crn_timing *t, uint64_t ns)
{
	t->last = ns;
	t->left = t->next;
	t->next = ns < CRN_TIMING_SHORT ? CRN_TIMING_GROUP - 1 : 0;
}

/* What crn_timing_end wants. */
static inline uint64_t crn_timing_begin(const struct crn_timing *t, const struct crn_clock *clock)
{
	return crn_timing_due(t) ? crn_clock_ns(clock) : 0;
}

/* The nanoseconds to count. */
static inline uint64_t crn_timing_end(
	struct crn_timing *t, const struct crn_clock *clock, uint64_t begin)
{
	if (crn_likely(!crn_timing_due(t)))
		return crn_timing_follow(t);
	crn_timing_note(t, crn_clock_ns(clock) - begin);
	return t->last;
}

#endif
