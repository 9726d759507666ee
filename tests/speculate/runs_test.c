/* SPDX-License-Identifier: MIT */
/* Runs: pages that are written together with their neighbours, as decay learns them. */
#include "spec_rig.h"
#include "speculate/gap_model.h"
#include "speculate/region_table.h"

static void write_run(bool *written, unsigned begin, unsigned count)
{
	for (unsigned n = 0; n < RIG_PAGES; n++)
		written[n] = n >= begin && n < begin + count;
}

/* What is written together now and then has one fault, and does not stay hot meanwhile. */
static void test_bursts_have_one_fault(void **state)
{
	struct crn_speculation_stats stats;
	bool written[RIG_PAGES];
	struct rig r;

	rig_init(&r);
	r.port.costs.fault = 9000;
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < 4000; turn++) {
		write_run(written, 100, turn % 40 ? 0 : 200);
		written[5] = true;
		if (turn == 2000)
			crn_speculation_stats_reset(r.s);
		rig_interval(&r, written);
	}
	crn_speculation_stats(r.s, &stats);
	assert_int_equal(stats.undercopied, 50);
	assert_int_equal(stats.granted, 50 * 199);
	assert_int_equal(stats.overcopied, 0);
	assert_int_equal(stats.hot, 2000);
	rig_close(&r);
}

static void expect_run(struct rig *r, unsigned page, unsigned begin, unsigned count)
{
	uintptr_t from, to;
	bool any = crn_speculation_near(r->s, rig_page(page), &from, &to);

	assert_int_equal(any, count > 1);
	if (any) {
		assert_int_equal(rig_number(from), begin);
		assert_int_equal(rig_number(to), begin + count);
	}
}

/* Of every place and length: from each of its pages, the run is what was written. */
static void test_runs_are_what_was_written_together(void **state)
{
	struct rig r;

	rig_init(&r);
	for (unsigned turn = 0; turn < 300; turn++) {
		unsigned count = 1 + (unsigned)rig_mix(&r.seed) % 200;
		unsigned begin = (unsigned)rig_mix(&r.seed) % (RIG_PAGES - count + 1);
		bool written[RIG_PAGES];

		rig_open(&r, "decay");
		write_run(written, begin, count);
		rig_interval(&r, written);
		expect_run(&r, begin, begin, count);
		expect_run(&r, begin + count - 1, begin, count);
		expect_run(&r, begin + count / 2, begin, count);
		if (begin)
			expect_run(&r, begin - 1, begin - 1, 1);
		rig_close(&r);
		memset(r.slot, 0, sizeof(r.slot));
		r.hot = 0;
	}
}

/* What was opened in vain is not opened again; what was not tried stays as it was. */
static void test_runs_are_parted_where_they_were_tried(void **state)
{
	bool written[RIG_PAGES];
	struct rig r;

	rig_init(&r);
	rig_open(&r, "decay");
	write_run(written, 60, 20);
	for (unsigned n = 200; n < 230; n++)
		written[n] = true;
	rig_interval(&r, written);
	for (unsigned turn = 0; turn < 2000; turn++) { /* all go cold */
		write_run(written, 0, 0);
		rig_interval(&r, written);
	}
	assert_int_equal(r.hot, 0);
	expect_run(&r, 70, 60, 20);
	write_run(written, 62, 3);
	rig_interval(&r, written);
	expect_run(&r, 63, 62, 3);
	expect_run(&r, 70, 70, 1);
	expect_run(&r, 61, 61, 1);
	expect_run(&r, 210, 200, 30);
	/* A new mapping knows nothing of the old one. */
	crn_speculation_area_removed(r.s, RIG_BASE, RIG_BASE + CRN_REGION_BYTES);
	expect_run(&r, 210, 210, 1);
	rig_close(&r);
}

/* Hot pages do not fault: they are part of a run all the same, if they change with it. */
static void test_hot_pages_are_part_of_runs(void **state)
{
	bool written[RIG_PAGES];
	struct rig r;

	rig_init(&r);
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < 50; turn++) {
		write_run(written, 70, 1);
		rig_interval(&r, written);
	}
	assert_true(r.slot[70]);
	write_run(written, 65, 10);
	rig_interval(&r, written);
	expect_run(&r, 66, 65, 10);
	rig_close(&r);
}

/* A page of a run stands for itself after 32 writes in a row, whenever that begins. */
static void test_rows_are_counted_from_the_first_write(void **state)
{
	bool written[RIG_PAGES];
	struct rig r;

	rig_init(&r);
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < 140; turn++) {
		const struct crn_ws_entry *e;

		write_run(written, 60, turn < 100 ? 0 : 20);
		rig_interval(&r, written);
		if (turn < 100)
			continue;
		e = &r.s->current->entries[crn_ws_find(r.s->current, rig_page(70))];
		assert_int_equal(e->kind == CRN_GAP_STEADY, turn >= 132);
	}
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bursts_have_one_fault),
		cmocka_unit_test(test_runs_are_what_was_written_together),
		cmocka_unit_test(test_hot_pages_are_part_of_runs),
		cmocka_unit_test(test_runs_are_parted_where_they_were_tried),
		cmocka_unit_test(test_rows_are_counted_from_the_first_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
