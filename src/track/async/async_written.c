/* SPDX-License-Identifier: MIT */
/*
 * Which pages have been written since the last checkpoint: by a feed, which costs nothing but those
 * pages, or by a scan of everything that is watched.
 *
 *	feed ----> fed \                                  / open: left as they are, compared each time
 *	t->open -------+--> to be protected again, but for
 *	                \--> dirty: the fed ones, and of t->open those that are different from the mirror
 *
 * A scan is the truth and needs no feed; the feed is drained before it all the same, for its open
 * pages. A hot page that a strategy lets go is one that was open.
 */
#include <errno.h>
#include "base/arena.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "os/guarded.h"
#include "os/keeper.h"
#include "track/async/async.h"

/* Room that a scan should find in the dirty list; it does with less when memory is short. */
#define SCAN_ROOM 512
/* The kernel allocates a buffer for as many reports as one call may bring: few keep that cheap. */
#define SCAN_BATCH 64ul
/* Another thread may map and unmap while we look: give up some time. */
#define REPAIRS_MAX 64
/* Every so many drains without doubt the feed is compared with a scan. */
#define AUDIT_EVERY 1024

/* ---- The scan ---------------------------------------------------------------------------- */

/* After a scan that failed: how many entries it wrote before. */
static size_t count_reported(const struct crn_range_list *l)
{
	size_t n = l->count;

	while (n < l->capacity && l->at[n].end)
		n++;
	return n;
}

int crn_async_scan_run(struct crn_async *t, crn_scan_fn *scan, struct crn_range_list *l,
	uintptr_t begin, uintptr_t end, bool protect)
{
	uintptr_t cursor = begin;

	while (cursor < end) {
		uintptr_t from = cursor;
		long n;

		if (crn_range_list_room(l, SCAN_ROOM) < 0 && l->count == l->capacity)
			return CAIRN_EMEMORY;
		n = scan(t->pagemap, &cursor, end, protect, l->at + l->count,
			CRN_MIN(l->capacity - l->count, SCAN_BATCH));
		if (n < 0) {
			l->count = count_reported(l);
			return (int)n;
		}
		l->count += (size_t)n;
		if (cursor == from && !n)
			return -EINVAL; /* a part of a huge page, for ever */
	}
	return 0;
}

/* The list holds what a scan reported: give a stack that has grown its slots. */
static int cover_stack_growth(struct crn_async *t)
{
	for (size_t i = 0; i < t->dirty.count; i++) {
		if (!crn_mirror_slot(&t->mirror, t->dirty.at[i].begin))
			CRN_TRY(crn_async_grow_stack(t, t->dirty.at[i].begin));
	}
	return 0;
}

static int scan_runs(struct crn_async *t, bool protect)
{
	unsigned repairs = 0;
	int err, refused = -EAGAIN;

	CRN_TRY(crn_async_wake(t));
again:
	if (t->runs_stale)
		CRN_TRY(crn_async_plan(t));
	for (size_t i = 0; i < t->runs.count; i++) {
		struct crn_page_run run = t->runs.at[i];

		err = crn_async_scan_run(
			t, crn_pagemap_written, &t->dirty, run.begin, run.end, protect);
		if (err == -EPERM && repairs++ < REPAIRS_MAX) {
			t->mixed = true; /* the run is scanned again */
			err = crn_async_repair(t, run.begin, run.end);
			/* EINVAL: nothing is mapped there by now, or what cannot be watched. */
			refused = err == -EINVAL ? err : -EAGAIN;
			/* Replaced once more between two of our calls: it is found again. */
			if (err >= 0 || err == -ENOENT || err == -EINVAL)
				goto again;
		}
		if (err < 0) {
			t->mixed = true;
			return err == -EPERM ? refused : err;
		}
	}
	if (t->has_cuttable || (t->has_private_files && t->env->dropped))
		CRN_TRY(crn_async_check_owned(t, t->env->dropped));
	return 0;
}

static int scan_all(struct crn_async *t, bool protect)
{
	int err;

	/* What the program has closed is fetched; what it has opened in its place is no map. */
	CRN_TRY(crn_keeper_mend(t->env->keeper));
	crn_async_own(t, true);
	err = scan_runs(t, protect);
	crn_async_own(t, false);
	CRN_TRY(err);
	if (t->mixed) {
		crn_range_list_normalise(&t->dirty);
		t->mixed = false;
	}
	CRN_TRY(crn_async_cut_strange(t, &t->dirty));
	return cover_stack_growth(t);
}

/* ---- The feed ---------------------------------------------------------------------------- */

