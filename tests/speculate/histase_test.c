/* SPDX-License-Identifier: MIT */
/* Histase: strides and predictions by the numbers of HBFT 4.1.2, and readers beside a writer. */
#include <pthread.h>
#include "spec_rig.h"

static void write_run(bool *written, unsigned first, unsigned length)
{
	for (unsigned n = first; n < first + length; n++)
		written[n] = true;
}

/* The run that a fault at page `at` opens, as page numbers; the page alone if there is none. */
static void expect_near(struct rig *r, unsigned at, unsigned begin, unsigned end)
{
	uintptr_t from = rig_page(at), to = rig_page(at + 1);

	(void)crn_speculation_near(r->s, rig_page(at), &from, &to);
	assert_int_equal(rig_number(from), begin);
	assert_int_equal(rig_number(to), end);
}

static void test_strides_follow_the_formula(void **state)
{
	bool written[RIG_PAGES] = { false };
	struct rig r;

	rig_init(&r);
	rig_open(&r, "histase");
	expect_near(&r, 50, 50, 51);
	/* Runs of 12 and 6: ave_stride = 9 = the first his_stride. */
	write_run(written, 20, 12);
	write_run(written, 100, 6);
	rig_interval(&r, written);
	assert_int_equal(r.hot, 0);
	expect_near(&r, 50, 47, 59);
	/* Then 2: 9 * 0.7 + 2 * 0.3 = 6.9; a run of 7 pages, and 2 before it. */
	memset(written, 0, sizeof(written));
	write_run(written, 10, 2);
	rig_interval(&r, written);
	expect_near(&r, 50, 48, 57);
	/* An interval that writes nothing there changes nothing. */
	memset(written, 0, sizeof(written));
	rig_interval(&r, written);
	expect_near(&r, 50, 48, 57);
	/* Predictions end with the 2 MiB, whose first page is RIG_BASE. */
	expect_near(&r, 1, 0, 8);
	expect_near(&r, 510, 508, 512);
	/* Its mappings went: it starts anew. */
	crn_speculation_area_removed(r.s, RIG_BASE, RIG_BASE + (2ul << 20));
	expect_near(&r, 50, 50, 51);
	rig_close(&r);
}

/* The other reading: his_stride pages after the faulting one. */
static void test_strides_beside_the_faulting_page(void **state)
{
	bool written[RIG_PAGES] = { false };
	struct rig r;

	rig_init(&r);
	rig_open(&r, "histase:own=0");
	expect_near(&r, 50, 50, 51);
	write_run(written, 20, 9);
	rig_interval(&r, written);
	expect_near(&r, 50, 47, 60);
	expect_near(&r, 505, 502, 512);
	/* 9 * 0.7 + 2 * 0.3 = 6.9 */
	memset(written, 0, sizeof(written));
	write_run(written, 10, 2);
	rig_interval(&r, written);
	expect_near(&r, 50, 48, 57);
	for (unsigned turn = 0; turn < 50; turn++) {
		memset(written, 0, sizeof(written));
		written[turn * 3] = true;
		rig_interval(&r, written);
	}
	expect_near(&r, 50, 50, 52);
	rig_close(&r);
}

static void test_single_pages_name_no_neighbours(void **state)
{
	bool written[RIG_PAGES] = { false };
	struct rig r;

	rig_init(&r);
	rig_open(&r, "histase");
	for (unsigned n = 0; n < 200; n += 2)
		written[n] = true;
	rig_interval(&r, written);
	expect_near(&r, 50, 50, 51);
	rig_close(&r);
}

/* Runs of 12 at new places each time: one fault for each, and no page opened in vain. */
static void test_replays_grant_within_the_interval(void **state)
{
	struct crn_speculation_stats stats;
	uintptr_t pages[12];
	struct rig r;

	rig_init(&r);
	rig_open(&r, "histase:back=1024");
	for (unsigned turn = 0; turn < 20; turn++) {
		for (unsigned n = 0; n < 12; n++)
			pages[n] = rig_page(turn * 20 + n);
		if (turn == 1)
			crn_speculation_stats_reset(r.s);
		crn_speculation_replay(r.s, pages, 12);
	}
	crn_speculation_stats(r.s, &stats);
	assert_int_equal(stats.undercopied, 19);
	assert_int_equal(stats.granted, 19 * 11);
	assert_int_equal(stats.overcopied, 0);
	assert_int_equal(stats.written, 19 * 12);
	rig_close(&r);
}

/* The run before a page of the first 2 MiB may begin at address 0. */
static void test_replays_do_not_open_address_0(void **state)
{
	uintptr_t pages[400];
	struct rig r;

	rig_init(&r);
	rig_open(&r, "histase:back=1");
	for (unsigned n = 0; n < 400; n++)
		pages[n] = (uintptr_t)(400 - n) * CRN_PORT_PAGE;
	crn_speculation_replay(r.s, pages, 400);
	crn_speculation_replay(r.s, pages, 400);
	assert_int_equal(crn_ws_find(r.s->current, 0), CRN_WS_NONE);
	assert_true(crn_ws_sound(r.s->current));
	rig_close(&r);
}

