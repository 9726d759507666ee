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
	uint8_t words = 0;

	for (unsigned i = 0; i < WORDS_PER_LINE; i++)
		words |= (uint8_t)((a[i] != b[i]) << i);
	return words;
}

static size_t masks_size(uint64_t lines)
{
	return 8 + ((popcount64(lines) + 7) & ~(size_t)7);
}

void crn_delta_plan(
	struct crn_delta_plan *plan, uint64_t lines, const void *frame, const void *now)
{
	size_t size = masks_size(lines);
	size_t n = 0;

	plan->lines = lines;
	for (uint64_t rest = lines; rest; rest &= rest - 1) {
		size_t at = (size_t)__builtin_ctzll(rest) * WORDS_PER_LINE;
		uint8_t words =
			line_words((const uint64_t *)frame + at, (const uint64_t *)now + at);

		plan->words[n++] = words;
		size += 8 * popcount64(words);
	}
	while (n & 7)
		plan->words[n++] = 0; /* padding, so that equal deltas are equal bytes */
	plan->size = size <= CRN_DELTA_MAX ? size : 0;
}

void crn_delta_make(void *out, const struct crn_delta_plan *plan, void *frame, const void *now)
{
	uint64_t *x = (uint64_t *)((char *)out + masks_size(plan->lines));
	const uint8_t *words = plan->words;

	*(uint64_t *)out = plan->lines;
	for (uint64_t *masks = (uint64_t *)out + 1; masks < x; masks++, words += 8)
		*masks = *(const uint64_t *)words;
	words = plan->words;
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
	size_t size = masks_size(lines);

	for (int n = (int)popcount64(lines); n > 0; n--)
		size += 8 * popcount64(*words++);
	return size;
}

void crn_delta_apply(void *page, const void *delta)
{
	uint64_t lines = *(const uint64_t *)delta;
	const uint8_t *words = (const uint8_t *)delta + 8;
	const uint64_t *x = (const uint64_t *)((const char *)delta + masks_size(lines));

	for (; lines; lines &= lines - 1) {
		uint64_t *line = (uint64_t *)page + (size_t)__builtin_ctzll(lines) * WORDS_PER_LINE;

		for (unsigned w = *words++; w; w &= w - 1)
			line[__builtin_ctz(w)] ^= *x++;
	}
}
