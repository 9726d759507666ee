/* SPDX-License-Identifier: MIT */
/*
 * Protecting again what was written, in as few calls as may be: a call for each run of pages, or
 * one scan for many that lie close together.
 */
#include "track/async/async.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/pagemap.h"
#include "os/userfault.h"

/* Runs in one piece of 2 MiB from which on one scan of them is cheaper than a call for each. */
#define DENSE_RUNS 2
/* Idle hot pages between two of them, whose faults to come cost less than one call. */
#define IDLE_PAGES 4
/* Cycles: a call for one run more; what a whole scan takes for a page and for a mapping. */
#define RUN_PRICE  900
#define PAGE_PRICE 2
#define SPAN_PRICE 650
#define FEW_RUNS   16 /* not worth counting */

/* Where no streaks are kept, one interval has to do. */
static bool is_busy(const struct crn_hot_list *l, const struct crn_hot_entry *e)
{
	return l->exact ? e->changed : e->streak > 1;
}

/*
 * May one scan protect both this run and the next one? It must meet nothing foreign. Hot pages
 * between them are protected as well, and fault once more if they are written (async_hot.c): there
 * may be few, which have been idle.
 */
static bool goes_with_next(struct crn_async *t, const struct crn_range_list *l, size_t i)
{
	const struct crn_span *span = crn_async_span_above(t, l->at[i].begin);
	uintptr_t from = l->at[i].end, to = l->at[i + 1].begin;
	size_t first = crn_hot_list_from(&t->hot, from);

	if (!span || l->at[i + 1].end > span->end)
		return false;
	for (size_t h = first; h < t->hot.count && t->hot.at[h].page < to; h++)
		if (h - first == IDLE_PAGES || is_busy(&t->hot, &t->hot.at[h]))
			return false;
	return true;
}

/*
 * Runs that are close together are protected by one scan, which reports them once more, and what
 * else is written among them just now, into `dirty`. Nothing is protected unseen: if the feed's
 * next drain is in doubt, only a scan finds what was stored meanwhile. (Without a list a scan takes
 * half the time, but kernels before 6.17 do not survive it on a part of a huge page.)
 */
static int protect_list(struct crn_async *t, const struct crn_range_list *l)
{
	for (size_t i = 0, j; i < l->count; i = j) {
		uintptr_t limit = (l->at[i].begin & ~(CRN_ASYNC_CHUNK - 1)) + CRN_ASYNC_CHUNK;

		for (j = i + 1; j < l->count && l->at[j].end <= limit; j++)
			if (!goes_with_next(t, l, j - 1))
				break;
		if (j - i >= DENSE_RUNS) {
			t->mixed = true;
			CRN_TRY(crn_async_scan_run(t, crn_pagemap_stored, &t->dirty, l->at[i].begin,
				l->at[j - 1].end, true));
			continue;
		}
		for (size_t k = i; k < j; k++)
			CRN_TRY(crn_uffd_protect(
				t->uffd, l->at[k].begin, l->at[k].end - l->at[k].begin, true));
	}
	return 0;
}

bool crn_async_scan_is_cheaper(const struct crn_async *t)
{
	uint64_t scan = 0;

	if (crn_likely(t->dirty.count <= FEW_RUNS) || t->hot.count)
		return false;
	for (size_t i = 0; i < t->span_count; i++) {
		if (t->spans[i].watched)
			scan += SPAN_PRICE +
				PAGE_PRICE * crn_pages(t->spans[i].end - t->spans[i].begin);
	}
	return t->dirty.count * RUN_PRICE > scan;
}

int crn_async_protect_found(struct crn_async *t)
{
	const struct crn_range_list *from[] = { &t->dirty, &t->were_open };
	struct crn_range_list *l = &t->turn;
	uint64_t begin;
	int err;

	crn_range_list_shrink(l, 0);
	for (size_t k = 0; k < CRN_ARRAY_SIZE(from); k++)
		for (size_t i = 0; i < from[k]->count; i++)
			CRN_TRY(crn_range_list_add(l, from[k]->at[i].begin, from[k]->at[i].end));
	if (!l->count)
		return 0;
	for (size_t i = 0; i < t->open.count; i++)
		CRN_TRY(crn_range_list_cut(l, t->open.at[i].begin, t->open.at[i].end));
	crn_range_list_normalise(l);
	CRN_TRY(crn_async_without_hot(t, &t->protect, l));
	if (!t->protect.count)
		return 0;
	begin = crn_clock_ticks();
	crn_async_own(t, true);
	err = protect_list(t, &t->protect);
	crn_async_own(t, false);
	/* What is done for all hot pages is no price of protecting another one. */
	if (err >= 0 && t->env->predictor)
		t->env->predictor->price_protect = (uint32_t)((crn_clock_ticks() - begin) /
			crn_range_list_pages(&t->protect));
	return err;
}
