/* SPDX-License-Identifier: MIT */
/*
 * Blocks out of frames. Both ends of the arena share memory_max, and what one of them has been
 * given it keeps: when frames have all of it, a table that must grow finds room only there.
 */
#include "base/arena_inside.h"
#include "base/copy.h"

/* Frames that nobody has had yet, as one piece, or NULL. */
static char *take_fresh(struct crn_arena *a, size_t len)
{
	uintptr_t begin = atomic_load(&a->frames_begin);

	do {
		if (begin - atomic_load(&a->frames_committed) < len)
			return NULL;
	} while (!atomic_compare_exchange_weak(&a->frames_begin, &begin, begin - len));
	return (char *)(begin - len);
}

/* A window of as many frames as one has bits. */
#define WINDOW_FRAMES (CRN_PAGE_SIZE * 8)

/* The first `pages` neighbours of a chain of free frames, from frame number `first` on; or 0. */
static uint32_t find_neighbours(const struct crn_arena *a, uint32_t chain, uint32_t first,
	size_t pages, uint8_t *bits)
{
	size_t run = 0;

	crn_fill(bits, 0, CRN_PAGE_SIZE);
	for (; chain; chain = atomic_load(&crn_frame_at(a, chain)->next))
		if (chain - first < WINDOW_FRAMES)
			bits[(chain - first) / 8] |= 1u << (chain - first) % 8;
	for (uint32_t i = 0; i < WINDOW_FRAMES; i++) {
		run = bits[i / 8] >> i % 8 & 1 ? run + 1 : 0;
		if (run == pages)
			return first + i + 1 - (uint32_t)pages;
	}
	return 0;
}

/* Free frames that are neighbours, or NULL. Meanwhile nobody else finds a free one. */
static char *take_neighbours(struct crn_arena *a, size_t pages)
{
	uint32_t chain = 0, found = 0, next;
	struct crn_free_frame *f;
	void *bits = crn_frame_take_free(a);

	while (bits && (f = crn_frame_take_free(a))) {
		atomic_store(&f->next, chain);
		chain = crn_frame_number(a, f);
	}
	for (uintptr_t at = atomic_load(&a->frames_begin); chain && at < a->end && !found;
		at += (uintptr_t)WINDOW_FRAMES << CRN_PAGE_SHIFT)
		found = find_neighbours(a, chain, crn_frame_number(a, (void *)at), pages, bits);
	for (; chain; chain = next) {
		next = atomic_load(&crn_frame_at(a, chain)->next);
		if (!found || chain - found >= pages)
			crn_frame_free(a, crn_frame_at(a, chain));
	}
	if (bits)
		crn_frame_free(a, bits);
	return found ? (char *)crn_frame_at(a, found) : NULL;
}

int crn_blocks_from_frames(struct crn_arena *a)
{
	size_t size = (size_t)1 << a->refused, len = CRN_MAX(size, CRN_PAGE_SIZE);
	char *frames;

	/* Closed again they could not be written to. */
	if (!a->refused || a->seal)
		return 0;
	frames = take_fresh(a, len);
	if (!frames)
		frames = len > CRN_PAGE_SIZE ? take_neighbours(a, crn_pages(len))
					     : crn_frame_take_free(a);
	if (!frames)
		return CAIRN_EMEMORY;
	for (size_t at = 0; at < len; at += size)
		crn_block_free(a, frames + at, size);
	a->refused = 0;
	return 1;
}
