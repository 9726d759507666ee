/* SPDX-License-Identifier: MIT */
/*
 * The hot pages of a tracker, sorted by address: what a checkpoint walks instead of tables by
 * address. Each entry remembers the line in which the page was last seen to differ, which is looked
 * at first. If another line has changed, looking for it costs half as much as copying; a page that
 * changed many times in a row is therefore looked at every 32nd time only, and else taken for
 * changed, which costs a copy when it is not. Not all pages are looked at in the same interval.
 *
 * Invariant: at[i].page < at[i + 1].page
 * Thread-safety: the session's lock is held.
 */
#ifndef CRN_HOT_LIST_H
#define CRN_HOT_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/bits.h"

#define CRN_HOT_NO_SLOT UINT32_MAX
#define CRN_HOT_STREAK	32u
#define CRN_HOT_BLIND	31u

struct crn_hot_entry {
	uintptr_t page;
	void *where; /* the tracker's word, or mirror slot, of the page */
	void *old;   /* the frame that is there, unless the list is stale; NULL: look there */
	uint32_t slot; /* the strategy's name for it, or CRN_HOT_NO_SLOT */
	uint8_t line;  /* looked at first */
	/* Seen to change so often in a row; beyond CRN_HOT_STREAK: taken for changed since. */
	uint8_t streak;
	bool changed; /* as seen at this checkpoint */
	bool pinned;  /* stays, whatever a strategy says (the kernel writes it) */
};

struct crn_hot_list {
	struct crn_hot_entry *at;
	size_t count, capacity;
	/*
	 * Something else than the end of an interval may have changed what `where` holds: no `old`
	 * is true until it has been read again. Else a checkpoint touches the list alone, not
	 * tables that lie scattered.
	 */
	bool stale;
	uint32_t turns;  /* checkpoints; the price of hot pages is measured at some */
	uint64_t cycles; /* spent on them so far at this checkpoint; 0: not measured */
};

#define CRN_HOT_METER_EVERY 32u

void crn_hot_list_close(struct crn_hot_list *l, struct crn_arena *arena);

/* The index of the first entry at or above the page, or count. */
size_t crn_hot_list_from(const struct crn_hot_list *l, uintptr_t page);
struct crn_hot_entry *crn_hot_list_find(const struct crn_hot_list *l, uintptr_t page); /* or NULL */
/* The entry of the page, made if need be. NULL: no memory. */
struct crn_hot_entry *crn_hot_list_add(
	struct crn_hot_list *l, struct crn_arena *arena, uintptr_t page, void *where);
/* Take out the entries whose `where` is NULL. */
void crn_hot_list_sweep(struct crn_hot_list *l);

/* Has the page changed? `old` is its content at interval_begin, NULL: zeros. Sets *e. */
bool crn_hot_compare(struct crn_hot_entry *e, const void *old);
/* The same, but from time to time only; never false for a page that differs. */
static inline bool crn_hot_look(struct crn_hot_entry *e, const void *old)
{
	if (crn_likely((uint8_t)(e->streak - CRN_HOT_STREAK) < CRN_HOT_BLIND)) {
		e->streak++;
		e->changed = true;
		return true;
	}
	return crn_hot_compare(e, old);
}

/*
 * What a hot page costs, changed or not, with the caches that the program leaves: begin and end
 * around each part of the work, end with `last` answers the cycles per page, or 0.
 */
uint64_t crn_hot_meter_begin(struct crn_hot_list *l, bool first);
uint32_t crn_hot_meter_end(struct crn_hot_list *l, uint64_t begin, bool last);

#endif
