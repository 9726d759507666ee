/* SPDX-License-Identifier: MIT */
/*
 * The async tracker: userfaultfd write protection that the kernel resolves by itself (WP_ASYNC),
 * read back and armed again by one PAGEMAP_SCAN at the checkpoint. The program sees nothing: system
 * calls, signal frames, rseq, O_DIRECT and other processes write through the protection and are
 * noticed all the same. Old content comes from a mirror.
 *
 * Cost of a checkpoint: 2 cycles for each registered page (the scan's walk of the page tables), 650
 * for each mapping, about 200 for each written page, one copy of each written page. A first write
 * costs the program one kernel fault (1.9 k cycles).
 *
 * Nothing is lost when the engine runs out of memory: a scan protects only pages that it has
 * reported, reports go straight into `dirty`, and `dirty` is emptied only after the hand-over.
 *
 * Called with the session's lock held. No libc.
 */
#include "track/async/async.h"
#include <errno.h>
#include "base/arena.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/guarded.h"
#include "os/host.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "os/userfault.h"

#define FEATURES                                                                    \
	(CRN_UFFD_PAGEFAULT_FLAG_WP | CRN_UFFD_WP_ASYNC | CRN_UFFD_WP_UNPOPULATED | \
		CRN_UFFD_WP_SHMEM)

static int async_probe(const struct crn_host *host)
{
	if (host->uffd_async && host->pagemap_scan)
		return 0;
	return CAIRN_ENOTRACK;
}

/* Every list: what has to be opened and closed. */
#define LISTS(t)                                                                        \
	{ &(t)->runs, &(t)->dirty, &(t)->gone, &(t)->owned, &(t)->owned_now, &(t)->fed, \
		&(t)->open, &(t)->still_open, &(t)->were_open, &(t)->coming_open, \
		&(t)->turn, &(t)->protect }

static void async_close(void *tracker)
{
	struct crn_async *t = tracker;
	struct crn_range_list *const lists[] = LISTS(t);
	struct crn_arena *arena = t->env->arena;

	/* A child that the program has forked may have the file as well, and live on. */
	(void)crn_keeper_mend(t->env->keeper);
	crn_async_release(t, 0, UINTPTR_MAX);
	if (t->feed) {
		crn_debug("feed %s: %lu drains without doubt, %lu scans", t->feed->ops->name,
			(unsigned long)t->sure_drains, (unsigned long)t->scans);
		t->feed->ops->close(t->feed);
	}
	for (size_t i = 0; i < CRN_ARRAY_SIZE(lists); i++)
		crn_range_list_close(lists[i]);
	crn_hot_list_close(&t->hot);
	crn_block_free(arena, t->spans, t->span_capacity * sizeof(*t->spans));
	crn_mirror_close(&t->mirror);
	crn_maps_close(&t->maps);
	crn_block_free(arena, t->maps_buffer, CRN_MAPS_BUFFER);
	crn_keeper_drop(t->env->keeper, &t->pagemap);
	crn_faults_close(t->faults);
	crn_keeper_drop(t->env->keeper, &t->uffd);
	crn_block_free(arena, t, sizeof(*t));
}

static int async_open(void **out, struct crn_track_env *env)
{
	struct crn_async *t = crn_block_alloc(env->arena, sizeof(*t));
	struct crn_range_list *const lists[] = LISTS(t);
	int err;

	if (!t)
		return CAIRN_EMEMORY;
	t->env = env;
	crn_hot_list_open(&t->hot, env, &crn_async_hot_owner, t);
	for (size_t i = 0; i < CRN_ARRAY_SIZE(lists); i++)
		crn_range_list_open(lists[i], env->arena);
	err = crn_mirror_open(&t->mirror, env);
	if (err < 0)
		goto err_mirror;
	t->maps_buffer = crn_block_alloc(env->arena, CRN_MAPS_BUFFER);
	err = t->maps_buffer ? crn_maps_open(&t->maps, t->maps_buffer) : CAIRN_EMEMORY;
	if (err < 0)
		goto err_maps;
	err = t->pagemap = crn_pagemap_open();
	if (err < 0)
		goto err_pagemap;
	err = t->uffd = crn_uffd_open(FEATURES, NULL);
	if (err < 0)
		goto err_uffd;
	err = crn_keeper_hold(env->keeper, &t->pagemap, crn_pagemap_open);
	if (err >= 0)
		err = crn_keeper_hold(env->keeper, &t->uffd, NULL);
	if (err >= 0)
		err = crn_faults_open(&t->faults, env, NULL, NULL);
	if (err >= 0)
		err = crn_feed_choose(&t->feed, env->feed, env, t->uffd);
	if (err < 0) {
		async_close(t);
		return err;
	}
	*out = t;
	return 0;

err_uffd:
	crn_fd_close(t->pagemap);
err_pagemap:
	crn_maps_close(&t->maps);
err_maps:
	crn_block_free(env->arena, t->maps_buffer, CRN_MAPS_BUFFER);
	crn_mirror_close(&t->mirror);
err_mirror:
	crn_block_free(env->arena, t, sizeof(*t));
	return err;
}

