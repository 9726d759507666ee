/* SPDX-License-Identifier: MIT */
/*
 * What a page costs when it is noticed by a fault, copied, and protected again.
 *
 * A session begins with figures of a machine that was measured under real programs, and asks how
 * much dearer or cheaper the same is here: a trial serves first stores by the very tracker. (Its
 * own figures would be too low. It has the caches for itself, which real programs need.) While the
 * program runs, the trackers measure on, and the prices follow.
 */
#include "session/prices.h"
#include "base/arena.h"
#include "base/check.h"
#include "base/copy.h"
#include "os/clock.h"
#include "os/guarded.h"
#include "os/memory.h"
#include "os/signal.h"
#include "os/thread.h"
#include "session/engine.h"
#include "track/hot_list.h"

#define PRICE_MIN 50u /* cycles: no page is looked at in less */
#define PRICE_MAX (1u << 20)
/*
 * A hot page more drives others from the caches, which is paid for where they are missed: as much
 * as it has cost itself (there the mixed workload of bench_hot costs least, by all trackers), but
 * no more than this. Dearer pages come from beyond the caches, and find nobody there to drive out.
 */
#define CROWDING_MAX 400u /* cycles: the lines of two pages, from the next cache */

/* Half of a difference is forgotten in some 45,000 checkpoints: trying again costs little. */
#define FORGET_EVERY 2048u /* checkpoints */
#define FORGET_SHARE 32u

/*
 * By tracker: medians of a machine whose least system call takes WAY cycles, of faults that come
 * one by one, and what the trial below takes there. What pages cost depends on the program's use of
 * the caches, on how its mappings are split and on how long runs are, so trackers measure it while
 * they run, and `copy`, `protect` and the handler's part of `fault` follow.
 */
#define WAY	   290u
#define WAY_TRIES  32
#define TRIAL_COPY 110u
#define EXTREME	   4u /* no host is so many times as fast or slow */

struct trial {
	uint64_t fault, protect, copy; /* the least of the rounds, of their medians and means */
};

static const struct tracker_costs {
	const char *tracker;
	uint32_t signal; /* of a fault: the kernel's way to the handler and back */
	struct crn_costs costs;
	struct trial trial;
} tracker_costs[] = {
	{ "mprotect", 9000, { .fault = 20000, .copy = 220, .protect = 10000, .open = 12000 },
		{ 14900, 2450, TRIAL_COPY } },
	{ "uffd", 9000, { .fault = 13000, .copy = 220, .protect = 2700, .open = 3000,
			.alone = 8000 },
		{ 13000, 760, TRIAL_COPY } },
	{ "async", 0, { .fault = 3600, .copy = 220, .protect = 2300, .open = 3000, .alone = 20000 },
		{ 1400, 920, TRIAL_COPY } },
};

static const struct tracker_costs *costs_of(const cairn_t *c)
{
	size_t i = 0;

	while (i + 1 < CRN_ARRAY_SIZE(tracker_costs) &&
		!crn_streq(c->ops->name, tracker_costs[i].tracker))
		i++;
	return &tracker_costs[i];
}

/* What something takes here that takes `there` there: never out of all proportion. */
static uint64_t bounded(uint64_t here, uint64_t there)
{
	return CRN_MIN(CRN_MAX(here, there / EXTREME), there * EXTREME);
}

static void scale(cairn_t *c, const struct trial *here, const struct trial *there)
{
	const struct tracker_costs *known = costs_of(c);
	const struct crn_costs *costs = &known->costs;
	uint64_t fault = bounded(here->fault, there->fault);
	uint64_t protect = bounded(here->protect, there->protect);
	uint64_t copy = bounded(here->copy, there->copy);

	c->port.costs = (struct crn_costs){
		.fault = (uint32_t)(costs->fault * fault / there->fault),
		.copy = (uint32_t)(costs->copy * copy / there->copy),
		.protect = (uint32_t)(costs->protect * protect / there->protect),
		.open = (uint32_t)(costs->open * protect / there->protect),
		.alone = (uint32_t)(costs->alone * protect / there->protect),
	};
	c->signal_cost = (uint32_t)(known->signal * fault / there->fault);
	c->copy_first = c->port.costs.copy;
}

