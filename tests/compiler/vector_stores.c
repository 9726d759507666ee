/* SPDX-License-Identifier: MIT */
/*
 * Stores that LLVM has intrinsics of x86 for, in place of instructions of its own: lanes under a
 * mask that is not known. argv: TRACKER.
 */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define AVX2 __attribute__((target("avx2"), noinline))
#define LEN  4096

static char memory[LEN] __attribute__((aligned(128)));

static AVX2 void store_lanes(char *at, __m256i mask, __m128i bytes)
{
	_mm256_maskstore_epi32((int *)at, mask, _mm256_set1_epi32(7));
	_mm256_maskstore_epi64((long long *)(at + 200), mask, _mm256_set1_epi64x(8));
	_mm256_maskstore_ps((float *)(at + 400), mask, _mm256_set1_ps(9));
	_mm256_maskstore_pd((double *)(at + 600), mask, _mm256_set1_pd(10));
	_mm_maskstore_epi32((int *)(at + 800), bytes, _mm_set1_epi32(11));
	_mm_maskstore_pd((double *)(at + 1000), bytes, _mm_set1_pd(12));
	_mm_maskmoveu_si128(_mm_set1_epi8(13), bytes, at + 1200);
	_mm_maskmove_si64(_mm_set1_pi8(14), _mm_movepi64_pi64(bytes), at + 1400);
}

/* All of it, by a register of MMX; clang 19 has intrinsics for these, newer ones take SSE's. */
static AVX2 void store_word(char *at)
{
	_mm_stream_pi((__m64 *)at, _mm_set1_pi8(15));
	_mm_empty();
}

static AVX2 void store_all(char *at, const int *mask, const char *bytes)
{
	store_lanes(at, _mm256_loadu_si256((const __m256i *)mask),
		_mm_loadu_si128((const __m128i *)bytes));
}

/* Lanes that are masked out may lie where nothing is. */
static void store_at_edge(int *mask, char *bytes)
{
	char *edge = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		0);

	CHECK(edge != MAP_FAILED && !munmap(edge + 4096, 2 * 4096));
	memset(mask, 0, 8 * sizeof(*mask));
	memset(bytes, -1, 4);
	memset(bytes + 4, 0, 12);
	store_all(edge + 4092 - 1400, mask, bytes);
	CHECK(edge[4092] == 14 && edge[4095] == 14);
	store_all(edge + 4092 - 1200, mask, bytes);
	CHECK(edge[4092] == 13 && edge[4095] == 13);
}

int main(int argc, char **argv)
{
	static int mask[8] = { -1, 0, -1, -1, 0, 0, -1, 0 };
	static char bytes[16] = { -1, 0, 0, -1, -1, 0, 0, -1, 0, 0, 0, -1, 0, 0, 0, -1 };
	static char copy[LEN];
	uint64_t id;
	cairn_t *c;

	if (!__builtin_cpu_supports("avx2")) {
		printf("SKIP: AVX2\n");
		return 77;
	}
	CHECK(argc == 2);
	memset(memory, 'm', LEN);
	memcpy(copy, memory, LEN);
	c = test_open_built(argv[1]);
	if (cairn_checkpoint(c, &id) == CAIRN_TAKEN) {
		store_all(memory + 100, mask, bytes);
		store_word(memory + 2008);
		CHECK(memory[1500] == 14 && memory[2008] == 15);
		CHECK_OK(cairn_restore(c, id)); /* does not return */
	}
	CHECK(!memcmp(memory, copy, LEN));
	store_at_edge(mask, bytes);
	CHECK_OK(cairn_close(c));
	return 0;
}