/* ---- Areas ---------------------------------------------------------------------- */

/* The list stays sorted: it is gone through beside the spans. */
static int cut_owned(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	CRN_TRY(crn_range_list_cut(&t->owned, begin, end));
	crn_range_list_normalise(&t->owned);
	return 0;
}

/* What is to be protected again must be there: or all would be looked at for what has changed. */
static int cut_written(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	struct crn_range_list *const lists[] = { &t->dirty, &t->open, &t->were_open };

	for (size_t i = 0; i < CRN_ARRAY_SIZE(lists); i++)
		CRN_TRY(crn_range_list_cut(lists[i], begin, end));
	crn_range_list_normalise(&t->open);
	t->mixed |= t->dirty.count > 1;
	return 0;
}

static int cut_out(void *tracker, uintptr_t begin, uintptr_t end)
{
	struct crn_async *t = tracker;

	CRN_TRY(crn_async_abandon(t, begin, end));
	CRN_TRY(cut_written(t, begin, end));
	CRN_TRY(crn_range_list_cut(&t->gone, begin, end));
	return cut_owned(t, begin, end);
}

int crn_async_finish_drops(struct crn_async *t)
{
	return crn_likely(!t->late.count) ? 0 : crn_late_drops_finish(&t->late, cut_out, t);
}

static void drop_tables(struct crn_async *t, const struct crn_area *area)
{
	if (cut_out(t, area->begin, area->end) < 0) {
		crn_late_drops_add(&t->late, area->begin, area->end);
		for (size_t i = 0; i < t->span_count; i++)
			if (t->spans[i].area == area)
				t->spans[i].area = NULL;
	}
	crn_mirror_drop(&t->mirror, area->begin, area->end);
}

static int async_area_add(void *tracker, struct crn_area *area)
{
	struct crn_async *t = tracker;
	bool back, changed;
	int err;

	CRN_TRY(crn_async_finish_drops(t));
	back = crn_range_list_meets(&t->gone, area->begin, area->end);
	changed = back || area->flags & CRN_AREA_NEW;
	area->flags &= ~CRN_AREA_NEW;
	CRN_TRY(crn_keeper_mend(t->env->keeper));
	CRN_TRY(crn_async_before_adopt(t, area->begin, area->end));
	if (back)
		CRN_TRY(crn_mirror_replaced(&t->mirror, area->begin, area->end));
	crn_async_own(t, true);
	err = crn_async_adopt(t, area->begin, area->end, area->flags, area, changed);
	if (err >= 0)
		err = crn_async_after_adopt(t);
	if (err >= 0 && back)
		err = crn_range_list_cut(&t->gone, area->begin, area->end);
	if (err < 0) {
		crn_async_release(t, area->begin, area->end);
		crn_async_abandon(t, area->begin, area->end);
	}
	crn_async_own(t, false);
	if (err < 0 && !back)
		drop_tables(t, area);
	return CRN_MIN(err, 0);
}

static void async_area_drop(void *tracker, struct crn_area *area)
{
	struct crn_async *t = tracker;
	size_t len = area->end - area->begin;

	crn_hot_list_drop(&t->hot, area->begin, area->end);
	drop_tables(t, area);
	crn_async_own(t, true);
	crn_uffd_unregister(t->uffd, area->begin, len); /* fails where the mapping is gone: fine */
	crn_async_own(t, false);
}

static int async_area_gone(void *tracker, struct crn_area *area)
{
	struct crn_async *t = tracker;

	CRN_TRY(crn_range_list_reserve(&t->gone, 1));
	crn_hot_list_drop(&t->hot, area->begin, area->end);
	CRN_TRY(cut_written(t, area->begin, area->end));
	/* Or its own copies would count as dropped, and be handed over twice. */
	CRN_TRY(cut_owned(t, area->begin, area->end));
	CRN_TRY(crn_async_abandon(t, area->begin, area->end));
	return crn_range_list_add(&t->gone, area->begin, area->end);
}

/* ---- Intervals -------------------------------------------------------------------- */

static int async_interval_begin(void *tracker)
{
	return 0; /* the scan that ended the last interval has armed every page */
}

