/* SPDX-License-Identifier: MIT */
/*
 * Hot pages under async. A hot page is left open for writing, so the kernel reports nothing about
 * it. Whether it has changed is found by comparing it with the mirror, in every call that asks what
 * was written. A page that becomes hot while it is protected, or is protected along with others
 * around it, stays so until its next store, which the kernel lets through. An evicted page is
 * protected in one run with the pages that were written, and compared once more after that.
 *
 * There are none in memory of a file that somebody may cut short, because it may vanish while it is
 * compared.
 */
#include <errno.h>
#include "track/async/async.h"
#include "base/check.h"
#include "base/status.h"
#include "os/guarded.h"

/* ---- Lists ----------------------------------------------------------------------------- */

int crn_async_without_hot(
	struct crn_async *t, struct crn_range_list *to, const struct crn_range_list *from)
{
	size_t h = 0;

	crn_range_list_shrink(to, 0);
	for (size_t i = 0; i < from->count; i++) {
		uintptr_t at = from->at[i].begin, end = from->at[i].end;

		while (at < end) {
			while (h < t->hot.count && t->hot.at[h].page < at)
				h++;
			if (h == t->hot.count || t->hot.at[h].page >= end) {
				CRN_TRY(crn_range_list_add(to, at, end));
				break;
			}
			if (t->hot.at[h].page > at)
				CRN_TRY(crn_range_list_add(to, at, t->hot.at[h].page));
			at = t->hot.at[h].page + CRN_PAGE_SIZE;
		}
	}
	return 0;
}

int crn_async_hot_filter(struct crn_async *t)
{
	if (crn_likely(!t->hot.count || !t->dirty.count))
		return 0;
	CRN_TRY(crn_async_without_hot(t, &t->turn, &t->dirty));
	crn_range_list_swap(&t->turn, &t->dirty);
	return 0;
}

/* What the program has closed is fetched. */
static bool closed_differs(struct crn_async *t, uintptr_t page, const void *old)
{
	void *copy = t->mirror.scratch;

	return t->env->load(t->env, copy, page, CRN_PAGE_SIZE) < 0 || !crn_guarded_same(old, copy);
}

/* Hot pages that have changed, and those of them that have no frame. */
struct tally {
	size_t changed, bare;
};

static void tally_add(struct tally *tally, const struct crn_hot_entry *e, int by)
{
	tally->changed += (size_t)(e->changed ? by : 0);
	tally->bare += (size_t)(e->changed && !e->old ? by : 0);
}

static struct tally look(struct crn_async *t)
{
	struct crn_hot_bits bits = { .map = t->env->predictor->changed };
	uint64_t begin = crn_hot_meter_begin(&t->hot, true);
	struct crn_hot_entry *e = t->hot.at, *end = e + t->hot.count;
	bool stale = t->hot.stale;
	struct tally tally = { 0, 0 };

	for (; e < end; e++) {
		if (crn_unlikely(stale))
			e->old = *(void **)e->where;
		if (crn_page_closed(t->env, e->page)) {
			e->changed = closed_differs(t, e->page, e->old);
			e->hashed = false;
		} else {
			(void)crn_hot_look(&t->hot, e, e->old);
		}
		if (!e->changed)
			continue;
		tally_add(&tally, e, 1);
		crn_hot_bits_add(&bits, e->slot);
	}
	crn_hot_bits_flush(&bits);
	t->hot.stale = false;
	t->env->predictor->price_hot = crn_hot_meter_end(&t->hot, begin, NULL);
	return tally;
}

/* ---- Outside of interval_end --------------------------------------------------------------- */

/* For who asks in the middle of an interval; tells no strategy, and trusts no streak. */
static bool differs(struct crn_async *t, const struct crn_hot_entry *e)
{
	if (crn_page_closed(t->env, e->page))
		return closed_differs(t, e->page, *(void **)e->where);
	return !crn_guarded_same(*(void **)e->where, (const void *)e->page);
}

int crn_async_hot_show(struct crn_async *t, struct crn_sink *sink)
{
	for (size_t i = 0; i < t->hot.count; i++) {
		const struct crn_hot_entry *e = &t->hot.at[i];

		if (e->touched || differs(t, e))
			CRN_TRY(sink->take(
				sink, e->page, CRN_PAGE_SIZE, *(void **)e->where, false));
	}
	return 0;
}

