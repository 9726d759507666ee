/* SPDX-License-Identifier: MIT */
/* The other strategies, each by what its paper says of it, and what meta shows them. */
#include "spec_rig.h"

static void clear(bool *written)
{
	memset(written, 0, RIG_PAGES * sizeof(*written));
}

static bool same_set(const struct rig *r, const bool *hot)
{
	for (unsigned n = 0; n < RIG_PAGES; n++)
		if (hot[n] != (r->slot[n] != 0))
			return false;
	return true;
}

/* ---- Active lists (SMC 5.1) -------------------------------------------------------------- */

/* The list as an array, its size as a fraction. */
struct list {
	unsigned at[RIG_PAGES], count, runs, turn;
	double size;
	bool sampling;
};

static void push_out(struct list *l)
{
	memmove(l->at, l->at + 1, --l->count * sizeof(l->at[0]));
}

static unsigned room(const struct list *l)
{
	unsigned size = (unsigned)(l->size + 0.5);

	return size ? size : 1;
}

static bool listed(const struct list *l, unsigned page)
{
	for (unsigned i = 0; i < l->count; i++)
		if (l->at[i] == page)
			return true;
	return false;
}

/* every=10, window=4. A page that was hot when the interval began does not fault in it. */
static void fifo_interval(struct list *l, const bool *written)
{
	struct list begin = *l;
	unsigned seen = 0;

	for (unsigned n = 0; n < RIG_PAGES; n++) {
		seen += written[n];
		if (!written[n] || (!l->sampling && listed(&begin, n)) || listed(l, n))
			continue;
		while (l->runs && l->count >= room(l))
			push_out(l);
		l->at[l->count++] = n;
	}
	l->turn++;
	if (l->sampling) {
		l->runs += l->runs < 4;
		l->size += (seen - l->size) / l->runs;
		while (l->count > room(l))
			push_out(l);
	}
	l->sampling = l->turn < 4 || (l->turn - 3) % 10 == 0;
}

static void random_pages(uint64_t *seed, bool *written)
{
	for (unsigned n = 0; n < RIG_PAGES; n++)
		written[n] = rig_mix(seed) % 100 < (n < 20 ? 60 : n < 60 ? 5 : 0);
}

static void test_active_fifo_is_a_queue_of_sampled_size(void **state)
{
	struct list l = { .sampling = true };
	bool written[RIG_PAGES];
	uint64_t seed = 5;
	struct rig r;

	rig_init(&r);
	rig_open(&r, "active-fifo:every=10,window=4");
	for (unsigned turn = 0; turn < 500; turn++) {
		bool hot[RIG_PAGES] = { false };

		random_pages(&seed, written);
		fifo_interval(&l, written);
		rig_interval(&r, written);
		for (unsigned i = 0; i < l.count && !l.sampling; i++)
			hot[l.at[i]] = true;
		if (!same_set(&r, hot))
			fail_msg("interval %u: another list", turn);
	}
	rig_close(&r);
}

/* The same size, but any page may go; each with the same chance. */
static void test_active_rnd_evicts_at_random(void **state)
{
	unsigned gone[10] = { 0 };

	for (uint64_t seed = 1; seed <= 2000; seed++) {
		bool written[RIG_PAGES] = { false };
		struct rig r;

		rig_init(&r);
		r.seed = seed;
		rig_open(&r, "active-rnd:every=1000,window=1");
		for (unsigned n = 0; n < 10; n++)
			written[n] = true;
		rig_interval(&r, written);
		assert_int_equal(r.hot, 10);
		clear(written);
		written[100] = true;
		rig_interval(&r, written);
		assert_int_equal(r.hot, 10);
		assert_true(r.slot[100]);
		for (unsigned n = 0; n < 10; n++)
			gone[n] += !r.slot[n];
		rig_close(&r);
	}
	/* 200 each is the mean; 5 standard deviations are 67. */
	for (unsigned n = 0; n < 10; n++)
		assert_in_range(gone[n], 133, 267);
}

/* ---- Active-CKS (SMC 5.1) ---------------------------------------------------------------- */

static uint64_t contents[RIG_PAGES];

static uint64_t sum_of(const struct crn_port *port, uintptr_t page)
{
	return contents[rig_number(page)];
}

static void test_active_cks_waits_for_n_unchanged_checkpoints(void **state)
{
	for (unsigned checksums = 0; checksums < 2; checksums++) {
		bool written[RIG_PAGES] = { false };
		struct rig r;

		rig_init(&r);
		r.port.checksum = checksums ? sum_of : NULL;
		rig_open(&r, "active-cks");
		for (unsigned turn = 0; turn < 30; turn++) {
			clear(written);
			written[1] = turn < 3 || turn == 7;
			contents[1] += written[1];
			rig_interval(&r, written);
			/* Written in turns 0, 1, 2 and 7: the fifth idle checkpoint is turn 12. */
			assert_int_equal(r.slot[1] != 0, turn < 12);
		}
		rig_close(&r);
	}
}

