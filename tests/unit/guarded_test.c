/* SPDX-License-Identifier: MIT */
/*
 * Comparing, copying and hashing pages, by registers of each width, and those registers left alone.
 */
#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include "guarded_rig.h"
#include "journal/delta.h"

/*
 * Fill xmm0-7 with a pattern, compare pages, read them back: all in one asm so that the compiler is
 * out of the way.
 */
static void vector_registers_survive(void **state)
{
	uint8_t before[8][16], after[8][16];
	const void *x = a, *y = b;
	uint64_t lines, *to = &lines;
	int err;
	int (*volatile fn)(const void *, const void *, uint64_t *) = crn_guarded_lines;

	fill();
	b[17] = ~b[17];
	for (unsigned i = 0; i < sizeof(before); i++)
		((uint8_t *)before)[i] = (uint8_t)(i * 37 + 11);
	__asm__ volatile("movups 0(%[in]), %%xmm0\n\tmovups 16(%[in]), %%xmm1\n\t"
			 "movups 32(%[in]), %%xmm2\n\tmovups 48(%[in]), %%xmm3\n\t"
			 "movups 64(%[in]), %%xmm4\n\tmovups 80(%[in]), %%xmm5\n\t"
			 "movups 96(%[in]), %%xmm6\n\tmovups 112(%[in]), %%xmm7\n\t"
			 "mov %%rsp, %%r12\n\tsub $256, %%rsp\n\tand $-16, %%rsp\n\t"
			 "call *%[fn]\n\tmov %%r12, %%rsp\n\t"
			 "movups %%xmm0, 0(%[out])\n\tmovups %%xmm1, 16(%[out])\n\t"
			 "movups %%xmm2, 32(%[out])\n\tmovups %%xmm3, 48(%[out])\n\t"
			 "movups %%xmm4, 64(%[out])\n\tmovups %%xmm5, 80(%[out])\n\t"
			 "movups %%xmm6, 96(%[out])\n\tmovups %%xmm7, 112(%[out])\n\t"
			 : "=a"(err), "+D"(x), "+S"(y), "+d"(to)
			 : [in] "r"(before), [out] "b"(after), [fn] "r"(fn)
			 : "rcx", "r8", "r9", "r10", "r11", "r12", "xmm0", "xmm1", "xmm2",
			 "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "memory", "cc");
	assert_int_equal(err, 0);
	assert_int_equal(lines, 1u << 2);
	assert_memory_equal(before, after, sizeof(before));
}

/* From each line on, and around, the first that differs. */
static void first_line_from_a_hint(void **state)
{
	for (unsigned hint = 0; hint < CRN_LINES; hint++) {
		fill();
		assert_int_equal(crn_guarded_line(a, b, hint, a, b), CRN_LINES);
		for (unsigned behind = CRN_LINES; behind-- > 0;) {
			unsigned line = (hint + behind) % CRN_LINES;

			b[line * 8 + behind % 8] ^= 1ull << hint;
			assert_int_equal(crn_guarded_line(a, b, hint, a, b), line);
		}
	}
}

/* ---- Pages that cannot be read ----------------------------------------------------------- */

static void pages_before_it_are_copied(const void *none)
{
	static uint64_t to[3][WORDS] __attribute__((aligned(4096)));
	struct crn_page_copy copies[] = { { to[0], b }, { to[1], none }, { to[2], b } };

	for (unsigned good = 0; good <= 3; good++) {
		copies[1].from = good == 3 ? a : none;
		fill();
		a[5] = ~a[5];
		memset(to, 0, sizeof(to));
		assert_int_equal(crn_guarded_copy_pages(copies, good),
			good == 3 ? 3 : CRN_MIN(good, 1u));
		for (unsigned i = 0; i < WORDS; i++)
			assert_true(to[0][i] == (good ? b[i] : 0) &&
				to[2][i] == (good == 3 ? b[i] : 0));
		if (good == 3)
			assert_memory_equal(to[1], a, sizeof(a));
	}
}

static void unreadable_pages_are_failures(void **state)
{
	struct sigaction action = { .sa_sigaction = resume, .sa_flags = SA_SIGINFO }, before;
	void *none = mmap(NULL, CRN_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t lines, hash[2];

	assert_true(none != MAP_FAILED);
	sigaction(SIGSEGV, &action, &before);
	assert_int_equal(crn_guarded_lines(a, none, &lines), -EFAULT);
	assert_int_equal(crn_guarded_line(a, none, 5, a, none), 5);
	assert_int_equal(crn_guarded_copy_lines(out, none, 0x8000000000000010), -EFAULT);
	assert_int_equal(crn_guarded_copy_lines(out, none, 0), 0);
	if (crn_guarded_registers == CRN_LINES_HASHED)
		assert_int_equal(crn_guarded_hash(none, hash, a), -EFAULT);
	pages_before_it_are_copied(none);
	sigaction(SIGSEGV, &before, NULL);
	munmap(none, CRN_PAGE_SIZE);
}

/* ---- Registers of half a line ------------------------------------------------------------- */

/* Does XGETBV say which registers are in use? */
static bool tells_use(void)
{
	unsigned a1, b1, c1, d1;

	return __get_cpuid_count(0xd, 1, &a1, &b1, &c1, &d1) && a1 & 4;
}

#define HALVES 5u /* ymm0 to ymm3, which are used, and one that is not */

/*
 * What fn leaves of these, of which `before` has the lower halves alone if it is `clean`. Are any
 * upper halves in use then, so that instructions of SSE have to look after them?
 */
__attribute__((target("avx2,xsave"))) static bool call_halves(void *fn, const void *first,
	const void *second, void *third, uint8_t before[HALVES][32], uint8_t after[HALVES][32],
	bool clean)
{
	unsigned in_use = 4, high;

	__asm__ volatile("vzeroupper\n\ttest %[clean], %[clean]\n\tjz 1f\n\t"
			 "movups (%[in]), %%xmm0\n\tmovups 32(%[in]), %%xmm1\n\t"
			 "movups 64(%[in]), %%xmm2\n\tmovups 96(%[in]), %%xmm3\n\t"
			 "movups 128(%[in]), %%xmm9\n\tjmp 2f\n\t"
			 "1: vmovdqu (%[in]), %%ymm0\n\tvmovdqu 32(%[in]), %%ymm1\n\t"
			 "vmovdqu 64(%[in]), %%ymm2\n\tvmovdqu 96(%[in]), %%ymm3\n\t"
			 "vmovdqu 128(%[in]), %%ymm9\n\t"
			 "2: mov %%rsp, %%r12\n\tsub $256, %%rsp\n\tand $-16, %%rsp\n\t"
			 "mov %%rdi, %%rcx\n\tmov %%rsi, %%r8\n\t"
			 "call *%[fn]\n\tmov %%r12, %%rsp\n\t"
			 : "+D"(first), "+S"(second), "+d"(third)
			 : [in] "r"(before), [fn] "r"(fn), [clean] "r"((uint64_t)clean)
			 : "rax", "rcx", "r8", "r9", "r10", "r11", "r12", "memory", "cc");
	if (tells_use())
		__asm__ volatile("xgetbv" : "=a"(in_use), "=d"(high) : "c"(1));
	__asm__ volatile("vmovdqu %%ymm0, (%[out])\n\tvmovdqu %%ymm1, 32(%[out])\n\t"
			 "vmovdqu %%ymm2, 64(%[out])\n\tvmovdqu %%ymm3, 96(%[out])\n\t"
			 "vmovdqu %%ymm9, 128(%[out])\n\tvzeroupper\n\t"
			 :
			 : [out] "r"(after)
			 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm9", "memory");
	return in_use & 4;
}

/* `upper`: the one register of which the upper half is not zeros; HALVES: all; more: none. */
static void try_halves(const void *live, unsigned upper)
{
	struct crn_page_copy copy = { .to = out, .from = live };
	const struct {
		void *fn;
		const void *first, *second;
	} calls[] = {
		{ (void *)crn_guarded_lines, a, live },
		{ (void *)crn_guarded_line, a, live },
		{ (void *)crn_guarded_copy_pages, &copy, (void *)1 },
	};
	uint8_t before[HALVES][32], after[HALVES][32];
	bool clean = upper > HALVES;
	uint64_t lines;

	for (unsigned i = 0; i < sizeof(before); i++)
		before[i / 32][i % 32] =
			i % 32 < 16 || upper == HALVES || i / 32 == upper ? i * 37 + 11 : 0;
	for (size_t i = 0; i < CRN_ARRAY_SIZE(calls); i++) {
		bool used = call_halves(calls[i].fn, calls[i].first, calls[i].second,
			i == 1 ? NULL : &lines, before, after, clean);

		assert_memory_equal(before, after, sizeof(before));
		assert_true(used == !clean || !tells_use());
	}
}

static void half_registers_survive(void **state)
{
	struct sigaction action = { .sa_sigaction = resume, .sa_flags = SA_SIGINFO }, segv;
	void *none = mmap(NULL, CRN_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (crn_guarded_registers != CRN_HALVES)
		skip();
	fill();
	b[17] = ~b[17];
	sigaction(SIGSEGV, &action, &segv);
	for (unsigned upper = 0; upper <= HALVES + 1; upper++) {
		try_halves(b, upper);
		try_halves(none, upper);
	}
	sigaction(SIGSEGV, &segv, NULL);
	munmap(none, CRN_PAGE_SIZE);
}

/* Writing a half clears what lies above it: none may be written where that is not saved. */
static void registers_fit_the_processor(void **state)
{
	enum { BMI1 = 1 << 3, AVX2 = 1 << 5, F = 1 << 16, DQ = 1 << 17, BW = 1 << 30 };
	enum { VPCLMUL = 1 << 10, X87 = 1, HALF_STATE = X87 | 6, WIDE_STATE = HALF_STATE | 0xe0 };
	const unsigned VL = 1u << 31;
	const struct {
		unsigned features, more, state;
		enum crn_registers registers;
	} rows[] = {
		{ BMI1 | AVX2 | F | DQ | BW | VL, VPCLMUL, WIDE_STATE, CRN_LINES_HASHED },
		{ BMI1 | AVX2 | F | DQ | BW | VL, 0, WIDE_STATE, CRN_LINES_WHOLE },
		{ BMI1 | AVX2 | F | DQ | BW, VPCLMUL, WIDE_STATE, CRN_LINES_WHOLE },
		{ BMI1 | AVX2 | F | DQ | BW, 0, WIDE_STATE, CRN_LINES_WHOLE },
		{ BMI1 | AVX2 | F | DQ | BW, 0, WIDE_STATE | 1 << 9, CRN_LINES_WHOLE },
		{ BMI1 | AVX2 | F | BW | VL, VPCLMUL, WIDE_STATE, CRN_QUARTERS },
		{ BMI1 | AVX2 | F | DQ, 0, WIDE_STATE, CRN_QUARTERS },
		{ AVX2 | F | DQ | BW, 0, WIDE_STATE, CRN_QUARTERS },
		{ BMI1 | AVX2 | F | DQ | BW | VL, VPCLMUL, HALF_STATE, CRN_HALVES },
		{ BMI1 | AVX2 | F | DQ | BW, 0, X87 | 2, CRN_QUARTERS },
		{ BMI1 | AVX2, 0, HALF_STATE, CRN_HALVES },
		{ BMI1, 0, HALF_STATE, CRN_QUARTERS },
		{ BMI1 | AVX2, 0, X87 | 2, CRN_QUARTERS },
		{ BMI1 | AVX2, 0, 0, CRN_QUARTERS },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(
			crn_registers_for(rows[i].features, rows[i].more, rows[i].state),
			rows[i].registers);
}

/* ---- Registers of a whole line ------------------------------------------------------------- */

#define WIDE 6 /* from zmm16 on: more are not used */

/* What fn, called with these four, leaves of the registers that it uses. */
__attribute__((target("avx512f,avx512bw"))) static void call_wide(void *fn, const void *const of[4],
	uint8_t before[WIDE][64], uint8_t after[WIDE][64], uint64_t *mask)
{
	__asm__ volatile("vmovdqu64 (%[in]), %%zmm16\n\tvmovdqu64 64(%[in]), %%zmm17\n\t"
			 "vmovdqu64 128(%[in]), %%zmm18\n\tvmovdqu64 192(%[in]), %%zmm19\n\t"
			 "vmovdqu64 256(%[in]), %%zmm20\n\tvmovdqu64 320(%[in]), %%zmm21\n\t"
			 "kmovq (%[mask]), %%k1\n\t"
			 "mov %%rsp, %%r12\n\tsub $256, %%rsp\n\tand $-16, %%rsp\n\t"
			 "mov (%[of]), %%rdi\n\tmov 8(%[of]), %%rsi\n\t"
			 "mov 16(%[of]), %%rdx\n\tmov 24(%[of]), %%rcx\n\tmov %%rsi, %%r8\n\t"
			 "call *%[fn]\n\tmov %%r12, %%rsp\n\t"
			 "vmovdqu64 %%zmm16, (%[out])\n\tvmovdqu64 %%zmm17, 64(%[out])\n\t"
			 "vmovdqu64 %%zmm18, 128(%[out])\n\tvmovdqu64 %%zmm19, 192(%[out])\n\t"
			 "vmovdqu64 %%zmm20, 256(%[out])\n\tvmovdqu64 %%zmm21, 320(%[out])\n\t"
			 "kmovq %%k1, (%[mask])\n\t"
			 :
			 : [in] "a"(before), [out] "b"(after), [fn] "r"(fn), [mask] "r"(mask),
			 [of] "r"(of)
			 : "rcx", "rdx", "rdi", "rsi", "r8", "r9", "r10", "r11", "r12", "xmm16",
			 "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "k1", "memory", "cc");
}

static void try_wide(const void *live)
{
	uint64_t lines = 0, mask = 0xfedcba9876543210, hash[2];
	struct crn_page_copy copy = { .to = a, .from = live };
	struct crn_delta_run run = { .out = out, .room = sizeof(out),
		.longest = CRN_DELTA_LONGEST, .page = &copy, .left = 1 };
	uint8_t before[WIDE][64], after[WIDE][64];
	const struct {
		void *fn;
		const void *of[4];
	} calls[] = {
		{ (void *)crn_guarded_lines, { a, live, &lines } },
		{ (void *)crn_guarded_line, { a, live, NULL, a } },
		{ (void *)crn_guarded_copy_lines, { out, live, (void *)0x8000000000000004 } },
		{ (void *)crn_delta_make, { &run } },
		{ (void *)crn_guarded_hash, { live, hash, a } },
	};
	size_t count = CRN_ARRAY_SIZE(calls) - (crn_guarded_registers != CRN_LINES_HASHED);

	for (unsigned i = 0; i < sizeof(before); i++)
		before[i / 64][i % 64] = (uint8_t)(i * 37 + 11);
	for (size_t i = 0; i < count; i++) {
		call_wide(calls[i].fn, calls[i].of, before, after, &mask);
		assert_memory_equal(before, after, sizeof(before));
		assert_true(mask == 0xfedcba9876543210);
	}
}

static void wide_registers_survive(void **state)
{
	struct sigaction action = { .sa_sigaction = resume, .sa_flags = SA_SIGINFO }, segv;
	void *none = mmap(NULL, CRN_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (crn_guarded_registers < CRN_LINES_WHOLE)
		skip();
	fill();
	b[17] = ~b[17];
	sigaction(SIGSEGV, &action, &segv);
	try_wide(b);
	try_wide(none);
	sigaction(SIGSEGV, &segv, NULL);
	munmap(none, CRN_PAGE_SIZE);
}

/* ---- Hashes --------------------------------------------------------------------------------- */

/* In GF(2^64), bit by bit. */
static uint64_t times(uint64_t x, uint64_t y)
{
	uint64_t sum = 0;

	for (; y; y >>= 1) {
		sum ^= y & 1 ? x : 0;
		x = x << 1 ^ (x >> 63 ? 0x1b : 0);
	}
	return sum;
}

static void hash_slowly(const uint64_t *page, uint64_t hash[2])
{
	for (unsigned h = 0; h < 2; h++) {
		const uint64_t *keys = (const uint64_t *)(crn_guarded_keys + h * CRN_PAGE_SIZE);

		hash[h] = 0;
		for (unsigned i = 0; i < WORDS; i += 2)
			hash[h] ^= times(page[i] ^ keys[i], page[i + 1] ^ keys[i + 1]);
	}
}

static void assert_hash(const uint64_t *page)
{
	uint64_t hash[2] = { 0, 0 }, slow[2];

	hash_slowly(page, slow);
	assert_int_equal(crn_guarded_hash(page, hash, page), 0);
	assert_memory_equal(hash, slow, sizeof(hash));
}

static void draw(void *to, size_t size)
{
	static uint64_t state = 88172645463325252;

	for (size_t i = 0; i < size / 8; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		((uint64_t *)to)[i] = state;
	}
}

/* As its definition has it, and with it for each bit of the page. */
static void hash_is_the_sum_of_products(void **state)
{
	uint64_t was[2], now[2];

	if (crn_guarded_registers != CRN_LINES_HASHED)
		skip();
	for (unsigned round = 0; round < 50; round++) {
		draw(crn_guarded_keys, sizeof(crn_guarded_keys));
		draw(a, sizeof(a));
		assert_hash(a);
	}
	memset(a, 0, sizeof(a));
	assert_hash(a);
	memset(a, 0xff, sizeof(a));
	assert_hash(a);
	fill();
	assert_int_equal(crn_guarded_hash(a, was, a), 0);
	for (unsigned bit = 0; bit < WORDS * 64; bit++) {
		b[bit / 64] ^= 1ull << bit % 64;
		assert_int_equal(crn_guarded_hash(b, now, a), 0);
		assert_true(now[0] != was[0] && now[1] != was[1]);
		b[bit / 64] ^= 1ull << bit % 64;
	}
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vector_registers_survive),
		cmocka_unit_test(first_line_from_a_hint),
		cmocka_unit_test(unreadable_pages_are_failures),
		cmocka_unit_test(registers_fit_the_processor),
		cmocka_unit_test(half_registers_survive),
		cmocka_unit_test(wide_registers_survive),
		cmocka_unit_test(hash_is_the_sum_of_products),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return for_all_registers(run);
}
