/* SPDX-License-Identifier: MIT */
/* The time that checkpoints take, of which only some are timed: right in the mean, and soon. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>
#include "session/timing.h"

struct tally {
	struct crn_timing timing;
	uint64_t counted, spent, timed, n;
};

static void take(struct tally *t, uint64_t ns)
{
	t->n++;
	t->spent += ns;
	if (crn_timing_due(&t->timing)) {
		t->timed++;
		crn_timing_note(&t->timing, ns);
		t->counted += t->timing.last;
	} else {
		t->counted += crn_timing_follow(&t->timing);
	}
}

static void long_ones_are_all_timed(void **state)
{
	struct tally t = { 0 };

	(void)state;
	for (uint64_t i = 0; i < 1000; i++) {
		take(&t, CRN_TIMING_SHORT + i);
		assert_true(t.counted == t.spent && t.timed == t.n);
	}
}

static void one_of_seven_short_ones_is_timed(void **state)
{
	struct tally t = { 0 };

	(void)state;
	for (int i = 0; i < 7000; i++) {
		take(&t, 300);
		assert_true(t.counted == t.spent);
	}
	assert_in_range(t.timed, 1000, 1002);
}

static void mixtures_are_right_in_the_mean(void **state)
{
	static const unsigned rare[] = { 2, 3, 5, 8, 30, 200 };

	(void)state;
	srand(1);
	for (size_t k = 0; k < sizeof(rare) / sizeof(rare[0]); k++) {
		struct tally t = { 0 };

		for (int i = 0; i < 2000000; i++)
			take(&t, (unsigned)rand() % rare[k] ? 300 : 50000);
		assert_true(t.counted > t.spent * 95 / 100 && t.counted < t.spent * 105 / 100);
		assert_true(t.timed < t.n);
	}
}

/* One kind of request after the other: periods that programs have. */
static void alternations_are_seen(void **state)
{
	(void)state;
	for (unsigned period = 2; period < 7; period++) {
		struct tally t = { 0 };

		for (unsigned i = 0; i < 420000; i++)
			take(&t, i % period ? 200 : 1900);
		assert_true(t.counted > t.spent * 99 / 100 && t.counted < t.spent * 101 / 100);
	}
}

static void slow_from_now_on_is_noticed(void **state)
{
	struct tally t = { 0 };

	(void)state;
	for (int i = 0; i < 1000; i++)
		take(&t, 300);
	for (int i = 0; i < 2 * (int)CRN_TIMING_GROUP; i++)
		take(&t, 1000000);
	t.timed = t.n = 0;
	for (int i = 0; i < 100; i++)
		take(&t, 1000000);
	assert_true(t.timed == t.n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_ones_are_all_timed),
		cmocka_unit_test(one_of_seven_short_ones_is_timed),
		cmocka_unit_test(mixtures_are_right_in_the_mean),
		cmocka_unit_test(alternations_are_seen),
		cmocka_unit_test(slow_from_now_on_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
