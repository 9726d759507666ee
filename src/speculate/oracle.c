/* SPDX-License-Identifier: MIT */
/*
 * The oracle knows the future from the profile of an earlier run of the same deterministic program:
 * hot are exactly the pages that the coming interval will write. Many pages that are written
 * without being in the profile prove that this is another run: it says so and gives up. A few do
 * not: the kernel writes each thread's rseq area when it likes. Pages of the profile that have not
 * changed may have been written with what they held, so many of them only raise doubt, once.
 */
#include "speculate/strategy.h"

enum { PAGES, SHARE };

struct oracle {
	uint64_t index;	    /* of the open interval; 0 began at open */
	uint64_t predicted; /* pages, so far */
	uint64_t missed;    /* pages written that the profile does not have there */
	uintptr_t first;    /* of them, in the open interval; 0: none */
	uint64_t idle;	    /* hot pages that had not changed at the end of their interval */
	bool doubted;
	bool moved; /* what is hot is of another interval than the open one, after a restore */
};

static uint64_t allowed(const struct crn_speculation *s, const struct oracle *o)
{
	return s->values[PAGES] + o->predicted * s->values[SHARE] / CRN_ONE;
}

static void oracle_fault(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page)
{
	struct crn_profile_interval now;
	struct oracle *o = s->common;

	/*
	 * Faults alone prove nothing: before the first checkpoint, after a restore and for want of
	 * memory pages are cold that the profile has.
	 */
	if (s->port->profile(s->port, o->index, &now) < 0)
		return;
	for (size_t i = 0; i < now.count; i++)
		if (now.pages[i] == page)
			return;
	/*
	 * The profile may have begun at another place in the first interval. What a restore has put
	 * back counts as written.
	 */
	if (!o->index || o->moved)
		return;
	o->missed++;
	if (!o->first)
		o->first = page;
}

static void predict(struct crn_speculation *s, struct crn_working_set *ws,
	const struct crn_profile_interval *coming)
{
	uint32_t stamp = ws->now + 1;

	for (size_t i = 0; i < coming->count; i++) {
		uint32_t index = crn_ws_add(ws, coming->pages[i]);

		if (index == CRN_WS_NONE)
			continue;
		ws->entries[index].last = stamp;
		crn_ws_set_hot(ws, index, true);
	}
	for (uint32_t next, at = ws->first; at != CRN_WS_NONE; at = next) {
		next = ws->entries[at].next;
		if (ws->entries[at].last != stamp)
			crn_strategy_drop(s, ws, at);
	}
}

/* Hot pages that have not changed: are there more than so many mismatches explain? */
static void count_idle(struct crn_speculation *s, struct oracle *o)
{
	struct crn_hot_table *h = &s->hot;
	uintptr_t page = 0;

	for (size_t i = 0; i < crn_hot_words(h); i++) {
		uint64_t idle = h->used[i] & ~h->changed[i];

		o->idle += crn_popcount(idle);
		if (idle && !page)
			page = h->page[i * 64 + (size_t)__builtin_ctzll(idle)];
	}
	if (o->doubted || o->idle <= allowed(s, o))
		return;
	o->doubted = true;
	crn_strategy_doubt(s, "the profile has it, but this run has not changed it", o->index,
		page);
}

static void oracle_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct crn_profile_interval coming;
	struct oracle *o = s->common;

	if (!o->moved)
		count_idle(s, o);
	o->moved = false;
	if (o->missed > allowed(s, o)) {
		crn_strategy_give_up(s, "was written, but the profile does not have it there",
			o->index, o->first);
		return;
	}
	o->first = 0;
	o->index++;
	if (s->port->profile(s->port, o->index, &coming) < 0) {
		crn_strategy_give_up(s, "the profile ends before it", o->index, 0);
		return;
	}
	o->predicted += coming.count;
	predict(s, ws, &coming);
}

static void oracle_restore(struct crn_speculation *s, uint64_t intervals)
{
	struct oracle *o = s->common;

	o->index -= intervals < o->index ? intervals : o->index;
	o->moved |= intervals > 0;
	o->first = 0;
}

const struct crn_strategy_ops crn_strategy_oracle = {
	.name = "oracle",
	.summary = "knows the run from a recorded profile: exactly the pages that will be written",
	.flags = CRN_STRATEGY_PROFILE | CRN_STRATEGY_ONE_CONTEXT,
	.parameters = {
		[PAGES] = { "pages", "mismatches that are never held against the profile", 1, 8, 0,
			1 << 20 },
		[SHARE] = { "share", "mismatches for each page predicted, beyond that", CRN_ONE,
			CRN_ONE / 16, 0, CRN_ONE },
	},
	.common_size = sizeof(struct oracle),
	.fault = oracle_fault,
	.checkpoint = oracle_checkpoint,
	.restore = oracle_restore,
};
