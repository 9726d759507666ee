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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limits_are_the_cheapest),
		cmocka_unit_test(test_open_gaps_are_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