void crn_async_own(struct crn_async *t, bool begin)
{
	if (!t->feed)
		return;
	if (begin ? t->own_depth++ == 0 : --t->own_depth == 0)
		t->feed->ops->own(t->feed, begin);
}

static void feed_lost(struct crn_async *t, const char *why)
{
	crn_warn("feed %s is given up, every checkpoint scans from now on: %s", t->feed->ops->name,
		why);
	t->feed->ops->close(t->feed);
	t->feed = NULL;
	crn_range_list_shrink(&t->coming_open, 0); /* a scan sees those */
}

/* A reported page: */
enum fed {
	FED_STRANGE,  /* nobody tracks it */
	FED_WATCHED,
	FED_DOUBTFUL, /* memory that has come to life, or a stack that has grown: look everywhere */
};

static enum fed judge(const struct crn_async *t, uintptr_t page)
{
	const struct crn_span *s = crn_async_span_above(t, page);

	if (!s)
		return FED_STRANGE;
	if (page < s->begin)
		return s->flags & CRN_AREA_STACK ? FED_DOUBTFUL : FED_STRANGE;
	return s->watched ? FED_WATCHED : FED_DOUBTFUL;
}

/* Move what was fed into `dirty`. What fails here is moved the next time. 0 or doubt. */
static int accept_fed(struct crn_async *t)
{
	int doubt = 0;

	for (size_t i = 0; i < t->fed.count; i++) {
		uintptr_t end = t->fed.at[i].end;

		for (uintptr_t p = t->fed.at[i].begin; p < end; p += CRN_PAGE_SIZE) {
			enum fed fed = judge(t, p);

			if (fed == FED_DOUBTFUL)
				doubt = CRN_FEED_DOUBT;
			if (fed != FED_WATCHED)
				continue;
			CRN_TRY(crn_range_list_put(&t->dirty, p, p + CRN_PAGE_SIZE));
			CRN_TRY(crn_async_note_owned(t, p));
			t->mixed = t->owed = true;
		}
	}
	crn_range_list_shrink(&t->fed, 0);
	return doubt;
}

/*
 * A fault that is not over, where nothing is watched yet: its store may come at any time, without
 * another report. A page that is there is found by the scan that doubt brings, and watched from
 * then on.
 */
static void bring_to_life(uintptr_t page)
{
	(void)crn_guarded_store((void *)page);
}

static int accept_open_page(struct crn_async *t, uintptr_t page)
{
	uintptr_t end = page + CRN_PAGE_SIZE;

	if (page >= t->coming.begin && page < t->coming.end)
		return crn_range_list_add(&t->coming_open, page, end);
	switch (judge(t, page)) {
	case FED_WATCHED:
		return crn_range_list_add(&t->open, page, end);
	case FED_DOUBTFUL:
		if (crn_async_span_above(t, page)->begin > page)
			return crn_async_stack_grows(t, page);
		bring_to_life(page);
		return CRN_FEED_DOUBT;
	default:
		return 0;
	}
}

/*
 * t->open becomes what the feed leaves open now. Pages of several threads that happen to be
 * neighbours are one run there: each is judged by itself. 0 or doubt.
 */
static int accept_open(struct crn_async *t)
{
	int doubt = 0;

	/* Those open until now stay in a list until their content has been compared. */
	for (size_t i = 0; i < t->open.count; i++)
		CRN_TRY(crn_range_list_add(&t->were_open, t->open.at[i].begin, t->open.at[i].end));
	crn_range_list_shrink(&t->open, 0);
	for (size_t i = 0; i < t->still_open.count; i++) {
		struct crn_page_run run = t->still_open.at[i];

		for (uintptr_t page = run.begin; page < run.end; page += CRN_PAGE_SIZE) {
			int err = accept_open_page(t, page);

			CRN_TRY(err);
			doubt |= err;
		}
	}
	crn_range_list_shrink(&t->still_open, 0);
	crn_range_list_normalise(&t->open);
	return doubt;
}

/* 0: t->dirty is complete but for pages that are open; CRN_FEED_DOUBT; or negative. */
static int drain(struct crn_async *t)
{
	int err, doubt;

	CRN_TRY(crn_range_list_reserve(&t->were_open, t->open.count));
	err = doubt = t->feed->ops->drain(t->feed, &t->fed, &t->still_open);
	t->unsteady |= doubt > 0;
	if (err >= 0)
		err = accept_open(t);
	else
		crn_range_list_shrink(&t->still_open, 0);
	/* A scan comes: it finds them again, but for those whose mapping has gone since. */
	if (err > 0 || doubt > 0)
		crn_range_list_shrink(&t->fed, 0);
	else if (err >= 0)
		err = accept_fed(t);
	if (err < 0 && doubt > 0)
		t->feed->ops->suspect(t->feed);
	return err < 0 ? err : doubt | err;
}

