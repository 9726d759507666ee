/* SPDX-License-Identifier: MIT */
/*
 * Pages of private file mappings that are the process's own, because they have been written.
 * Cutting the file short removes them, without an event and without a store. When the file grows
 * again, the page is the file's: it is as closed as any clean page, and its old content, which was
 * only in live memory, is gone.
 *
 * Each such area has a bit for every page: was it the process's own when it was last closed? The
 * pagemap tells what a clean page is now. It is asked when the past is looked at, and before a page
 * is saved. Under feed bpf-images nobody can ask before a program in the kernel takes an image;
 * there, a checksum of the page's old content tells whether the image has that content.
 */
#include "base/arena.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/guarded.h"
#include "os/pagemap.h"
#include "track/undo/undo_pages.h"

#define RUNS_MAX  32
#define WORD_BITS 64u
#define SUM_PRIME 0x9e3779b97f4a7c15ull

static size_t bit_of(const struct undo_area *a, uintptr_t page)
{
	return (page - a->begin) >> CRN_PAGE_SHIFT;
}

static bool is_set(const struct undo_area *a, uintptr_t page)
{
	size_t bit = bit_of(a, page);

	return a->own[bit / WORD_BITS] >> bit % WORD_BITS & 1;
}

static void put_bits(struct undo_area *a, uintptr_t begin, uintptr_t end, bool own)
{
	for (size_t bit = bit_of(a, begin); bit < bit_of(a, end); bit++) {
		uint64_t mask = 1ull << bit % WORD_BITS;

		if (own)
			a->own[bit / WORD_BITS] |= mask;
		else
			a->own[bit / WORD_BITS] &= ~mask;
	}
}

/* The first page of [page, end) whose bit is set, or end. */
static uintptr_t next_set(const struct undo_area *a, uintptr_t page, uintptr_t end)
{
	while (page < end) {
		size_t bit = bit_of(a, page);
		uint64_t word = a->own[bit / WORD_BITS] >> bit % WORD_BITS;

		if (word)
			return CRN_MIN(end,
				page + ((size_t)__builtin_ctzll(word) << CRN_PAGE_SHIFT));
		page += (WORD_BITS - bit % WORD_BITS) << CRN_PAGE_SHIFT;
	}
	return end;
}

/* Where pages are protected one by one, a protected hole counts as swapped. */
static long own_now(const struct crn_undo_pages *u, uintptr_t *cursor, uintptr_t end,
	struct crn_page_run *runs, size_t max)
{
	return u->feed ? crn_pagemap_own_present(u->pagemap, cursor, end, runs, max)
		       : crn_pagemap_own(u->pagemap, cursor, end, runs, max);
}

/* Without a page: it may lie on swap, which it leaves when it is read. */
static bool has_gone(const struct crn_undo_pages *u, uintptr_t page)
{
	struct crn_page_run run;
	uintptr_t cursor = page;
	uint8_t byte;

	if (u->feed)
		(void)crn_guarded_copy(&byte, (const void *)page, 1);
	return own_now(u, &cursor, page + CRN_PAGE_SIZE, &run, 1) == 0;
}

static long own_runs(
	struct crn_undo_pages *u, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs)
{
	long count;

	do
		count = own_now(u, cursor, end, runs, RUNS_MAX);
	while (count < 0 && crn_keeper_mend(u->env->keeper) > 0);
	return count;
}

/* ---- What it held ------------------------------------------------------------------------- */

/* Never 0. Any one word that differs makes another sum. */
static uint64_t sum_of(const void *page)
{
	const uint64_t *words = page;
	uint64_t lanes[4] = { 1, 2, 3, 4 };

	for (size_t i = 0; i < CRN_PAGE_SIZE / sizeof(*words); i += 4)
		for (size_t k = 0; k < 4; k++)
			lanes[k] = (lanes[k] ^ words[i + k]) * SUM_PRIME,
			lanes[k] ^= lanes[k] >> 29;
	for (size_t k = 1; k < 4; k++)
		lanes[0] = (lanes[0] ^ lanes[k]) * SUM_PRIME;
	return lanes[0] ? lanes[0] : 1;
}

static void note_sums(struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	uint64_t *copy = a->sums + bit_of(a, a->end);

	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		a->sums[bit_of(a, page)] =
			crn_guarded_copy(copy, (const void *)page, CRN_PAGE_SIZE) < 0
				? 0
				: sum_of(copy);
}

static void forget_sums(struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	crn_fill(&a->sums[bit_of(a, begin)], 0,
		(bit_of(a, end) - bit_of(a, begin)) * sizeof(*a->sums));
}

/*
 * Pages of [begin, end) have sums since they were closed. Whoever has stored to one meanwhile had
 * an image taken of what was there before that.
 */
static void check_sums(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	struct crn_page_run runs[RUNS_MAX];
	long count = 0;

	for (uintptr_t at = begin; a->sums && at < end && count >= 0;) {
		count = crn_pagemap_written(u->pagemap, &at, end, false, runs, RUNS_MAX);
		if (count < 0)
			forget_sums(a, begin, end);
		for (long i = 0; i < count; i++)
			forget_sums(a, runs[i].begin, runs[i].end);
	}
}

bool undo_cut_image(const struct undo_area *a, uintptr_t page, const void *image)
{
	uint64_t sum = a->sums && is_set(a, page) ? a->sums[bit_of(a, page)] : 0;

	if (!sum || sum == sum_of(image))
		return true;
	crn_error("the page at %lx was the file's again, which has been cut short, when it was "
		  "written: what had been there before is gone", page);
	return false;
}

