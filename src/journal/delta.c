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

/*
 * One line per turn of the loop. Legacy (not VEX) SSE2 leaves the upper halves of ymm and zmm
 * alone, so that saving the five xmm registers used is enough. The stack below is scratch of our
 * own: a leaf's red zone is not touched because the save area is an operand.
 */
uint64_t crn_delta_lines(const void *a, const void *b)
{
	uint8_t saved[5][16] __attribute__((aligned(16)));
	uint64_t lines = 0;
	uint64_t bit = 1;

	__asm__ volatile("movaps %%xmm0, (%[s])\n\t"
			 "movaps %%xmm1, 16(%[s])\n\t"
			 "movaps %%xmm2, 32(%[s])\n\t"
			 "movaps %%xmm3, 48(%[s])\n\t"
			 "movaps %%xmm4, 64(%[s])\n\t"
			 "pxor %%xmm4, %%xmm4\n\t"
			 "1:\n\t"
			 "movdqa (%[a]), %%xmm0\n\t"
			 "movdqa 16(%[a]), %%xmm1\n\t"
			 "movdqa 32(%[a]), %%xmm2\n\t"
			 "movdqa 48(%[a]), %%xmm3\n\t"
			 "pxor (%[b]), %%xmm0\n\t"
			 "pxor 16(%[b]), %%xmm1\n\t"
			 "pxor 32(%[b]), %%xmm2\n\t"
			 "pxor 48(%[b]), %%xmm3\n\t"
			 "por %%xmm1, %%xmm0\n\t"
			 "por %%xmm3, %%xmm2\n\t"
			 "por %%xmm2, %%xmm0\n\t"
			 "pcmpeqb %%xmm4, %%xmm0\n\t"
			 "pmovmskb %%xmm0, %%eax\n\t"
			 "add $64, %[a]\n\t"
			 "add $64, %[b]\n\t"
			 "xor $0xffff, %%eax\n\t"
			 "neg %%eax\n\t" /* carry: the line differs */
			 "sbb %%rax, %%rax\n\t"
			 "and %[bit], %%rax\n\t"
			 "or %%rax, %[lines]\n\t"
			 "add %[bit], %[bit]\n\t"
			 "jnz 1b\n\t"
			 "movaps (%[s]), %%xmm0\n\t"
			 "movaps 16(%[s]), %%xmm1\n\t"
			 "movaps 32(%[s]), %%xmm2\n\t"
			 "movaps 48(%[s]), %%xmm3\n\t"
			 "movaps 64(%[s]), %%xmm4\n\t"
			 : [a] "+r"(a), [b] "+r"(b), [lines] "+r"(lines), [bit] "+r"(bit)
			 : [s] "r"(saved)
			 : "rax", "cc", "memory");
	return lines;
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

void crn_delta_plan(struct crn_delta_plan *plan, const void *frame, const void *live)
{
	uint64_t lines = crn_delta_lines(frame, live);
	size_t size = masks_size(lines);
	size_t n = 0;

	plan->lines = lines;
	for (uint64_t rest = lines; rest; rest &= rest - 1) {
		size_t at = (size_t)__builtin_ctzll(rest) * WORDS_PER_LINE;
		uint8_t words =
			line_words((const uint64_t *)frame + at, (const uint64_t *)live + at);

		plan->words[n++] = words;
		size += 8 * popcount64(words);
	}
	while (n & 7)
		plan->words[n++] = 0; /* padding, so that equal deltas are equal bytes */
	plan->size = size <= CRN_DELTA_MAX ? size : 0;
}

void crn_delta_make(void *out, const struct crn_delta_plan *plan, void *frame, const void *live)
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
			uint64_t old = ((uint64_t *)frame)[i];
			uint64_t now = ((const volatile uint64_t *)live)[i];

			*x++ = old ^ now;
			((uint64_t *)frame)[i] = now;
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