/* ---- Together ---------------------------------------------------------------------------- */

/*
 * Has a mapping changed since the feed was first drained in this interval? Then a page that was
 * reported may not be there any more.
 */
static bool is_unsteady(const struct crn_async *t)
{
	return t->unsteady || (t->feed && t->feed->ops->unsteady(t->feed));
}

bool crn_async_must_ask(const struct crn_async *t)
{
	return is_unsteady(t) && !crn_faults_reach_us(t->faults);
}

/* All at once: there may be thousands. */
static int forget_unchanged(struct crn_async *t, struct crn_range_list *same)
{
	crn_range_list_normalise(same);
	crn_range_list_normalise(&t->dirty);
	CRN_TRY(crn_range_list_without(&t->turn, &t->dirty, same));
	crn_range_list_swap(&t->turn, &t->dirty);
	return 0;
}

/*
 * Pages that were open, or hot: written if they are different from what the mirror holds. A scan
 * does not settle that: it reports one that is not protected yet, changed or not, and no other.
 */
static int compare_open(struct crn_async *t)
{
	struct crn_range_list *same = &t->protect;

	crn_range_list_shrink(same, 0);
	for (size_t i = 0; i < t->were_open.count; i++) {
		uintptr_t end = t->were_open.at[i].end;

		for (uintptr_t p = t->were_open.at[i].begin; p < end; p += CRN_PAGE_SIZE) {
			void **slot = crn_mirror_slot(&t->mirror, p);

			if (judge(t, p) != FED_WATCHED || !slot)
				continue;
			if (*slot && !crn_page_closed(t->env, p) && !is_unsteady(t) &&
				!crn_async_doubtful(t, p, p + CRN_PAGE_SIZE) &&
				crn_guarded_same(*slot, (const void *)p)) {
				CRN_TRY(crn_range_list_add(same, p, p + CRN_PAGE_SIZE));
				continue;
			}
			CRN_TRY(crn_range_list_put(&t->dirty, p, p + CRN_PAGE_SIZE));
			t->mixed = t->owed = true;
		}
	}
	return same->count && t->dirty.count ? forget_unchanged(t, same) : 0;
}

/* What the feed has reported until now, cut out of what a scan found. */
static int cut_reported(struct crn_async *t, struct crn_range_list *found)
{
	const struct crn_range_list *lists[] = { &t->dirty, &t->open, &t->were_open };

	for (size_t k = 0; k < CRN_ARRAY_SIZE(lists); k++) {
		for (size_t i = 0; i < lists[k]->count; i++)
			CRN_TRY(crn_range_list_cut(
				found, lists[k]->at[i].begin, lists[k]->at[i].end));
	}
	return 0;
}

/*
 * Look at everything beside a feed that had no doubt. What it has not reported, not even by now,
 * was missed, nobody knows in which interval: the present one cannot be undone. 0 or doubt.
 */
static int audit(struct crn_async *t)
{
	struct crn_range_list *found = &t->protect;
	int doubt, err = 0;

	if (t->runs_stale)
		return CRN_FEED_DOUBT;
	crn_range_list_shrink(found, 0);
	crn_async_own(t, true);
	for (size_t i = 0; i < t->runs.count && err >= 0; i++)
		err = crn_async_scan_run(t, crn_pagemap_stored, found, t->runs.at[i].begin,
			t->runs.at[i].end, false);
	crn_async_own(t, false);
	if (err < 0)
		return err == CAIRN_EMEMORY ? err : CRN_FEED_DOUBT;
	doubt = drain(t);
	if (doubt)
		return doubt;
	CRN_TRY(crn_async_cut_strange(t, found));
	CRN_TRY(cut_reported(t, found));
	crn_range_list_normalise(found);
	CRN_TRY(crn_async_without_hot(t, &t->turn, found));
	if (!t->turn.count)
		return 0;
	t->env->lost(t->env, t->turn.at[0].begin, CAIRN_EFAILED);
	feed_lost(t, "it has missed a write");
	return CRN_FEED_DOUBT;
}

int crn_async_before_adopt(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	int doubt;

	if (!t->feed)
		return 0;
	crn_range_list_shrink(&t->coming_open, 0);
	t->coming.begin = begin;
	t->coming.end = end;
	doubt = drain(t);
	t->coming.begin = t->coming.end = 0;
	if (doubt == CAIRN_EMEMORY)
		return doubt;
	if (doubt < 0)
		feed_lost(t, cairn_strerror(doubt));
	else if (doubt)
		t->feed->ops->suspect(t->feed);
	t->mixed = t->owed = true;
	return 0;
}

