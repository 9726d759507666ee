/* SPDX-License-Identifier: MIT */
/*
 * The delta of two pages: format, limits, both directions, and pages that change meanwhile.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include "guarded_rig.h"
#include "journal/delta.h"

/* What the delta of a and b may take. */
static size_t bound(void)
{
	uint64_t lines;
	size_t n;

	assert_int_equal(crn_guarded_lines(a, b, &lines), 0);
	n = (size_t)__builtin_popcountll(lines);
	return 8 + ((n + 7) & ~(size_t)7) + n * 64;
}

static int make_one(size_t room, const void *page)
{
	static uint64_t scratch[WORDS] __attribute__((aligned(4096)));
	struct crn_page_copy copy = { .to = a, .from = page };
	struct crn_delta_run r = { .out = out, .room = room, .longest = CRN_DELTA_LONGEST,
		.page = &copy, .left = 1 };
	int err = crn_delta_make(&r, scratch);

	assert_int_equal(r.left, err < 0);
	assert_ptr_equal(copy.to, err < 0 ? (void *)a : (void *)out);
	assert_int_equal((char *)r.out - (char *)out, room - r.room);
	return err < 0 ? err : (int)(room - r.room);
}

/* Make the delta a -> b in no more than `room`; a becomes b. Returns its size, or 0. */
static size_t make_in(size_t room)
{
	static uint64_t was[WORDS];
	size_t most = bound(), end = 0;
	int size;

	memset(out, 0xa5, sizeof(out));
	memcpy(was, a, sizeof(was));
	size = make_one(room, b);
	assert_int_equal(size, most <= room ? (int)crn_delta_size(out) : -ENOSPC);
	if (size > 0) {
		assert_memory_equal(a, b, sizeof(a));
		end = CRN_MIN(most, (size_t)size + 64);
	} else {
		assert_memory_equal(a, was, sizeof(a));
	}
	for (size_t i = end / 8; i < sizeof(out) / 8; i++)
		assert_true(out[i] == 0xa5a5a5a5a5a5a5a5);
	return size > 0 ? (size_t)size : 0;
}

static size_t make(void)
{
	return make_in(CRN_DELTA_LONGEST);
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

static void sizes_are_as_they_say(void **state)
{
	/* n words from the start of the page are 8 + ceil(n / 8) rounded up to 8 + 8 n bytes */
	for (unsigned words = 1; words <= WORDS; words++) {
		unsigned lines = (words + 7) / 8;

		fill();
		for (unsigned i = 0; i < words; i++)
			b[i] = ~b[i];
		assert_int_equal(make(), 8 + ((lines + 7) & ~7u) + 8 * words);
	}
	assert_int_equal(crn_delta_size(out), CRN_DELTA_LONGEST);
}

static void without_room_nothing_is_done(void **state)
{
	for (unsigned lines = 0; lines <= 64; lines++) {
		size_t room = 8 + ((lines + 7) & ~7u) + 64 * lines;

		for (unsigned less = 0; less <= 9; less++) {
			if (less > room)
				break;
			fill();
			for (unsigned i = 0; i < lines; i++)
				b[i * 8 + i % 8]++;
			assert_int_equal(make_in(room - less) != 0, !less);
		}
	}
	assert_int_equal(make_one(0, a), -ENOSPC);
}

/* ---- Pages that change while we look ------------------------------------------------------- */

#define STEP 0x100ull /* of the flags: a trap after each instruction */

extern const char crn_delta_line_begin[] __attribute__((visibility("hidden")));
static struct {
	uint64_t *page;
	unsigned line; /* is about to be read, of those that differ */
	unsigned at;   /* then something happens */
	bool vanishes; /* or the line is as it was before */
} moving;

static void step(int sig, siginfo_t *info, void *context)
{
	ucontext_t *u = context;
	uint64_t *line = moving.page + moving.line * 16;

	if ((uintptr_t)u->uc_mcontext.gregs[REG_RIP] != (uintptr_t)crn_delta_line_begin)
		return;
	if (moving.line++ != moving.at)
		return;
	if (moving.vanishes)
		mprotect(moving.page, CRN_PAGE_SIZE, PROT_NONE);
	else
		memcpy(line, a + (line - moving.page), 64);
}

/* Every second line differs, and something happens before the `at`th of them is read. */
static int make_moving(unsigned at, bool vanishes)
{
	int size;

	fill();
	memcpy(moving.page, b, CRN_PAGE_SIZE);
	for (unsigned i = 0; i < WORDS; i += 16)
		moving.page[i + i / 16 % 8] ^= 1;
	moving.at = at;
	moving.line = 0;
	moving.vanishes = vanishes;
	__builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | STEP);
	size = make_one(sizeof(out), moving.page);
	__builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~STEP);
	mprotect(moving.page, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE);
	return size;
}

static void pages_change_while_they_are_read(void **state)
{
	struct sigaction traps = { .sa_sigaction = step, .sa_flags = SA_SIGINFO }, trap;
	struct sigaction faults = { .sa_sigaction = resume, .sa_flags = SA_SIGINFO }, segv;

	if (crn_guarded_registers < CRN_LINES_WHOLE)
		skip();
	moving.page = mmap(NULL, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaction(SIGTRAP, &traps, &trap);
	sigaction(SIGSEGV, &faults, &segv);
	for (unsigned at = 0; at < 32; at++) {
		assert_int_equal(make_moving(at, true), -EFAULT);
		assert_int_equal(moving.line, at + 1);
		assert_memory_equal(a, b, sizeof(a));

		assert_int_equal(make_moving(at, false), 8 + 32 + 31 * 8);
		assert_int_equal(crn_delta_size(out), 8 + 32 + 31 * 8);
		assert_memory_equal(a, moving.page, sizeof(a));
		crn_delta_apply(a, out);
		assert_memory_equal(a, b, sizeof(a));
	}
	sigaction(SIGTRAP, &trap, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	munmap(moving.page, CRN_PAGE_SIZE);
}

static int run(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_pages_are_one_word),
		cmocka_unit_test(one_bit_anywhere),
		cmocka_unit_test(applies_both_ways),
		cmocka_unit_test(sizes_are_as_they_say),
		cmocka_unit_test(without_room_nothing_is_done),
		cmocka_unit_test(pages_change_while_they_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	return for_all_registers(run);
}
