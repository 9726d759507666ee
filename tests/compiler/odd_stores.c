/* SPDX-License-Identifier: MIT */
/*
 * Stores that are no store of LLVM's: by libatomic, by __builtin_setjmp, by FXSAVE and XSAVE,
 * and by instructions of AVX-512, if there are any. argv: TRACKER.
 */
#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define WIDE __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq"), noinline))
#define LEN  (5 << 14)

/* A 32-bit program has none of those that keep 64-bit registers. */
#ifdef __x86_64__
#define XSAVEOPT _xsaveopt64
#define XSAVEC   _xsavec64
#else
#define XSAVEOPT _xsaveopt
#define XSAVEC   _xsavec
#endif

struct pair {
	long a, b;
};
struct row {
	long cells[5];
};

static char memory[LEN] __attribute__((aligned(128)));
static _Atomic struct pair pair;
static _Atomic struct row row;
static struct row seen;
static void *jump[5];

__attribute__((noinline)) static void store_atomics(long n, struct row *expected)
{
	const struct row next = { { n, n, n, n, n } };

	pair = (struct pair){ n, n };
	__c11_atomic_store(&row, next, __ATOMIC_SEQ_CST);
	seen = __c11_atomic_exchange(&row, *expected, __ATOMIC_SEQ_CST);
	__c11_atomic_compare_exchange_strong(
		&row, expected, next, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

__attribute__((noinline)) static void take_jump(int depth)
{
	char frame[64];

	memset(frame, depth, sizeof(frame));
	__asm__ volatile("" ::"r"(frame) : "memory");
	if (depth)
		take_jump(depth - 1);
	else if (__builtin_setjmp(jump))
		memory[0] = 1;
	__asm__ volatile("" ::"r"(frame) : "memory");
}

static WIDE void store_lanes(char *at, unsigned mask)
{
	const __m512i spread = _mm512_mullo_epi32(_mm512_set1_epi32(37),
		_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
	const __m256i half = _mm512_castsi512_si256(spread);
	const __m512i ones = _mm512_set1_epi32(0x01010101);

	_mm512_mask_i32scatter_epi32(at, (__mmask16)mask, spread, ones, 4);
	_mm512_mask_i64scatter_epi32(at + 2500, (__mmask8)mask, _mm512_cvtepi32_epi64(half),
		_mm512_castsi512_si256(ones), 2);
	_mm512_mask_i32scatter_pd(at + 3200, (__mmask8)mask, half, _mm512_set1_pd(1), 1);
	_mm_mask_i64scatter_ps(at + 3600, (__mmask8)mask, _mm_set_epi64x(9, 0), _mm_set1_ps(1), 8);
	_mm512_mask_cvtepi32_storeu_epi8(at + 3800, (__mmask16)mask, ones);
	_mm512_mask_cvtusepi64_storeu_epi32(at + 4000, (__mmask8)mask, ones);
	_mm512_mask_cvtsepi16_storeu_epi8(at + 4200, mask, ones);
	_mm_mask_cvtepi64_storeu_epi16(at + 4400, (__mmask8)mask, _mm_set1_epi8(1));
}

__attribute__((target("fxsr"), noinline)) static void store_registers(void)
{
	_fxsave(memory + 5120);
#ifdef __x86_64__
	_fxsave64(memory + 6144);
#endif
}

/* Each in an area of its own, at the end of which is the last byte that it may write. */
__attribute__((target("xsave"), noinline)) static void store_state(long long mask)
{
	_xsave(memory + 16384, mask);
#ifdef __x86_64__
	_xsave64(memory + 2 * 16384, mask);
#endif
}

__attribute__((target("xsave,xsaveopt"), noinline)) static void store_changed_state(long long mask)
{
	XSAVEOPT(memory + 3 * 16384, mask);
}

__attribute__((target("xsave,xsavec"), noinline)) static void store_compact_state(long long mask)
{
	XSAVEC(memory + 4 * 16384, mask);
}

static void store_all_state(void)
{
	unsigned a = 0, b, c = 0, d;

	__cpuid(1, a, b, c, d);
	if (!(c & bit_OSXSAVE))
		return;
	store_state(-1);
	__cpuid_count(0xd, 1, a, b, c, d);
	if (a & 1)
		store_changed_state(-1);
	if (a & 2)
		store_compact_state(-1);
}

/* An area without room for more than was asked for, where nothing is behind it. */
__attribute__((target("xsave,xsavec"), noinline)) static void store_state_at_edge(void)
{
	unsigned a = 0, b, c = 0, d;
	char *edge;

	__cpuid(1, a, b, c, d);
	if (!(c & bit_OSXSAVE))
		return;
	edge = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(edge != MAP_FAILED && !munmap(edge + 4096, 4096));
	_xsave(edge + 4096 - 576, 3);
}

/* Lanes that are masked out may lie where nothing is. */
static void store_at_edge(void)
{
	char *edge = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		0);

	CHECK(edge != MAP_FAILED && !munmap(edge + 2 * 4096, 2 * 4096));
	store_lanes(edge + 2 * 4096 - 4402, 1);
}

int main(int argc, char **argv)
{
	const int wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("avx512dq");
	static struct row expected, copies[3];
	static char copy[LEN];
	static void *jump_copy[5];
	uint64_t id;
	cairn_t *c;

	CHECK(argc == 2);
	memset(memory, 'm', LEN);
	c = test_open_built(argv[1]);
	store_atomics(1, &expected);
	take_jump(1);
	memcpy(copy, memory, LEN);
	memcpy(jump_copy, jump, sizeof(jump));
	memcpy(copies, &row, sizeof(row));
	copies[1] = seen;
	copies[2] = expected;
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	store_atomics(2, &expected);
	take_jump(4);
	store_registers();
	store_all_state();
	if (wide)
		store_lanes(memory + 100, 0xa5a5a5a5u);
	CHECK(((struct pair *)&pair)->a == 2 && memcmp(jump, jump_copy, sizeof(jump)));
	CHECK(!wide || memcmp(memory, copy, LEN));
	CHECK_OK(cairn_rewind(c, id));
	CHECK(((struct pair *)&pair)->a == 1 && ((struct pair *)&pair)->b == 1);
	CHECK(!memcmp(copies, &row, sizeof(row)));
	CHECK(!memcmp(copies + 1, &seen, sizeof(seen)));
	CHECK(!memcmp(copies + 2, &expected, sizeof(expected)));
	CHECK(!memcmp(jump, jump_copy, sizeof(jump)));
	CHECK(!memcmp(memory, copy, LEN));
	if (wide)
		store_at_edge();
	store_state_at_edge();
	CHECK_OK(cairn_close(c));
	if (!wide) {
		printf("SKIP: AVX-512\n");
		return 77;
	}
	return 0;
}
