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

/* A longer delta is not worth it: two of these fill a frame (CRN_FIFO_CAPACITY). */
#define CRN_DELTA_MAX 2040u

/*
 * What a delta from one page to another will note: made first, because only then its size is known.
 */
struct crn_delta_plan {
	uint64_t lines;
	size_t size; /* of the delta; 0: longer than CRN_DELTA_MAX */
	size_t line_count;
	uint64_t words[8]; /* words[n] of the delta, bytes */
};
/* `lines`: those that may differ (crn_guarded_lines); the others of `now` are not looked at. */
void crn_delta_plan(
	struct crn_delta_plan *plan, uint64_t lines, const void *frame, const void *now);

/*
 * Write the planned delta that leads from `frame` (old) to `now` (new) to `out` (plan->size bytes,
 * 8-aligned) and make frame equal to it in the words noted.
 */
void crn_delta_make(void *out, const struct crn_delta_plan *plan, void *frame, const void *now);

size_t crn_delta_size(const void *delta);

/* page ^= delta: from the newer version to the older one, and back. */
void crn_delta_apply(void *page, const void *delta);

#endif
