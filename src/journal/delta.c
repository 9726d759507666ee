/* SPDX-License-Identifier: MIT */
#include "journal/delta.h"

#include "base/bits.h"
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

/* Which words of two lines differ. */
static unsigned line_words(const uint64_t *a, const uint64_t *b)
{
	unsigned words = 0;

#pragma GCC unroll 8
	for (unsigned i = 0; i < WORDS_PER_LINE; i++)
		words |= (unsigned)(a[i] != b[i]) << i;
	return words;
}

/* Of `lines` and `words`. */
static size_t masks_size(size_t line_count)
{
	return 8 + ((line_count + 7) & ~(size_t)7);
}

size_t crn_delta_bound(uint64_t lines)
{
	size_t n = popcount64(lines);

	return masks_size(n) + n * WORDS_PER_LINE * 8;
}

size_t crn_delta_plan(uint64_t lines, const void *frame, const void *now)
{
	size_t size = masks_size(popcount64(lines));

	for (uint64_t rest = lines; rest; rest &= rest - 1) {
		size_t at = (size_t)__builtin_ctzll(rest) * WORDS_PER_LINE;

		size += 8 * popcount64(line_words(
				    (const uint64_t *)frame + at, (const uint64_t *)now + at));
	}
	return size <= CRN_DELTA_MAX ? size : 0;
}

/*
 * Without a branch: each word's difference is written, and the next one over it if it is none. So
 * no more than crn_delta_bound is ever touched.
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

static size_t make_by_words(void *out, uint64_t lines, void *frame, const void *now)
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
	return (size_t)((char *)x - (char *)out);
}

size_t crn_delta_make(void *out, uint64_t lines, void *frame, const void *now)
{
	bool wide = crn_guarded_registers >= CRN_LINES_WHOLE;

	return (wide ? crn_delta_make_wide : make_by_words)(out, lines, frame, now);
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
