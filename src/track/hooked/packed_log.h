/* SPDX-License-Identifier: MIT */
/*
 * A log of old content (struct crn_log_entry, rt/rt.h), in one piece or packed into page frames:
 *
 *	frames[0] | frames[1] | ... | tail: a block for what is left
 *
 * Packed, it takes its size, at most 2 KiB more for the tail, and 1/256 for the table of frames.
 * Entries' last words never straddle a page, the bytes before them may.
 */
#ifndef CRN_PACKED_LOG_H
#define CRN_PACKED_LOG_H

#include <stddef.h>
#include <stdint.h>

struct crn_arena;

struct crn_packed_log {
	const char *flat; /* in one piece: somebody else's. NULL: packed, and these are there */
	void **frames;
	char *tail;
	size_t size, filled; /* bytes */
};

/* Old content, newest entry first. Negative stops. */
typedef int (*crn_undo_fn)(void *ctx, uintptr_t addr, const void *old, size_t len);

/* Room for `size` bytes (a multiple of 16). 0 or CAIRN_EMEMORY, nothing taken. */
int crn_packed_open(struct crn_packed_log *log, struct crn_arena *arena, size_t size);
void crn_packed_close(struct crn_packed_log *log, struct crn_arena *arena);
/* The next bytes; there is room for them. */
void crn_packed_put(struct crn_packed_log *log, const void *from, size_t len);

/* Every entry, in pieces that do not straddle pages if it is packed. */
int crn_packed_walk(const struct crn_packed_log *log, crn_undo_fn fn, void *ctx);

#endif
