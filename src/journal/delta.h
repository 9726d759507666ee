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
 * `lines`: those that may differ (crn_guarded_lines); the others are not looked at. The size of the
 * delta that leads from `frame` (old) to `now` (new): at most, and exactly, or 0 if it is longer
 * than CRN_DELTA_MAX.
 */
size_t crn_delta_bound(uint64_t lines);
size_t crn_delta_plan(uint64_t lines, const void *frame, const void *now);

/*
 * Write the delta to `out` (8-aligned) and make frame equal to `now` in these lines. Its size. No
 * more is written than crn_delta_bound, and no more than a line beyond the delta.
 */
size_t crn_delta_make(void *out, uint64_t lines, void *frame, const void *now);
/* A part of it: by whole lines, where there are such registers (delta_wide.S). */
size_t crn_delta_make_wide(void *out, uint64_t lines, void *frame, const void *now)
	__attribute__((visibility("hidden")));

size_t crn_delta_size(const void *delta);

/* page ^= delta: from the newer version to the older one, and back. */
void crn_delta_apply(void *page, const void *delta);

#endif
