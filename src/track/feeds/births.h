/* SPDX-License-Identifier: MIT */
/*
 * Which tasks have been born since the rings were made, from the records that perf keeps for each
 * thread (os/perf.h, CRN_PERF_TASKS). A thread of ours without a ring is a doubt, and so is a child
 * process that may share our memory. Nothing records what such a child creates, or what a thread
 * creates before it has a ring; so afterwards all processes are asked whether they share our memory
 * (os/sharers.h).
 */
#ifndef CRN_BIRTHS_H
#define CRN_BIRTHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CRN_BIRTHS_CHILDREN 256u

struct crn_keeper;

struct crn_births {
	int pid;
	const struct crn_keeper *keeper; /* it has not our memory */
	bool born;   /* there may be a thread of ours without a ring */
	bool strangers; /* somebody may have our memory of whom there is no record */
	bool broken;    /* somebody may have our memory, and nobody knows who */
	int children[CRN_BIRTHS_CHILDREN]; /* tasks of other processes that may have it */
	size_t child_count;
};

/*
 * Take note of what is new in the ring of a thread from *at on. True if there was something;
 * *ended: the thread has.
 */
bool crn_births_read(
	struct crn_births *b, void *ring, size_t pages, uint64_t *at, bool *ended);
/*
 * All threads that were born have been given rings: who has our memory now? Costs one call for each
 * child, and crn_sharers_each after births.
 */
void crn_births_settle(struct crn_births *b);

/* Everybody who has our memory has a ring of ours. */
static inline bool crn_births_settled(const struct crn_births *b)
{
	return !b->born && !b->strangers && !b->child_count && !b->broken;
}

#endif
