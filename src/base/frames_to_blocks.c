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

#define WINDOW	(CRN_PAGE_SIZE * 8)		   /* frames that the bits of one stand for */
#define WINDOWS (CRN_PAGE_SIZE / sizeof(uint32_t)) /* of 128 MiB: frames further up are left out */

/* All free frames, by address. */
struct map {
	uint32_t first;	   /* frame number at which the first window begins */
	uint32_t *windows; /* the number of its frame of bits, or 0; a frame */
	uint32_t others;   /* a chain of those beyond the last window */
};

static uint8_t *bits_of(const struct crn_arena *a, const struct map *m, size_t window)
{
	return (uint8_t *)crn_frame_at(a, m->windows[window]);
}

static bool collect(struct crn_arena *a, struct map *m)
{
	struct crn_free_frame *f;

	m->first = crn_frame_number(a, (void *)atomic_load(&a->frames_begin));
	m->windows = crn_frame_take_free(a);
	if (!m->windows)
		return false;
	crn_fill(m->windows, 0, CRN_PAGE_SIZE);
	while ((f = crn_frame_take_free(a))) {
		uint32_t number = crn_frame_number(a, f), at = number - m->first;

		if (at / WINDOW >= WINDOWS) {
			atomic_store(&f->next, m->others);
			m->others = number;
		} else if (!m->windows[at / WINDOW]) {
			m->windows[at / WINDOW] = number;
			crn_fill(f, 0, CRN_PAGE_SIZE);
		} else {
			bits_of(a, m, at / WINDOW)[at % WINDOW / 8] |= 1u << at % 8;
		}
	}
	return true;
}

/* The number of the first of so many neighbours, or 0. */
static uint32_t find(const struct crn_arena *a, const struct map *m, size_t pages)
{
	size_t run = 0;

	for (size_t window = 0; window < WINDOWS; window++) {
		const uint8_t *bits = m->windows[window] ? bits_of(a, m, window) : NULL;

		run = bits ? run : 0;
		for (size_t i = 0; bits && i < WINDOW; i++) {
			run = bits[i / 8] >> i % 8 & 1 ? run + 1 : 0;
			if (run == pages)
				return m->first + (uint32_t)(window * WINDOW + i + 1 - pages);
		}
	}
	return 0;
}

static void give_back(struct crn_arena *a, const struct map *m, uint32_t but, size_t pages)
{
	for (uint32_t number = m->others, next; number; number = next) {
		next = atomic_load(&crn_frame_at(a, number)->next);
		crn_frame_free(a, crn_frame_at(a, number));
	}
	for (size_t window = 0; window < WINDOWS; window++) {
		uint32_t first = m->first + (uint32_t)(window * WINDOW);

		if (!m->windows[window])
			continue;
		for (uint32_t i = 0; i < WINDOW; i++)
			if (bits_of(a, m, window)[i / 8] >> i % 8 & 1 &&
				(!but || first + i - but >= pages))
				crn_frame_free(a, crn_frame_at(a, first + i));
		crn_frame_free(a, bits_of(a, m, window));
	}
	crn_frame_free(a, m->windows);
}

/* Free frames that are neighbours, or NULL. Meanwhile nobody else finds a free one. */
static char *take_neighbours(struct crn_arena *a, size_t pages)
{
	struct map m = { .others = 0 };
	uint32_t found;

	if (!collect(a, &m))
		return NULL;
	found = find(a, &m, pages);
	give_back(a, &m, found, pages);
	return found ? (char *)crn_frame_at(a, found) : NULL;
}

void crn_blocks_forget_refusal(struct crn_arena *a)
{
	a->refused = 0;
}

int crn_blocks_from_frames(struct crn_arena *a)
{
	size_t size = (size_t)1 << a->refused, len = CRN_MAX(size, CRN_PAGE_SIZE);
	char *frames;

	/* Closed again they could not be written to. And so much there may never be. */
	if (!a->refused || a->seal || len > a->end - atomic_load(&a->frames_committed))
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
