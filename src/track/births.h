/* SPDX-License-Identifier: MIT */
/*
 * Who has been born since rings were made, by the records that perf keeps for each thread
 * (os/perf.h, CRN_PERF_TASKS). A thread of ours without a ring is doubt, as is a child process that
 * may have our memory.
 */
#ifndef CRN_BIRTHS_H
#define CRN_BIRTHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CRN_BIRTHS_CHILDREN 256u

struct crn_births {
	int pid;
	int keeper;  /* a child that has not our memory; or 0 */
	bool born;   /* there may be a thread of ours without a ring */
	bool broken; /* somebody may have our memory, and nobody knows who */
	int children[CRN_BIRTHS_CHILDREN]; /* processes that may have it */
	size_t child_count;
};

/*
 * Take note of what is new in the ring of a thread from *at on. True if there was something;
 * *ended: the thread has.
 */
bool crn_births_read(
	struct crn_births *b, void *ring, size_t pages, uint64_t *at, bool *ended);
/* Children that do not have our memory, or are gone. */
void crn_births_forget(struct crn_births *b);

#endif