size_t crn_async_hot_count(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	size_t count = 0;

	for (size_t i = crn_hot_list_from(&t->hot, begin);
		i < t->hot.count && t->hot.at[i].page < end; i++)
		count += differs(t, &t->hot.at[i]);
	return count;
}

/* ---- What the strategy decides ------------------------------------------------------------- */

/* Without memory for the lists the page stays open, and is nobody's. */
static void evict(struct crn_async *t, struct crn_hot_entry *e, struct tally *tally)
{
	uintptr_t end = e->page + CRN_PAGE_SIZE;

	e->slot = CRN_HOT_NO_SLOT;
	/* Another thread may write until it is protected: it is compared once more then. */
	if ((e->changed ? crn_range_list_put(&t->dirty, e->page, end)
			: crn_range_list_add(&t->were_open, e->page, end)) < 0)
		return;
	e->where = NULL;
	tally_add(tally, e, -1);
}

static void evict_listed(struct crn_async *t, struct tally *tally)
{
	uintptr_t begin, end;
	size_t i = 0, at = 0;

	while (t->env->predictor->evicted(t->env, i++, &begin, &end))
		for (; at < t->hot.count && t->hot.at[at].page < end; at++)
			if (t->hot.at[at].page >= begin)
				evict(t, &t->hot.at[at], tally);
	if (i > 1)
		crn_hot_list_sweep(&t->hot);
}

static bool listed(const struct crn_range_list *l, uintptr_t page)
{
	size_t i;

	CRN_FIRST(i, l->count, l->at[i].end > page);
	return i < l->count && l->at[i].begin <= page;
}

static void promote(struct crn_async *t, uintptr_t page, uint32_t slot, struct tally *tally)
{
	void **where = crn_mirror_slot(&t->mirror, page);
	struct crn_hot_entry *e = NULL;
	bool made;

	if (where && crn_async_steady(t, page))
		e = crn_hot_list_add(&t->hot, page, where, &made);
	if (!e) {
		if (t->refused_count < CRN_ARRAY_SIZE(t->refused))
			t->refused[t->refused_count++] = page;
		return;
	}
	e->slot = slot;
	if (!made) /* it could not be evicted once, and has stayed: it has been looked at */
		return;
	e->old = *where;
	e->changed = listed(&t->dirty, page);
	tally_add(tally, e, 1);
}

/* `tally` is of those seen before. */
static void heed(struct crn_async *t, struct tally *tally)
{
	uintptr_t page;
	uint32_t slot;

	evict_listed(t, tally);
	crn_range_list_normalise(&t->dirty);
	crn_hot_list_spread(&t->hot, t->env->predictor->promotions(t->env));
	for (size_t i = 0; t->env->predictor->promoted(t->env, i, &page, &slot); i++)
		promote(t, page, slot, tally);
	crn_hot_list_gather(&t->hot);
	for (size_t i = 0; i < t->refused_count; i++)
		t->env->predictor->refused(t->env, t->refused[i]);
	t->refused_count = 0;
}

/* ---- The end of an interval ------------------------------------------------------------------ */

static void tell_written(struct crn_async *t)
{
	for (size_t i = 0; i < t->dirty.count; i++)
		for (uintptr_t p = t->dirty.at[i].begin; p < t->dirty.at[i].end; p += CRN_PAGE_SIZE)
			t->env->predictor->written(t->env, p);
}

static int turn_singly(struct crn_async *t, struct crn_hot_entry *at,
	const struct crn_hot_entry *end, bool ask, struct crn_sink *sink)
{
	for (; at < end; at++)
		if (at->changed) {
			t->eager++;
			CRN_TRY(crn_mirror_turn_slot(
				&t->mirror, at->where, &at->old, at->page, ask, sink));
		}
	return 0;
}

/* From hot page *i on, those below `limit` that have changed. */
static int hand_over_hot(
	struct crn_async *t, size_t *i, uintptr_t limit, bool ask, struct crn_sink *sink)
{
	uint64_t meter = crn_hot_meter_begin(&t->hot, false);
	struct crn_hot_entry *at = t->hot.at + *i, *end = t->hot.at + t->hot.count;
	bool left = true;
	int err = 0;

