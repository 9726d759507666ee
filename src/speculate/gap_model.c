/* SPDX-License-Identifier: MIT */
/* Counting gaps, and the limits that follow from them. */
#include "speculate/gap_model.h"
#include "speculate/strategy.h"

#define BUCKETS	   CRN_GAP_BUCKETS
#define KINDS	   CRN_GAP_KINDS
#define FADE_ABOVE 4096u     /* gaps of a kind, before its counts are halved */
#define WEIGHT	   256u	     /* of one gap */
#define PRIOR_GAPS 4u	     /* what the prior counts as */
#define SHARED	   8u	     /* gaps that a kind borrows from all kinds */
#define ALL	   (1u << 20) /* all pages, as a share */
#define COPY_MAX   (1u << 30) /* cycles */
#define EVEN_MAX   (1u << 30) /* intervals */

/* ---- Gaps ------------------------------------------------------------------------------- */

/* 1 to 8, then four to an octave: 9-10, 11-12, 13-14, 15-16, 17-20, ... */
static uint32_t bucket_of(uint32_t gap)
{
	uint32_t octave;

	if (gap <= 8)
		return gap - 1;
	octave = 31 - (uint32_t)__builtin_clz(gap - 1); /* 3 for 9-16 */
	octave = (octave - 3) * 4 + 8 + ((gap - 1) >> (octave - 2) & 3);
	return octave < BUCKETS ? octave : BUCKETS - 1;
}

/* The greatest gap of a bucket. */
static uint32_t bucket_end(uint32_t bucket)
{
	uint32_t octave;

	if (bucket < 8)
		return bucket + 1;
	octave = (bucket - 8) / 4 + 3;
	return (1u << octave) + (1u << (octave - 2)) * (((bucket - 8) & 3) + 1);
}

static uint32_t level_of(uint32_t gap)
{
	return gap <= 2 ? gap - 1 : gap <= 8 ? 2 : gap <= 32 ? 3 : 4;
}

uint32_t crn_gap_kind(uint32_t before, uint32_t gap, bool run)
{
	uint32_t level = level_of(gap);

	before %= CRN_GAP_SINGLE;
	return crn_gap_first(run) + 1 + level * CRN_GAP_LEVELS +
		(before ? (before - 1) / CRN_GAP_LEVELS : level);
}

static void fade(struct crn_gap_model *m, uint32_t kind)
{
	while (m->total[kind] >= FADE_ABOVE) {
		m->total[kind] = m->never[kind] /= 2;
		for (uint32_t i = 0; i < BUCKETS; i++)
			m->total[kind] += m->ended[kind][i] /= 2;
	}
}

void crn_gap_note(struct crn_gap_model *m, uint32_t kind, uint32_t gap, uint32_t count)
{
	m->ended[kind][bucket_of(gap)] += count;
	m->total[kind] += count;
	fade(m, kind);
}

void crn_gap_note_never(struct crn_gap_model *m, uint32_t kind)
{
	m->never[kind]++;
	m->total[kind]++;
	fade(m, kind);
}

void crn_gap_sweep(
	struct crn_gap_model *m, const struct crn_working_set *ws, uint32_t from, uint32_t to)
{
	for (uint32_t kind = 0; !from && kind < KINDS; kind++) {
		m->pages[kind] = m->hot[kind] = 0;
		for (uint32_t i = 0; i < BUCKETS; i++)
			m->open[kind][i] = 0;
	}
	for (uint32_t at = from; at < to; at++) {
		const struct crn_ws_entry *e = &ws->entries[at];

		if (!e->page || !e->count)
			continue;
		m->pages[e->kind]++;
		m->hot[e->kind] += e->slot != CRN_SLOT_NONE;
		if (ws->now != e->last)
			m->open[e->kind][bucket_of(ws->now - e->last)]++;
	}
}

/* ---- Limits ----------------------------------------------------------------------------- */

static uint64_t total_of(const struct crn_gap_lengths *l)
{
	uint64_t total = l->never;

	for (uint32_t i = 0; i < BUCKETS; i++)
		total += l->ended[i] + l->open[i];
	return total;
}

/*
 * How gaps are distributed is estimated from those that ended and those that are still open (Kaplan
 * and Meier): the share that survives a bucket is the product of what survived each one before it.
 */
static void survivors(const struct crn_gap_lengths *l, uint64_t *share)
{
	uint64_t risk = total_of(l);

	share[0] = ALL;
	for (uint32_t i = 0; i < BUCKETS; i++) {
		share[i + 1] = share[i] - (l->ended[i] ? share[i] * l->ended[i] / risk : 0);
		risk -= l->ended[i] + l->open[i];
	}
}

