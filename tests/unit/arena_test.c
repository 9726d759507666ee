/* SPDX-License-Identifier: MIT */
/* The arena: limits, recycling, and frames taken by several threads at once. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "base/arena.h"
#include "os/memory.h"
#include "track/mirror.h"
#include "track/range_list.h"

#define LIMIT (16ul << 20)

static struct crn_arena *arena;
static void *base;
static size_t reserved;

static int setup(void **state)
{
	if (crn_memory_reserve(&base, &reserved) < 0)
		return -1;
	return crn_arena_init(&arena, base, reserved, LIMIT, true, crn_memory_commit);
}

static int teardown(void **state)
{
	return crn_memory_unmap(base, reserved);
}

static void frames_are_recycled_last_first(void **state)
{
	void *a = crn_frame_alloc(arena), *b = crn_frame_alloc(arena);

	assert_ptr_not_equal(a, b);
	crn_frame_free(arena, a);
	crn_frame_free(arena, b);
	assert_ptr_equal(crn_frame_alloc(arena), b);
	assert_ptr_equal(crn_frame_alloc(arena), a);
	assert_int_equal(crn_arena_frames_used(arena), 2);
	crn_arena_check(arena);
}

static void limit_is_kept_and_nothing_is_lost(void **state)
{
	static void *frames[LIMIT / CRN_PAGE_SIZE];
	size_t n = 0;

	assert_int_equal(crn_frame_reserve(arena, LIMIT / CRN_PAGE_SIZE), CAIRN_EMEMORY);
	assert_int_equal(crn_frame_reserve(arena, 1000), 0);
	while ((frames[n] = crn_frame_alloc(arena)))
		n++;
	assert_true(n > 1000 && n < LIMIT / CRN_PAGE_SIZE);
	assert_true(crn_arena_bytes(arena) <= LIMIT);
	assert_int_equal(crn_frame_reserve(arena, 1), CAIRN_EMEMORY);
	crn_arena_check(arena);
	for (size_t i = 0; i < n; i++)
		crn_frame_free(arena, frames[i]);
	assert_int_equal(crn_frame_reserve(arena, n), 0);
	assert_int_equal(crn_arena_frames_used(arena), 0);
	crn_arena_check(arena);
}

/* One frame of three is free, then their neighbours, too. */
static void frames_become_blocks(void **state)
{
	static char *frames[LIMIT / CRN_PAGE_SIZE], *small, *large;
	size_t n = 0;

	assert_int_equal(crn_blocks_from_frames(arena), 0);
	while ((frames[n] = crn_frame_alloc(arena)))
		n++;
	while (crn_block_alloc(arena, 64)) /* what the blocks have left */
		;
	assert_int_equal(crn_blocks_from_frames(arena), CAIRN_EMEMORY);
	for (size_t i = 0; i < n; i += 3)
		crn_frame_free(arena, frames[i]);
	assert_int_equal(crn_blocks_from_frames(arena), 1);
	assert_int_equal(crn_blocks_from_frames(arena), 0);
	assert_non_null(small = crn_block_alloc(arena, 64));
	assert_int_equal(small[0] | small[63], 0);
	assert_null(crn_block_alloc(arena, 4 * CRN_PAGE_SIZE));
	assert_int_equal(crn_blocks_from_frames(arena), CAIRN_EMEMORY);
	crn_arena_check(arena);
	for (size_t i = n / 2; i < n; i++) {
		if (i % 3 == 0)
			continue;
		memset(frames[i], 1, CRN_PAGE_SIZE);
		crn_frame_free(arena, frames[i]);
	}
	assert_int_equal(crn_blocks_from_frames(arena), 1);
	assert_non_null(large = crn_block_alloc(arena, 4 * CRN_PAGE_SIZE));
	for (size_t i = 0; i < 4 * CRN_PAGE_SIZE; i++)
		assert_int_equal(large[i], 0);
	memset(large, 1, 4 * CRN_PAGE_SIZE);
	crn_block_free(arena, large, 4 * CRN_PAGE_SIZE);
	crn_block_free(arena, small, 64);
	crn_arena_check(arena);
	assert_ptr_equal(crn_block_alloc(arena, 4 * CRN_PAGE_SIZE), large);
}

