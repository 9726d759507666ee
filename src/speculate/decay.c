/* SPDX-License-Identifier: MIT */
/*
 * decay: promote a page at its first fault, and keep it while that is cheaper than letting it go.
 * How likely an idle page is to be written again is learnt from the gaps between writes of pages of
 * its kind, and what being wrong costs is this host's own measured figure (gap_model.h): there is
 * nothing to tune. Pages that went cold are remembered for a while, for their gaps would else be
 * missing.
 *
 * Where the tracker finds the writes of hot pages by comparing, a store of what is there already
 * shows only while the page is cold: it idles, goes cold, and faults at once, again and again. No
 * gap tells of that, but the eviction does: had the page stayed, less would have been spent. Each
 * such regret in a row doubles the page's limit.
 *
 * A page past its limit is due, and waits for others: in a burst they are evicted more cheaply.
 *
 * Pages that are written together with their neighbours (runs.h) are opened with them, at one
 * fault, where the tracker asks. Coming back costs them little, so that they need not stay long.
 *
 * Of an entry: last is the interval of its last write, count how often it was written while cold,
 * kind the gap model's, cooled the interval in which it went cold. Where the bit of a hot page is
 * set in `steady` it has been written in each interval of late, the last one included: `last` is
 * then out of date, and the page costs nothing but its bit as long as that goes on.
 */
#include "speculate/gap_model.h"
#include "speculate/runs.h"

#define REVIEW_FIRST 8u	    /* intervals until the limits are first computed, */
#define REVIEW_EVERY 256u   /* between two times, if there is news, */
#define REVIEW_SOON  32u    /* the same if prices have changed, */
#define REVIEW_NEWS  16u    /* which is so many gaps that ended or stayed open, */
#define REVIEW_LAST  1024u  /* and if there is none */
#define SWEEP	     128u   /* entries looked at in one interval: a checkpoint stays short */
#define MEMORY	     2u	    /* how long a cold page is remembered, in break-even ages */
#define MEMORY_LEAST 64u    /* and in intervals */
#define COLD_MAX     65536u /* cold pages remembered at most */
#define REGRETS_MAX  8u	    /* that count: a fault in 256 limits is no price any more */
#define RUN_LEAST    8u	    /* pages in a run that shares its costs */
#define RUN_WEIGHT   64u    /* pages that came together and count as all that is known of runs */
#define RUN_ROW	     32u    /* writes in a row, after which a page of a run stands for itself */

struct decay_common {
	struct crn_gap_scratch scratch;
	struct crn_regions regions;
	uint32_t together; /* pages that came back with one in a run, itself too, in 1 / CRN_ONE */
	bool learnt;	   /* what the interval that ends has written; then, of the last page: */
	uintptr_t begin, end; /* its run: pages come in order, */
	uint32_t came;	      /* and those of it so far, if it is a run */
};

struct decay_state {
	struct crn_gap_model gaps;
	uint32_t reviewed; /* the interval of the last computation of limits */
	uint32_t period;   /* intervals from then to the next one */
	uint32_t news;	   /* since then */
	uint32_t swept;	 /* entries, so far; 0: no sweep has begun */
	uint32_t price;	 /* of a copy, at the last computation */
	uint32_t memory; /* intervals for which a cold page is remembered */
	uint32_t faults; /* in the open interval */
	uint32_t due;	 /* pages past their limit, as far as this interval was looked at */
	uint64_t rent;	 /* what those that wait have cost since the last burst */
	bool burst;	 /* the open interval ends with one */
	uint64_t left;	 /* when (s->clock) this context was last the current one */
	uint64_t away;	 /* mean intervals of the others in between, in 1 / CRN_ONE */
};

/*
 * Of a page in a run. Opened with others it is copied and, at the checkpoint, compared; where the
 * tracker does not ask, it faults like any other. Those of a run that are hot share nothing.
 */
static struct crn_costs costs_in_run(const struct crn_speculation *s)
{
	uint32_t together = ((const struct decay_common *)s->common)->together / CRN_ONE;
	struct crn_costs c = s->port->costs;

