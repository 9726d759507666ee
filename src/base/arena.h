/* SPDX-License-Identifier: MIT */
/*
 * The engine's memory. Everything the engine owns lives in one reserved range, so that "is this
 * address ours?" is one comparison, the surface can leave it out, and a forked child finds zeros.
 *
 *	base                                                                   base+reserved
 *	| control | faults | crn_arena | open blocks -> ... | blocks -> ...    ... <- page frames |
 *	 `- page   `- two   `- header   `- one quarter       `- grow up, committed in steps LIFO --'
 *
 * It is private anonymous memory, MADV_WIPEONFORK and MADV_DONTDUMP, outside every surface, and
 * never tracked. Blocks hold tables, which grow by replacement; the old block goes to a size-class
 * free list. Frames hold page copies (mirror, undo pages, journal), and are handed from owner to
 * owner by pointer.
 *
 * Under CAIRN_PROTECT blocks and frames are read-only while no call is in progress. Memory that is
 * written then (by a write-fault handler, or the agent) is an open block. The first
 * CRN_ARENA_LEADING bytes (track/faults.c has the second and third page) are always writable, and
 * may outlive the rest. Sealed frames are read-only during a call as well, except for those that it
 * writes.
 *
 * Invariants:
 *
 *	open blocks end <= blocks begin; blocks end <= frames_begin
 *	committed  <= memory_max           (bytes that may hold data)
 *	pages of [frames_begin, end) == free_count + frames owned by mirror, trackers and journal,
 *		and those that have become blocks
 *
 * Thread-safety: the caller holds the session's lock, or is the only thread, or (frames only, from
 * a write-fault handler) uses crn_frame_alloc, which is lock-free and async-signal-safe.
 */
#ifndef CRN_ARENA_H
#define CRN_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"
#include "base/status.h"

struct crn_arena;

#define CRN_ARENA_LEADING (3 * CRN_PAGE_SIZE)

/* How base asks os/ for pages: make [addr, addr+len) usable. 0 or -ENOMEM. */
typedef int (*crn_commit_fn)(void *addr, size_t len);

/*
 * Build an arena inside a reserved range. The control page (the first, zeros: the caller's) and the
 * header are committed first. `apart`: open blocks lie together; else they are blocks like others,
 * which then begin right behind the header.
 */
int crn_arena_init(struct crn_arena **out, void *base, size_t reserved, uint64_t memory_max,
	bool apart, crn_commit_fn commit);

/* The second and third page, zeros at first. */
void *crn_arena_fault_pages(const struct crn_arena *a);

/* Zeroed, 64-byte aligned; NULL when memory_max or the reservation is reached. */
void *crn_block_alloc(struct crn_arena *a, size_t size);
/* The same, for what is written while no call of the library is in progress. */
void *crn_block_alloc_open(struct crn_arena *a, size_t size);
/* Of either kind. NULL is allowed. */
void crn_block_free(struct crn_arena *a, void *block, size_t size);

/*
 * Make room for `need` items in a table of `count` items that is a block (*table, NULL at first):
 * it doubles, and moves. 0 or CAIRN_EMEMORY, nothing changed.
 */
int crn_table_grow(struct crn_arena *a, void **table, size_t *capacity, size_t count, size_t need,
	size_t item_size);

/* A 4 KiB page frame with undefined content; NULL when memory_max is reached. */
void *crn_frame_alloc(struct crn_arena *a);
void crn_frame_free(struct crn_arena *a, void *frame);
/*
 * Make sure that the next `count` crn_frame_alloc calls succeed. 0 or CAIRN_EMEMORY, nothing
 * changed.
 */
int crn_frame_reserve(struct crn_arena *a, size_t count);
/*
 * What frames have been given is no room for blocks. If a block was refused for want of room, make
 * such blocks of frames that nobody has, for good: 1. CAIRN_EMEMORY: of more free ones, perhaps; 0:
 * that is not what is missing. Only where nobody counts on reserved frames, and with write-fault
 * handlers kept out, which would find none.
 */
int crn_blocks_from_frames(struct crn_arena *a);
/* From now on. */
void crn_blocks_forget_refusal(struct crn_arena *a);
/* For who can do without: is half of memory_max not in use? Any context. */
bool crn_frames_plenty(const struct crn_arena *a);

/* How base asks for frames to be opened for writing, or closed. 0 or negative. */
typedef int (*crn_seal_fn)(void *arg, void *at, size_t len, bool closed);

/*
 * From now on frames are closed, but for those that are written since the last crn_frames_close.
 * Who writes to a frame says so first, by crn_frame_open; alloc and free do that themselves. Only
 * where no write-fault handler takes frames. All of them are open until the first close. 0 or
 * CAIRN_EMEMORY.
 */
int crn_frames_seal(struct crn_arena *a, crn_seal_fn seal, void *arg);
/* All of them are open, and stay so. */
void crn_frames_unseal(struct crn_arena *a);
/* Are frames closed between calls, so that they are to be opened to be written to? */
bool crn_frames_sealed(const struct crn_arena *a);
/* Nothing if frames are not sealed. Too many at once open all of them. */
void crn_frame_open(struct crn_arena *a, void *frame);
void crn_frames_close(struct crn_arena *a);

/*
 * Memory that is the engine's but lies elsewhere: it counts against memory_max until it is given
 * back. 0, or CAIRN_EMEMORY if it would take more than a quarter of that.
 */
int crn_arena_charge(struct crn_arena *a, uint64_t len);
void crn_arena_discharge(struct crn_arena *a, uint64_t len);

/*
 * Until it ends memory_max does not hold, for who cannot go back and needs a few pages more. What
 * was taken beyond it stays.
 */
void crn_arena_overdraw(struct crn_arena *a, bool begin);

bool crn_arena_owns(const struct crn_arena *a, uintptr_t addr);
uint64_t crn_arena_bytes(const struct crn_arena *a);     /* committed now */
uint64_t crn_arena_bytes_max(const struct crn_arena *a); /* the most there ever was */
enum crn_arena_part {
	CRN_ARENA_OPEN, /* the header and the open blocks */
	CRN_ARENA_BLOCKS,
	CRN_ARENA_FRAMES,
};
/* The committed memory of a part; may be empty. */
void crn_arena_part(
	const struct crn_arena *a, enum crn_arena_part part, uintptr_t *begin, uintptr_t *end);
/* Frames that somebody owns. For tests. */
uint64_t crn_arena_frames_used(const struct crn_arena *a);
/* Walk the free list and compare all counts; traps. The arena must be at rest. */
void crn_arena_check(const struct crn_arena *a);
void crn_arena_range(const struct crn_arena *a, uintptr_t *begin, uintptr_t *end);

#endif
