/* SPDX-License-Identifier: MIT */
/*
 * The difference of two versions of a page: old XOR new, without the words that are equal. XOR
 *undoes as well as it redoes, so one delta serves a journal that knows the newer page and a history
 *that knows the older.
 *
 *	offset 0          uint64_t lines      bit i: line i (64 bytes) differs
 *	8                 uint8_t words[n]    for each such line, bit i: word i (8 bytes) differs; n
 *= popcount(lines) 8 + n, up to 8    uint64_t x[m]       old XOR new of each such word; m = sum of
 *popcount(words[i])
 *
 * Little endian; the length follows from the content. Bits may be set for words that are equal (x
 *is 0 then).
 */
#ifndef CRN_DELTA_H
#define CRN_DELTA_H

#include <stddef.h>
#include <stdint.h>

/* A longer delta is not worth it: two of these fill a frame (CRN_FIFO_CAPACITY). */
#define CRN_DELTA_MAX 2040u

/*
 * Which lines of two pages differ, as a 64-bit mask. Uses SSE2 registers and puts them back: the
 * engine may not disturb the vector state of the program.
 */
uint64_t crn_delta_lines(const void *a, const void *b);

/* What a delta from one page to another will note: made first, because only then its size is known.
 */
struct crn_delta_plan {
	uint64_t lines;
	size_t size; /* of the delta; 0: longer than CRN_DELTA_MAX */
	uint8_t words[64] __attribute__((aligned(8)));
};
void crn_delta_plan(struct crn_delta_plan *plan, const void *frame, const void *live);

/*
 * Write the planned delta that leads from `frame` (old) to `live` (new) to `out` (plan->size bytes,
 * 8-aligned) and make frame equal to live in the words noted. live is read once for each of them,
 * so that a racing store is either in the delta and the frame, or in neither.
 */
void crn_delta_make(void *out, const struct crn_delta_plan *plan, void *frame, const void *live);

size_t crn_delta_size(const void *delta);

/* page ^= delta: from the newer version to the older one, and back. */
void crn_delta_apply(void *page, const void *delta);

#endif