	together += !together;
	c.protect /= together;
	if (s->port->at_fault)
		c.fault = c.fault / together + 2 * c.copy;
	return c;
}

/* What a lodger's way out and back costs, in copies. */
static uint64_t way_of_lodger(const struct crn_costs *c)
{
	return crn_costs_even(c, c->open < c->fault ? c->open : c->fault);
}

/*
 * The limits of one context count its own intervals. A page that stays hot as a lodger meanwhile is
 * copied in those of the others as well.
 */
static void compute_limits(struct crn_speculation *s, struct decay_state *d)
{
	struct crn_gap_costs costs = {
		.single = s->port->costs,
		.run = costs_in_run(s),
		.copies = CRN_ONE,
		.hot = (uint32_t)s->hot.count,
	};
	uint64_t memory = MEMORY * crn_costs_even(&costs.single, costs.single.fault);

	d->memory = memory < MEMORY_LEAST ? MEMORY_LEAST : memory > 1u << 30 ? 1u << 30
									      : (uint32_t)memory;
	if (d->away / CRN_ONE < way_of_lodger(&costs.single))
		costs.copies += d->away;
	crn_gap_limits(&d->gaps, &costs, &((struct decay_common *)s->common)->scratch);
	d->price = costs.single.copy;
}

/* The pages of these slots were last written in that interval. */
static void set_last(const struct crn_speculation *s, struct crn_working_set *ws, size_t word,
	uint64_t slots, uint32_t last)
{
	for (uint64_t bits = slots; bits; bits &= bits - 1)
		ws->entries[s->hot.entry[word * 64 + (size_t)__builtin_ctzll(bits)]].last = last;
}

/* Pages are steady as of the interval that ends: let their entries say so. */
static void note_steady(struct crn_speculation *s, struct crn_working_set *ws)
{
	const struct crn_hot_table *h = &s->hot;

	for (size_t word = 0; word < crn_hot_words(h); word++)
		set_last(s, ws, word, h->steady[word] & h->used[word], ws->now);
}

/* Have copies become dearer or cheaper by more than a quarter? */
static bool has_moved(const struct crn_speculation *s, const struct decay_state *d)
{
	uint32_t price = s->port->costs.copy;

	return price > d->price + d->price / 4 || price < d->price - d->price / 4;
}

static bool is_time(const struct crn_speculation *s, const struct decay_state *d, uint32_t now)
{
	uint32_t since = now - d->reviewed;

	if (d->news < REVIEW_NEWS)
		return since >= d->period + REVIEW_LAST;
	return since >= d->period || (since >= REVIEW_SOON && has_moved(s, d));
}

/*
 * From time to time. Where all that happens is what the model knows already (the same pages at each
 * interval) that is hardly ever.
 */
static void review(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct decay_state *d = ws->state;
	uint32_t to;

	if (!d->swept && !is_time(s, d, ws->now))
		return;
	note_steady(s, ws);
	to = ws->capacity - d->swept < SWEEP ? ws->capacity : d->swept + SWEEP;
	crn_gap_sweep(&d->gaps, ws, d->swept, to);
	d->swept = to;
	if (to < ws->capacity)
		return;
	compute_limits(s, d);
	d->reviewed = ws->now;
	d->period = ws->now < REVIEW_EVERY ? ws->now : REVIEW_EVERY;
	d->news = d->swept = 0;
}

static void decay_context_open(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct decay_state *d = ws->state;

	d->period = REVIEW_FIRST;
	d->burst = !s->port->costs.alone;
	compute_limits(s, d);
}

static void note_write(struct decay_state *d, struct crn_working_set *ws, struct crn_ws_entry *e)
{
	uint32_t gap = ws->now - e->last;

	gap += !gap;
	d->news++;
	crn_gap_note(&d->gaps, e->kind, gap, 1);
	e->kind = crn_gap_kind(e->kind, gap, e->kind >= CRN_GAP_SINGLE);
	if (gap > 1)
		e->since = ws->now;
	e->last = ws->now;
}

