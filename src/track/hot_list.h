/* SPDX-License-Identifier: MIT */
/*
 * The hot pages of a tracker, sorted by address: a checkpoint walks this list instead of tables by
 * address. Each entry remembers the line in which the page was last found to differ; that line is
 * compared first. If another line has changed, finding it costs half as much as a copy. So a page
 * that changed many times in a row is compared only every 32nd time, and otherwise taken for
 * changed, which costs a copy if it is not. If it has changed each time, it is compared every 64th
 * time from then on, and then every 128th. These comparisons are spread over different intervals.
 * A page that was found to be the same may be known by its hash from then on (hot_form.h).
 *
 * Invariant: at[i].page < at[i + 1].page. Thread-safety: the session's lock is held.
 */
#ifndef CRN_HOT_LIST_H
#define CRN_HOT_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"
#include "base/sink.h"
#include "os/guarded.h"
#include "track/hot_form.h"
#include "track/track.h"

#define CRN_HOT_NO_SLOT UINT32_MAX
#define CRN_HOT_STREAK	32u
#define CRN_HOT_LOOKS	32u /* intervals from one look to the next, at first */
#define CRN_HOT_TRUST	2u  /* how often that doubles */
#define CRN_HOT_DUE	255u

struct crn_hot_entry {
	uintptr_t page;
	void *where; /* the tracker's word, or mirror slot, of the page */
	void *old;   /* the frame that is there, unless the list is stale; NULL: look there */
	uint32_t slot; /* the strategy's name for it, or CRN_HOT_NO_SLOT */
	uint8_t line : 6; /* looked at first */
	uint8_t trust : 2;
	/* Seen to change so often in a row; from CRN_HOT_STREAK on: taken for changed until DUE. */
	uint8_t streak;
	bool changed; /* as seen at this checkpoint */
	bool pinned : 1; /* stays, whatever a strategy says (the kernel writes it) */
	/* In this interval: a restore stores to it, changed or not (MADV_FREE would take it). */
	bool touched : 1;
	bool hashed : 1; /* and not changed: */
	uint64_t hash[2]; /* of its content at interval_begin */
};

/* The tracker's side of its list: where it notes which frames its pages have. */
struct crn_hot_owner {
	/* The page has another frame now: e->old. */
	void (*replaced)(void *tracker, struct crn_hot_entry *e);
	/* The page cannot be read: it is closed, or gone. What its frame holds is undefined. */
	void (*unreadable)(void *tracker, struct crn_hot_entry *e);
	/*
	 * Hand the page over singly. `absorbed` is what the sink has said of it, as its absorb
	 * would: 0, the frame is the sink's; -EFAULT, nothing has happened, or it was not asked.
	 */
	int (*turn)(void *tracker, struct crn_hot_entry *e, int absorbed, struct crn_sink *sink);
};

struct crn_hot_list {
	struct crn_track_env *env;
	const struct crn_hot_owner *owner;
	void *tracker;
	struct crn_hot_entry *at;
	size_t count, capacity;
	size_t tail; /* spread: entries from here to the capacity follow the first `count` */
	bool spread;
	/*
	 * At the end of an interval: the frames have changed hands and these have still to be
	 * filled, all at once. In between the caches would lose the tables to each copy.
	 */
	struct crn_page_copy *copies;
	size_t copy_count, copy_capacity; /* >= count */
	/*
	 * Something else than the end of an interval may have changed what `where` holds: no `old`
	 * is true until it has been read again. Else a checkpoint touches the list alone, not
	 * tables that lie scattered.
	 */
	bool stale;
	bool touched; /* some entry is */
	bool exact;   /* pages are compared at each checkpoint, whatever they did before */
	uint32_t turns;  /* checkpoints; the price is measured at some, odd ones begin at the end */
	uint64_t cycles; /* spent on them so far at this checkpoint; 0: not measured */
	struct crn_hot_form form;
};

#define CRN_HOT_METER_EVERY 32u

/* No resources are taken. The owner lives as long as the list. */
void crn_hot_list_open(struct crn_hot_list *l, struct crn_track_env *env,
	const struct crn_hot_owner *owner, void *tracker);
void crn_hot_list_close(struct crn_hot_list *l);