/* ---- Oracles ----------------------------------------------------------------------------- */

#define RECORDED 40

static uintptr_t recorded[RECORDED][RIG_PAGES];
static size_t recorded_count[RECORDED];

static int recording(
	const struct crn_port *port, uint64_t index, struct crn_profile_interval *out)
{
	if (index >= RECORDED)
		return CRN_PORT_EINVAL;
	*out = (struct crn_profile_interval){ recorded[index], recorded_count[index] };
	return 0;
}

static void replayed(unsigned turn, bool *written)
{
	uint64_t seed = turn + 1;

	random_pages(&seed, written);
}

static void open_with_profile(struct rig *r, const char *spec)
{
	for (unsigned turn = 0; turn < RECORDED; turn++) {
		bool written[RIG_PAGES];

		recorded_count[turn] = 0;
		replayed(turn, written);
		for (unsigned n = 0; n < RIG_PAGES; n++)
			if (written[n])
				recorded[turn][recorded_count[turn]++] = rig_page(n);
	}
	rig_init(r);
	r->port.profile = recording;
	rig_open(r, spec);
}

static void test_oracle_knows_each_interval(void **state)
{
	bool written[RIG_PAGES];
	struct rig r;

	open_with_profile(&r, "oracle");
	for (unsigned turn = 0; turn + 1 < RECORDED; turn++) {
		bool coming[RIG_PAGES];

		replayed(turn, written);
		replayed(turn + 1, coming);
		crn_speculation_context(r.s, turn % 2);
		rig_interval(&r, written);
		assert_true(same_set(&r, coming));
	}
	assert_null(crn_speculation_trouble(r.s));
	rig_close(&r);
}

/* Two whole intervals are undone: the program runs them again, from pages that are hot or not. */
static void test_oracle_follows_a_restore(void **state)
{
	bool written[RIG_PAGES], coming[RIG_PAGES];
	struct rig r;

	open_with_profile(&r, "oracle");
	for (unsigned turn = 0; turn < 20; turn++) {
		replayed(turn, written);
		rig_interval(&r, written);
	}
	crn_speculation_restore(r.s, 2);
	/* The open one is 18 again; pages of the profile that are cold now prove nothing. */
	for (unsigned turn = 18; turn < 30; turn++) {
		replayed(turn, written);
		replayed(turn + 1, coming);
		rig_interval(&r, written);
		assert_null(crn_speculation_trouble(r.s));
		assert_true(same_set(&r, coming));
	}
	rig_close(&r);
}

static void test_oracle_says_what_does_not_match(void **state)
{
	bool written[RIG_PAGES];
	struct rig r;

	open_with_profile(&r, "oracle:pages=0,share=0");
	for (unsigned turn = 0; turn < 10; turn++) {
		replayed(turn, written);
		if (turn == 7)
			written[500] = true;
		rig_interval(&r, written);
		assert_int_equal(crn_speculation_trouble(r.s) != NULL, turn >= 7);
		assert_int_equal(r.hot != 0, turn < 7);
	}
	assert_string_equal(crn_speculation_trouble(r.s),
		"oracle: interval 7, page 0x101f4000: was written, but the profile does not have "
		"it there");
	assert_string_equal(r.log, crn_speculation_trouble(r.s));
	rig_close(&r);

	/* A page now and then is no other run; all of another run's are. */
	open_with_profile(&r, "oracle");
	for (unsigned turn = 0; turn < RECORDED; turn++) {
		replayed(turn, written);
		written[500] = turn % 4 == 1;
		rig_interval(&r, written);
		assert_int_equal(crn_speculation_trouble(r.s) != NULL, turn + 1 == RECORDED);
	}
	rig_close(&r);
	open_with_profile(&r, "oracle");
	for (unsigned turn = 0; turn < 10; turn++) {
		replayed(turn + 100, written);
		rig_interval(&r, written);
	}
	assert_non_null(strstr(crn_speculation_trouble(r.s), "does not have it"));
	rig_close(&r);

	open_with_profile(&r, "oracle");
	for (unsigned turn = 0; turn < RECORDED; turn++) {
		replayed(turn, written);
		rig_interval(&r, written);
	}
	assert_non_null(strstr(crn_speculation_trouble(r.s), "interval 40: the profile ends"));
	assert_int_equal(r.hot, 0);
	rig_close(&r);
}

static void test_oracle_count_only_counts(void **state)
{
	bool written[RIG_PAGES];
	struct rig r;

	open_with_profile(&r, "oracle-count");
	assert_true(crn_speculation_flags(r.s) & CRN_STRATEGY_BOUND);
	for (unsigned turn = 0; turn + 1 < RECORDED; turn++) {
		clear(written);
		rig_interval(&r, written);
		assert_int_equal(r.hot, 0);
		assert_int_equal(crn_speculation_dummies(r.s), recorded_count[turn + 1]);
	}
	rig_close(&r);
}