/* After how many idle intervals the page is due. 0: at once. */
static uint32_t limit_of(const struct decay_state *d, const struct crn_ws_entry *e)
{
	uint32_t limit = d->gaps.limit[e->kind];

	return e->regrets && !limit ? 1u << e->regrets : limit << e->regrets;
}

static bool is_due(
	const struct decay_state *d, const struct crn_working_set *ws, const struct crn_ws_entry *e)
{
	return ws->now - e->last >= limit_of(d, e);
}

/*
 * One page that goes cold alone costs several times its share of a burst, and one that has just
 * passed its limit is as good hot as cold. So pages that are due wait for each other, until all
 * that wait have cost as much as going alone does: rent or buy once more. What an interval ends
 * with is settled before it is looked at; but where its pages are so many that they would have to
 * pay twice as much for one interval alone, the rest go as they come. None waits for a change of
 * context, which makes it cold anyway, or has it copied for others.
 */
static uint64_t rent_of(const struct crn_speculation *s, const struct decay_state *d)
{
	return (uint64_t)d->due * s->port->costs.copy;
}

static bool bursts(const struct crn_speculation *s, const struct crn_working_set *ws)
{
	const struct decay_state *d = ws->state;

	return d->burst || s->key_next != ws->key || rent_of(s, d) / 2 > s->port->costs.alone;
}

static void pay_rent(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct decay_state *d = ws->state;
	uint64_t rent = rent_of(s, d);

	if (bursts(s, ws)) {
		/* If those that waited have been written since, what they paid is good still. */
		if (d->due) {
			d->rent = 0;
			/* So many each time need not wait for more. */
			d->burst = rent >= s->port->costs.alone;
		}
	} else {
		d->rent += rent;
		d->burst = d->rent + rent / 2 >= s->port->costs.alone;
	}
	d->due = 0;
}

/* A cold page is written: would it have cost less to keep it? */
static void judge_eviction(
	const struct decay_state *d, const struct crn_working_set *ws, struct crn_ws_entry *e)
{
	if (!e->cooled)
		return;
	if (ws->now - e->cooled >= d->gaps.even[e->kind])
		e->regrets = 0;
	else if (e->regrets < REGRETS_MAX)
		e->regrets++;
	e->cooled = 0;
}

/* The mean is of pages, not of runs: each bears its share. */
static void run_ends(struct decay_common *c)
{
	uint32_t weight = c->came < RUN_WEIGHT ? c->came : RUN_WEIGHT;
	int64_t more = (int64_t)c->came * CRN_ONE - c->together;

	c->together += (uint32_t)(more * weight / RUN_WEIGHT);
	c->came = 0;
}

/* Did the page come in a run? */
static bool in_run(struct decay_common *c, uintptr_t page)
{
	if (page < c->begin || page >= c->end) {
		run_ends(c);
		if (!crn_runs_around(&c->regions, page, &c->begin, &c->end)) {
			c->begin = page;
			c->end = page + CRN_PORT_PAGE;
		}
	}
	if (c->end - c->begin < RUN_LEAST * CRN_PORT_PAGE)
		return false;
	c->came++;
	return true;
}

static void learn_runs(struct crn_speculation *s)
{
	struct decay_common *c = s->common;

	if (c->learnt)
		return;
	crn_runs_learn(s, &c->regions);
	c->begin = c->end = 0;
	run_ends(c);
	c->learnt = true;
}

static void decay_fault(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page)
{
	struct decay_state *d = ws->state;
	uint32_t index = crn_ws_add(ws, page);
	struct crn_ws_entry *e;
	bool due;

	learn_runs(s);
	if (index == CRN_WS_NONE)
		return;
	e = &ws->entries[index];
	if (e->count) {
		judge_eviction(d, ws, e);
		note_write(d, ws, e);
		crn_ws_renew(ws, index);
	} else {
		e->since = ws->now;
	}
	e->kind = e->kind % CRN_GAP_SINGLE + crn_gap_first(in_run(s->common, page));
	d->faults++;
	d->news++;
	e->count++;
	e->last = ws->now;
	due = is_due(d, ws, e);
	d->due += due;
	if (!due || !bursts(s, ws))
		crn_ws_set_hot(ws, index, true);
}

