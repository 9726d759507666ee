/* SPDX-License-Identifier: MIT */
/* decay: what it keeps, and contexts. */
#include "spec_rig.h"
#include "speculate/gap_model.h"

/* A page written by chance with probability p: kept above the break-even point, not below. */
static void test_decay_keeps_what_is_worth_it(void **state)
{
	struct rig r;
	size_t rare = 0, often = 0, turns = 4000;

	rig_init(&r);
	rig_open(&r, "decay");
	/* p* = 100 / 900 = 0.11 */
	for (unsigned turn = 0; turn < turns; turn++) {
		bool written[RIG_PAGES] = { false };

		for (unsigned n = 0; n < 40; n++)
			written[n] = rig_mix(&r.seed) % 1000 < (n < 20 ? 400 : 20);
		rig_interval(&r, written);
		for (unsigned n = 0; n < 40 && turn >= 1000; n++)
			*(n < 20 ? &often : &rare) += r.slot[n] != 0;
	}
	assert_true(often > 20 * 3000 * 85 / 100);
	assert_true(rare < 20 * 3000 * 15 / 100);
	rig_close(&r);
}

/*
 * Pages that come once each, and never again soon: in how many of the last 100 intervals are some
 * evicted, and how few at least?
 */
static unsigned bursts_of_a_stream(uint32_t alone, size_t *least)
{
	unsigned bursts = 0;
	struct rig r;

	rig_init(&r);
	r.port.costs.alone = alone;
	rig_open(&r, "decay");
	*least = RIG_PAGES;
	for (unsigned turn = 0; turn < 400; turn++) {
		bool written[RIG_PAGES] = { false };
		size_t before = r.hot, gone;

		written[turn * 7 % RIG_PAGES] = true;
		rig_interval(&r, written);
		gone = before + 1 - r.hot;
		if (turn < 300 || !gone)
			continue;
		bursts++;
		*least = gone < *least ? gone : *least;
	}
	rig_close(&r);
	return bursts;
}

static void test_pages_that_are_due_wait_for_each_other(void **state)
{
	size_t least;

	assert_int_equal(bursts_of_a_stream(0, &least), 100);
	/* After n intervals n pages wait, and have cost 50 * n * (n + 1): the next one bursts. */
	assert_in_range(bursts_of_a_stream(1000, &least), 19, 21);
	assert_int_equal(least, 5);
	assert_in_range(bursts_of_a_stream(5500, &least), 8, 10);
	assert_int_equal(least, 11);
	/* One costs as much as that already. */
	assert_int_equal(bursts_of_a_stream(100, &least), 100);
}

/* Who is written while it waits does not fault, and has its whole limit before it. */
static void test_a_page_that_waits_may_come_back(void **state)
{
	struct crn_speculation_stats stats;
	struct rig r;

	rig_init(&r);
	r.port.costs.alone = 1u << 30;
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < 300; turn++) {
		bool written[RIG_PAGES] = { false };

		written[turn * 7 % 150] = true;
		rig_interval(&r, written);
	}
	crn_speculation_stats(r.s, &stats);
	assert_int_equal(stats.evictions, 0);
	assert_int_equal(stats.undercopied, 150); /* of 300 writes */
	rig_close(&r);
}

/* Whenever enough has been paid, it has just been written. It goes at the next chance. */
static void test_what_a_page_paid_is_not_forgotten(void **state)
{
	struct crn_speculation_stats stats;
	struct rig r;

	rig_init(&r);
	r.port.costs.copy = 1000;
	r.port.costs.alone = 2500;
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < 300; turn++) {
		bool written[RIG_PAGES] = { turn % 2 == 0 };

		rig_interval(&r, written);
	}
	crn_speculation_stats(r.s, &stats);
	assert_in_range(stats.evictions, 50, 100);
	rig_close(&r);
}

/* ---- Contexts --------------------------------------------------------------------------- */

