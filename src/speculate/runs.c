/* SPDX-License-Identifier: MIT */
/* Joining and parting neighbours, a word of pairs at once; and how far runs go. */
#include "speculate/runs.h"

#define WORDS CRN_REGION_WORDS

static uint64_t joined(const struct crn_region *r, unsigned word)
{
	return __atomic_load_n(&r->joined[word], __ATOMIC_RELAXED);
}

/* ---- How far --------------------------------------------------------------------------- */

/* The last page of the run that page `at` is in. */
static unsigned last_of(const struct crn_region *r, unsigned at)
{
	while (at < CRN_REGION_PAGES - 1) {
		uint64_t parted = ~(joined(r, at / 64) >> at % 64);
		unsigned room = 64 - at % 64, more;

		more = parted ? (unsigned)__builtin_ctzll(parted) : 64;
		if (more < room)
			return at + more;
		at += room;
	}
	return at;
}

static unsigned first_of(const struct crn_region *r, unsigned at)
{
	while (at) {
		unsigned pair = at - 1, room = pair % 64 + 1, more;
		uint64_t parted = ~(joined(r, pair / 64) << (63 - pair % 64));

		more = parted ? (unsigned)__builtin_clzll(parted) : 64;
		if (more < room)
			return at - more;
		at -= room;
	}
	return at;
}

/* ---- Learning ---------------------------------------------------------------------------- */

/* Part all pairs of the runs in which a page was written: those are opened at its fault. */
static void part(const struct crn_region *r, uint64_t *pairs)
{
	unsigned begin = 0;

	for (unsigned i = 0; i < WORDS; i++) {
		for (uint64_t bits = r->written[i]; bits; bits &= bits - 1) {
			unsigned at = i * 64 + (unsigned)__builtin_ctzll(bits), last;

			if (at < begin)
				continue;
			last = last_of(r, at);
			for (begin = first_of(r, at); begin < last; begin++)
				pairs[begin / 64] &= ~(1ull << begin % 64);
			begin++;
		}
	}
}

/* `were`: are there pairs that are joined? The result says the same of afterwards. */
static bool learn(struct crn_region *r, bool were)
{
	uint64_t pairs[WORDS] = { 0 }, any = 0;

	if (were) {
		for (unsigned i = 0; i < WORDS; i++)
			pairs[i] = joined(r, i);
		part(r, pairs);
	}
	for (unsigned i = 0; i < WORDS; i++) {
		/* The last page of the region has no next one. */
		uint64_t next = i + 1 < WORDS ? r->written[i + 1] << 63 : 0;

		pairs[i] |= r->written[i] & (r->written[i] >> 1 | next);
		any |= pairs[i];
	}
	if (were || any)
		for (unsigned i = 0; i < WORDS; i++)
			__atomic_store_n(&r->joined[i], pairs[i], __ATOMIC_RELAXED);
	return any;
}

/* Of the regions with cold pages alone: where nothing faults there is nothing to predict. */
static void note_hot(const struct crn_speculation *s, const struct crn_regions *regions)
{
	const struct crn_hot_table *h = &s->hot;
	struct crn_region *region = NULL;
	uintptr_t base = 1;

	for (size_t word = 0; word < crn_hot_words(h); word++) {
		for (uint64_t bits = h->changed[word] & h->used[word]; bits; bits &= bits - 1) {
			uintptr_t page = h->page[word * 64 + (size_t)__builtin_ctzll(bits)];
			unsigned at = crn_region_page(page);

			if (page - page % CRN_REGION_BYTES != base) {
				base = page - page % CRN_REGION_BYTES;
				region = crn_regions_listed(regions, page);
			}
			if (region)
				region->written[at / 64] |= 1ull << at % 64;
		}
	}
}

void crn_runs_learn(struct crn_speculation *s, struct crn_regions *regions)
{
	struct crn_region *region;

	for (size_t i = 0; i < s->written.count; i++)
		if (!crn_regions_note(s->port, regions, s->written.pages[i]))
			s->stats.alloc_failures++;
	note_hot(s, regions);
	while ((region = crn_regions_take(regions))) {
		uint32_t were = crn_regions_value(regions, region);
		uint32_t are = learn(region, were);

		if (are != were)
			crn_regions_publish(regions, region, are);
		crn_region_clear(region);
	}
}

bool crn_runs_around(
	const struct crn_regions *regions, uintptr_t page, uintptr_t *begin, uintptr_t *end)
{
	uintptr_t base = page - page % CRN_REGION_BYTES;
	const struct crn_region *r;
	unsigned first, last;
	uint32_t value;

	r = crn_regions_find(regions, page, &value);
	if (!r)
		return false;
	first = first_of(r, crn_region_page(page));
	last = last_of(r, crn_region_page(page));
	*begin = base + first * CRN_PORT_PAGE;
	*end = base + (last + 1) * CRN_PORT_PAGE;
	return last > first;
}
