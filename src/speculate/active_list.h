/* SPDX-License-Identifier: MIT */
/*
 * The active list (SMC, section 5.1), whose size is the running average of sampling runs: all that
 * active-rnd and active-fifo have in common. The working set is the list.
 */
#ifndef CRN_ACTIVE_LIST_H
#define CRN_ACTIVE_LIST_H

#include "speculate/strategy.h"

enum { CRN_ACTIVE_EVERY, CRN_ACTIVE_WINDOW };

#define CRN_ACTIVE_PARAMETERS                                                                \
	[CRN_ACTIVE_EVERY] = { "every", "intervals from one sampling run to the next", 1,    \
		100, 2, 1u << 30 },                                                          \
	[CRN_ACTIVE_WINDOW] = { "window",                                                    \
		"sampling runs that the average remembers; the first 8 come at once", 1, 8,  \
		1, 1 << 20 }
#define CRN_ACTIVE_FIRST 8u

struct crn_active_list {
	bool sampling;	   /* the open interval is a sampling run: all pages are cold */
	uint32_t written;  /* pages seen in it so far */
	uint32_t next;	   /* interval of the next run */
	uint32_t runs;	   /* so far, up to the window */
	uint64_t size;	   /* average, in units of 1 / CRN_ONE pages */
};

/* The entry that leaves a full list, which is not empty. */
typedef uint32_t (*crn_victim_fn)(struct crn_speculation *s, struct crn_working_set *ws);

void crn_active_open(struct crn_speculation *s, struct crn_working_set *ws);
void crn_active_fault(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page,
	crn_victim_fn victim);
void crn_active_checkpoint(
	struct crn_speculation *s, struct crn_working_set *ws, crn_victim_fn victim);

#endif
