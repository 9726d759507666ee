/* SPDX-License-Identifier: MIT */
/*
 * A first-in first-out store of small items in page frames. Records enter at the tail and leave at
 * the head (eviction) or, after a restore, at the tail (truncation), so their items need no
 * allocator.
 *
 *	head                                                  tail
 *	| link | item item item ... | -> | link | item ... | -> | link | item ... free |
 *	        ^ dead before the oldest record's mark                           ^ used
 *
 * An item never straddles frames and is 8-byte aligned; its address is stable while it is kept.
 *
 * Invariants:
 *	frame_count == frames reachable from head; tail is the last of them
 *	used <= CRN_FIFO_CAPACITY; frame_count == 0 <=> head == tail == NULL
 *
 * Thread-safety: the session's lock is held.
 */
#ifndef CRN_FRAME_FIFO_H
#define CRN_FRAME_FIFO_H

#include <stddef.h>
#include <stdint.h>
#include "base/arena.h"

struct crn_fifo_frame {
	struct crn_fifo_frame *next;
	uint64_t reserved __attribute__((aligned(8)));
	uint8_t bytes[];
};

#define CRN_FIFO_CAPACITY (CRN_PAGE_SIZE - sizeof(struct crn_fifo_frame))

struct crn_fifo {
	struct crn_arena *arena;
	struct crn_fifo_frame *head, *tail;
	size_t used; /* bytes of the tail frame */
	size_t frame_count;
};

/* A place between two items. frame == NULL: the very beginning of a store that was empty. */
struct crn_fifo_mark {
	struct crn_fifo_frame *frame;
	size_t used;
};

/*
 * Bytes for one item of at most `size` (<= CRN_FIFO_CAPACITY) at the tail, or NULL when the arena
 * is full. Nothing is used up until crn_fifo_push gives the true size (<= the one asked for,
 * rounded up to 8).
 */
void *crn_fifo_room(struct crn_fifo *f, size_t size);
/* The same in the tail frame, which has room for that many bytes, or none. */
void *crn_fifo_rest(struct crn_fifo *f, size_t *room);
void crn_fifo_push(struct crn_fifo *f, size_t size);

struct crn_fifo_mark crn_fifo_tail(const struct crn_fifo *f);
/* Forget all items behind the mark. */
void crn_fifo_truncate(struct crn_fifo *f, struct crn_fifo_mark mark);
/* Free the frames that hold only items before the mark. */
void crn_fifo_evict(struct crn_fifo *f, struct crn_fifo_mark mark);
void crn_fifo_clear(struct crn_fifo *f);

#endif