/* The shortest of some: what is added is interruptions. Under a debugger it may be anything. */
static uint64_t way_in_and_out(void)
{
	uint64_t best = ~0ull;

	for (int i = 0; i < WAY_TRIES; i++) {
		uint64_t begin = crn_clock_ticks();

		(void)crn_getpid();
		best = CRN_MIN(best, crn_clock_ticks() - begin);
	}
	return best;
}

void crn_prices_guess(cairn_t *c)
{
	uint64_t way = way_in_and_out();

	scale(c, &(struct trial){ way, way, TRIAL_COPY }, &(struct trial){ WAY, WAY, TRIAL_COPY });
}

/* ---- The trial --------------------------------------------------------------------------- */

#define TRIAL_PAGES  16u /* every other one is stored to: faults that come one by one */
#define TRIAL_ROUNDS 4u	 /* the first one gets the memory */
#define TRIAL_NODES  4u	 /* inner nodes of a mirror, which stay */

static void nothing_written(struct crn_track_env *env, uintptr_t page)
{
}

static void nothing_granted(struct crn_track_env *env, uintptr_t page, bool changed)
{
}

static bool nothing_decided(struct crn_track_env *env)
{
	return false;
}

struct trial_sink {
	struct crn_sink sink;
	struct crn_arena *arena;
};

/* Nobody wants what was there. */
static int let_go(struct crn_sink *self, uintptr_t addr, size_t len, void *old, bool owned)
{
	if (owned && old)
		crn_frame_free(((struct trial_sink *)self)->arena, old);
	return 0;
}

static uint64_t median(uint64_t *at, size_t count)
{
	for (size_t i = 1; i < count; i++)
		for (size_t k = i; k && at[k - 1] > at[k]; k--) {
			uint64_t least = at[k];

			at[k] = at[k - 1];
			at[k - 1] = least;
		}
	return at[count / 2];
}

/* Looking at a page beside its copy, both in the nearest caches. */
static uint64_t look(const char *pages)
{
	uint64_t took[TRIAL_PAGES / 2];

	for (size_t i = 0; i < TRIAL_PAGES / 2; i++) {
		const char *page = pages + 2 * i * CRN_PAGE_SIZE;
		uint64_t begin = crn_clock_ticks(), lines;

		(void)crn_guarded_lines(page, page + CRN_PAGE_SIZE, &lines);
		took[i] = crn_clock_ticks() - begin;
	}
	return median(took, TRIAL_PAGES / 2);
}

static int one_round(cairn_t *c, char *pages, struct trial *out)
{
	uint64_t took[TRIAL_PAGES / 2];
	struct trial_sink gone = { .sink.take = let_go, .arena = c->arena };

	CRN_TRY(c->ops->interval_begin(c->tracker));
	for (size_t i = 0; i < TRIAL_PAGES / 2; i++) {
		uint64_t begin = crn_clock_ticks();

		*(volatile char *)(pages + 2 * i * CRN_PAGE_SIZE) = 1;
		took[i] = crn_clock_ticks() - begin;
	}
	CRN_TRY(c->ops->interval_end(c->tracker, &gone.sink));
	out->fault = CRN_MIN(out->fault, median(took, TRIAL_PAGES / 2));
	out->protect = CRN_MIN(out->protect, c->env.predictor->price_protect);
	out->copy = CRN_MIN(out->copy, look(pages));
	return 0;
}

static int rounds(cairn_t *c, char *pages, struct trial *out)
{
	int err = 0;

	for (size_t i = 0; err >= 0 && i < TRIAL_ROUNDS; i++) {
		if (i <= 1)
			*out = (struct trial){ ~0ull, ~0ull, ~0ull };
		err = one_round(c, pages, out);
	}
	return err;
}

/* It is no area of the session's: neither journal nor strategy hears of it. */
static int try_pages(cairn_t *c, char *pages, struct trial *out)
{
	struct crn_predictor *predictor = c->env.predictor;
	struct crn_predictor deaf = {
		.written = nothing_written,
		.granted = nothing_granted,
		.decide = nothing_decided,
		.cool = nothing_decided,
		.exact = predictor->exact,
	};
	struct crn_area area = {
		.begin = (uintptr_t)pages,
		.end = (uintptr_t)pages + TRIAL_PAGES * CRN_PAGE_SIZE,
	};
	int err = c->ops->area_add(c->tracker, &area);

	if (err < 0)
		return err;
	c->env.predictor = &deaf;
	err = rounds(c, pages, out);
	c->env.predictor = predictor;
	c->ops->area_drop(c->tracker, &area);
	return err;
}

