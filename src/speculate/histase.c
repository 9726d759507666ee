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
 *
 * crn_speculation_near runs in signal handlers and in any thread while others change the table. It
 * reads one word for each probe, a region's number and stride together; tables that are replaced
 * stay readable until close, which at most doubles their memory.
 */
#include "speculate/strategy.h"

enum { ALPHA, DIVISOR, OWN };

#define REGION_SHIFT 21
#define REGION_PAGES 512u
#define STRIDE_ONE   64u /* the unit of strides that are published */
#define STRIDE_BITS  16	 /* 0 .. 512, in 1 / STRIDE_ONE */
#define PROBES	     16u
#define TABLE_FIRST  64u

struct region {
	uint64_t number;   /* address >> REGION_SHIFT, plus 1; 0: free */
	uint64_t bits[8];  /* pages written in the open interval */
	uint32_t history;  /* his_stride in units of 1 / CRN_ONE; 0: none yet */
	uint32_t next;	   /* of those written in this interval; valid if `listed` */
	bool listed;
};

struct table {
	struct table *retired;
	size_t size, bytes;
	struct region *regions;
	uint64_t published[]; /* number << STRIDE_BITS | stride */
};

struct histase {
	struct table *table;
	uint32_t listed; /* first region written in the open interval */
	uint64_t bytes;
};

static size_t slot_of(uint64_t number, size_t size)
{
	return (size_t)((number * 0x9e3779b97f4a7c15ull) >> 32) & (size - 1);
}

/* ---- The table ------------------------------------------------------------------------- */

static struct table *table_new(struct crn_speculation *s, size_t size)
{
	size_t bytes = sizeof(struct table) + size * sizeof(uint64_t) +
		size * sizeof(struct region);
	struct table *t = s->port->alloc(s->port, bytes);

	if (!t)
		return NULL;
	t->size = size;
	t->bytes = bytes;
	t->regions = (struct region *)(t->published + size);
	((struct histase *)s->common)->bytes += bytes;
	return t;
}

/* The region's place, or a free one for it; NULL: none within the probes. */
static struct region *place_of(struct table *t, uint64_t number)
{
	size_t at = slot_of(number, t->size);

	for (unsigned probe = 0; probe < PROBES; probe++, at = (at + 1) & (t->size - 1))
		if (!t->regions[at].number || t->regions[at].number == number)
			return &t->regions[at];
	return NULL;
}

static void publish(struct table *t, const struct region *r)
{
	uint64_t word = r->number << STRIDE_BITS | r->history / (CRN_ONE / STRIDE_ONE);

	__atomic_store_n(&t->published[r - t->regions], word, __ATOMIC_RELAXED);
}

/* Move all regions that know something to a table of that size. */
static bool move_to(struct crn_speculation *s, size_t size)
{
	struct histase *h = s->common;
	struct table *old = h->table, *t = table_new(s, size);
	uint32_t listed = CRN_WS_NONE;

	if (!t)
		return false;
	for (size_t i = 0; old && i < old->size; i++) {
		const struct region *r = &old->regions[i];
		struct region *to;

		if (!r->number || (!r->history && !r->listed))
			continue;
		to = place_of(t, r->number);
		if (!to) {
			h->bytes -= t->bytes;
			s->port->free(s->port, t, t->bytes);
			return false;
		}
		*to = *r;
		publish(t, to);
		if (to->listed) {
			to->next = listed;
			listed = (uint32_t)(to - t->regions);
		}
	}
	h->listed = listed;
	t->retired = old;
	__atomic_store_n(&h->table, t, __ATOMIC_RELEASE);
	return true;
}

static struct region *region_of(struct crn_speculation *s, uintptr_t page)
{
	struct histase *h = s->common;
	uint64_t number = (uint64_t)(page >> REGION_SHIFT) + 1;
	struct region *r = h->table ? place_of(h->table, number) : NULL;

	for (unsigned tries = 0; !r && tries < 3; tries++) {
		if (!move_to(s, h->table ? h->table->size * 2 : TABLE_FIRST)) {
			s->stats.alloc_failures++;
			return NULL;
		}
		r = place_of(h->table, number);
	}
	if (r && !r->number) {
		r->number = number;
		publish(h->table, r);
	}
	return r;
}

static int histase_open(struct crn_speculation *s)
{
	((struct histase *)s->common)->listed = CRN_WS_NONE;
	return 0;
}

