/* SPDX-License-Identifier: MIT */
#include "journal/delta.h"

#include "base/bits.h"

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
static uint8_t line_words(const uint64_t *a, const uint64_t *b)
{
	unsigned words = 0;

#pragma GCC unroll 8
	for (unsigned i = 0; i < WORDS_PER_LINE; i++)
		words |= (unsigned)(a[i] != b[i]) << i;
	return (uint8_t)words;
}

/* Of `lines` and `words`. */
static size_t masks_size(size_t line_count)
{
	return 8 + ((line_count + 7) & ~(size_t)7);
}

void crn_delta_plan(
	struct crn_delta_plan *plan, uint64_t lines, const void *frame, const void *now)
{
	uint8_t *words = (uint8_t *)plan->words;
	size_t n = 0, size = 0;

	plan->lines = lines;
	for (uint64_t rest = lines; rest; rest &= rest - 1) {
		size_t at = (size_t)__builtin_ctzll(rest) * WORDS_PER_LINE;

		if (!(n & 7))
			plan->words[n / 8] = 0; /* padding: equal deltas are equal bytes */
		words[n++] = line_words((const uint64_t *)frame + at, (const uint64_t *)now + at);
	}
	for (size_t i = 0; i < n; i += 8)
		size += 8 * popcount64(plan->words[i / 8]);
	size += masks_size(n);
	plan->line_count = n;
	plan->size = size <= CRN_DELTA_MAX ? size : 0;
}

void crn_delta_make(void *out, const struct crn_delta_plan *plan, void *frame, const void *now)
{
	uint64_t *x = (uint64_t *)((char *)out + masks_size(plan->line_count));
	const uint8_t *words = (const uint8_t *)plan->words;

	*(uint64_t *)out = plan->lines;
	for (size_t i = 0; i < plan->line_count; i += 8)
		((uint64_t *)out)[1 + i / 8] = plan->words[i / 8];
	for (uint64_t rest = plan->lines; rest; rest &= rest - 1) {
		size_t at = (size_t)__builtin_ctzll(rest) * WORDS_PER_LINE;

		for (unsigned w = *words++; w; w &= w - 1) {
			size_t i = at + (size_t)__builtin_ctz(w);
			uint64_t word = ((const uint64_t *)now)[i];

			*x++ = ((uint64_t *)frame)[i] ^ word;
			((uint64_t *)frame)[i] = word;
		}
	}
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
