/* SPDX-License-Identifier: MIT */
/* What holds for every strategy, and the simplest ones against a plain model. */
#include "spec_rig.h"

static const char *const all[] = {
	"none", "last", "active-rnd", "active-rnd:every=5", "active-fifo:every=7,window=2",
	"active-cks", "gspec", "histase", "decay", "random", "meta",
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Pages 0-9 always, 10-29 by chance, the rest now and then. */
static void some_pages(struct rig *r, bool *written)
{
	for (unsigned n = 0; n < RIG_PAGES; n++) {
		uint64_t dice = rig_mix(&r->seed) % 1000;

		written[n] = n < 10 || (n < 30 && dice < 600) || dice < 5;
	}
}

static void test_every_strategy_is_driven_like_a_tracker_does(void **state)
{
	for (size_t i = 0; i < 2 * COUNT(all); i++) {
		struct rig r;
		bool written[RIG_PAGES];

		rig_init(&r);
		r.port.costs.alone = i % 2 * 5000; /* pages wait for each other */
		rig_open(&r, all[i / 2]);
		for (unsigned turn = 0; turn < 500; turn++) {
			some_pages(&r, written);
			rig_interval(&r, written);
			if (turn % 50 == 49)
				crn_speculation_restore(r.s, turn % 3);
			if (turn % 70 == 69) {
				crn_speculation_area_removed(r.s, rig_page(5), rig_page(25));
				for (unsigned n = 5; n < 25; n++) {
					r.hot -= r.slot[n] != 0;
					r.slot[n] = 0;
				}
			}
			if (turn % 90 == 89) {
				crn_speculation_cool(r.s);
				rig_apply(&r);
				assert_int_equal(r.hot, 0);
			}
			crn_speculation_context(r.s, turn / 20 % 3);
		}
		rig_close(&r);
	}
}

static void test_memory_failure_costs_predictions_only(void **state)
{
	for (size_t i = 0; i < COUNT(all); i++) {
		long allocs = 1;

		/* None fails; then each in turn (of many, some), with all after it or alone. */
		for (long fail = 0; fail <= 2 * allocs + 1; fail += allocs > 100 ? 7 : 1) {
			struct rig r;
			bool written[RIG_PAGES];
			char why[160];

			rig_init(&r);
			r.port.costs.alone = 5000;
			r.fail_at = (fail + 1) / 2;
			r.fail_once = fail % 2;
			if (crn_speculation_open(&r.s, &r.port, all[i], why, sizeof(why)) < 0) {
				assert_non_null(strstr(why, "memory"));
				assert_int_equal(r.bytes, 0);
				continue;
			}
			for (unsigned turn = 0; turn < 16; turn++) {
				some_pages(&r, written);
				rig_interval(&r, written);
				crn_speculation_context(r.s, turn / 4);
			}
			allocs = r.allocs > allocs ? r.allocs : allocs;
			rig_close(&r);
		}
		assert_true(allocs > 2);
	}
}

static void test_last_is_the_interval_before(void **state)
{
	struct rig r;
	bool written[RIG_PAGES];

	rig_init(&r);
	rig_open(&r, "last");
	for (unsigned turn = 0; turn < 100; turn++) {
		some_pages(&r, written);
		rig_interval(&r, written);
		for (unsigned n = 0; n < RIG_PAGES; n++)
			assert_int_equal(r.slot[n] != 0, written[n]);
	}
	rig_close(&r);
}

/* What a rolled back interval wrote did not happen. */
static void test_a_restore_forgets_the_open_interval(void **state)
{
	struct crn_speculation_stats stats;
	bool written[RIG_PAGES] = { false };
	struct rig r;

	rig_init(&r);
	rig_open(&r, "last");
	written[1] = written[2] = true;
	rig_interval(&r, written);
	crn_speculation_written(r.s, rig_page(7));
	crn_speculation_changed(r.s)[0] |= 1ull << (r.slot[1] - 1);
	crn_speculation_restore(r.s, 0);
	written[1] = false;
	rig_interval(&r, written);
	assert_int_equal(r.hot, 1);
	assert_true(r.slot[2]);
	crn_speculation_stats(r.s, &stats);
	assert_int_equal(stats.written, 3);
	rig_close(&r);
}

/* No more pages are hot than the host can hold copies of; the rest is plain copy-on-write. */
static void test_the_hot_set_has_a_limit(void **state)
{
	for (size_t i = 0; i < COUNT(all); i++) {
		bool written[RIG_PAGES];
		struct rig r;

		rig_init(&r);
		r.port.hot_max = 12;
		rig_open(&r, all[i]);
		for (unsigned turn = 0; turn < 300; turn++) {
			some_pages(&r, written);
			rig_interval(&r, written);
			assert_true(r.hot <= 12);
			crn_speculation_context(r.s, turn / 20 % 3);
		}
		rig_close(&r);
	}
}

/* Memory was short for once: what is still written is hot again at the next checkpoint. */
static void test_pages_are_hot_again_after_a_cooling(void **state)
{
	static const char *const those[] = { "last", "active-rnd", "active-fifo", "active-cks",
		"decay" };

	for (size_t i = 0; i < COUNT(those); i++) {
		bool written[RIG_PAGES] = { false };
		struct rig r;

		rig_init(&r);
		rig_open(&r, those[i]);
		for (unsigned n = 0; n < 10; n++)
			written[n] = true;
		for (unsigned turn = 0; turn < 20; turn++)
			rig_interval(&r, written);
		assert_int_equal(r.hot, 10);
		crn_speculation_cool(r.s);
		rig_apply(&r);
		assert_int_equal(r.hot, 0);
		rig_interval(&r, written);
		if (r.hot != 10)
			fail_msg("%s: %zu pages are hot", those[i], r.hot);
		rig_close(&r);
	}
}

/* Two disjoint sets of pages by turns: with a context each, nothing is mispredicted. */
static void test_contexts_keep_a_working_set_each(void **state)
{
	struct crn_speculation_stats with, without;
	struct rig r;

	for (unsigned keyed = 0; keyed < 2; keyed++) {
		rig_init(&r);
		rig_open(&r, "last");
		for (unsigned turn = 0; turn < 200; turn++) {
			bool written[RIG_PAGES] = { false };

			for (unsigned n = 0; n < 10; n++)
				written[n + turn % 2 * 100] = true;
			if (keyed)
				crn_speculation_context(r.s, (turn + 1) % 2);
			rig_interval(&r, written);
			if (turn == 9)
				crn_speculation_stats_reset(r.s);
		}
		crn_speculation_stats(r.s, keyed ? &with : &without);
		rig_close(&r);
	}
	assert_int_equal(with.undercopied, 0);
	assert_int_equal(with.overcopied, 0);
	assert_int_equal(without.undercopied, 190 * 10);
	assert_int_equal(without.overcopied, 190 * 10);
}

static void test_a_replay_counts_as_the_tracker_does(void **state)
{
	struct rig r;
	uintptr_t pages[] = { rig_page(3), rig_page(1), rig_page(2) };
	struct crn_speculation_stats stats;

	rig_init(&r);
	rig_open(&r, "last");
	crn_speculation_replay(r.s, pages, 3);
	crn_speculation_replay(r.s, pages, 2);
	crn_speculation_replay(r.s, pages + 1, 2);
	crn_speculation_stats(r.s, &stats);
	assert_int_equal(stats.undercopied, 3 + 0 + 1);
	assert_int_equal(stats.overcopied, 0 + 1 + 1);
	assert_int_equal(stats.written, 7);
	assert_int_equal(stats.intervals, 3);
	rig_close(&r);
}

static void test_bad_options_are_named(void **state)
{
	static const struct {
		const char *spec, *says;
	} cases[] = {
		{ "", "unknown strategy ''" },
		{ "lasst", "unknown strategy 'lasst' (none, last, active-rnd," },
		{ "last:", "has no parameter ''" },
		{ "none:n=1", "strategy none has no parameter 'n', nor any other" },
		{ "oracle-count:n=1", "has no parameter 'n'; it has profile" },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct crn_speculation *s = (void *)1;
		struct rig r;
		char why[160];

		rig_init(&r);
		assert_int_equal(crn_speculation_open(&s, &r.port, cases[i].spec, why, sizeof(why)),
			CRN_PORT_EINVAL);
		if (!strstr(why, cases[i].says))
			fail_msg("'%s' does not say '%s'", why, cases[i].says);
		assert_ptr_equal(s, (void *)1);
		assert_int_equal(r.bytes, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_strategy_is_driven_like_a_tracker_does),
		cmocka_unit_test(test_memory_failure_costs_predictions_only),
		cmocka_unit_test(test_last_is_the_interval_before),
		cmocka_unit_test(test_a_restore_forgets_the_open_interval),
		cmocka_unit_test(test_the_hot_set_has_a_limit),
		cmocka_unit_test(test_pages_are_hot_again_after_a_cooling),
		cmocka_unit_test(test_contexts_keep_a_working_set_each),
		cmocka_unit_test(test_a_replay_counts_as_the_tracker_does),
		cmocka_unit_test(test_bad_options_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