/* Turns of two contexts, each with pages of its own: `length` intervals at a time. */
static uint64_t evictions_of_turns(const struct crn_costs *costs, unsigned length)
{
	struct crn_speculation_stats stats;
	struct rig r;

	rig_init(&r);
	r.port.costs = *costs;
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < 40 * length; turn++) {
		bool written[RIG_PAGES] = { false };

		for (unsigned n = 0; n < 10; n++)
			written[n + turn / length % 2 * 100] = true;
		crn_speculation_context(r.s, (turn + 1) / length % 2);
		rig_interval(&r, written);
		if (turn == 20 * length)
			crn_speculation_stats_reset(r.s);
	}
	crn_speculation_stats(r.s, &stats);
	rig_close(&r);
	return stats.evictions;
}

static void test_guests_stay_while_that_is_cheaper(void **state)
{
	static const struct crn_costs user = { 9000, 100, 1500, 1500 }, kernel = { 800, 100, 0, 0 };

	/* A way out and back costs 30 copies. */
	assert_int_equal(evictions_of_turns(&user, 1), 0);
	assert_int_equal(evictions_of_turns(&user, 20), 0);
	/* Gone at once, for they will not be back in time: 10 pages at each change. */
	assert_in_range(evictions_of_turns(&user, 60), 180, 200);
	/* Where opening is free each context has its own pages hot and no others. */
	assert_in_range(evictions_of_turns(&kernel, 1), 180, 200);
}

/* Five pages of each context in each of its intervals, and one that nobody writes again. */
static uint64_t overcopied_by_turns(uint32_t alone, unsigned contexts)
{
	struct crn_speculation_stats stats;
	struct rig r;

	rig_init(&r);
	r.port.costs = (struct crn_costs){ 9000, 100, 1500, 1500, alone, { 0 } };
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < 450; turn++) {
		bool written[RIG_PAGES] = { false };

		for (unsigned n = 0; n < 5; n++)
			written[n + turn % contexts * 10] = true;
		written[60 + turn] = true;
		crn_speculation_context(r.s, (turn + 1) % contexts);
		rig_interval(&r, written);
		if (turn == 100)
			crn_speculation_stats_reset(r.s);
	}
	crn_speculation_stats(r.s, &stats);
	rig_close(&r);
	return stats.overcopied;
}

static void test_pages_do_not_wait_for_another_context(void **state)
{
	assert_true(overcopied_by_turns(20000, 1) > 2 * overcopied_by_turns(0, 1));
	for (unsigned contexts = 2; contexts <= 4; contexts++)
		assert_int_equal(overcopied_by_turns(20000, contexts),
			overcopied_by_turns(0, contexts));
}

/* Its context does not come back: the lodger goes when it has cost as much as the way. */
static void test_guests_leave_in_the_end(void **state)
{
	for (unsigned others = 1; others <= 3; others++) {
		bool written[RIG_PAGES] = { false };
		struct rig r;

		rig_init(&r);
		r.port.costs = (struct crn_costs){ 9000, 100, 1500, 1500 };
		rig_open(&r, "decay");
		written[1] = true;
		rig_interval(&r, written);
		crn_speculation_context(r.s, 1);
		rig_interval(&r, written);
		written[1] = false;
		for (unsigned turn = 0; turn < 40; turn++) {
			assert_int_equal(r.hot, turn < 30);
			crn_speculation_context(r.s, 1 + turn % others);
			rig_interval(&r, written);
		}
		rig_close(&r);
	}
}

/* Pages that each interval writes are noted as that, and as nothing else. */
static void test_steady_pages_are_counted_as_steady(void **state)
{
	const struct crn_gap_model *m;
	bool written[RIG_PAGES] = { false };
	struct rig r;

	rig_init(&r);
	rig_open(&r, "decay");
	for (unsigned n = 0; n < 10; n++)
		written[2 * n] = true; /* none has a neighbour */
	for (unsigned turn = 0; turn < 100; turn++)
		rig_interval(&r, written);
	m = r.s->current->state;
	/* The first gap of each makes it steady; 98 follow. */
	assert_int_equal(m->ended[0][0], 10);
	assert_int_equal(m->ended[CRN_GAP_STEADY][0], 980);
	assert_int_equal(m->total[CRN_GAP_STEADY], 980);
	rig_close(&r);
}

