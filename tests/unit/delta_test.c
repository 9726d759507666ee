/* SPDX-License-Identifier: MIT */
/*
 * The delta of two pages: format, limits, both directions, and the vector registers left alone. All
 * of it by the registers that every processor has, and by those of a whole line if there are any.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <cmocka.h>
#include "base/bits.h"
#include "journal/delta.h"
#include "os/guarded.h"

#define WORDS 512u

static uint64_t a[WORDS] __attribute__((aligned(4096)));
static uint64_t b[WORDS] __attribute__((aligned(4096)));
static uint64_t out[CRN_DELTA_MAX / 8] __attribute__((aligned(64)));

static void fill(void)
{
	for (unsigned i = 0; i < WORDS; i++)
		a[i] = b[i] = i * 0x9e3779b97f4a7c15;
}

/* Make the delta a -> b; a becomes b. Returns its size. */
static size_t make(void)
{
	struct crn_delta_plan plan;

	uint64_t lines;

	assert_int_equal(crn_guarded_lines(a, b, &lines), 0);
	crn_delta_plan(&plan, lines, a, b);
	if (plan.size) {
		crn_delta_make(out, &plan, a, b);
		assert_int_equal(crn_delta_size(out), plan.size);
		assert_memory_equal(a, b, sizeof(a));
	}
	return plan.size;
}

static void equal_pages_are_one_word(void **state)
{
	fill();
	assert_int_equal(make(), 8);
	assert_int_equal(out[0], 0);
}

static void one_bit_anywhere(void **state)
{
	for (unsigned bit = 0; bit < WORDS * 64; bit++) {
		fill();
		b[bit / 64] ^= 1ull << (bit % 64);
		assert_int_equal(make(), 8 + 8 + 8);
		assert_int_equal(out[0], 1ull << (bit / 512));
		assert_int_equal(out[1], 1u << (bit / 64 % 8));
		assert_int_equal(out[2], 1ull << (bit % 64));
	}
}

static void applies_both_ways(void **state)
{
	uint64_t was[WORDS];

	fill();
	memcpy(was, a, sizeof(was));
	for (unsigned i = 3; i < WORDS; i += 7)
		b[i] = ~b[i];
	assert_int_not_equal(make(), 0);
	crn_delta_apply(b, out);
	assert_memory_equal(b, was, sizeof(was));
	crn_delta_apply(b, out);
	assert_memory_equal(b, a, sizeof(a));
}

static void limit_is_exact(void **state)
{
	/* n words from the start of the page are 8 + ceil(n / 8) rounded up to 8 + 8 n bytes */
	for (unsigned words = 240; words < 270; words++) {
		unsigned lines = (words + 7) / 8;
		size_t expect = 8 + ((lines + 7) & ~7u) + 8 * words;

		fill();
		for (unsigned i = 0; i < words; i++)
			b[i] = ~b[i];
		assert_int_equal(make(), expect <= CRN_DELTA_MAX ? expect : 0);
	}
}

static void too_long_changes_nothing(void **state)
{
	uint64_t was[WORDS];

	fill();
	memcpy(was, a, sizeof(was));
	for (unsigned i = 0; i < WORDS; i++)
		b[i] = ~b[i];
	assert_int_equal(make(), 0);
	assert_memory_equal(a, was, sizeof(was));
}

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

static void resume(int sig, siginfo_t *info, void *context)
{
	greg_t *pc = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

	*pc = (greg_t)crn_guarded_resume((uintptr_t)*pc);
}

static void unreadable_pages_are_failures(void **state)
{
	struct sigaction action = { .sa_sigaction = resume, .sa_flags = SA_SIGINFO }, before;
	void *none = mmap(NULL, CRN_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t lines;

	assert_true(none != MAP_FAILED);
	sigaction(SIGSEGV, &action, &before);
	assert_int_equal(crn_guarded_lines(a, none, &lines), -EFAULT);
	assert_int_equal(crn_guarded_line(a, none, 5, a, none), 5);
	sigaction(SIGSEGV, &before, NULL);
	munmap(none, CRN_PAGE_SIZE);
}

/* ---- Registers of a whole line ------------------------------------------------------------- */

static bool has_wide(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}

/* What fn leaves of the registers that it uses. */
__attribute__((target("avx512f,avx512bw"))) static void call_wide(void *fn, const void *live,
	void *arg, uint8_t before[64], uint8_t after[64], uint64_t *mask)
{
	const void *x = a;

	__asm__ volatile("vmovdqu64 (%[in]), %%zmm16\n\tkmovq (%[mask]), %%k1\n\t"
			 "mov %%rsp, %%r12\n\tsub $256, %%rsp\n\tand $-16, %%rsp\n\t"
			 "mov %%rdi, %%rcx\n\tmov %%rsi, %%r8\n\t"
			 "call *%[fn]\n\tmov %%r12, %%rsp\n\t"
			 "vmovdqu64 %%zmm16, (%[out])\n\tkmovq %%k1, (%[mask])\n\t"
			 : "+D"(x), "+S"(live), "+d"(arg)
			 : [in] "r"(before), [out] "b"(after), [fn] "r"(fn), [mask] "r"(mask)
			 : "rax", "rcx", "r8", "r9", "r10", "r11", "r12", "xmm16", "k1",
			 "memory", "cc");
}

static void wide_registers_survive(void **state)
{
	void *const fns[] = { (void *)crn_guarded_lines, (void *)crn_guarded_line };
	struct sigaction action = { .sa_sigaction = resume, .sa_flags = SA_SIGINFO }, segv;
	void *none = mmap(NULL, CRN_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const void *const lives[] = { b, none };
	uint8_t before[64], after[64];
	uint64_t lines;

	if (!crn_guarded_wide)
		skip();
	fill();
	b[17] = ~b[17];
	for (unsigned i = 0; i < sizeof(before); i++)
		before[i] = (uint8_t)(i * 37 + 11);
	sigaction(SIGSEGV, &action, &segv);
	for (unsigned i = 0; i < 4; i++) {
		uint64_t mask = 0xfedcba9876543210;

		call_wide(fns[i & 1], lives[i / 2], i & 1 ? NULL : &lines, before, after, &mask);
		assert_memory_equal(before, after, sizeof(before));
		assert_true(mask == 0xfedcba9876543210);
	}
	sigaction(SIGSEGV, &segv, NULL);
	munmap(none, CRN_PAGE_SIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_pages_are_one_word),
		cmocka_unit_test(one_bit_anywhere),
		cmocka_unit_test(applies_both_ways),
		cmocka_unit_test(limit_is_exact),
		cmocka_unit_test(too_long_changes_nothing),
		cmocka_unit_test(vector_registers_survive),
		cmocka_unit_test(first_line_from_a_hint),
		cmocka_unit_test(unreadable_pages_are_failures),
		cmocka_unit_test(wide_registers_survive),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	crn_guarded_wide = has_wide();
	return crn_guarded_wide ? failed + cmocka_run_group_tests(tests, NULL, NULL) : failed;
}