static int async_interval_end(void *tracker, struct crn_sink *sink)
{
	struct crn_async *t = tracker;
	bool ask;
	int err;

	t->mixed |= t->dirty.count > 0; /* from an attempt that failed, or touched */
	if (t->env->predictor)
		return crn_async_hot_end(t, sink);
	err = crn_async_find_written(t, true);
	t->owed = true;
	CRN_TRY(err);
	CRN_TRY(crn_mirror_prepare(&t->mirror, &t->dirty, &t->gone, 0, 0, sink));
	ask = crn_async_must_ask(t);
	for (size_t i = 0; i < t->dirty.count; i++) {
		uintptr_t begin = t->dirty.at[i].begin, end = t->dirty.at[i].end;

		bool doubtful = ask || crn_async_doubtful(t, begin, end);

		CRN_TRY(crn_mirror_turn(&t->mirror, begin, end, doubtful, sink));
	}
	crn_range_list_shrink(&t->dirty, 0);
	CRN_TRY(crn_mirror_give(&t->mirror, &t->gone, sink));
	t->owed = t->unsteady = false;
	return 0;
}

/*
 * The scan leaves the pages as written, so that putting them back raises no faults: they stay open
 * until the next interval_end.
 */
static int async_undo(void *tracker, struct crn_sink *sink)
{
	struct crn_async *t = tracker;
	int err;

	t->mixed |= t->dirty.count > 0;
	CRN_TRY(err = crn_async_find_written(t, false));
	for (size_t i = 0; i < t->dirty.count && err >= 0; i++)
		err = crn_mirror_show(&t->mirror, t->dirty.at[i].begin, t->dirty.at[i].end, sink);
	if (err >= 0)
		err = crn_async_hot_show(t, sink);
	/* What the kernel still knows may be forgotten here; what it does not must stay. */
	if (!t->owed)
		crn_range_list_shrink(&t->dirty, 0);
	return err;
}

static int async_rebase(void *tracker, uintptr_t page, const void *content)
{
	struct crn_async *t = tracker;

	crn_hot_list_rebased(&t->hot, page, page + CRN_PAGE_SIZE);
	return crn_mirror_put(&t->mirror, page, content);
}

static int async_look(void *tracker, uintptr_t page, const void **old)
{
	struct crn_async *t = tracker;
	void **slot = crn_mirror_slot(&t->mirror, page);

	*old = slot ? *slot : NULL;
	return *old ? 0 : 1;
}

static bool async_held(void *tracker, uintptr_t *begin, uintptr_t *end)
{
	struct crn_async *t = tracker;

	return crn_mirror_next(&t->mirror, begin, end);
}

/* ---- Page operations ----------------------------------------------------------------- */

static int async_unprotect(void *tracker, uintptr_t addr, size_t len)
{
	struct crn_async *t = tracker;

	CRN_TRY(crn_keeper_mend(t->env->keeper));
	/* A feed reports what comes to life. */
	if (!t->feed)
		CRN_TRY(crn_async_wake(t));
	t->mixed = t->owed = true;
	for (uintptr_t p = crn_page_down(addr); p < crn_page_up(addr + len); p += CRN_PAGE_SIZE) {
		/* A sparse part has no slot: what appears there counts as written anyway. */
		if (!crn_mirror_slot(&t->mirror, p))
			continue;
		CRN_TRY(crn_range_list_put(&t->dirty, p, p + CRN_PAGE_SIZE));
	}
	crn_hot_list_touch(&t->hot, crn_page_down(addr), crn_page_up(addr + len));
	return 0;
}

static void async_resemble(void *tracker, uintptr_t addr, size_t len)
{
	struct crn_async *t = tracker;

	(void)crn_memory_advise((void *)addr, len, MADV_NOHUGEPAGE);
	(void)crn_uffd_register(t->uffd, addr, len);
}

static int async_set_hot(void *tracker, uintptr_t addr, size_t len, bool hot)
{
	return 0; /* the kernel may write to any page */
}

static size_t count_listed(const struct crn_range_list *l, uintptr_t begin, uintptr_t end)
{
	size_t count = 0;

	for (size_t i = 0; i < l->count; i++) {
		uintptr_t b = CRN_MAX(begin, l->at[i].begin), e = CRN_MIN(end, l->at[i].end);

		count += b < e ? crn_pages(e - b) : 0;
	}
	return count;
}

/*
 * Those that the kernel has let through since it last protected them; what is open all the time is
 * left out, for of that it cannot tell.
 */