static void histase_close(struct crn_speculation *s)
{
	struct table *t = ((struct histase *)s->common)->table;

	while (t) {
		struct table *gone = t;

		t = t->retired;
		s->port->free(s->port, gone, gone->bytes);
	}
}

/* ---- Strides ------------------------------------------------------------------------------ */

static void note_written(struct crn_speculation *s, uintptr_t page)
{
	struct histase *h = s->common;
	struct region *r = region_of(s, page);
	unsigned at = (unsigned)(page >> CRN_PORT_PAGE_SHIFT) % REGION_PAGES;

	if (!r)
		return;
	r->bits[at / 64] |= 1ull << at % 64;
	if (r->listed)
		return;
	r->listed = true;
	r->next = h->listed;
	h->listed = (uint32_t)(r - h->table->regions);
}

/* Bits of `bits` whose lower neighbour is not set: the first pages of runs. */
static uint64_t starts(const uint64_t *bits, unsigned word)
{
	uint64_t below = word ? bits[word - 1] >> 63 : 0;

	return bits[word] & ~(bits[word] << 1 | below);
}

static void learn(struct crn_speculation *s, struct region *r)
{
	uint64_t alpha = s->values[ALPHA], pages = 0, runs = 0, average;

	for (unsigned word = 0; word < 8; word++) {
		pages += crn_popcount(r->bits[word]);
		runs += crn_popcount(starts(r->bits, word));
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
	uintptr_t base = page & ~(((uintptr_t)1 << REGION_SHIFT) - 1);
	uintptr_t at = (page - base) >> CRN_PORT_PAGE_SHIFT;
	uintptr_t back = stride / s->values[DIVISOR] / STRIDE_ONE, room = REGION_PAGES - at;
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
	const struct table *t = __atomic_load_n(&h->table, __ATOMIC_ACQUIRE);
	uint64_t number = (uint64_t)(page >> REGION_SHIFT) + 1;
	size_t at;

	if (!t)
		return false;
	at = slot_of(number, t->size);
	for (unsigned probe = 0; probe < PROBES; probe++, at = (at + 1) & (t->size - 1)) {
		uint64_t word = __atomic_load_n(&t->published[at], __ATOMIC_RELAXED);
		unsigned stride = (unsigned)word & ((1u << STRIDE_BITS) - 1);

		if (!word)
			return false;
		if (word >> STRIDE_BITS != number)
			continue;
		return stride && run_around(s, page, stride, begin, end);
	}
	return false;
}

/* For the next interval: as if the first page of each run had just faulted. */
static void predict_region(
	struct crn_speculation *s, struct crn_working_set *ws, const struct region *r)
{
	uintptr_t base = (uintptr_t)(r->number - 1) << REGION_SHIFT;

	for (unsigned word = 0; word < 8; word++) {
		for (uint64_t bits = starts(r->bits, word); bits; bits &= bits - 1) {
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
	struct histase *h = s->common;

	note_changed(s);
	while (h->listed != CRN_WS_NONE) {
		struct region *r = &h->table->regions[h->listed];

		learn(s, r);
		publish(h->table, r);
		if (!s->port->at_fault)
			predict_region(s, ws, r);
		for (unsigned word = 0; word < 8; word++)
			r->bits[word] = 0;
		h->listed = r->next;
		r->listed = false;
	}
	drop_others(s, ws);
}

/* A new mapping starts anew. */
static void histase_removed(struct crn_speculation *s, uintptr_t begin, uintptr_t end)
{
	struct table *t = ((struct histase *)s->common)->table;

	for (size_t i = 0; t && i < t->size; i++) {
		struct region *r = &t->regions[i];
		uintptr_t base = (uintptr_t)(r->number - 1) << REGION_SHIFT;

		if (!r->number || r->listed || base < begin ||
			base + ((uintptr_t)1 << REGION_SHIFT) > end)
			continue;
		r->history = 0;
		publish(t, r);
	}
}

static uint64_t histase_bytes(const struct crn_speculation *s)
{
	return ((const struct histase *)s->common)->bytes;
}

const struct crn_strategy_ops crn_strategy_histase = {
	.name = "histase",
	.summary = "opens a fault's neighbours by the strides of the past (HBFT 4.1.2)",
	.flags = CRN_STRATEGY_NEAR | CRN_STRATEGY_EXACT,
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
