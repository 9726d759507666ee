/* SPDX-License-Identifier: MIT */
/*
 * The difference of two versions of a page: old XOR new, without the words that are equal. XOR
 * undoes as well as it redoes, so one delta serves a journal that knows the newer page and a
 * history that knows the older.
 *
 *	offset 0          uint64_t lines      bit i: line i (64 bytes) differs
 *	8                 uint8_t words[n]    for each such line, bit i: word i (8 bytes) differs;
 *	                                      n = popcount(lines)
 *	8 + n, up to 8    uint64_t x[m]       old XOR new of each such word;
 *	                                      m = sum of popcount(words[i])
 *
 * Little endian; the length follows from the content. Bits may be set for words that are equal (x
 * is 0 then).
 */
#ifndef CRN_DELTA_H
#define CRN_DELTA_H

#include <stddef.h>
#include <stdint.h>
#include "base/sink.h"

/* A longer delta is not worth it: two of these fill a frame (CRN_FIFO_CAPACITY). */
#define CRN_DELTA_MAX 2040u

/* The longest delta of a page that there is. */
#define CRN_DELTA_LONGEST (8u + 64u + 4096u)

/* Pages of which deltas are to be made, and where to. */
struct crn_delta_run {
	void *out;      /* the next one; 8-aligned */
	size_t room;    /* bytes there, for all of them */
	size_t longest; /* bytes, for each of them */
	struct crn_page_copy *page; /* the next one: `to` is the frame, `from` the page */
	ptrdiff_t step; /* to the one after it, in bytes */
	size_t left;    /* > 0 */
};

static inline void crn_delta_next(struct crn_delta_run *r)
{
	r->page = (struct crn_page_copy *)((char *)r->page + r->step);
	r->left--;
}

/*
 * Write the delta that leads from the frame (old) to the page (new), make them equal, and put the
 * delta's address in `to`; and so on for the pages that are left. They may be the program's: what
 * others store to one meanwhile is in both, frame and delta, or in neither.
 *
 * 0, or why the one at r->page has no delta, and the frame is as it was. -ENOSPC: one of all words
 * of each line that differs would be longer than it may be. -EFAULT: the page has vanished. No more
 * is written than there is room, and no more than a line beyond the last delta. scratch is a page.
 */
int crn_delta_make(struct crn_delta_run *r, void *scratch);
/* Its greater part, by whole lines, where there are such registers (delta_wide.S). */
int crn_delta_make_wide(struct crn_delta_run *r) __attribute__((visibility("hidden")));

size_t crn_delta_size(const void *delta);

/* page ^= delta: from the newer version to the older one, and back. */
void crn_delta_apply(void *page, const void *delta);

#endif