static int count_seen(struct crn_async *t, uintptr_t begin, uintptr_t end, size_t *count)
{
	struct crn_page_run runs[64];

	for (uintptr_t cursor = begin; cursor < end;) {
		long n = crn_pagemap_written(
			t->pagemap, &cursor, end, false, runs, CRN_ARRAY_SIZE(runs));

		CRN_TRY((int)CRN_MIN(n, 0l));
		for (long i = 0; i < n; i++) {
			for (uintptr_t p = runs[i].begin; p < runs[i].end; p += CRN_PAGE_SIZE)
				*count += !crn_hot_list_find(&t->hot, p) &&
					!crn_range_list_meets(&t->open, p, p + CRN_PAGE_SIZE);
		}
	}
	return 0;
}

/* Pages that are open, or were, and differ from the mirror. */
static size_t count_open(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	const struct crn_range_list *lists[] = { &t->open, &t->were_open };
	size_t count = 0;

	for (size_t k = 0; k < CRN_ARRAY_SIZE(lists); k++) {
		for (size_t i = 0; i < lists[k]->count; i++) {
			uintptr_t to = CRN_MIN(end, lists[k]->at[i].end);

			for (uintptr_t p = CRN_MAX(begin, lists[k]->at[i].begin); p < to;
				p += CRN_PAGE_SIZE) {
				void **slot = crn_mirror_slot(&t->mirror, p);

				count += slot && !crn_guarded_same(*slot, (const void *)p);
			}
		}
	}
	return count;
}

/* Of the range alone: one thread's stack is asked for, while another scan of everything is near. */
static int async_collect(void *tracker, uintptr_t addr, size_t len)
{
	struct crn_async *t = tracker;
	uintptr_t begin = crn_page_down(addr), end = crn_page_up(addr + len);
	size_t count = 0;
	int err;

	CRN_TRY(crn_keeper_mend(t->env->keeper));
	err = crn_async_any_huge(t, begin, end) ? -EPERM : count_seen(t, begin, end, &count);
	if (err == -EPERM) { /* a part is not registered, perhaps any more: repaired by the whole */
		t->mixed |= t->dirty.count > 0;
		t->owed = true; /* the list may hold both kinds from now on */
		err = crn_async_find_written(t, false);
		count = 0;
	}
	CRN_TRY(err);
	count += count_listed(&t->dirty, begin, end) + crn_async_hot_count(t, begin, end) +
		count_open(t, begin, end);
	return (int)CRN_MIN(count, (size_t)INT32_MAX);
}

/* ---- The feed ------------------------------------------------------------------------ */

static void async_own_calls(void *tracker, bool begin)
{
	crn_async_own(tracker, begin);
}

static void async_own_closed(void *tracker, bool begin)
{
	struct crn_async *t = tracker;

	if (t->feed)
		t->feed->ops->own_closed(t->feed, begin);
}

static void async_suspect(void *tracker)
{
	struct crn_async *t = tracker;

	if (t->feed)
		t->feed->ops->suspect(t->feed);
}

static bool async_maps_quiet(void *tracker)
{
	struct crn_async *t = tracker;

	return t->feed && t->feed->ops->maps_quiet(t->feed);
}

static const char *async_feed(const void *tracker, uint64_t *scans)
{
	const struct crn_async *t = tracker;

	*scans = t->scans;
	return t->feed ? t->feed->ops->name : "scan";
}

static uint64_t async_bytes(const void *tracker)
{
	return crn_mirror_bytes(&((const struct crn_async *)tracker)->mirror);
}

static uint64_t async_faults(const void *tracker)
{
	return 0; /* the kernel serves them */
}

static uint64_t async_eager(const void *tracker)
{
	return ((const struct crn_async *)tracker)->eager;
}

const struct crn_tracker_ops crn_tracker_async = {
	.name = "async",
	.caps = CRN_TRACK_PAGES | CRN_TRACK_SEES_KERNEL | CRN_TRACK_THREADS | CRN_TRACK_SHARED |
		CRN_TRACK_MIRROR,
	.probe = async_probe,
	.open = async_open,
	.close = async_close,
	.area_add = async_area_add,
	.area_drop = async_area_drop,
	.area_gone = async_area_gone,
	.interval_begin = async_interval_begin,
	.interval_end = async_interval_end,
	.undo = async_undo,
	.rebase = async_rebase,
	.look = async_look,
	.held = async_held,
	.own_calls = async_own_calls,
	.own_closed = async_own_closed,
	.maps_quiet = async_maps_quiet,
	.suspect = async_suspect,
	.feed = async_feed,
	.page = { .unprotect = async_unprotect,
		.set_hot = async_set_hot,
		.collect = async_collect,
		.resemble = async_resemble },
	.bytes = async_bytes,
	.faults = async_faults,
	.eager = async_eager,
};
