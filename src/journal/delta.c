/* SPDX-License-Identifier: MIT */
#include "journal/delta.h"

#include <errno.h>
#include "base/bits.h"
#include "base/status.h"
#include "os/guarded.h"

#define WORDS_PER_LINE 8

/* In plain instructions: the compiler would call libgcc where popcnt cannot be assumed. */
static unsigned popcount64(uint64_t x)
{
	x -= (x >> 1) & 0x5555555555555555;
	x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (unsigned)((x * 0x0101010101010101) >> 56);
}

/* Of `lines` and `words`. */
static size_t masks_size(size_t line_count)
{
	return 8 + ((line_count + 7) & ~(size_t)7);
}

/*
 * Without a branch: each word's difference is written, and the next one over it if it is none. So
 * no more than all words of the line are ever touched.
 */
static uint64_t *line_delta(uint64_t *x, uint64_t *frame, const uint64_t *now, uint64_t *words)
{
	unsigned bits = 0;

#pragma GCC unroll 8
	for (unsigned i = 0; i < WORDS_PER_LINE; i++) {
		uint64_t word = now[i], differs = frame[i] ^ word;

		frame[i] = word;
		*x = differs;
		x += differs != 0;
		bits |= (unsigned)(differs != 0) << i;
	}
	*words = bits;
	return x;
}

static int make_by_words(void *out, uint64_t lines, void *frame, const void *now)
{
	uint64_t *masks = out, group = 0, words;
	uint64_t *x = (uint64_t *)((char *)out + masks_size(popcount64(lines)));
	unsigned n = 0;

	*masks++ = lines;
	for (uint64_t rest = lines; rest; rest &= rest - 1) {
		size_t at = (size_t)__builtin_ctzll(rest) * WORDS_PER_LINE;

		x = line_delta(x, (uint64_t *)frame + at, (const uint64_t *)now + at, &words);
		group |= words << n % 8 * 8;
		if (++n % 8)
			continue;
		*masks++ = group;
		group = 0;
	}
	if (n % 8)
		*masks = group; /* padding is 0: equal deltas are equal bytes */
	return (int)((char *)x - (char *)out);
}

/* What differs is copied first: the page may be stored to, or vanish, while we look. */
static int make_narrow(const struct crn_delta_run *r, void *now)
{
	void *frame = r->page->to;
	uint64_t lines;
	size_t n, bound;

	CRN_TRY(crn_guarded_lines(frame, r->page->from, &lines));
	n = popcount64(lines);
	bound = masks_size(n) + n * WORDS_PER_LINE * 8;
	if (bound > CRN_MIN(r->room, r->longest))
		return -ENOSPC;
	CRN_TRY(crn_guarded_copy_lines(now, r->page->from, lines));
	return make_by_words(r->out, lines, frame, now);
}

static int make_all_narrow(struct crn_delta_run *r, void *now)
{
	for (; r->left; crn_delta_next(r)) {
		int size = make_narrow(r, now);

		CRN_TRY(size);
		r->page->to = r->out;
		r->out = (char *)r->out + size;
		r->room -= (size_t)size;
	}
	return 0;
}

/* In delta_wide.S. */
_Static_assert(sizeof(void *) != 8 ||
		(offsetof(struct crn_delta_run, longest) == 16 &&
			offsetof(struct crn_delta_run, page) == 24 &&
			offsetof(struct crn_delta_run, left) == 40 &&
			offsetof(struct crn_page_copy, from) == 8),
	"crn_delta_run");

int crn_delta_make(struct crn_delta_run *r, void *scratch)
{
	int err;

	if (crn_guarded_registers < CRN_LINES_WHOLE)
		return make_all_narrow(r, scratch);
	err = crn_delta_make_wide(r);
	if (crn_likely(err != -EINTR))
		return err;
	crn_delta_apply(r->page->to, r->out);
	return -EFAULT;
}

size_t crn_delta_size(const void *delta)
{
	uint64_t lines = *(const uint64_t *)delta;
	const uint8_t *words = (const uint8_t *)delta + 8;
	size_t size = masks_size(popcount64(lines));

	for (int n = (int)popcount64(lines); n > 0; n--)
		size += 8 * popcount64(*words++);
	return size;
}

void crn_delta_apply(void *page, const void *delta)
{
	uint64_t lines = *(const uint64_t *)delta;
	const uint8_t *words = (const uint8_t *)delta + 8;
	const uint64_t *x = (const uint64_t *)((const char *)delta + masks_size(popcount64(lines)));

	for (; lines; lines &= lines - 1) {
		uint64_t *line = (uint64_t *)page + (size_t)__builtin_ctzll(lines) * WORDS_PER_LINE;

		for (unsigned w = *words++; w; w &= w - 1)
			line[__builtin_ctz(w)] ^= *x++;
	}
}