/* One that pauses has a gap as long as the pause; those that stop go cold. */
static void test_steady_pages_that_pause_are_seen(void **state)
{
	const struct crn_gap_model *m;
	bool written[RIG_PAGES] = { false };
	struct rig r;

	rig_init(&r);
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < 110; turn++) {
		for (unsigned n = 0; n < 10; n++)
			written[n] = n || turn < 100 || turn >= 102;
		rig_interval(&r, written);
	}
	m = r.s->current->state;
	assert_int_equal(m->ended[CRN_GAP_STEADY][2], 1);
	for (unsigned n = 0; n < 10; n++)
		written[n] = false;
	for (unsigned turn = 0; turn < 100; turn++)
		rig_interval(&r, written);
	assert_int_equal(r.hot, 0);
	rig_close(&r);
}

/*
 * Pages that are written with what they hold already: seen while cold, and never while hot. Going
 * cold every few intervals would cost more than all the copies.
 */
static void test_pages_that_change_nothing_stay(void **state)
{
	struct rig r;
	size_t faults = 0;
	const unsigned pages = 10, turns = 5000;

	rig_init(&r);
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < turns; turn++) {
		bool written[RIG_PAGES] = { false };

		for (unsigned n = 0; n < pages; n++)
			faults += written[n] = !r.slot[n] && rig_mix(&r.seed) % 4;
		rig_interval(&r, written);
	}
	/* Each copy is 100, each fault 900: what the copies cost is ten times more. */
	assert_in_range(faults, pages, pages * turns / 90);
	assert_true(r.hot >= pages - 1);
	/* They are let go when nobody writes them any more. */
	for (unsigned turn = 0; turn < 10000; turn++) {
		bool written[RIG_PAGES] = { false };

		rig_interval(&r, written);
	}
	assert_int_equal(r.hot, 0);
	rig_close(&r);
}

/*
 * `pages` that come all together, once in `gap` intervals, and one that always does if `steady`
 * says so. The statistics are of the second half of the turns. `price` tells what copies cost.
 */
struct crowd {
	unsigned pages, gap, turns;
	bool steady;
	void (*price)(struct rig *r);
};

static struct crn_speculation_stats visited_by(struct rig *r, const struct crowd *crowd)
{
	bool few[RIG_PAGES] = { false }, all[RIG_PAGES] = { false };
	struct crn_speculation_stats stats;

	rig_open(r, "decay");
	for (unsigned n = 0; n < crowd->pages; n++)
		all[2 * n] = true;
	all[1] = few[1] = crowd->steady;
	for (unsigned turn = 0; turn < crowd->turns; turn++) {
		if (crowd->price)
			crowd->price(r);
		if (turn == crowd->turns / 2)
			crn_speculation_stats_reset(r->s);
		rig_interval(r, turn % crowd->gap ? few : all);
	}
	crn_speculation_stats(r->s, &stats);
	return stats;
}

/* More than 50 are dear: a way out and back costs 45 copies, or 15. */
static void price_by_count(struct rig *r)
{
	r->port.costs.copy = r->hot > 50 ? 60 : 20;
}

static void price_known_by_count(struct rig *r)
{
	price_by_count(r);
	r->port.costs.sizes[crn_cost_size(r->hot)] = r->port.costs.copy;
}

/*
 * Hot pages that are many crowd the caches, and each copy gets dearer; so they go cold, in the
 * middle of their gaps and too late, again and again. Regrets must not keep them for ever then.
 */
static void test_long_gaps_refute_regrets(void **state)
{
	const struct crowd crowd = { 100, 25, 20000, false, price_by_count };
	struct crn_speculation_stats stats;
	struct rig r;

	rig_init(&r);
	stats = visited_by(&r, &crowd);
	/* Half of the time, as prices go to and fro: not all of it. */
	assert_true(stats.hot < crowd.turns / 2 * crowd.pages * 6 / 10);
	rig_close(&r);
}

/*
 * The same pages, where it is known what copies cost while many are hot: those that are cheap only
 * as long as they are away stay away.
 */
static void test_prices_of_many_are_known(void **state)
{
	const struct crowd crowd = { 100, 25, 20000, true, price_known_by_count };
	struct crn_speculation_stats stats;
	struct rig r;

	rig_init(&r);
	stats = visited_by(&r, &crowd);
	assert_true(stats.hot < crowd.turns / 2 * (1 + crowd.pages / 25));
	assert_true(r.hot);
	rig_close(&r);
}