static uint32_t best_limit(const struct crn_gap_lengths *l, const struct crn_costs *c)
{
	uint64_t share[BUCKETS + 1], copies = 0, best, cost;
	uint32_t limit = 0, begin = 1;

	survivors(l, share);
	best = share[0] * c->protect + (share[0] - share[BUCKETS]) * c->fault;
	/* The last bucket has no end. */
	for (uint32_t i = 0; i < BUCKETS - 1; i++) {
		uint32_t end = bucket_end(i);

		copies += (share[i] - share[i + 1]) * ((begin + end + 1) / 2);
		cost = (copies + share[i + 1] * end) * c->copy + share[i + 1] * c->protect +
			(share[i + 1] - share[BUCKETS]) * c->fault;
		if (cost < best) {
			best = cost;
			limit = end;
		}
		begin = end + 1;
	}
	return limit;
}

/*
 * Before anything is known: half of the pages never come back, and a gap of g or more has a chance
 * of 1 / g among the others. It makes the root of the break-even age the first limit.
 */
static void add_prior(struct crn_gap_lengths *l, uint64_t weight)
{
	uint32_t begin = 1;

	for (uint32_t i = 0; i < BUCKETS; i++) {
		uint32_t next = bucket_end(i) + 1;

		l->ended[i] += weight / 2 / begin - weight / 2 / next;
		begin = next;
	}
	l->never += weight / 2;
}

/* The gaps of a kind, on top of what is there already. False if there are none. */
static bool add_kind(struct crn_gap_lengths *to, const struct crn_gap_model *m, uint32_t kind)
{
	uint64_t any = m->never[kind];

	if (!m->total[kind] && !m->pages[kind])
		return false;
	to->never += any * WEIGHT;
	for (uint32_t i = 0; i < BUCKETS; i++) {
		uint64_t ended = m->ended[kind][i], open = m->open[kind][i];

		to->ended[i] += ended * WEIGHT;
		to->open[i] += open * WEIGHT;
		any |= ended | open;
	}
	return any;
}

/* The same distribution, but with this weight. */
static void scale(struct crn_gap_lengths *l, uint64_t weight)
{
	uint64_t total = total_of(l);

	for (uint32_t i = 0; i < BUCKETS; i++) {
		l->ended[i] = l->ended[i] * weight / total;
		l->open[i] = l->open[i] * weight / total;
	}
	l->never = l->never * weight / total;
}

/* What a page costs while so many are hot; but for what contexts add. */
static struct crn_costs costs_with(const struct crn_gap_costs *costs, uint32_t kind, uint32_t hot)
{
	struct crn_costs c = kind >= CRN_GAP_SINGLE ? costs->run : costs->single;

	c.copy = crn_costs_copy(&c, costs->hot, hot);
	c.copy += !c.copy;
	return c;
}

static uint32_t break_even(const struct crn_costs *c)
{
	uint64_t even = crn_costs_even(c, c->fault);

	return even < EVEN_MAX ? (uint32_t)even : EVEN_MAX;
}

static uint32_t limit_by(
	const struct crn_gap_lengths *l, const struct crn_gap_costs *costs, struct crn_costs c)
{
	uint64_t copy = c.copy * costs->copies / CRN_ONE;

	c.copy = copy < COPY_MAX ? (uint32_t)copy : COPY_MAX;
	return best_limit(l, &c);
}

/* Pages of the kind that have not been idle for longer than that. */
static uint32_t pages_within(const struct crn_gap_model *m, uint32_t kind, uint32_t limit)
{
	uint32_t pages = m->pages[kind];

	for (uint32_t i = BUCKETS; i-- && bucket_end(i) > limit;)
		pages -= m->open[kind][i];
	return pages;
}

/* How many of the kind would be hot: those that may come back while that pays, or are already. */
static uint32_t pages_wanted(
	const struct crn_gap_model *m, uint32_t kind, const struct crn_costs *c)
{
	uint32_t pages = pages_within(m, kind, break_even(c));

	return pages > m->hot[kind] ? pages : m->hot[kind];
}

void crn_gap_limits(struct crn_gap_model *m, const struct crn_gap_costs *costs,
	struct crn_gap_scratch *scratch)
{
	struct crn_gap_lengths *all = &scratch->all, *one = &scratch->one;
	uint32_t hot = costs->hot, unknown[2];

	*all = (struct crn_gap_lengths){ .never = 0 };
	for (uint32_t kind = 0; kind < KINDS; kind++)
		(void)add_kind(all, m, kind);
	add_prior(all, PRIOR_GAPS * WEIGHT);
	scale(all, SHARED * WEIGHT);
	unknown[0] = limit_by(all, costs, costs_with(costs, 0, hot));
	unknown[1] = limit_by(all, costs, costs_with(costs, CRN_GAP_SINGLE, hot));
	for (uint32_t kind = 0; kind < KINDS; kind++) {
		uint32_t others = hot - (m->hot[kind] < hot ? m->hot[kind] : hot);
		struct crn_costs c = costs_with(costs, kind, hot);

		c = costs_with(costs, kind, others + pages_wanted(m, kind, &c));
		*one = *all;
		m->limit[kind] = add_kind(one, m, kind) ? limit_by(one, costs, c)
							: unknown[kind >= CRN_GAP_SINGLE];
		m->even[kind] = break_even(&c);
		/* Kinds that come after it find it as it will be. */
		hot = others + (m->limit[kind] ? pages_within(m, kind, m->limit[kind]) : 0);
	}
}