int crn_async_after_adopt(struct crn_async *t)
{
	for (size_t i = 0; i < t->coming_open.count; i++) {
		struct crn_page_run run = t->coming_open.at[i];

		for (uintptr_t p = run.begin; p < run.end; p += CRN_PAGE_SIZE) {
			if (judge(t, p) == FED_WATCHED) {
				CRN_TRY(crn_range_list_put(&t->dirty, p, p + CRN_PAGE_SIZE));
				continue;
			}
			bring_to_life(p);
			t->feed->ops->suspect(t->feed);
		}
	}
	return 0;
}

static int ask_feed(struct crn_async *t, bool protect)
{
	int doubt = drain(t);

	if (!doubt && protect && ++t->sure_drains % AUDIT_EVERY == 0)
		doubt = audit(t);
	if (doubt < 0 && doubt != CAIRN_EMEMORY) {
		feed_lost(t, cairn_strerror(doubt));
		doubt = CRN_FEED_DOUBT;
	}
	return doubt;
}

/* What a scan found without the feed may be new copies of pages of files. */
static int note_scanned(struct crn_async *t)
{
	if (!t->feed || !t->has_private_files)
		return 0;
	for (size_t i = 0; i < t->dirty.count; i++) {
		uintptr_t end = t->dirty.at[i].end;

		for (uintptr_t p = t->dirty.at[i].begin; p < end; p += CRN_PAGE_SIZE)
			if (judge(t, p) == FED_WATCHED)
				CRN_TRY(crn_async_note_owned(t, p));
	}
	return 0;
}

/* The feed's doubt lasts until this has been done. */
static int look_everywhere(struct crn_async *t, bool protect)
{
	int err = scan_all(t, protect);

	if (err >= 0)
		err = note_scanned(t);
	if (err < 0 && t->feed)
		t->feed->ops->suspect(t->feed);
	return err;
}

/* `dirty` in order again, and without the hot ones. */
static int tidy_up(struct crn_async *t)
{
	if (t->mixed)
		crn_range_list_normalise(&t->dirty);
	t->mixed = false;
	return crn_async_hot_filter(t);
}

/* Has nothing come, and is nothing left from before? */
static bool is_idle(const struct crn_async *t)
{
	return t->feed && t->feed->ops->idle && !t->dirty.count && !t->open.count &&
		!t->were_open.count && !t->fed.count && !t->still_open.count &&
		t->feed->ops->idle(t->feed);
}

int crn_async_find_written(struct crn_async *t, bool protect)
{
	int doubt = CRN_FEED_DOUBT;

	CRN_TRY(crn_async_finish_drops(t));
	if (crn_unlikely(t->feed && t->has_huge))
		feed_lost(t, "huge pages of hugetlbfs are reported in part");
	if (!protect && !crn_async_owns_cuttable(t) && is_idle(t)) {
		t->owed = true;
		return 0;
	}
	if (t->feed)
		doubt = ask_feed(t, protect);
	/* No feed tells of a file that is cut short. */
	if (!doubt && crn_async_owns_cuttable(t))
		doubt = crn_async_check_owned(t, false);
	if (!doubt && protect)
		doubt = crn_async_scan_is_cheaper(t) ? CRN_FEED_DOUBT : crn_async_protect_found(t);
	if (doubt < 0 && doubt != CAIRN_EMEMORY)
		doubt = CRN_FEED_DOUBT; /* a mapping is not what it was */
	CRN_TRY(doubt);
	if (doubt) {
		t->mixed |= t->dirty.count > 0;
		t->scans++;
		CRN_TRY(look_everywhere(t, protect));
		if (crn_unlikely(t->has_huge))
			CRN_TRY(crn_async_compare_huge(t));
	}
	CRN_TRY(compare_open(t));
	t->owed |= t->feed != NULL;
	if (protect)
		crn_range_list_shrink(&t->were_open, 0);
	return tidy_up(t);
}

int crn_async_protect_written(struct crn_async *t)
{
	int err;

	if (!t->dirty.count && !t->were_open.count)
		return 0;
	err = crn_async_protect_found(t);
	if (err < 0 && err != CAIRN_EMEMORY) {
		/* A mapping is not what it was: a scan of everything finds out. */
		t->mixed = true;
		if (t->feed)
			t->feed->ops->suspect(t->feed);
		err = crn_async_find_written(t, true);
	}
	CRN_TRY(err);
	/* Somebody may have written until just now. */
	CRN_TRY(compare_open(t));
	crn_range_list_shrink(&t->were_open, 0);
	return tidy_up(t);
}
