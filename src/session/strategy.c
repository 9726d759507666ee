/* SPDX-License-Identifier: MIT */
/*
 * Joins src/speculate/ to the tracker: the callbacks of each.
 *
 * The strategy runs within the tracker's interval_end, with the session's lock held; `near` alone
 * runs in write-fault handlers.
 */
#include "session/engine.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/guarded.h"
#include "os/process.h"
#include "os/thread.h"
#include "session/prices.h"

#define HOT_SHARE 4 /* of the memory limit, what copies of hot pages may take: one in so many */

/* ---- What a strategy may ask ------------------------------------------------------------- */

static void *port_alloc(const struct crn_port *port, size_t size)
{
	return crn_block_alloc(((cairn_t *)port->owner)->arena, size);
}

static void port_free(const struct crn_port *port, void *block, size_t size)
{
	crn_block_free(((cairn_t *)port->owner)->arena, block, size);
}

/* Marsaglia's xorshift; nothing secret hangs on it. */
static uint64_t port_random(const struct crn_port *port)
{
	uint64_t *seed = &((cairn_t *)port->owner)->strategy_seed;

	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* The strategy has given up, and is `none` from now on; or it has found something to be doubted. */
static void port_log(const struct crn_port *port, const char *text)
{
	cairn_t *c = port->owner;

	crn_warn("strategy %s", text);
	c->strategy_why = crn_speculation_trouble(c->speculation)
				  ? "given up: the log says where"
				  : "named: in doubt, the log says where";
}

static uint64_t port_clock(const struct crn_port *port)
{
	return crn_clock_ticks();
}

/*
 * Under `meta` alone, which sees no contents: active-cks then goes by them, at the paper's price. A
 * session of active-cks compares its hot pages anyway. A page that cannot be read has changed.
 */
static uint64_t port_checksum(const struct crn_port *port, uintptr_t page)
{
	uint64_t words[64], sum[4] = { 1, 2, 3, 4 }; /* four, which do not wait for each other */

	for (uintptr_t at = page; at < page + CRN_PAGE_SIZE; at += sizeof(words)) {
		if (crn_guarded_copy(words, (const void *)at, sizeof(words)) < 0)
			return crn_clock_ticks();
		for (size_t i = 0; i < CRN_ARRAY_SIZE(words); i++) {
			uint64_t mixed = (sum[i % 4] ^ words[i]) * 0x9e3779b97f4a7c15ull;

			sum[i % 4] = mixed ^ mixed >> 32;
		}
	}
	for (size_t i = 1; i < CRN_ARRAY_SIZE(sum); i++)
		sum[0] = sum[0] * 31 + sum[i];
	return sum[0];
}

/* ---- What a tracker may ask -------------------------------------------------------------- */

static void on_written(struct crn_track_env *env, uintptr_t page)
{
	crn_speculation_written(((cairn_t *)env)->speculation, page);
}

static void on_granted(struct crn_track_env *env, uintptr_t page, bool changed)
{
	crn_speculation_granted(((cairn_t *)env)->speculation, page, changed);
}

static bool take_lists(cairn_t *c)
{
	c->evicted = crn_speculation_evicted(c->speculation, &c->evicted_count);
	c->promoted = crn_speculation_promoted(c->speculation, &c->promoted_count);
	c->predictor.changed = crn_speculation_changed(c->speculation);
	return c->evicted_count || c->promoted_count;
}

static bool on_decide(struct crn_track_env *env)
{
	cairn_t *c = (cairn_t *)env;

	if (crn_unlikely(c->predictor.price_hot | c->predictor.price_protect))
		crn_prices_follow(c);
	crn_speculation_checkpoint(c->speculation);
	c->predictor.dummies = crn_speculation_dummies(c->speculation);
	return take_lists(c);
}

static bool on_cool(struct crn_track_env *env)
{
	cairn_t *c = (cairn_t *)env;

	if (!crn_speculation_hot(c->speculation))
		return false;
	crn_speculation_cool(c->speculation);
	return take_lists(c);
}

static bool on_evicted(struct crn_track_env *env, size_t i, uintptr_t *begin, uintptr_t *end)
{
	const cairn_t *c = (cairn_t *)env;

	if (i >= c->evicted_count)
		return false;
	*begin = c->evicted[i].begin;
	*end = c->evicted[i].end;
	return true;
}

static size_t on_promotions(struct crn_track_env *env)
{
	return ((const cairn_t *)env)->promoted_count;
}

static bool on_promoted(struct crn_track_env *env, size_t i, uintptr_t *page, uint32_t *slot)
{
	const cairn_t *c = (cairn_t *)env;

	if (i >= c->promoted_count)
		return false;
	*page = c->promoted[i].page;
	*slot = c->promoted[i].slot;
	return true;
}

static void on_refused(struct crn_track_env *env, uintptr_t page)
{
	crn_speculation_area_removed(((cairn_t *)env)->speculation, page, page + CRN_PAGE_SIZE);
}

/* SAFETY: from write-fault handlers; reads only, as the strategy promises. */
static bool on_near(struct crn_track_env *env, uintptr_t page, uintptr_t *begin, uintptr_t *end)
{
	return crn_speculation_near(((cairn_t *)env)->speculation, page, begin, end);
}

/* ---- Life ---------------------------------------------------------------------------------- */

static void fill_tables(cairn_t *c)
{
	c->strategy_seed = 88172645463325252ull; /* a run can be repeated */
	c->port = (struct crn_port){
		.owner = c,
		.hot_max = CRN_MAX(c->memory_max / HOT_SHARE / CRN_PAGE_SIZE, 1ul),
		.at_fault = c->ops->caps & CRN_TRACK_PROTECTS,
		.alloc = port_alloc,
		.free = port_free,
		.random = port_random,
		.log = port_log,
		.clock = port_clock,
		.checksum = crn_streq(c->strategy, "meta") ? port_checksum : NULL,
	};
	crn_prices_guess(c);
	c->predictor = (struct crn_predictor){
		.written = on_written,
		.granted = on_granted,
		.decide = on_decide,
		.cool = on_cool,
		.evicted = on_evicted,
		.promotions = on_promotions,
		.promoted = on_promoted,
		.refused = on_refused,
	};
}

/* A default must know of a tracker what is true everywhere: traces of servers rank decay first. */
const char *crn_strategy_auto(const struct crn_tracker_ops *ops)
{
	return ops->eager ? "decay" : "none";
}

static const char *why_chosen(const cairn_t *c, bool any)
{
	if (!any)
		return "named";
	return c->ops->eager ? "auto: this tracker has hot pages"
			     : "auto: this tracker has no hot pages";
}

int crn_strategy_check(const char *spec, const char *tracker, char why[CRN_STRATEGY_WHY])
{
	static const char *const too_long = "a strategy has fewer than 128 characters";
	static const char *const no_hot = "this tracker has no hot pages: no strategy but none";

	_Static_assert(CRN_STRATEGY_MAX == 128, "as the message says");
	why[0] = 0;
	if (crn_strlen(spec) >= CRN_STRATEGY_MAX) {
		crn_copy(why, too_long, crn_strlen(too_long) + 1);
		return CAIRN_ESTRATEGY;
	}
	if (crn_streq(spec, "auto"))
		return 0;
	if (crn_speculation_check(spec, why, CRN_STRATEGY_WHY) < 0)
		return CAIRN_ESTRATEGY;
	for (size_t i = 0; crn_trackers[i]; i++) {
		if (crn_streq(crn_trackers[i]->name, tracker) && !crn_trackers[i]->eager &&
			!crn_streq(spec, "none")) {
			crn_copy(why, no_hot, crn_strlen(no_hot) + 1);
			return CAIRN_ESTRATEGY;
		}
	}
	return 0;
}

int crn_strategy_open(cairn_t *c, const char *spec)
{
	bool any = crn_streq(spec, "auto");
	char why[CRN_STRATEGY_WHY];
	int err;

	if (any)
		spec = crn_strategy_auto(c->ops);
	c->strategy_why = why_chosen(c, any);
	err = crn_strategy_check(spec, c->ops->name, why);
	for (size_t i = 0; err >= 0 && spec[i]; i++)
		c->strategy[i] = spec[i];
	if (err >= 0 && crn_streq(spec, "none"))
		return 0;
	if (err >= 0) {
		fill_tables(c);
		why[0] = 0;
		err = crn_profile_open(c, spec);
	}
	if (err >= 0) {
		err = crn_speculation_open(&c->speculation, &c->port, spec, why, sizeof(why));
	}
	if (err < 0) {
		if (why[0])
			crn_error("%s", why);
		return err == CRN_PORT_ENOMEM || err == CAIRN_EMEMORY ? CAIRN_EMEMORY
								      : CAIRN_ESTRATEGY;
	}
	if (crn_speculation_flags(c->speculation) & CRN_STRATEGY_BOUND)
		c->ops = &crn_tracker_dummy;
	if (crn_speculation_flags(c->speculation) & CRN_STRATEGY_NEAR && c->port.at_fault)
		c->predictor.near = on_near;
	if (crn_speculation_flags(c->speculation) & CRN_STRATEGY_LATE && !c->port.at_fault)
		c->strategy_why = "named: predicts for the next interval here";
	c->predictor.exact = crn_speculation_flags(c->speculation) & CRN_STRATEGY_EXACT;
	c->env.predictor = &c->predictor;
	return 0;
}

void crn_strategy_forget(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	if (c->speculation)
		crn_speculation_area_removed(c->speculation, begin, end);
}

void crn_strategy_restored(cairn_t *c, uint64_t intervals)
{
	if (c->speculation)
		crn_speculation_restore(c->speculation, intervals);
}

void crn_strategy_stats(const cairn_t *c, struct cairn_stats *out)
{
	struct crn_speculation_stats s;

	crn_copy(out->strategy, c->strategy, sizeof(out->strategy) - 1);
	out->undercopied = out->pages_saved - out->pages_eager;
	if (!c->speculation)
		return;
	crn_speculation_stats(c->speculation, &s);
	out->hot_pages = crn_speculation_hot(c->speculation);
	out->overcopied = s.overcopied;
	out->undercopied = s.undercopied;
	out->promotions = s.promotions;
	out->evictions = s.evictions;
	out->contexts = s.contexts;
	out->price_fault = c->port.costs.fault;
	out->price_copy = c->port.costs.copy;
	out->price_protect = c->port.costs.protect;
	out->price_open = c->port.costs.open;
}

bool crn_session_rival(cairn_t *c, size_t i, struct crn_rival *out)
{
	const struct crn_speculation *rival = NULL;
	struct crn_speculation_stats s;

	if (crn_lock(c) < 0)
		return false;
	if (c->speculation)
		rival = crn_speculation_rival(c->speculation, i);
	if (rival) {
		crn_speculation_stats(rival, &s);
		*out = (struct crn_rival){
			.name = crn_speculation_name(rival),
			.intervals = s.intervals,
			.written = s.written,
			.overcopied = s.overcopied,
			.undercopied = s.undercopied,
			.weighted_smc = crn_speculation_weighted(rival, &s, NULL),
			.weighted_host = crn_speculation_weighted(rival, &s, &c->port.costs),
			.host_cycles = crn_speculation_cycles(&s, &c->port.costs),
			.own_cycles = s.cycles,
		};
	}
	crn_unlock(c);
	return rival != NULL;
}

int cairn_context(cairn_t *c, uint64_t key)
{
	CRN_TRY(crn_lock(c));
	c->context_next = key;
	if (c->speculation)
		crn_speculation_context(c->speculation, key);
	crn_unlock(c);
	return 0;
}