/* Where nobody tells, nothing is expected to stay. */
static void note(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	struct crn_page_run runs[RUNS_MAX];
	uintptr_t cursor = begin;
	long count = 0;

	put_bits(a, begin, end, false);
	while (cursor < end && count >= 0) {
		count = own_runs(u, &cursor, end, runs);
		for (long i = 0; i < count; i++) {
			put_bits(a, runs[i].begin, runs[i].end, true);
			if (a->sums)
				note_sums(a, runs[i].begin, runs[i].end);
		}
	}
}

int undo_cut_begin(struct crn_undo_pages *u, struct undo_area *a)
{
	const uint32_t kind = CRN_AREA_FILE | CRN_AREA_SHARED;
	size_t words = (bit_of(a, a->end) + WORD_BITS - 1) / WORD_BITS;
	size_t sums = bit_of(a, a->end) * sizeof(*a->sums) + CRN_PAGE_SIZE;

	/* The agent knows of each call that cuts a file. */
	if ((a->area->flags & kind) != CRN_AREA_FILE || !a->guard || !u->env->areas_alone)
		return 0;
	a->own = crn_block_alloc(u->env->arena, words * sizeof(*a->own));
	if (!a->own)
		return CAIRN_EMEMORY;
	a->own_bytes = words * sizeof(*a->own);
	if (u->feed) {
		a->sums = crn_block_alloc(u->env->arena, sums);
		a->sum_bytes = a->sums ? sums : 0;
	}
	if (u->feed && !a->sums) {
		crn_block_free(u->env->arena, a->own, a->own_bytes);
		a->own = NULL;
		return CAIRN_EMEMORY;
	}
	u->private_files++;
	note(u, a, a->begin, a->end);
	check_sums(u, a, a->begin, a->end);
	return 0;
}

void undo_cut_end(struct crn_undo_pages *u, struct undo_area *a)
{
	if (!a->own)
		return;
	crn_block_free(u->env->arena, a->own, a->own_bytes);
	crn_block_free(u->env->arena, a->sums, a->sum_bytes);
	a->own = a->sums = NULL;
	u->private_files--;
}

void undo_cut_note(struct crn_undo_pages *u, size_t count)
{
	struct undo_area *a = NULL;
	uintptr_t first = 0;
	size_t n;

	for (size_t i = 0; i < count; i += n) {
		uintptr_t begin = u->saved[i], end = begin + CRN_PAGE_SIZE;

		if (!a || begin >= a->end) {
			first = begin;
			a = undo_area_of(u, a, begin);
		}
		for (n = 1; i + n < count && u->saved[i + n] == end && end < a->end; n++)
			end += CRN_PAGE_SIZE;
		if (a->own)
			note(u, a, begin, end);
		if (i + n == count || u->saved[i + n] >= a->end)
			check_sums(u, a, first, end);
	}
}

void undo_cut_note_page(struct crn_undo_pages *u, struct undo_area *a, uintptr_t page)
{
	note(u, a, page, page + CRN_PAGE_SIZE);
	check_sums(u, a, page, page + CRN_PAGE_SIZE);
}

/* ---- Has it gone? -------------------------------------------------------------------------- */

bool undo_cut_lost(const struct crn_undo_pages *u, const struct undo_area *a, uintptr_t page)
{
	return is_set(a, page) && has_gone(u, page);
}

/* Clean pages of [begin, end), of which none is the process's own now, should be. */
static bool any_gone(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin,
	uintptr_t end, undo_gone_fn fn)
{
	bool any = false;

	for (uintptr_t page = next_set(a, begin, end); page < end;
		page = next_set(a, page + CRN_PAGE_SIZE, end)) {
		/* A handler that is at it finds out by itself. */
		if (atomic_load(undo_word_of(a, page)) & (UNDO_OPEN | UNDO_BUSY) ||
			!has_gone(u, page))
			continue;
		if (!any)
			crn_error("the page at %lx is the file's again, which has been cut short: "
				  "what had been written to it is gone", page);
		any = true;
		if (!fn)
			return true;
		put_bits(a, page, page + CRN_PAGE_SIZE, false);
		fn(u, a, page);
	}
	return any;
}

int undo_cut_look(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end,
	undo_gone_fn fn)
{
	struct crn_page_run runs[RUNS_MAX];
	uintptr_t at, cursor;
	bool gone = false;

	begin = CRN_MAX(crn_page_down(begin), a->begin);
	end = end < a->end ? crn_page_up(end) : a->end;
	at = cursor = next_set(a, begin, end);
	while (cursor < end) {
		long count = own_runs(u, &cursor, end, runs);

		if (count < 0)
			return (int)count;
		for (long i = 0; i < count; at = runs[i++].end)
			gone |= any_gone(u, a, at, runs[i].begin, fn);
	}
	gone |= any_gone(u, a, at, end, fn);
	return gone ? CAIRN_ELAYOUT : 0;
}

void undo_cut_found(struct crn_undo_pages *u, uintptr_t page)
{
	if (u->feed)
		u->env->lost(u->env, page, CAIRN_EFAILED);
	else
		atomic_store(&u->cut_saved, true);
}

/* Nobody can tell since when: checkpoints until now are lost, the next one has what is there. */
bool undo_past_gone(void *t)
{
	struct crn_undo_pages *u = t;

	if (crn_likely(!u->cut_seen && !atomic_load(&u->cut_saved)))
		return false;
	for (size_t i = 0; i < u->area_count; i++)
		if (u->areas[i]->own)
			note(u, u->areas[i], u->areas[i]->begin, u->areas[i]->end);
	u->cut_seen = false;
	atomic_store(&u->cut_saved, false);
	return true;
}
