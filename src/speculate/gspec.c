/* SPDX-License-Identifier: MIT */
/*
 * GSpec, SMC section 5.2 to the letter. The working set is the global page list, in order of
 * appearance. Bit i of entry.note is the page's bit in the chromosome (WWS bitmap) of individual i:
 * the bitmaps are stored by column, so that one walk of the list sees them all.
 *
 *	interval	the individual whose turn it is decides; each eager copy costs it 1, each
 *			fault 8; a page that is not on the list enters its bitmap with p = 0.5
 *	N intervals	a new generation: for each child two parents by roulette (a drawn individual
 *			is accepted with p = Cmin / C), uniform crossover, bit-flip mutation; a page
 *			that all mark cold is forgotten
 */
#include "speculate/strategy.h"

enum { SIZE, EAGER, LAZY, ENTER, CROSSOVER, MUTATION };

#define INDIVIDUALS_MAX 16

struct gspec_state {
	uint64_t cost[INDIVIDUALS_MAX];
	uint32_t turn;
	uint64_t faults; /* of the open interval */
};

/* 16 random bits at a time. */
struct dice {
	const struct crn_port *port;
	uint64_t bits;
	unsigned left;
};

static bool roll(struct dice *d, uint64_t p)
{
	bool hit;

	if (!d->left) {
		d->bits = d->port->random(d->port);
		d->left = 4;
	}
	hit = (d->bits & 0xffff) < p;
	d->bits >>= 16;
	d->left--;
	return hit;
}

static void gspec_fault(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page)
{
	struct gspec_state *g = ws->state;
	struct dice dice = { .port = s->port };
	uint32_t index;

	g->faults++;
	if (crn_ws_find(ws, page) != CRN_WS_NONE || !roll(&dice, s->values[ENTER]))
		return;
	index = crn_ws_add(ws, page);
	if (index != CRN_WS_NONE)
		ws->entries[index].note = 1ull << g->turn;
}

/* Stochastic acceptance; the cheapest one has p = 1, so that it ends soon. */
static uint32_t draw_parent(struct crn_speculation *s, const struct gspec_state *g, uint64_t least)
{
	uint32_t size = (uint32_t)s->values[SIZE];

	for (;;) {
		uint64_t random = s->port->random(s->port);
		uint32_t one = (uint32_t)(random >> 32) % size;
		uint64_t cost = g->cost[one];

		while (cost >> 31) {
			cost >>= 1;
			least >>= 1;
		}
		if (cost <= least || (uint64_t)(uint32_t)random * cost >> 32 < least)
			return one;
	}
}

/* The child's bits, one for each page, in order. */
static void breed(struct crn_speculation *s, struct crn_working_set *ws, uint32_t child,
	const uint32_t parents[2])
{
	struct dice dice = { .port = s->port };

	for (uint32_t at = ws->first; at != CRN_WS_NONE; at = ws->entries[at].next) {
		struct crn_ws_entry *e = &ws->entries[at];
		/* The old generation is kept above the new one while this lasts. */
		uint64_t old = e->note >> 32;
		uint64_t bit = old >> parents[roll(&dice, s->values[CROSSOVER]) ? 0 : 1] & 1;

		bit ^= roll(&dice, s->values[MUTATION]);
		e->note |= bit << child;
	}
}

static void new_generation(struct crn_speculation *s, struct crn_working_set *ws)
{
	uint32_t size = (uint32_t)s->values[SIZE];
	struct gspec_state *g = ws->state;
	uint64_t least = g->cost[0];

	for (uint32_t i = 1; i < size; i++)
		least = g->cost[i] < least ? g->cost[i] : least;
	for (uint32_t at = ws->first; at != CRN_WS_NONE; at = ws->entries[at].next)
		ws->entries[at].note <<= 32;
	for (uint32_t child = 0; child < size; child++) {
		uint32_t parents[2];

		parents[0] = draw_parent(s, g, least);
		parents[1] = draw_parent(s, g, least);
		breed(s, ws, child, parents);
	}
	for (uint32_t next, at = ws->first; at != CRN_WS_NONE; at = next) {
		next = ws->entries[at].next;
		ws->entries[at].note &= 0xffffffffu;
		if (!ws->entries[at].note)
			crn_strategy_drop(s, ws, at);
	}
	for (uint32_t i = 0; i < size; i++)
		g->cost[i] = 0;
}

static void gspec_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct gspec_state *g = ws->state;

	g->cost[g->turn] += s->values[EAGER] * s->hot.count + s->values[LAZY] * g->faults;
	g->faults = 0;
	if (++g->turn == s->values[SIZE]) {
		g->turn = 0;
		new_generation(s, ws);
	}
	for (uint32_t at = ws->first; at != CRN_WS_NONE; at = ws->entries[at].next)
		crn_ws_set_hot(ws, at, ws->entries[at].note >> g->turn & 1);
}

const struct crn_strategy_ops crn_strategy_gspec = {
	.name = "gspec",
	.summary = "genetic speculation (SMC 5.2)",
	.parameters = {
		[SIZE] = { "individuals", "size of the population", 1, 5, 2, INDIVIDUALS_MAX },
		[EAGER] = { "eager", "cost of an eager copy", 1, 1, 0, 1000000 },
		[LAZY] = { "lazy", "cost of a lazy copy", 1, 8, 0, 1000000 },
		[ENTER] = { "enter", "chance of a new page to enter", CRN_ONE, CRN_ONE / 2, 0,
			CRN_ONE },
		[CROSSOVER] = { "crossover", "chance of the first parent's bit", CRN_ONE,
			CRN_ONE / 2, 0, CRN_ONE },
		[MUTATION] = { "mutation", "chance of a bit to flip", CRN_ONE, 655, 0, CRN_ONE },
	},
	.state_size = sizeof(struct gspec_state),
	.fault = gspec_fault,
	.checkpoint = gspec_checkpoint,
};
