/* SPDX-License-Identifier: MIT */
/*
 * Histase (HBFT 4.1.2): history-stride prediction at the write fault, inside the interval. For each
 * 2 MiB (512 pages, one page table) it keeps
 *
 *	ave_stride	mean length of the runs of consecutive written pages, of one interval
 *	his_stride	the first ave_stride; then his_stride * alpha + ave_stride * (1 - alpha)
 *
 * A fault opens the run of his_stride pages, to the nearest whole one, that starts at the faulting
 * page, and the pages within his_stride / 3 before it, inside the 2 MiB. The paper counts a
 * stride's first page in its length (3.2); "within his_stride forwards" leaves open whether the
 * faulting page is that one. It must be: of SPECweb, most of whose strides are one page long, it is
 * said that few faults are predicted, and with high precision, while one page more would be granted
 * at each fault, mostly in vain. By the other reading (own=0) pages at a distance of up to
 * his_stride are granted. An interval that writes nothing in a region leaves its stride alone: such
 * regions are not scanned.
 *
 * Where writes are only learnt at the checkpoint, the same runs, around the first page of each run
 * that was written, are hot in the next interval instead.
 */
#include "speculate/region_table.h"

enum { ALPHA, DIVISOR, OWN };

#define STRIDE_ONE 64u /* the unit of the strides that are published: 0 .. 512 fit into a value */

struct histase {
	struct crn_regions regions;
};

static int histase_open(struct crn_speculation *s)
{
	crn_regions_init(&((struct histase *)s->common)->regions);
	return 0;
}

static void histase_close(struct crn_speculation *s)
{
	crn_regions_fini(s->port, &((struct histase *)s->common)->regions);
}

/* ---- Strides ------------------------------------------------------------------------------ */

static void note_written(struct crn_speculation *s, uintptr_t page)
{
	if (!crn_regions_note(s->port, &((struct histase *)s->common)->regions, page))
		s->stats.alloc_failures++;
}

/* Bits of `bits` whose lower neighbour is not set: the first pages of runs. */
static uint64_t starts(const uint64_t *bits, unsigned word)
{
	uint64_t below = word ? bits[word - 1] >> 63 : 0;

	return bits[word] & ~(bits[word] << 1 | below);
}

static void learn(struct crn_speculation *s, struct crn_region *r)
{
	uint64_t alpha = s->values[ALPHA], pages = 0, runs = 0, average;

	for (unsigned word = 0; word < CRN_REGION_WORDS; word++) {
		pages += crn_popcount(r->written[word]);
		runs += crn_popcount(starts(r->written, word));
	}
	average = pages * CRN_ONE / runs;
	if (!r->history)
		r->history = (uint32_t)average;
	else
		r->history = (uint32_t)((r->history * alpha + average * (CRN_ONE - alpha) +
						CRN_ONE / 2) /
			CRN_ONE);
}

/* ---- Predictions ---------------------------------------------------------------------------- */

/* `stride` is one that was published. False: the run is the page alone. */
static bool run_around(const struct crn_speculation *s, uintptr_t page, unsigned stride,
	uintptr_t *begin, uintptr_t *end)
{
	uintptr_t at = crn_region_page(page);
	uintptr_t back = stride / s->values[DIVISOR] / STRIDE_ONE, room = CRN_REGION_PAGES - at;
	uintptr_t forward = s->values[OWN] ? (stride + STRIDE_ONE / 2) / STRIDE_ONE
					   : stride / STRIDE_ONE + 1;

	*begin = page - (back < at ? back : at) * CRN_PORT_PAGE;
	*end = page + (forward < room ? forward : room) * CRN_PORT_PAGE;
	return *end - *begin > CRN_PORT_PAGE;
}

static bool histase_near(
	const struct crn_speculation *s, uintptr_t page, uintptr_t *begin, uintptr_t *end)
{
	const struct histase *h = s->common;
	uint32_t stride;

	return crn_regions_find(&h->regions, page, &stride) &&
		run_around(s, page, stride, begin, end);
}

/* For the next interval: as if the first page of each run had just faulted. */
static void predict_region(
	struct crn_speculation *s, struct crn_working_set *ws, const struct crn_region *r)
{
	uintptr_t base = crn_region_base(r);

	for (unsigned word = 0; word < CRN_REGION_WORDS; word++) {
		for (uint64_t bits = starts(r->written, word); bits; bits &= bits - 1) {
			unsigned at = word * 64 + (unsigned)__builtin_ctzll(bits);
			uintptr_t begin, end;

			(void)run_around(s, base + at * CRN_PORT_PAGE,
				r->history / (CRN_ONE / STRIDE_ONE), &begin, &end);
			for (; begin < end; begin += CRN_PORT_PAGE) {
				uint32_t index = crn_ws_add(ws, begin);

				if (index == CRN_WS_NONE)
					return;
				ws->entries[index].last = ws->now + 1;
				crn_ws_set_hot(ws, index, true);
			}
		}
	}
}

static void note_changed(struct crn_speculation *s)
{
	struct crn_hot_table *h = &s->hot;

	for (size_t word = 0; word < crn_hot_words(h); word++)
		for (uint64_t bits = h->changed[word] & h->used[word]; bits; bits &= bits - 1)
			note_written(s, h->page[word * 64 + (size_t)__builtin_ctzll(bits)]);
}

static void drop_others(struct crn_speculation *s, struct crn_working_set *ws)
{
	for (uint32_t next, at = ws->first; at != CRN_WS_NONE; at = next) {
		next = ws->entries[at].next;
		if (ws->entries[at].last != ws->now + 1 && ws->entries[at].granted != ws->now)
			crn_strategy_drop(s, ws, at);
	}
}

static void histase_fault(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page)
{
	note_written(s, page);
}

static void histase_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct crn_regions *regions = &((struct histase *)s->common)->regions;
	struct crn_region *r;

	note_changed(s);
	while ((r = crn_regions_take(regions))) {
		learn(s, r);
		crn_regions_publish(regions, r, r->history / (CRN_ONE / STRIDE_ONE));
		if (!s->port->at_fault)
			predict_region(s, ws, r);
		crn_region_clear(r);
	}
	drop_others(s, ws);
}

static void histase_removed(struct crn_speculation *s, uintptr_t begin, uintptr_t end)
{
	crn_regions_forget(&((struct histase *)s->common)->regions, begin, end);
}

static uint64_t histase_bytes(const struct crn_speculation *s)
{
	return ((const struct histase *)s->common)->regions.bytes;
}

const struct crn_strategy_ops crn_strategy_histase = {
	.name = "histase",
	.summary = "opens a fault's neighbours by the strides of the past (HBFT 4.1.2)",
	.flags = CRN_STRATEGY_NEAR | CRN_STRATEGY_LATE | CRN_STRATEGY_EXACT,
	.parameters = {
		[ALPHA] = { "alpha", "weight of the past in his_stride", CRN_ONE, 45875, 0,
			CRN_ONE - 1 },
		[DIVISOR] = { "back", "pages backward: his_stride divided by this", 1, 3, 1, 1024 },
		[OWN] = { "own", "1: the faulting page is in the stride; 0: not", 1, 1, 0, 1 },
	},
	.common_size = sizeof(struct histase),
	.open = histase_open,
	.close = histase_close,
	.fault = histase_fault,
	.checkpoint = histase_checkpoint,
	.near = histase_near,
	.removed = histase_removed,
	.bytes = histase_bytes,
};