	if (at < end && end[-1].page >= limit)
		for (end = at; end->page < limit; end++)
			;
	*i = (size_t)(end - t->hot.at);
	if (crn_likely(!ask && !t->mirror.replaced.count)) {
		if (sink->exchange)
			t->eager += crn_hot_exchange(&t->hot, at, end, sink, &left);
		if (left)
			err = crn_hot_turn(&t->hot, at, end, sink, &t->eager);
	} else {
		err = turn_singly(t, at, end, ask, sink);
	}
	(void)crn_hot_meter_end(&t->hot, meter, NULL);
	return err;
}

static void replaced(void *tracker, struct crn_hot_entry *e)
{
	crn_mirror_slot_set(&((struct crn_async *)tracker)->mirror, e->where, e->old);
}

static void unreadable(void *tracker, struct crn_hot_entry *e)
{
	crn_mirror_load(&((struct crn_async *)tracker)->mirror, e->where, e->page);
	e->old = *(void **)e->where;
}

static int turn(void *tracker, struct crn_hot_entry *e, int absorbed, struct crn_sink *sink)
{
	struct crn_async *t = tracker;

	if (absorbed == -EFAULT)
		return crn_mirror_turn_slot(&t->mirror, e->where, &e->old, e->page, false, sink);
	if (!absorbed) {
		crn_mirror_taken(&t->mirror, e->where, e->page);
		e->old = *(void **)e->where;
	}
	return absorbed;
}

const struct crn_hot_owner crn_async_hot_owner = { replaced, unreadable, turn };

static void copy_hot(struct crn_async *t, const struct crn_sink *sink)
{
	uint64_t meter = crn_hot_meter_begin(&t->hot, false);

	crn_hot_copy_now(&t->hot);
	(void)crn_hot_meter_end(&t->hot, meter, sink);
}

/* As crn_mirror_prepare does for the others. */
static int try_closed(struct crn_async *t)
{
	for (size_t i = 0; i < t->hot.count; i++)
		if (t->hot.at[i].changed && crn_page_closed(t->env, t->hot.at[i].page))
			return crn_mirror_try(&t->mirror, t->hot.at[i].page);
	return 0;
}

/* By address: what has been written, and the hot pages between. */
static int hand_over_all(struct crn_async *t, struct crn_sink *sink)
{
	bool ask = crn_async_must_ask(t);
	size_t hot = 0;

	for (size_t i = 0; i < t->dirty.count; i++) {
		uintptr_t begin = t->dirty.at[i].begin, end = t->dirty.at[i].end;

		/* What is done for each of the others is no price of a hot page. */
		if (hot < t->hot.count && t->hot.at[hot].page < begin)
			CRN_TRY(hand_over_hot(t, &hot, begin, ask, sink));
		CRN_TRY(crn_mirror_turn(&t->mirror, begin, end,
			ask || crn_async_doubtful(t, begin, end), sink));
	}
	return hand_over_hot(t, &hot, UINTPTR_MAX, ask, sink);
}

static int hand_over(struct crn_async *t, struct tally tally, struct crn_sink *sink)
{
	int err;

	if (t->env->closed)
		CRN_TRY(try_closed(t));
	sink->differences = crn_hot_wants_differences(&t->hot);
	CRN_TRY(crn_mirror_prepare(
		&t->mirror, &t->dirty, &t->gone, tally.changed, tally.bare, sink));
	err = hand_over_all(t, sink);
	copy_hot(t, sink);
	CRN_TRY(err);
	crn_range_list_shrink(&t->dirty, 0);
	CRN_TRY(crn_mirror_give(&t->mirror, &t->gone, sink));
	t->owed = t->unsteady = false;
	return 0;
}

int crn_async_hot_end(struct crn_async *t, struct crn_sink *sink)
{
	struct tally tally;

	CRN_TRY(crn_async_find_written(t, false));
	/* All of it is protected below, or stays in the lists until it is. */
	t->owed = true;
	CRN_TRY(crn_async_leave_out_empty(t));
	tally = look(t);
	tell_written(t);
	if (t->env->predictor->decide(t->env))
		heed(t, &tally);
	CRN_TRY(crn_async_protect_written(t));
	CRN_TRY(hand_over(t, tally, sink));
	if (crn_unlikely(t->hot.touched))
		crn_hot_list_forget_touched(&t->hot);
	return 0;
}
