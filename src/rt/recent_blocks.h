/* SPDX-License-Identifier: MIT */
/*
 * Blocks that were allocated in the open interval, and the last checkpoint that may need what they
 * held. If they are freed in the same interval, it is that one still (the heap transient objects of
 * LMC, V-A2). An interval that was undone had another turn, so nothing of it is believed.
 *
 * Of the heap, under its lock. A block may be forgotten: others take its place.
 */
#ifndef CRN_RT_RECENT_BLOCKS_H
#define CRN_RT_RECENT_BLOCKS_H

#include "rt/rt.h"

#define CRN_RECENT_BLOCKS 128u

struct crn_recent_block {
	uintptr_t block;
	uint64_t turn, since;
};

extern struct crn_recent_block crn_recent_blocks[CRN_RECENT_BLOCKS];

static inline struct crn_recent_block *crn_recent_place(uintptr_t block)
{
	return &crn_recent_blocks[(block >> 4 ^ block >> 11) % CRN_RECENT_BLOCKS];
}

/* Allocated; what it held is from interval `since`. */
static inline void crn_recent_add(uintptr_t block, uint64_t since)
{
	*crn_recent_place(block) = (struct crn_recent_block){ block, __cairn_rt.turn, since };
}

/* The last checkpoint that may need what a block holds that is being freed. */
static inline uint64_t crn_recent_since(uintptr_t block)
{
	const struct crn_recent_block *r = crn_recent_place(block);

	return r->block == block && r->turn == __cairn_rt.turn ? r->since : __cairn_rt.open;
}

#endif
