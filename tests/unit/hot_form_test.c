/* SPDX-License-Identifier: MIT */
/* The form of hot pages: the cheaper one is used, whatever disturbs the samples. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "os/guarded.h"
#include "track/hot_form.h"

/* How many of n checkpoints asked for differences. Every `noisy`th sample is ten times as dear. */
static unsigned run(struct crn_hot_form *f, unsigned n, uint32_t whole, uint32_t differences,
	unsigned noisy)
{
	unsigned asked = 0;

	for (unsigned i = 1; i <= n; i++) {
		uint32_t cost = crn_hot_form_asks(f) ? differences : whole;

		asked += crn_hot_form_asks(f);
		crn_hot_form_note(f, noisy && i % noisy == 0 ? cost * 10 : cost);
	}
	return asked;
}

static void the_cheaper_one(void **state)
{
	struct crn_hot_form f;

	crn_hot_form_open(&f);
	assert_false(crn_hot_form_asks(&f));
	assert_int_equal(run(&f, CRN_HOT_FORM_REST, 200, 150, 0), 0);
	assert_true(run(&f, 10000, 200, 150, 0) > 9800);
	crn_hot_form_open(&f);
	assert_true(run(&f, 10000, 200, 250, 0) < 200);
}

static void trials_become_rare(void **state)
{
	struct crn_hot_form f;

	crn_hot_form_open(&f);
	run(&f, 10000, 200, 250, 0);
	assert_true(run(&f, 10000, 200, 250, 0) <=
		(10000 / CRN_HOT_FORM_RARE + 1) * CRN_HOT_FORM_TRIAL);
}

static void equals_stay(void **state)
{
	struct crn_hot_form f;

	crn_hot_form_open(&f);
	assert_true(run(&f, 10000, 200, 195, 0) < 200);
}

static void noise_decides_nothing(void **state)
{
	for (unsigned noisy = 2; noisy < 12; noisy++) {
		struct crn_hot_form f;

		crn_hot_form_open(&f);
		assert_true(run(&f, 10000, 200, 150, noisy) > 9000);
		crn_hot_form_open(&f);
		assert_true(run(&f, 10000, 200, 250, noisy) < 1000);
	}
}

static void a_change_is_noticed(void **state)
{
	struct crn_hot_form f;

	crn_hot_form_open(&f);
	run(&f, 10000, 200, 250, 0);
	assert_true(run(&f, 10000, 200, 150, 0) > 9000);
	assert_true(run(&f, 10000, 200, 250, 0) < 1000);
}

/* Many, and where they can be made. */
static void hashes(void **state)
{
	uint8_t was = crn_guarded_registers;

	crn_guarded_registers = CRN_LINES_HASHED;
	assert_false(crn_hot_form_hashes(CRN_HOT_FORM_MANY - 1));
	assert_true(crn_hot_form_hashes(CRN_HOT_FORM_MANY));
	crn_guarded_registers = CRN_LINES_WHOLE;
	assert_false(crn_hot_form_hashes(CRN_HOT_FORM_MANY));
	crn_guarded_registers = was;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_cheaper_one),
		cmocka_unit_test(trials_become_rare),
		cmocka_unit_test(equals_stay),
		cmocka_unit_test(noise_decides_nothing),
		cmocka_unit_test(a_change_is_noticed),
		cmocka_unit_test(hashes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
