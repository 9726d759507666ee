/* SPDX-License-Identifier: MIT */
/*
 * A working set: what a strategy knows about the pages of one context (SMC, section 4.2). A hash
 * finds a page's entry; a list holds the entries in order of appearance. Strategies read and write
 * it freely; entries move when it grows, so they are named by index across calls that may add.
 *
 * Invariants:
 *	hot_count == number of entries with CRN_WS_HOT
 *	an entry on the touched list has CRN_WS_TOUCHED, and no other has
 *	slot != CRN_SLOT_NONE only in the current working set: the page is hot at the tracker now
 *
 * CRN_WS_HOT is what the strategy wants, `slot` what the tracker does; the speculation brings both
 * together at the end of each checkpoint, which costs nothing for entries that were not touched.
 */
#ifndef CRN_WORKING_SET_H
#define CRN_WORKING_SET_H

#include "speculate/port.h"

#define CRN_WS_NONE 0xffffffffu

enum crn_ws_flags {
	CRN_WS_HOT = 1u << 0,
	CRN_WS_TOUCHED = 1u << 1,
};

struct crn_ws_entry {
	uintptr_t page;	  /* its address; 0: the entry is free */
	uint32_t prev, next; /* in order of appearance */
	uint32_t chain;	  /* in the hash, or among the free */
	uint32_t touched; /* next on the touched list */
	uint32_t slot;	  /* of the hot page, or CRN_SLOT_NONE */
	uint32_t flags;
	uint32_t granted; /* replays: the interval for which the fault hook opened it */
	uint64_t faulted; /* the speculation's clock at the end of the interval that wrote it */
	uint32_t last;	  /* the rest is the strategy's: e.g. the interval of its last write, */
	uint32_t count;	  /* how often, */
	uint32_t kind;
	uint32_t cooled;  /* when it went cold, */
	uint32_t regrets; /* and how often that was too early */
	uint32_t since;	  /* when the row of writes without a gap began */
	uint64_t note;
};

struct crn_working_set {
	uint64_t key;
	const struct crn_port *port;
	struct crn_working_set *next; /* of the speculation's contexts */
	uint64_t used;		      /* when it was last the current one */
	struct crn_ws_entry *entries;
	uint32_t *buckets;
	uint32_t capacity; /* of both; a power of two, or 0 */
	uint32_t count, hot_count;
	uint32_t free, first, last, touched;
	uint32_t now; /* intervals of this context that have begun; the first is 1 */
	void *state; /* the strategy's own; zeroed at first */
	size_t state_size;
	uint64_t failures; /* allocations that failed */
};

void crn_ws_init(struct crn_working_set *ws, const struct crn_port *port, uint64_t key);
/* Frees the tables, not `state`. */
void crn_ws_fini(struct crn_working_set *ws);

/* The index of the page's entry, or CRN_WS_NONE. */
uint32_t crn_ws_find(const struct crn_working_set *ws, uintptr_t page);
/*
 * The same, appending a cold entry if there is none. CRN_WS_NONE: no memory, or the page at address
 * 0, which no program has.
 */
uint32_t crn_ws_add(struct crn_working_set *ws, uintptr_t page);
/* Forget a page that is not hot at the tracker. */
void crn_ws_remove(struct crn_working_set *ws, uint32_t index);
/* Move it to the end of the list, as if it had just appeared. */
void crn_ws_renew(struct crn_working_set *ws, uint32_t index);
/* The strategy's wish for the next interval. */
void crn_ws_set_hot(struct crn_working_set *ws, uint32_t index, bool hot);

uint64_t crn_ws_bytes(const struct crn_working_set *ws);
/* The invariants above hold: for tests. */
bool crn_ws_sound(const struct crn_working_set *ws);

#endif