static void blocks_are_zero_again(void **state)
{
	char *a = crn_block_alloc(arena, 5000), *b;

	assert_non_null(a);
	assert_int_equal((uintptr_t)a % 64, 0);
	memset(a, 7, 5000);
	crn_block_free(arena, a, 5000);
	b = crn_block_alloc(arena, 6000);
	assert_ptr_equal(a, b);
	for (size_t i = 0; i < 6000; i++)
		assert_int_equal(b[i], 0);
	assert_null(crn_block_alloc(arena, LIMIT));
	assert_null(crn_block_alloc(arena, 0));
}

static void *churn(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg;
	uint64_t *held[32] = { NULL };

	for (int i = 0; i < 200000; i++) {
		size_t k = (seed = seed * 1664525u + 1013904223u) >> 27;

		if (!held[k]) {
			held[k] = crn_frame_alloc(arena);
			if (held[k])
				held[k][1] = held[k][511] = (uintptr_t)arg;
			continue;
		}
		/* Nobody else may have been given this frame meanwhile. */
		if (held[k][1] != (uintptr_t)arg || held[k][511] != (uintptr_t)arg)
			return arg;
		crn_frame_free(arena, held[k]);
		held[k] = NULL;
	}
	for (size_t k = 0; k < 32; k++)
		if (held[k])
			crn_frame_free(arena, held[k]);
	return NULL;
}

static void threads_never_share_a_frame(void **state)
{
	pthread_t threads[4];
	void *bad;

	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], &bad);
		assert_null(bad);
	}
	assert_int_equal(crn_arena_frames_used(arena), 0);
	crn_arena_check(arena);
}

static void ranges_are_cut_and_joined(void **state)
{
	struct crn_range_list l;

	crn_range_list_open(&l, arena);
	assert_int_equal(crn_range_list_add(&l, 0x5000, 0x9000), 0);
	assert_int_equal(crn_range_list_add(&l, 0x1000, 0x3000), 0);
	assert_int_equal(crn_range_list_add(&l, 0x2000, 0x4000), 0);
	crn_range_list_normalise(&l);
	assert_int_equal(l.count, 2);
	assert_int_equal(crn_range_list_pages(&l), 7);
	assert_int_equal(crn_range_list_cut(&l, 0x6000, 0x7000), 0);
	crn_range_list_normalise(&l);
	assert_int_equal(l.count, 3);
	assert_int_equal(l.at[1].end, 0x6000);
	assert_int_equal(l.at[2].begin, 0x7000);
	assert_true(crn_range_list_meets(&l, 0x5fff, 0x6001));
	assert_false(crn_range_list_meets(&l, 0x6000, 0x7000));
	for (size_t i = l.count; i < l.capacity; i++)
		assert_int_equal(l.at[i].begin | l.at[i].end, 0);
	crn_range_list_close(&l);
}

#define PLACES 1000

/* Each list begins in order; what follows is short or long, and may not fit beside it once more. */
static void ranges_come_in_any_order(void **state)
{
	static bool wanted[PLACES + 2];
	uint32_t seed = 1;

	for (size_t n = 2; n < 300; n++) {
		struct crn_range_list l;
		size_t kept = 0;

		crn_range_list_open(&l, arena);
		memset(wanted, 0, sizeof(wanted));
		for (size_t i = 0; i < n; i++) {
			size_t at = i, pages = 1 + i % 2;

			seed = seed * 1664525 + 1013904223;
			if (i >= n * (n % 5) / 4)
				at = (seed >> 16) % PLACES;
			memset(wanted + at, true, pages);
			if (n % 3)
				assert_int_equal(crn_range_list_reserve(&l, n), 0);
			assert_int_equal(crn_range_list_add(&l, at * CRN_PAGE_SIZE,
						 (at + pages) * CRN_PAGE_SIZE), 0);
		}
		crn_range_list_normalise(&l);
		for (size_t i = 0; i < l.count; i++) {
			assert_true(!i || l.at[i - 1].end < l.at[i].begin);
			for (uintptr_t at = l.at[i].begin; at < l.at[i].end; at += CRN_PAGE_SIZE)
				assert_true(wanted[at / CRN_PAGE_SIZE]);
		}
		for (size_t i = 0; i < PLACES + 2; i++)
			kept += wanted[i];
		assert_int_equal(crn_range_list_pages(&l), kept);
		for (size_t i = l.count; i < l.capacity; i++)
			assert_int_equal(l.at[i].begin | l.at[i].end, 0);
		crn_range_list_close(&l);
	}
}