/*
 * A cold page is remembered long enough for its next gap to be worth knowing, and then counts as
 * one that never came back. The list is in order of faults.
 */
static void forget_some(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct decay_state *d = ws->state;

	/* Nothing is cold. */
	if (ws->count == ws->hot_count) {
		d->faults = 0;
		return;
	}
	for (uint32_t tries = 4 + 2 * d->faults; tries && ws->first != CRN_WS_NONE; tries--) {
		struct crn_ws_entry *e = &ws->entries[ws->first];
		bool old = ws->now - e->last > d->memory;

		if (e->flags & CRN_WS_HOT || e->slot != CRN_SLOT_NONE) {
			crn_ws_renew(ws, ws->first);
			continue;
		}
		if (!old && ws->count - ws->hot_count <= COLD_MAX)
			break;
		if (old && e->count)
			crn_gap_note_never(&d->gaps, e->kind);
		crn_ws_remove(ws, ws->first);
	}
	d->faults = 0;
}

/* ---- Contexts --------------------------------------------------------------------------- */

/*
 * The pages that the context now left wants hot, and the next one does not, are its lodgers: they
 * stay hot if the way out and back costs more than copying them until their context returns. That
 * is so under every tracker of a user-level engine when contexts alternate quickly. A lodger's
 * entry.note says at which clock it has cost that much, and goes.
 */
static bool is_lodger(const struct crn_ws_entry *e)
{
	return e->slot != CRN_SLOT_NONE && !(e->flags & CRN_WS_HOT);
}

static bool decay_stay(struct crn_speculation *s, struct crn_working_set *from, uint32_t index,
	struct crn_working_set *to)
{
	const struct crn_costs *c = &s->port->costs;
	const struct crn_ws_entry *e = &from->entries[index];
	const struct decay_state *d = from->state;
	uint64_t even = way_of_lodger(c);
	uint64_t until = s->clock + even;
	uint32_t there;

	if (!is_lodger(e)) {
		if (d->away / CRN_ONE >= even)
			return false;
	} else {
		if (e->cooled == from->now)
			return false; /* it is no lodger, but has just been found due */
		until = e->note;
	}
	there = crn_ws_add(to, e->page);
	if (there == CRN_WS_NONE)
		return false;
	to->entries[there].note = until;
	return true;
}

static void decay_begin(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct decay_state *d = ws->state;
	uint64_t gap = (s->clock - d->left - 1) * CRN_ONE;

	if (d->left && gap)
		d->away = d->away ? d->away - d->away / 4 + gap / 4 : gap;
	d->left = s->clock;
}

/* Has the current context written a lodger? Then it is its own from now on. */
static void see_lodger(
	struct crn_speculation *s, struct crn_working_set *ws, size_t slot, bool changed)
{
	uint32_t index = s->hot.entry[slot];

	if (changed) {
		decay_fault(s, ws, s->hot.page[slot]);
		if (!(ws->entries[index].flags & CRN_WS_HOT))
			crn_hot_evict(s, ws, index);
	} else if (s->clock >= ws->entries[index].note) {
		crn_hot_evict(s, ws, index);
	}
}

/* ---- Checkpoint ------------------------------------------------------------------------- */

static void decay_leave(struct crn_speculation *s, struct crn_working_set *ws)
{
	note_steady(s, ws);
	for (size_t word = 0; word < crn_hot_words(&s->hot); word++)
		s->hot.steady[word] = 0;
}

/* If that came so late that the page had better gone, its regrets were none. */
static void note_hot_write(
	struct decay_state *d, struct crn_working_set *ws, struct crn_ws_entry *e)
{
	if (e->regrets && ws->now - e->last >= d->gaps.even[e->kind])
		e->regrets = 0;
	note_write(d, ws, e);
	if (e->kind == CRN_GAP_SINGLE + CRN_GAP_STEADY && ws->now - e->since >= RUN_ROW)
		e->kind = CRN_GAP_STEADY;
}

