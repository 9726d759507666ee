/* SPDX-License-Identifier: MIT */
/*
 * GSpec against a slow model: SMC 5.2 written down with one array of bits per individual. Model and
 * strategy draw the same numbers in the same order, so that their hot sets must be the same in each
 * interval.
 */
#include "spec_rig.h"

#define N 5

struct model {
	uint64_t seed, bits;
	unsigned bits_left;
	unsigned list[RIG_PAGES], count; /* the global page list, in order of appearance */
	bool wws[N][RIG_PAGES];		 /* chromosomes, by position on the list */
	uint64_t cost[N];
	unsigned turn, generations;
};

/* 16 bits. A page of the list uses two of a series, a new page the first of its own. */
static unsigned draw16(struct model *m, bool fresh)
{
	unsigned value;

	if (fresh || !m->bits_left) {
		m->bits = rig_mix(&m->seed);
		m->bits_left = 4;
	}
	value = m->bits & 0xffff;
	m->bits >>= 16;
	m->bits_left--;
	return value;
}

static int position(const struct model *m, unsigned page)
{
	for (unsigned i = 0; i < m->count; i++)
		if (m->list[i] == page)
			return (int)i;
	return -1;
}

static unsigned parent(struct model *m, uint64_t least)
{
	for (;;) {
		uint64_t random = rig_mix(&m->seed);
		unsigned one = (unsigned)(random >> 32) % N;

		/* p = Cmin / C */
		if (m->cost[one] == least ||
			(double)(uint32_t)random / 4294967296.0 * (double)m->cost[one] <
				(double)least)
			return one;
	}
}

static void generation(struct model *m)
{
	bool fresh[N][RIG_PAGES] = { { false } };
	uint64_t least = m->cost[0];
	unsigned kept = 0;

	for (unsigned i = 1; i < N; i++)
		least = m->cost[i] < least ? m->cost[i] : least;
	for (unsigned child = 0; child < N; child++) {
		unsigned first = parent(m, least), second = parent(m, least);

		m->bits_left = 0;
		for (unsigned i = 0; i < m->count; i++) {
			bool bit = draw16(m, false) < 32768 ? m->wws[first][i] : m->wws[second][i];

			fresh[child][i] = draw16(m, false) < 655 ? !bit : bit;
		}
	}
	memset(m->wws, 0, sizeof(m->wws));
	for (unsigned i = 0; i < m->count; i++) {
		bool any = false;

		for (unsigned k = 0; k < N; k++) {
			any |= fresh[k][i];
			m->wws[k][kept] = fresh[k][i];
		}
		if (any)
			m->list[kept++] = m->list[i];
		else
			for (unsigned k = 0; k < N; k++)
				m->wws[k][kept] = false;
	}
	m->count = kept;
	memset(m->cost, 0, sizeof(m->cost));
	m->generations++;
}

/* What the model wants hot next is in hot[]. */
static void interval(struct model *m, const bool *written, bool *hot)
{
	for (unsigned n = 0; n < RIG_PAGES; n++)
		m->cost[m->turn] += hot[n];
	for (unsigned n = 0; n < RIG_PAGES; n++) {
		if (!written[n] || hot[n])
			continue;
		m->cost[m->turn] += 8;
		if (position(m, n) >= 0 || draw16(m, true) >= 32768)
			continue;
		m->list[m->count] = n;
		m->wws[m->turn][m->count++] = true;
	}
	if (++m->turn == N) {
		m->turn = 0;
		generation(m);
	}
	for (unsigned n = 0; n < RIG_PAGES; n++)
		hot[n] = position(m, n) >= 0 && m->wws[m->turn][position(m, n)];
}

static void test_gspec_is_the_papers_algorithm(void **state)
{
	static struct model m;
	bool written[RIG_PAGES], hot[RIG_PAGES] = { false };
	struct rig r;

	m = (struct model){ .seed = 42 };
	rig_init(&r);
	r.seed = 42;
	rig_open(&r, "gspec");
	for (unsigned turn = 0; turn < 2000; turn++) {
		uint64_t seed = turn;

		for (unsigned n = 0; n < RIG_PAGES; n++) {
			uint64_t dice = rig_mix(&seed) % 1000;

			written[n] = n < 12 || (n < 30 && dice < 500) || dice < 4;
		}
		interval(&m, written, hot);
		rig_interval(&r, written);
		for (unsigned n = 0; n < RIG_PAGES; n++)
			if (hot[n] != (r.slot[n] != 0))
				fail_msg("interval %u, page %u: model says %d", turn, n, hot[n]);
	}
	assert_int_equal(m.generations, 400);
	rig_close(&r);
}

/* A stable working set is found, and little else is copied. */
static void test_gspec_converges(void **state)
{
	struct crn_speculation_stats stats;
	struct rig r;

	rig_init(&r);
	rig_open(&r, "gspec");
	for (unsigned turn = 0; turn < 3000; turn++) {
		bool written[RIG_PAGES] = { false };

		for (unsigned n = 0; n < 20; n++)
			written[n] = true;
		if (turn == 500)
			crn_speculation_stats_reset(r.s);
		rig_interval(&r, written);
	}
	crn_speculation_stats(r.s, &stats);
	assert_true(stats.undercopied * 10 < stats.written);
	assert_true(stats.overcopied == 0);
	rig_close(&r);
}

/* All mark a page cold: it is forgotten, and enters anew with p = 0.5. */
static void test_gspec_forgets(void **state)
{
	struct crn_speculation_stats stats;
	bool written[RIG_PAGES] = { false };
	struct rig r;

	rig_init(&r);
	rig_open(&r, "gspec:enter=1,mutation=0");
	for (unsigned n = 0; n < 100; n++)
		written[n] = true;
	rig_interval(&r, written);
	crn_speculation_stats(r.s, &stats);
	assert_int_equal(stats.pages_known, 100);
	memset(written, 0, sizeof(written));
	for (unsigned turn = 0; turn < 400; turn++)
		rig_interval(&r, written);
	crn_speculation_stats(r.s, &stats);
	assert_int_equal(stats.pages_known, 0);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gspec_is_the_papers_algorithm),
		cmocka_unit_test(test_gspec_converges),
		cmocka_unit_test(test_gspec_forgets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