static void test_oracles_need_a_profile(void **state)
{
	struct crn_speculation *s;
	struct rig r;
	char why[160];

	rig_init(&r);
	assert_int_equal(crn_speculation_open(&s, &r.port, "oracle", why, sizeof(why)),
		CRN_PORT_EINVAL);
	assert_non_null(strstr(why, "needs the profile"));
}

/* ---- Meta (SMC 7.3) ---------------------------------------------------------------------- */

/* Shown by meta, a strategy fares as it does when a tracker runs it alone. */
static void test_meta_scores_each_as_if_alone(void **state)
{
	static const char *const fair[] = { "none", "last", "active-fifo", "active-cks", "decay" };
	struct crn_speculation_stats by_meta, alone;
	struct rig meta;
	size_t found = 0;

	rig_init(&meta);
	rig_open(&meta, "meta");
	for (unsigned turn = 0; turn < 400; turn++) {
		bool written[RIG_PAGES];

		replayed(turn, written);
		crn_speculation_context(meta.s, turn / 7 % 2);
		rig_interval(&meta, written);
		assert_int_equal(meta.hot, 0);
		if (turn == 100)
			crn_speculation_restore(meta.s, 0);
	}
	for (size_t i = 0; crn_speculation_rival(meta.s, i); i++) {
		const char *name = crn_speculation_name(crn_speculation_rival(meta.s, i));
		struct rig r;

		crn_speculation_stats(crn_speculation_rival(meta.s, i), &by_meta);
		for (size_t k = 0; k < sizeof(fair) / sizeof(fair[0]); k++) {
			if (strcmp(name, fair[k]))
				continue;
			found++;
			rig_init(&r);
			rig_open(&r, name);
			for (unsigned turn = 0; turn < 400; turn++) {
				bool written[RIG_PAGES];

				replayed(turn, written);
				crn_speculation_context(r.s, turn / 7 % 2);
				rig_interval(&r, written);
			}
			crn_speculation_stats(r.s, &alone);
			assert_int_equal(by_meta.overcopied, alone.overcopied);
			assert_int_equal(by_meta.undercopied, alone.undercopied);
			assert_int_equal(by_meta.written, alone.written);
			assert_int_equal(by_meta.hot, alone.hot);
			assert_int_equal(by_meta.evictions, alone.evictions);
			rig_close(&r);
		}
	}
	assert_int_equal(found, sizeof(fair) / sizeof(fair[0]));
	rig_close(&meta);
}

/* ---- Options ----------------------------------------------------------------------------- */

static bool opens(const char *name, const struct crn_parameter *p, double value)
{
	struct crn_speculation *s;
	char spec[128], why[160];
	struct rig r;

	rig_init(&r);
	r.port.profile = recording;
	snprintf(spec, sizeof(spec), "%s:%s=%.*f", name, p->name, p->unit > 1 ? 6 : 0, value);
	if (crn_speculation_open(&s, &r.port, spec, why, sizeof(why)) < 0) {
		assert_non_null(strstr(why, p->name));
		assert_non_null(strstr(why, " is not a number from "));
		return false;
	}
	crn_speculation_close(s);
	assert_int_equal(r.bytes, 0);
	return true;
}

static void test_every_parameter_has_its_range(void **state)
{
	unsigned seen = 0;

	for (size_t i = 0; crn_strategies[i]; i++) {
		const struct crn_parameter *p = crn_strategies[i]->parameters;

		for (; p < crn_strategies[i]->parameters + CRN_PARAMETERS_MAX && p->name; p++) {
			double least = (double)p->min / p->unit, most = (double)p->max / p->unit;

			assert_in_range(p->standard, p->min, p->max);
			assert_true(opens(crn_strategies[i]->name, p, least));
			assert_true(opens(crn_strategies[i]->name, p, most));
			assert_false(opens(crn_strategies[i]->name, p, most + 1));
			assert_false(p->min && opens(crn_strategies[i]->name, p, least - 1));
			seen++;
		}
	}
	assert_true(seen >= 17);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_active_fifo_is_a_queue_of_sampled_size),
		cmocka_unit_test(test_active_rnd_evicts_at_random),
		cmocka_unit_test(test_active_cks_waits_for_n_unchanged_checkpoints),
		cmocka_unit_test(test_oracle_knows_each_interval),
		cmocka_unit_test(test_oracle_follows_a_restore),
		cmocka_unit_test(test_oracle_says_what_does_not_match),
		cmocka_unit_test(test_oracle_count_only_counts),
		cmocka_unit_test(test_oracles_need_a_profile),
		cmocka_unit_test(test_meta_scores_each_as_if_alone),
		cmocka_unit_test(test_every_parameter_has_its_range),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
