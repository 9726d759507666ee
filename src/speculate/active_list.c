/* SPDX-License-Identifier: MIT */
/*
 * Sampling and the list. The first intervals of a context are sampling runs: the very first one of
 * a server has a page or two, and would be all that the list knows for a whole period. Pages of the
 * list are hot except in sampling runs, in which they fault like all others and are counted; a page
 * that is not on the list enters it in any interval.
 */
#include "speculate/active_list.h"

void crn_active_open(struct crn_speculation *s, struct crn_working_set *ws)
{
	((struct crn_active_list *)ws->state)->sampling = true;
}

static uint32_t size_of(const struct crn_active_list *a)
{
	uint64_t size = (a->size + CRN_ONE / 2) / CRN_ONE;

	return size ? (uint32_t)size : 1;
}

void crn_active_fault(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page,
	crn_victim_fn victim)
{
	struct crn_active_list *a = ws->state;
	uint32_t index;

	if (a->sampling)
		a->written++;
	index = crn_ws_find(ws, page);
	if (index != CRN_WS_NONE) {
		/* Memory was short when it went cold, or was to become hot. */
		if (!a->sampling)
			crn_ws_set_hot(ws, index, true);
		return;
	}
	while (a->runs && ws->count >= size_of(a))
		crn_strategy_drop(s, ws, victim(s, ws));
	index = crn_ws_add(ws, page);
	if (index != CRN_WS_NONE)
		crn_ws_set_hot(ws, index, true);
}

static void set_all(struct crn_working_set *ws, bool hot)
{
	for (uint32_t at = ws->first; at != CRN_WS_NONE; at = ws->entries[at].next)
		crn_ws_set_hot(ws, at, hot);
}

static void end_run(struct crn_speculation *s, struct crn_working_set *ws, crn_victim_fn victim)
{
	struct crn_active_list *a = ws->state;
	uint64_t seen = (uint64_t)a->written * CRN_ONE;

	if (a->runs < s->values[CRN_ACTIVE_WINDOW])
		a->runs++;
	if (seen >= a->size)
		a->size += (seen - a->size) / a->runs;
	else
		a->size -= (a->size - seen) / a->runs;
	a->sampling = a->runs < s->values[CRN_ACTIVE_WINDOW] && ws->now < CRN_ACTIVE_FIRST;
	a->written = 0;
	a->next = ws->now + (uint32_t)s->values[CRN_ACTIVE_EVERY] - 1;
	while (ws->count > size_of(a))
		crn_strategy_drop(s, ws, victim(s, ws));
	set_all(ws, !a->sampling);
}

void crn_active_checkpoint(
	struct crn_speculation *s, struct crn_working_set *ws, crn_victim_fn victim)
{
	struct crn_active_list *a = ws->state;

	if (a->sampling) {
		end_run(s, ws, victim);
	} else if (ws->now == a->next) {
		a->sampling = true;
		set_all(ws, false);
	}
}