/* A hot page was written that is not steady, or not yet. */
static void see_changed(struct crn_speculation *s, struct crn_working_set *ws, size_t slot)
{
	struct crn_ws_entry *e = &ws->entries[s->hot.entry[slot]];

	if (!(e->flags & CRN_WS_HOT)) {
		see_lodger(s, ws, slot, true);
		return;
	}
	note_hot_write(ws->state, ws, e);
	if (e->kind == CRN_GAP_STEADY)
		s->hot.steady[slot / 64] |= 1ull << slot % 64;
}

static void see_idle(struct crn_speculation *s, struct crn_working_set *ws, size_t slot)
{
	struct crn_ws_entry *e = &ws->entries[s->hot.entry[slot]];
	struct decay_state *d = ws->state;

	if (!(e->flags & CRN_WS_HOT)) {
		see_lodger(s, ws, slot, false);
		return;
	}
	d->news++;
	if (!is_due(d, ws, e))
		return;
	d->due++;
	if (!bursts(s, ws))
		return;
	crn_ws_set_hot(ws, s->hot.entry[slot], false);
	e->cooled = ws->now;
}

/*
 * Written pages and idle ones by loops of their own: which of the two one is, nobody can guess. The
 * result says how many have stayed steady.
 */
static uint32_t see_hot(struct crn_speculation *s, struct crn_working_set *ws, size_t word)
{
	struct crn_hot_table *h = &s->hot;
	uint64_t changed = h->used[word] & h->changed[word];
	uint64_t idle = h->used[word] & ~h->changed[word];
	uint64_t again = changed & h->steady[word];

	/* Steady until now: their entries do not know. */
	set_last(s, ws, word, idle & h->steady[word], ws->now - 1);
	h->steady[word] &= ~idle;
	for (uint64_t bits = changed & ~again; bits; bits &= bits - 1)
		see_changed(s, ws, word * 64 + (size_t)__builtin_ctzll(bits));
	for (uint64_t bits = idle; bits; bits &= bits - 1)
		see_idle(s, ws, word * 64 + (size_t)__builtin_ctzll(bits));
	return crn_popcount(again);
}

static void decay_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct decay_state *d = ws->state;
	uint32_t steady = 0;

	for (size_t word = 0; word < crn_hot_words(&s->hot); word++)
		steady += see_hot(s, ws, word);
	if (steady)
		crn_gap_note(&d->gaps, CRN_GAP_STEADY, 1, steady);
	pay_rent(s, ws);
	((struct decay_common *)s->common)->learnt = false;
	forget_some(s, ws);
	review(s, ws);
}

/* ---- Runs ------------------------------------------------------------------------------- */

static int decay_open(struct crn_speculation *s)
{
	crn_regions_init(&((struct decay_common *)s->common)->regions);
	return 0;
}

static void decay_close(struct crn_speculation *s)
{
	crn_regions_fini(s->port, &((struct decay_common *)s->common)->regions);
}

static bool decay_near(
	const struct crn_speculation *s, uintptr_t page, uintptr_t *begin, uintptr_t *end)
{
	const struct decay_common *common = s->common;

	return crn_runs_around(&common->regions, page, begin, end);
}

static void decay_removed(struct crn_speculation *s, uintptr_t begin, uintptr_t end)
{
	crn_regions_forget(&((struct decay_common *)s->common)->regions, begin, end);
}

static uint64_t decay_bytes(const struct crn_speculation *s)
{
	return ((const struct decay_common *)s->common)->regions.bytes;
}

const struct crn_strategy_ops crn_strategy_decay = {
	.name = "decay",
	.summary = "keeps a page hot while that is cheaper than a fault later",
	.flags = CRN_STRATEGY_NEAR,
	.common_size = sizeof(struct decay_common),
	.state_size = sizeof(struct decay_state),
	.open = decay_open,
	.close = decay_close,
	.near = decay_near,
	.removed = decay_removed,
	.bytes = decay_bytes,
	.context_open = decay_context_open,
	.fault = decay_fault,
	.checkpoint = decay_checkpoint,
	.begin = decay_begin,
	.leave = decay_leave,
	.stay = decay_stay,
};
