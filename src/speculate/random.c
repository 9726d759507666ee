/* SPDX-License-Identifier: MIT */
/*
 * Answers at random: for tests, which must pass whatever a strategy says. It promotes pages that
 * were just written, evicts hot ones, makes cold pages hot that nobody has written lately, and
 * opens runs of pages around a fault.
 */
#include "speculate/strategy.h"

enum { PROMOTE, EVICT, REVIVE, PAGES, NEAR };

struct random_common {
	uint32_t seed; /* of what is answered at faults, for an interval */
};

static bool chance(struct crn_speculation *s, uint64_t p)
{
	return (s->port->random(s->port) & 0xffff) < p;
}

static void random_fault(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page)
{
	uint32_t index;

	if (ws->count >= s->values[PAGES])
		crn_strategy_drop(s, ws, ws->first);
	index = crn_ws_add(ws, page);
	if (index != CRN_WS_NONE && chance(s, s->values[PROMOTE]))
		crn_ws_set_hot(ws, index, true);
}

/* In any thread: what was drawn at the checkpoint is mixed with the page. */
static bool random_near(
	const struct crn_speculation *s, uintptr_t page, uintptr_t *begin, uintptr_t *end)
{
	const struct random_common *c = s->common;
	uint64_t mixed = (page >> CRN_PORT_PAGE_SHIFT) + 1 +
		((uint64_t)__atomic_load_n(&c->seed, __ATOMIC_RELAXED) << 32);
	uint64_t back, forward;

	mixed = (mixed ^ mixed >> 31) * 0x9e3779b97f4a7c15ull;
	mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ull;
	if ((mixed & 0xffff) >= s->values[NEAR])
		return false;
	back = mixed >> 16 & 0xf;
	forward = 1ull << (mixed >> 20 & 0xf) % 10;
	*begin = page >> CRN_PORT_PAGE_SHIFT > back ? page - back * CRN_PORT_PAGE : page;
	*end = page + forward * CRN_PORT_PAGE;
	return true;
}

static void random_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct random_common *c = s->common;

	__atomic_store_n(&c->seed, (uint32_t)s->port->random(s->port), __ATOMIC_RELAXED);
	for (uint32_t at = ws->first; at != CRN_WS_NONE; at = ws->entries[at].next) {
		bool hot = ws->entries[at].flags & CRN_WS_HOT;

		if (chance(s, s->values[hot ? EVICT : REVIVE]))
			crn_ws_set_hot(ws, at, !hot);
	}
}

const struct crn_strategy_ops crn_strategy_random = {
	.name = "random",
	.summary = "answers at random: for tests",
	.parameters = {
		[PROMOTE] = { "promote", "chance of a page just written", CRN_ONE, CRN_ONE / 2, 0,
			CRN_ONE },
		[EVICT] = { "evict", "chance of a hot page to become cold", CRN_ONE, CRN_ONE / 8, 0,
			CRN_ONE },
		[REVIVE] = { "revive", "chance of a known cold page to become hot", CRN_ONE,
			CRN_ONE / 16, 0, CRN_ONE },
		[PAGES] = { "pages", "most pages that it knows", 1, 1024, 1, 1 << 20 },
		[NEAR] = { "near", "chance that a fault opens pages around it", CRN_ONE,
			CRN_ONE / 4, 0, CRN_ONE },
	},
	.flags = CRN_STRATEGY_NEAR,
	.common_size = sizeof(struct random_common),
	.near = random_near,
	.fault = random_fault,
	.checkpoint = random_checkpoint,
};