/* Copies become dear: the limits follow long before the next review would come. */
static void test_moved_prices_are_seen_at_once(void **state)
{
	struct rig r;
	const unsigned pages = 20, gap = 10;

	rig_init(&r);
	r.port.costs.copy = 20;
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < 700; turn++) {
		bool written[RIG_PAGES] = { false };

		for (unsigned n = 0; n < pages; n++)
			written[2 * n] = (turn + n) % gap == 0;
		if (turn == 600) {
			assert_int_equal(r.hot, pages);
			r.port.costs.copy = 400;
		}
		rig_interval(&r, written);
	}
	assert_true(r.hot < pages / 2);
	rig_close(&r);
}

/* By turns of 33: pages that change unseen in each of theirs must not fault again and again. */
static void test_regrets_outlive_other_contexts(void **state)
{
	struct crn_speculation_stats stats;
	struct rig r;
	const unsigned pages = 9, gap = 11, stay = 33, turns = 12000;

	rig_init(&r);
	r.port.costs = (struct crn_costs){ 20000, 100, 10000, 12000 };
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < turns; turn++) {
		bool written[RIG_PAGES] = { false };

		for (unsigned n = 0; n < pages; n++)
			written[2 * n] = turn / stay % 2 && (turn + n) % gap == 0;
		if (turn == turns / 2)
			crn_speculation_stats_reset(r.s);
		crn_speculation_context(r.s, (turn + 1) / stay % 2);
		rig_interval(&r, written);
	}
	crn_speculation_stats(r.s, &stats);
	/* Each stay may begin with a fault of each. */
	assert_true(stats.undercopied <= turns / 2 / stay / 2 * pages * 3 / 2);
	rig_close(&r);
}

/* So many pages at once that they need not wait for others go cold as they come. */
static void test_many_wait_for_none(void **state)
{
	const struct crowd crowd = { 200, 40, 4000, true, NULL };
	struct crn_speculation_stats stats;
	struct rig r;

	rig_init(&r);
	r.port.costs.alone = 1000;
	stats = visited_by(&r, &crowd);
	assert_true(stats.promotions <=
		crowd.turns / 2 / crowd.gap * (2 * 1000 / r.port.costs.copy + 2));
	rig_close(&r);
}

/* The intervals of other contexts are no gaps. */
static void test_steady_pages_are_steady_in_their_context(void **state)
{
	const struct crn_gap_model *m;
	struct rig r;

	rig_init(&r);
	rig_open(&r, "decay");
	for (unsigned turn = 0; turn < 200; turn++) {
		bool written[RIG_PAGES] = { false };

		for (unsigned n = 0; n < 10; n++)
			written[n + turn / 20 % 2 * 100] = true;
		crn_speculation_context(r.s, (turn + 1) / 20 % 2);
		rig_interval(&r, written);
	}
	m = r.s->current->state;
	assert_true(m->ended[CRN_GAP_STEADY][0] > 0);
	assert_int_equal(m->ended[CRN_GAP_STEADY][0], m->total[CRN_GAP_STEADY]);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_long_gaps_refute_regrets),
		cmocka_unit_test(test_prices_of_many_are_known),
		cmocka_unit_test(test_moved_prices_are_seen_at_once),
		cmocka_unit_test(test_many_wait_for_none),
		cmocka_unit_test(test_regrets_outlive_other_contexts),
		cmocka_unit_test(test_decay_keeps_what_is_worth_it),
		cmocka_unit_test(test_what_a_page_paid_is_not_forgotten),
		cmocka_unit_test(test_pages_that_are_due_wait_for_each_other),
		cmocka_unit_test(test_a_page_that_waits_may_come_back),
		cmocka_unit_test(test_guests_stay_while_that_is_cheaper),
		cmocka_unit_test(test_guests_leave_in_the_end),
		cmocka_unit_test(test_pages_do_not_wait_for_another_context),
		cmocka_unit_test(test_steady_pages_are_counted_as_steady),
		cmocka_unit_test(test_steady_pages_that_pause_are_seen),
		cmocka_unit_test(test_steady_pages_are_steady_in_their_context),
		cmocka_unit_test(test_pages_that_change_nothing_stay),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