void crn_prices_try(cairn_t *c)
{
	const struct tracker_costs *known = costs_of(c);
	uint64_t frames = crn_arena_frames_used(c->arena);
	struct trial here = { 0, 0, 0 };
	void *pages;
	int err;

	/* A thread that has these blocked would die of its first store. */
	if (!c->env.predictor || !crn_streq(c->ops->name, known->tracker) ||
		crn_signal_mask_get() & CRN_SIGNALS_OF_FAULTS)
		return;
	if (crn_memory_map(&pages, TRIAL_PAGES * CRN_PAGE_SIZE) < 0)
		return;
	for (size_t i = 0; i < TRIAL_PAGES; i++)
		*(volatile char *)((char *)pages + i * CRN_PAGE_SIZE) = 0;
	err = try_pages(c, pages, &here);
	crn_memory_unmap(pages, TRIAL_PAGES * CRN_PAGE_SIZE);
	CRN_DASSERT(crn_arena_frames_used(c->arena) <= frames + TRIAL_NODES);
	if (err >= 0 && here.fault && here.protect)
		scale(c, &here, &known->trial);
	c->figures.faults_before = c->ops->faults(c->tracker);
	if (c->ops->feed)
		(void)c->ops->feed(c->tracker, &c->figures.scans_before);
}

/* ---- What trackers measure ----------------------------------------------------------------- */

/* Slowly: one interruption in the middle of a measurement must not count for much. */
static uint32_t follow(uint32_t cost, uint32_t price)
{
	price = CRN_MIN(CRN_MIN(price, cost * 4), PRICE_MAX);
	return price ? CRN_MAX((cost * 7 + price) / 8, PRICE_MIN) : cost;
}

/* So many checkpoints have passed: true if it is time to forget a share. */
static bool time_passes(cairn_t *c, uint32_t checkpoints)
{
	c->unforgotten += checkpoints;
	if (crn_likely(c->unforgotten < FORGET_EVERY))
		return false;
	c->unforgotten = 0;
	return true;
}

static void forget(uint32_t *price, uint32_t least)
{
	if (*price > least)
		*price -= (*price - least) / FORGET_SHARE;
}

/*
 * What more pages than are hot now once cost may have changed, and nobody would know, for so many
 * do not get hot again at that price: it comes down until they do.
 */
static void forget_sizes(struct crn_costs *costs, uint32_t from)
{
	for (; from < CRN_COST_SIZES; from++)
		forget(&costs->sizes[from], costs->copy);
}

static void follow_copy(cairn_t *c, uint32_t price)
{
	struct crn_costs *costs = &c->port.costs;
	uint32_t size = crn_cost_size(crn_speculation_hot(c->speculation));
	uint32_t *of = &costs->sizes[size];

	price += CRN_MIN(price, CROWDING_MAX);
	*of = follow(*of ? *of : costs->copy, price);
	costs->copy = follow(costs->copy, price);
	if (time_passes(c, CRN_HOT_METER_EVERY))
		forget_sizes(costs, size + 1);
}

/* The same where no page is hot, and none may get hot: no copy is measured any more. */
static void forget_copy(cairn_t *c)
{
	struct crn_costs *costs = &c->port.costs;

	if (!time_passes(c, 1))
		return;
	forget(&costs->copy, c->copy_first);
	forget_sizes(costs, 0);
}

void crn_prices_follow(cairn_t *c)
{
	struct crn_predictor *p = &c->predictor;
	struct crn_costs *costs = &c->port.costs;

	if (p->price_hot)
		follow_copy(c, p->price_hot);
	else if (!crn_speculation_hot(c->speculation))
		forget_copy(c);
	costs->protect = follow(costs->protect, p->price_protect);
	costs->fault = c->signal_cost + follow(costs->fault - c->signal_cost, p->price_serve);
	p->price_hot = p->price_protect = p->price_serve = 0;
}