/* The index of the first entry at or above the page, or count. */
size_t crn_hot_list_from(const struct crn_hot_list *l, uintptr_t page);
struct crn_hot_entry *crn_hot_list_find(const struct crn_hot_list *l, uintptr_t page); /* or NULL */
/*
 * The entry of the page, made if need be: then it has no slot, and counts as changed. NULL: no
 * memory. The entry's address is good until the next call.
 */
struct crn_hot_entry *crn_hot_list_add(
	struct crn_hot_list *l, uintptr_t page, void *where, bool *made);
/*
 * Up to `count` pages come now, in order: that moves each entry twice, not once for each page.
 * Until the list is gathered again only crn_hot_list_add may be called. Without memory nothing is
 * spread, and the pages are added one by one.
 */
void crn_hot_list_spread(struct crn_hot_list *l, size_t count);
void crn_hot_list_gather(struct crn_hot_list *l);
/* Take out the entries whose `where` is NULL; and those of [begin, end). */
void crn_hot_list_sweep(struct crn_hot_list *l);
void crn_hot_list_drop(struct crn_hot_list *l, uintptr_t begin, uintptr_t end);
/* The content that pages of [begin, end) had at interval_begin is another one from now on. */
void crn_hot_list_rebased(struct crn_hot_list *l, uintptr_t begin, uintptr_t end);
/* The entries of [begin, end) are touched, until the interval ends. */
void crn_hot_list_touch(struct crn_hot_list *l, uintptr_t begin, uintptr_t end);
void crn_hot_list_forget_touched(struct crn_hot_list *l);

/* Has this page of l changed? `old` is its content at interval_begin, NULL: zeros. Sets *e. */
bool crn_hot_compare(
	const struct crn_hot_list *l, struct crn_hot_entry *e, const void *old);
/* The same, but from time to time only; never false for a page that differs. */
static inline bool crn_hot_look(
	const struct crn_hot_list *l, struct crn_hot_entry *e, const void *old)
{
	if (crn_likely((uint8_t)(e->streak - CRN_HOT_STREAK) < CRN_HOT_DUE - CRN_HOT_STREAK)) {
		e->streak++;
		e->changed = true;
		return true;
	}
	return crn_hot_compare(l, e, old);
}

/*
 * At the end of an interval, where the sink takes whole pages: of those of [begin, end) that have
 * changed, each that is not closed and has a frame hands it over. crn_hot_copy_now fills what they
 * have then. The result is how many did; *left: some that have changed did not, and `changed` says
 * which.
 */
size_t crn_hot_exchange(struct crn_hot_list *l, struct crn_hot_entry *begin,
	struct crn_hot_entry *end, struct crn_sink *sink, bool *left);
/* Once, after all of them. */
void crn_hot_copy_now(struct crn_hot_list *l);
/*
 * Each of [begin, end) that has changed hands over what differs, or is turned by its owner. The
 * first failure, after all of them. Adds to *count how many there were.
 */
int crn_hot_turn(struct crn_hot_list *l, struct crn_hot_entry *begin, struct crn_hot_entry *end,
	struct crn_sink *sink, uint64_t *count);

/*
 * The bits of pages that have changed, on their way to the strategy's map: those of one word of it
 * are gathered, because a store to the map for each page would wait for the one before. A page
 * without a slot has no bit.
 */
struct crn_hot_bits {
	uint64_t *map, bits;
	size_t word;
};

static inline void crn_hot_bits_flush(struct crn_hot_bits *b)
{
	if (b->bits)
		b->map[b->word] |= b->bits;
	b->bits = 0;
}

static inline void crn_hot_bits_add(struct crn_hot_bits *b, uint32_t slot)
{
	if (crn_unlikely(slot == CRN_HOT_NO_SLOT))
		return;
	if (crn_unlikely(slot / 64 != b->word)) {
		crn_hot_bits_flush(b);
		b->word = slot / 64;
	}
	b->bits |= 1ull << slot % 64;
}

/* What sink->differences is to be. */
static inline bool crn_hot_wants_differences(const struct crn_hot_list *l)
{
	return l->count && crn_hot_form_asks(&l->form);
}

/*
 * What a hot page costs, with the caches that the program leaves: begin and end around each part of
 * the work, of which looking at them is the first. The end of the last one has the sink that got
 * the pages, else NULL. The result is the cycles per page so far, or 0.
 */
uint64_t crn_hot_meter_begin(struct crn_hot_list *l, bool first);
uint32_t crn_hot_meter_end(
	struct crn_hot_list *l, uint64_t begin, const struct crn_sink *last);

#endif