/* Of 64 pages each, drawn at random: page by page it is the difference of the two. */
static void ranges_are_taken_out_of_others(void **state)
{
	struct crn_range_list lists[3];
	uint64_t in[2], seed = 1;

	for (size_t i = 0; i < 3; i++)
		crn_range_list_open(&lists[i], arena);
	for (unsigned turn = 0; turn < 2000; turn++) {
		for (size_t i = 0; i < 2; i++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			in[i] = seed >> turn % 3;
			/* Neighbours often alike: long runs as well. */
			in[i] = turn % 2 ? in[i] : in[i] & in[i] >> 1 & in[i] >> 2;
			in[i] |= turn % 4 ? 0 : in[i] << 1 | in[i] << 2 | in[i] << 3;
			crn_range_list_shrink(&lists[i], 0);
			for (uintptr_t n = 0; n < 64; n++)
				if (in[i] >> n & 1)
					assert_int_equal(crn_range_list_add(&lists[i],
								 n * CRN_PAGE_SIZE,
								 (n + 1) * CRN_PAGE_SIZE), 0);
		}
		assert_int_equal(crn_range_list_without(&lists[2], &lists[0], &lists[1]), 0);
		for (uintptr_t n = 0; n < 64; n++)
			assert_int_equal(crn_range_list_meets(&lists[2], n * CRN_PAGE_SIZE,
						 (n + 1) * CRN_PAGE_SIZE),
				(in[0] & ~in[1]) >> n & 1);
	}
	for (size_t i = 0; i < 3; i++)
		crn_range_list_close(&lists[i]);
}

static void mirror_keeps_pages_apart(void **state)
{
	struct crn_track_env env = { .arena = arena };
	uintptr_t far = 0x7ff000000000, begin = 0x200000 - 2 * CRN_PAGE_SIZE, end;
	struct crn_mirror m;
	char page[CRN_PAGE_SIZE];

	assert_int_equal(crn_mirror_open(&m, &env), 0);
	memset(page, 3, sizeof(page));
	assert_int_equal(crn_mirror_put(&m, begin, page), 0);
	/* in the next leaf */
	assert_int_equal(crn_mirror_put(&m, begin + 3 * CRN_PAGE_SIZE, page), 0);
	assert_int_equal(crn_mirror_put(&m, far, page), 0);
	crn_mirror_check(&m);
	assert_null(*crn_mirror_slot(&m, begin + CRN_PAGE_SIZE));
	assert_null(crn_mirror_slot(&m, 0x100000000));

	begin += CRN_PAGE_SIZE;
	end = UINTPTR_MAX >> 16;
	assert_true(crn_mirror_next(&m, &begin, &end));
	assert_int_equal(begin, 0x200000 + CRN_PAGE_SIZE);
	assert_int_equal(end, begin + CRN_PAGE_SIZE);

	crn_mirror_drop(&m, 0x200000, 0x400000);
	crn_mirror_check(&m);
	assert_int_equal(m.page_count, 2);
	assert_null(crn_mirror_slot(&m, 0x200000)); /* the leaf went with its pages */
	assert_non_null(*crn_mirror_slot(&m, far));
	crn_mirror_close(&m);
	assert_int_equal(crn_arena_frames_used(arena), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(frames_are_recycled_last_first, setup, teardown),
		cmocka_unit_test_setup_teardown(limit_is_kept_and_nothing_is_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(frames_become_blocks, setup, teardown),
		cmocka_unit_test_setup_teardown(blocks_are_zero_again, setup, teardown),
		cmocka_unit_test_setup_teardown(threads_never_share_a_frame, setup, teardown),
		cmocka_unit_test_setup_teardown(ranges_are_cut_and_joined, setup, teardown),
		cmocka_unit_test_setup_teardown(ranges_come_in_any_order, setup, teardown),
		cmocka_unit_test_setup_teardown(ranges_are_taken_out_of_others, setup, teardown),
		cmocka_unit_test_setup_teardown(mirror_keeps_pages_apart, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
