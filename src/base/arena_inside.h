/* SPDX-License-Identifier: MIT */
/* The arena's state, for the files that it is made of. */
#ifndef CRN_ARENA_INSIDE_H
#define CRN_ARENA_INSIDE_H

#include <stdatomic.h>
#include "base/arena.h"

#define CRN_CLASS_MIN   6  /* 64 bytes */
#define CRN_CLASS_COUNT 48
#define CRN_BLOCK_MAX   ((size_t)1 << (sizeof(size_t) == 8 ? CRN_CLASS_COUNT - 1 : 31))

/* A free frame's first words. */
struct crn_free_frame {
	_Atomic uint32_t next; /* frame number + 1; 0 ends the list */
};

struct crn_free_block {
	struct crn_free_block *next;
};

/* Blocks of one kind. `limit` 0: up to the frames. */
struct crn_blocks {
	uintptr_t begin, end, committed, limit;
	size_t step; /* committed at a time */
	struct crn_free_block *free[CRN_CLASS_COUNT];
};

struct crn_arena {
	uintptr_t base, end;
	crn_commit_fn commit;
	uint64_t memory_max;
	uint64_t charged; /* of `committed`: elsewhere; the session's lock */
	_Atomic bool overdraws; /* memory_max does not hold */
	_Atomic uint64_t committed, committed_max;

	/* The session's lock. */
	struct crn_blocks open, blocks;
	bool apart; /* `open` has more than the header */
	unsigned refused; /* the class that `blocks` had no room for last, or 0 */

	/* Frames: lock-free. Usable memory is [frames_committed, end). */
	_Atomic uintptr_t frames_begin, frames_committed;
	_Atomic uint64_t free_head; /* tag << 32 | frame number + 1 */
	_Atomic int64_t free_count; /* never more than there are; see crn_frame_take_free */

	/* The session's lock. Committed since the last close: [frames_committed, fresh_end) */
	crn_seal_fn seal; /* or NULL */
	void *seal_arg;
	bool all_open;
	uintptr_t fresh_end; /* or 0 */
	uintptr_t *opened;
	size_t opened_count;
};

static inline uint32_t crn_frame_number(const struct crn_arena *a, const void *frame)
{
	return (uint32_t)(((uintptr_t)frame - a->base) >> CRN_PAGE_SHIFT) + 1;
}

static inline struct crn_free_frame *crn_frame_at(const struct crn_arena *a, uint32_t number)
{
	return (struct crn_free_frame *)(a->base + ((uintptr_t)(number - 1) << CRN_PAGE_SHIFT));
}

/* Does somebody have it, or has had it, as a frame? */
static inline bool crn_is_frame(struct crn_arena *a, uintptr_t addr)
{
	return addr >= atomic_load_explicit(&a->frames_begin, memory_order_relaxed) &&
		addr < a->end;
}

/*
 * Counted before it is taken, and freed before it is counted: a child of vfork may be killed in
 * between, and then there is one more than the count says, not one less.
 */
void *crn_frame_take_free(struct crn_arena *a);

#endif
