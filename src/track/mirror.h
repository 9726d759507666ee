/* SPDX-License-Identifier: MIT */
/*
 * The mirror: for every tracked page, its content at interval_begin. Trackers that are told by the
 * kernel which pages were written, but only afterwards (async, softdirty), hold old content this
 * way.
 *
 *	page address   | 47..39 | 38..30 | 29..21 | 20..12 |
 *	                 root --> node ---> node ---> leaf --> page frame, or NULL: the page was all zeros
 *
 * The same radix tree as the hardware's, of 4 KiB nodes that are frames of the arena: areas may
 * grow, split and move without a table being copied, and a sparse reserve costs nothing. Dirty
 * pages come sorted, so that the leaf of the last page nearly always serves the next one.
 *
 * Invariants:
 *	bytes == 4096 * (page_count + node_count)
 *	a page frame belongs to exactly one slot, or has been handed to a sink
 *
 * Thread-safety: the session's lock is held. No libc, no system calls of its own.
 */
#ifndef CRN_MIRROR_H
#define CRN_MIRROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "track/range_list.h"
#include "track/track.h"

struct crn_mirror_node;

struct crn_mirror {
	struct crn_track_env *env;
	struct crn_mirror_node *root;
	uintptr_t leaf_begin; /* the 2 MiB that `leaf` covers */
	struct crn_mirror_node *leaf;
	void *scratch; /* one page: the live content of a page that the program cannot read now */
	size_t page_count, node_count;
	struct crn_range_list replaced; /* in the open interval: crn_mirror_replaced */
};

/* 0 or CAIRN_EMEMORY. */
int crn_mirror_open(struct crn_mirror *m, struct crn_track_env *env);
void crn_mirror_close(struct crn_mirror *m);

/*
 * Make the nodes for [begin, end), so that slots there can be filled without failing. 0 or
 * CAIRN_EMEMORY.
 */
int crn_mirror_cover(struct crn_mirror *m, uintptr_t begin, uintptr_t end);

/* The place that holds the frame of a page; NULL where no node covers it. */
void **crn_mirror_slot(struct crn_mirror *m, uintptr_t page);

/*
 * Copy the live content of covered pages. With `doubtful` a page may turn out to be unreadable
 * (beyond the end of its file): it then has no content. 0 or CAIRN_EMEMORY.
 */
int crn_mirror_fill(struct crn_mirror *m, uintptr_t begin, uintptr_t end, bool doubtful);

/*
 * A mapping that vanished in this interval has been replaced by another. A restore forgets the new
 * one, and with it what the mirror holds: records must not lead to the older content through it, so
 * the pages are handed over as a whole, not as differences. 0 or CAIRN_EMEMORY.
 */
int crn_mirror_replaced(struct crn_mirror *m, uintptr_t begin, uintptr_t end);

/*
 * The pages have been written: hand the old frames to the sink and copy the live content. The sink
 * has been prepared for all of them, so only what the sink itself refuses can fail. `doubtful`:
 * some may be unreadable, because their file was cut short.
 */
int crn_mirror_turn(
	struct crn_mirror *m, uintptr_t begin, uintptr_t end, bool doubtful, struct crn_sink *sink);
/* The same for one page whose slot is known, and what it holds; *old is what it holds then. */
int crn_mirror_turn_slot(struct crn_mirror *m, void **slot, void **old, uintptr_t page,
	bool doubtful, struct crn_sink *sink);
/* A part of that, for who does many at once: another frame, and its content. */
void crn_mirror_slot_set(struct crn_mirror *m, void **slot, void *frame);
void crn_mirror_load(struct crn_mirror *m, void **slot, uintptr_t page);
/* The sink has taken the frame: the page gets another. */
void crn_mirror_taken(struct crn_mirror *m, void **slot, uintptr_t page);

/* Show the sink the content of the pages at interval_begin, keeping it. */
int crn_mirror_show(struct crn_mirror *m, uintptr_t begin, uintptr_t end, struct crn_sink *sink);

/* The first run of pages in [begin, end) that have a frame; false if there is none. */
bool crn_mirror_next(struct crn_mirror *m, uintptr_t *begin, uintptr_t *end);

/*
 * At the end of an interval, first: prepare the sink for the pages of both lists, and for `count`
 * more, of which `bare` have no frame. CAIRN_EMEMORY comes before anything is handed over. Then
 * turn the dirty ones, and give the frames of what is gone, which empties that list.
 */
int crn_mirror_prepare(struct crn_mirror *m, const struct crn_range_list *dirty,
	const struct crn_range_list *gone, size_t count, size_t bare, struct crn_sink *sink);
int crn_mirror_give(struct crn_mirror *m, struct crn_range_list *gone, struct crn_sink *sink);

/* Forget [begin, end). */
void crn_mirror_drop(struct crn_mirror *m, uintptr_t begin, uintptr_t end);

/*
 * The page's content at interval_begin is `content` from now on (NULL: zeros). 0 or CAIRN_EMEMORY.
 */
int crn_mirror_put(struct crn_mirror *m, uintptr_t page, const void *content);

/*
 * Can what the program has closed be read at present? Before anything is handed over; 0 also if
 * there is nothing.
 */
int crn_mirror_try(struct crn_mirror *m, uintptr_t page);

uint64_t crn_mirror_bytes(const struct crn_mirror *m);

/* Walk everything and trap if an invariant does not hold. */
void crn_mirror_check(const struct crn_mirror *m);

#endif
