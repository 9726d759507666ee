/* SPDX-License-Identifier: MIT */
/* The gap model: its limits against those of a model in floating point. */
#include "spec_rig.h"
#include "speculate/gap_model.h"
#include "speculate/strategy.h"

/* Every gap costs what gap_model.h says; the limit that costs least, of those it may choose. */
static double cost_of(const unsigned *gaps, size_t count, unsigned never, unsigned limit,
	const struct crn_costs *c)
{
	double cost = never * ((double)limit * c->copy + c->protect);

	for (size_t i = 0; i < count; i++) {
		if (gaps[i] <= limit)
			cost += (double)gaps[i] * c->copy;
		else
			cost += (double)limit * c->copy + c->protect + c->fault;
	}
	return cost;
}

static void test_limits_are_the_cheapest(void **state)
{
	static struct crn_gap_scratch scratch;
	static unsigned gaps[3000];
	uint64_t seed = 3;

	for (unsigned round = 0; round < 300; round++) {
		struct crn_costs c = {
			.fault = 200 + (unsigned)(rig_mix(&seed) % 20000),
			.copy = 50 + (unsigned)(rig_mix(&seed) % 200),
			.protect = (unsigned)(rig_mix(&seed) % 30000),
		};
		const struct crn_gap_costs costs = { c, c, CRN_ONE, 0 };
		struct crn_gap_model m = { .limit = { 0 } };
		unsigned spread = 1 + (unsigned)(rig_mix(&seed) % 60);
		unsigned never = (unsigned)(rig_mix(&seed) % 1000);
		double best = -1, got;

		for (size_t i = 0; i < 3000; i++) {
			/* Short ones and, in some rounds, a second hump. */
			gaps[i] = 1 + (unsigned)(rig_mix(&seed) % spread);
			if (round % 2 && rig_mix(&seed) % 3 == 0)
				gaps[i] += 30;
			crn_gap_note(&m, CRN_GAP_STEADY, gaps[i], 1);
		}
		for (unsigned i = 0; i < never; i++)
			crn_gap_note_never(&m, CRN_GAP_STEADY);
		crn_gap_limits(&m, &costs, &scratch);
		for (unsigned limit = 0; limit < 200; limit++) {
			double cost = cost_of(gaps, 3000, never, limit, &c);

			best = best < 0 || cost < best ? cost : best;
		}
		got = cost_of(gaps, 3000, never, m.limit[CRN_GAP_STEADY], &c);
		/* Buckets are a quarter of an octave wide, and the prior has its say. */
		if (got > best * 1.12)
			fail_msg("round %u: limit %u costs %f, the best %f", round,
				m.limit[CRN_GAP_STEADY], got, best);
	}
}

/* Open gaps count: many pages that wait long already are a reason not to wait. */
static void test_open_gaps_are_seen(void **state)
{
	static struct crn_gap_scratch scratch;
	struct crn_costs c = { .fault = 9000, .copy = 100, .protect = 1000 };
	const struct crn_gap_costs costs = { c, c, CRN_ONE, 0 };
	struct crn_gap_model m = { .limit = { 0 } };
	struct rig r;
	struct crn_working_set ws;
	uint32_t before;

	rig_init(&r);
	crn_ws_init(&ws, &r.port, 0);
	for (unsigned i = 0; i < 100; i++)
		crn_gap_note(&m, CRN_GAP_STEADY, 1 + i % 40, 1);
	crn_gap_limits(&m, &costs, &scratch);
	before = m.limit[CRN_GAP_STEADY];
	ws.now = 1000;
	for (unsigned n = 0; n < 2000; n++) {
		uint32_t index = crn_ws_add(&ws, rig_page(n));
		struct crn_ws_entry *e = &ws.entries[index];

		e->count = 1;
		e->kind = CRN_GAP_STEADY;
		e->last = 1000 - 50;
	}
	for (uint32_t at = 0; at < ws.capacity; at += 64)
		crn_gap_sweep(&m, &ws, at, at + 64);
	crn_gap_limits(&m, &costs, &scratch);
	assert_true(before >= 30);
	assert_true(m.limit[CRN_GAP_STEADY] < before / 2);
	crn_ws_fini(&ws);
	assert_int_equal(r.bytes, 0);
}