/* A tracker's view of one interval: which pages are open, and which of them were opened in vain. */
static void fault_by_fault(struct rig *r, const unsigned *order, unsigned count, uint64_t *faults,
	uint64_t *granted, uint64_t *idle)
{
	bool open[RIG_PAGES] = { false }, near[RIG_PAGES] = { false };

	for (unsigned i = 0; i < count; i++) {
		uintptr_t page = rig_page(order[i]), begin = page, end = page;

		*idle -= near[order[i]];
		near[order[i]] = false;
		if (open[order[i]])
			continue;
		++*faults;
		open[order[i]] = true;
		if (!crn_speculation_near(r->s, page, &begin, &end))
			continue;
		for (; begin < end; begin += CRN_PORT_PAGE) {
			unsigned n = rig_number(begin);

			*granted += !open[n];
			*idle += !open[n];
			near[n] |= !open[n];
			open[n] = true;
		}
	}
}

/* In whatever order the pages come, a replay counts what a tracker would. */
static void test_replays_count_as_faults_do(void **state)
{
	uint64_t faults = 0, granted = 0, idle = 0;
	struct crn_speculation_stats stats;
	struct rig r;

	rig_init(&r);
	rig_open(&r, "histase");
	for (unsigned turn = 0; turn < 300; turn++) {
		unsigned order[RIG_PAGES], count = 0;
		uintptr_t pages[RIG_PAGES];

		for (unsigned n = 0; n < RIG_PAGES; n++)
			if (rig_mix(&r.seed) % 16 < (n / 32 % 2 ? 14 : 1))
				order[count++] = n;
		for (unsigned i = 0; i < count; i++) {
			unsigned k = i + (unsigned)(rig_mix(&r.seed) % (count - i)), n = order[k];

			order[k] = order[i];
			order[i] = n;
			pages[i] = rig_page(n);
		}
		fault_by_fault(&r, order, count, &faults, &granted, &idle);
		crn_speculation_replay(r.s, pages, count);
	}
	crn_speculation_stats(r.s, &stats);
	assert_true(idle > 1000 && faults > 1000);
	assert_int_equal(stats.undercopied, faults);
	assert_int_equal(stats.granted, granted);
	assert_int_equal(stats.overcopied, idle);
	rig_close(&r);
}

/* Learnt at the checkpoint only: the same runs, for the next interval. */
static void test_late_events_predict_the_next_interval(void **state)
{
	bool written[RIG_PAGES] = { false };
	struct rig r;

	rig_init(&r);
	r.port.at_fault = false;
	rig_open(&r, "histase");
	write_run(written, 20, 9);
	write_run(written, 60, 3);
	/* ave_stride 6: [18, 26) and [58, 66) */
	rig_interval(&r, written);
	for (unsigned n = 0; n < RIG_PAGES; n++)
		assert_int_equal(r.slot[n] != 0, (n >= 18 && n < 26) || (n >= 58 && n < 66));
	memset(written, 0, sizeof(written));
	rig_interval(&r, written);
	assert_int_equal(r.hot, 0);
	rig_close(&r);
}

struct reader {
	struct rig *r;
	bool stop;
	uint64_t answers;
};

static void *read_on(void *arg)
{
	struct reader *me = arg;

	while (!__atomic_load_n(&me->stop, __ATOMIC_RELAXED)) {
		for (unsigned i = 0; i < 2000; i++) {
			uintptr_t page = RIG_BASE + ((uintptr_t)i << 21), begin = 0, end = 0;

			if (!crn_speculation_near(me->r->s, page, &begin, &end))
				continue;
			/* All runs written have 8 pages. */
			if (begin != page || end != page + 8 * CRN_PORT_PAGE)
				abort();
			__atomic_fetch_add(&me->answers, 1, __ATOMIC_RELAXED);
		}
	}
	return NULL;
}

static void test_readers_see_whole_answers_while_the_table_grows(void **state)
{
	struct rig r;
	struct reader reader = { .r = &r };
	pthread_t thread;

	rig_init(&r);
	rig_open(&r, "histase");
	assert_int_equal(pthread_create(&thread, NULL, read_on, &reader), 0);
	for (unsigned i = 0; i < 2000; i++) {
		for (unsigned n = 0; n < 8; n++)
			crn_speculation_written(
				r.s, RIG_BASE + ((uintptr_t)i << 21) + n * CRN_PORT_PAGE);
		crn_speculation_checkpoint(r.s);
	}
	while (!__atomic_load_n(&reader.answers, __ATOMIC_RELAXED))
		;
	__atomic_store_n(&reader.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strides_follow_the_formula),
		cmocka_unit_test(test_strides_beside_the_faulting_page),
		cmocka_unit_test(test_single_pages_name_no_neighbours),
		cmocka_unit_test(test_replays_grant_within_the_interval),
		cmocka_unit_test(test_replays_do_not_open_address_0),
		cmocka_unit_test(test_replays_count_as_faults_do),
		cmocka_unit_test(test_late_events_predict_the_next_interval),
		cmocka_unit_test(test_readers_see_whole_answers_while_the_table_grows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
