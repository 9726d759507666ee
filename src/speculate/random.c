/* SPDX-License-Identifier: MIT */
/*
 * Answers at random: for tests, which must pass whatever a strategy says. It promotes pages that
 * were just written, evicts hot ones, and makes cold pages hot that nobody has written lately.
 */
#include "speculate/strategy.h"

enum { PROMOTE, EVICT, REVIVE, PAGES };

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

static void random_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
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
	},
	.fault = random_fault,
	.checkpoint = random_checkpoint,
};