/* Kinds with gaps of 20; a way out and back costs 30 copies of 100, or 7 of 400. */
#define KIND  (CRN_GAP_STEADY + 1)
#define OTHER (CRN_GAP_STEADY + 2)

static struct crn_gap_model model_of(uint32_t pages, uint32_t hot)
{
	struct crn_gap_model m = { .limit = { 0 } };

	for (unsigned kind = KIND; kind <= OTHER; kind++) {
		crn_gap_note(&m, kind, 20, 1000);
		m.pages[kind] = pages;
		m.hot[kind] = hot;
	}
	return m;
}

static struct crn_gap_costs costs_of(uint32_t hot, unsigned dear_size)
{
	struct crn_costs c = { .fault = 2500, .copy = 100, .protect = 500 };

	if (dear_size)
		c.sizes[dear_size] = 400;
	return (struct crn_gap_costs){ c, c, CRN_ONE, hot };
}

static void limits(struct crn_gap_model *m, struct crn_gap_costs costs, bool first, bool second)
{
	static struct crn_gap_scratch scratch;

	crn_gap_limits(m, &costs, &scratch);
	assert_int_equal(m->limit[KIND] >= 20, first);
	assert_int_equal(m->limit[OTHER] >= 20, second);
}

/* 100 pages are of size 6, 200 of size 7. */
static void test_pages_are_priced_as_many_as_they_are(void **state)
{
	struct crn_gap_model m = model_of(100, 0);

	limits(&m, costs_of(4, 0), true, true);
	limits(&m, costs_of(4, 6), false, false);
	assert_int_equal(m.even[KIND], 7);
	/* The first kind takes the room that there is. */
	limits(&m, costs_of(4, 7), true, false);
	assert_int_equal(m.even[KIND], 30);
	assert_int_equal(m.even[OTHER], 7);
	/* What fewer once cost is no matter. */
	limits(&m, costs_of(400, 6), true, true);
}

/* Those that are hot count, for however long they have been idle. */
static void test_hot_pages_cannot_hide(void **state)
{
	struct crn_gap_model m = model_of(100, 100);

	m.open[KIND][20] = m.open[OTHER][20] = 100; /* for 50 to 60 intervals */
	limits(&m, costs_of(200, 7), false, true);
}

/* Cold ones that are remembered, but will not come back while that pays, do not. */
static void test_pages_long_gone_do_not_count(void **state)
{
	struct crn_gap_model m = model_of(100, 0);

	m.open[KIND][20] = m.open[OTHER][20] = 100;
	limits(&m, costs_of(4, 6), true, true);
}

/* Copies in the intervals of other contexts make a limit shorter, but a return no dearer. */
static void test_contexts_share_no_regrets(void **state)
{
	struct crn_gap_model m = model_of(100, 0);
	struct crn_gap_costs costs = costs_of(4, 0);

	costs.copies = 4 * CRN_ONE;
	limits(&m, costs, false, false);
	assert_int_equal(m.even[KIND], 30);
}

/* No sum wraps around. */
static void test_great_prices_are_bounded(void **state)
{
	struct crn_gap_model m = model_of(100, 0);
	struct crn_gap_costs costs = costs_of(4, 0);

	costs.single.fault = UINT32_MAX;
	costs.single.copy = 1;
	limits(&m, costs, true, true);
	assert_true(m.even[KIND] >= 1u << 30);
	costs.single.sizes[6] = costs.single.fault = 1u << 20;
	costs.copies = 4096 * CRN_ONE;
	limits(&m, costs, false, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits_are_the_cheapest),
		cmocka_unit_test(test_open_gaps_are_seen),
		cmocka_unit_test(test_pages_are_priced_as_many_as_they_are),
		cmocka_unit_test(test_hot_pages_cannot_hide),
		cmocka_unit_test(test_pages_long_gone_do_not_count),
		cmocka_unit_test(test_contexts_share_no_regrets),
		cmocka_unit_test(test_great_prices_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
