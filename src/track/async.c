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
#include "track/async.h"
#include "base/arena.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/userfault.h"

#define FEATURES                                                                    \
	(CRN_UFFD_PAGEFAULT_FLAG_WP | CRN_UFFD_WP_ASYNC | CRN_UFFD_WP_UNPOPULATED | \
		CRN_UFFD_WP_SHMEM)
/* Room that a scan should find in the dirty list; it does with less when memory is short. */
#define SCAN_ROOM 512
/* The kernel allocates a buffer for as many reports as one call may bring: few keep that cheap. */
#define SCAN_BATCH 64ul
/* Another thread may map and unmap while we look: give up some time. */
#define REPAIRS_MAX 64

static int async_probe(const struct crn_host *host)
{
	if (host->uffd_async && host->pagemap_scan)
		return 0;
	return CAIRN_ENOTRACK;
}

static void async_close(void *tracker)
{
	struct crn_async *t = tracker;
	struct crn_arena *arena = t->env->arena;

	crn_range_list_close(&t->runs);
	crn_range_list_close(&t->dirty);
	crn_range_list_close(&t->gone);
	crn_range_list_close(&t->owned);
	crn_range_list_close(&t->owned_now);
	crn_block_free(arena, t->spans, t->span_capacity * sizeof(*t->spans));
	crn_mirror_close(&t->mirror);
	crn_maps_close(&t->maps);
	crn_block_free(arena, t->maps_buffer, CRN_MAPS_BUFFER);
	crn_fd_close(t->pagemap);
	crn_fd_close(t->uffd); /* unregisters everything */
	crn_block_free(arena, t, sizeof(*t));
}

static int async_open(void **out, struct crn_track_env *env)
{
	struct crn_async *t = crn_block_alloc(env->arena, sizeof(*t));
	int err;

	if (!t)
		return CAIRN_EMEMORY;
	t->env = env;
	crn_range_list_open(&t->runs, env->arena);
	crn_range_list_open(&t->dirty, env->arena);
	crn_range_list_open(&t->gone, env->arena);
	crn_range_list_open(&t->owned, env->arena);
	crn_range_list_open(&t->owned_now, env->arena);

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

static int async_area_add(void *tracker, struct crn_area *area)
{
	struct crn_async *t = tracker;
	bool back = crn_range_list_meets(&t->gone, area->begin, area->end);
	bool changed = back || area->flags & CRN_AREA_NEW;
	int err;

	area->flags &= ~CRN_AREA_NEW;
	err = crn_async_adopt(t, area->begin, area->end, area->flags, area, changed);
	if (err < 0) {
		crn_async_abandon(t, area->begin, area->end);
		crn_uffd_unregister(t->uffd, area->begin, area->end - area->begin);
		if (!back) {
			(void)crn_range_list_cut(&t->dirty, area->begin, area->end);
			crn_mirror_drop(&t->mirror, area->begin, area->end);
		}
		return err;
	}
	if (back)
		err = crn_range_list_cut(&t->gone, area->begin, area->end);
	return err;
}

static void async_area_drop(void *tracker, struct crn_area *area)
{
	struct crn_async *t = tracker;
	size_t len = area->end - area->begin;

	/* Splitting an entry may need memory: what then stays is merely watched for nothing. */
	(void)crn_async_abandon(t, area->begin, area->end);
	(void)crn_range_list_cut(&t->dirty, area->begin, area->end);
	(void)crn_range_list_cut(&t->gone, area->begin, area->end);
	(void)crn_range_list_cut(&t->owned, area->begin, area->end);
	t->mixed |= t->dirty.count > 1;
	crn_uffd_unregister(t->uffd, area->begin, len); /* fails where the mapping is gone: fine */
	crn_mirror_drop(&t->mirror, area->begin, area->end);
}

static int async_area_gone(void *tracker, struct crn_area *area)
{
	struct crn_async *t = tracker;

	CRN_TRY(crn_range_list_reserve(&t->gone, 1));
	CRN_TRY(crn_range_list_cut(&t->dirty, area->begin, area->end));
	/* Or its own copies would count as dropped, and be handed over twice. */
	CRN_TRY(crn_range_list_cut(&t->owned, area->begin, area->end));
	t->mixed |= t->dirty.count > 1;
	CRN_TRY(crn_async_abandon(t, area->begin, area->end));
	return crn_range_list_add(&t->gone, area->begin, area->end);
}

/* ---- Which pages have been written -------------------------------------------------- */

/* After a scan that failed: how many entries it wrote before. */
static size_t count_reported(const struct crn_range_list *l)
{
	size_t n = l->count;

	while (n < l->capacity && l->at[n].end)
		n++;
	return n;
}

/* Append the written pages of one run; with `protect` the kernel forgets them. */
static int scan_run(struct crn_async *t, uintptr_t begin, uintptr_t end, bool protect)
{
	struct crn_range_list *l = &t->dirty;
	uintptr_t cursor = begin;

	while (cursor < end) {
		long n;

		if (crn_range_list_reserve(l, SCAN_ROOM) < 0 && l->count == l->capacity)
			return CAIRN_EMEMORY;
		n = crn_pagemap_written(t->pagemap, &cursor, end, protect, l->at + l->count,
			CRN_MIN(l->capacity - l->count, SCAN_BATCH));
		if (n < 0) {
			l->count = count_reported(l);
			return (int)n;
		}
		l->count += (size_t)n;
	}
	return 0;
}

/* The list from `first` on holds what a scan reported: give a stack that has grown its slots. */
static int cover_stack_growth(struct crn_async *t, size_t first)
{
	for (size_t i = first; i < t->dirty.count; i++) {
		if (!crn_mirror_slot(&t->mirror, t->dirty.at[i].begin))
			CRN_TRY(crn_async_grow_stack(t, t->dirty.at[i].begin));
	}
	return 0;
}

static int scan_all(struct crn_async *t, bool protect)
{
	unsigned repairs = 0;
	int err;

	CRN_TRY(crn_async_wake(t));
again:
	if (t->runs_stale)
		CRN_TRY(crn_async_plan(t));
	for (size_t i = 0; i < t->runs.count; i++) {
		struct crn_page_run run = t->runs.at[i];

		err = scan_run(t, run.begin, run.end, protect);
		if (err == -EPERM && repairs++ < REPAIRS_MAX) {
			t->mixed = true; /* the run is scanned again */
			CRN_TRY(crn_async_repair(t, run.begin, run.end));
			goto again;
		}
		if (err < 0) {
			t->mixed = true;
			return err;
		}
	}
	if (t->has_private_files && t->env->dropped)
		CRN_TRY(crn_async_check_owned(t));
	if (t->mixed) {
		crn_range_list_normalise(&t->dirty);
		t->mixed = false;
	}
	return cover_stack_growth(t, 0);
}

/* ---- Intervals -------------------------------------------------------------------- */

static int async_interval_begin(void *tracker)
{
	return 0; /* the scan that ended the last interval has armed every page */
}

static int async_interval_end(void *tracker, struct crn_sink *sink)
{
	struct crn_async *t = tracker;
	int err;

	t->mixed |= t->dirty.count > 0; /* from an attempt that failed, or touched */
	err = scan_all(t, true);
	t->owed = true;
	CRN_TRY(err);
	CRN_TRY(crn_mirror_prepare(&t->mirror, &t->dirty, &t->gone, sink));
	for (size_t i = 0; i < t->dirty.count; i++) {
		uintptr_t begin = t->dirty.at[i].begin, end = t->dirty.at[i].end;

		CRN_TRY(crn_mirror_turn(
			&t->mirror, begin, end, crn_async_doubtful(t, begin, end), sink));
	}
	crn_range_list_shrink(&t->dirty, 0);
	CRN_TRY(crn_mirror_give(&t->mirror, &t->gone, sink));
	t->owed = false;
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
	CRN_TRY(err = scan_all(t, false));
	for (size_t i = 0; i < t->dirty.count && err >= 0; i++)
		err = crn_mirror_show(&t->mirror, t->dirty.at[i].begin, t->dirty.at[i].end, sink);
	/* What the kernel still knows may be forgotten here; what it does not must stay. */
	if (!t->owed)
		crn_range_list_shrink(&t->dirty, 0);
	return err;
}

static int async_rebase(void *tracker, uintptr_t page, const void *content)
{
	struct crn_async *t = tracker;

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

	CRN_TRY(crn_async_wake(t));
	for (uintptr_t p = crn_page_down(addr); p < crn_page_up(addr + len); p += CRN_PAGE_SIZE) {
		/* A sparse part has no slot: what appears there counts as written anyway. */
		if (crn_mirror_slot(&t->mirror, p))
			CRN_TRY(crn_range_list_add(&t->dirty, p, p + CRN_PAGE_SIZE));
	}
	t->mixed = t->owed = true;
	return 0;
}

static int async_set_hot(void *tracker, uintptr_t addr, size_t len, bool hot)
{
	return 0; /* no strategy yet: every page is found by the scan */
}

static int async_collect(void *tracker, uintptr_t addr, size_t len)
{
	struct crn_async *t = tracker;
	uintptr_t begin = crn_page_down(addr), end = crn_page_up(addr + len), cursor = begin;
	struct crn_page_run runs[64];
	size_t count = 0;

	for (size_t i = 0; i < t->dirty.count; i++) {
		uintptr_t b = CRN_MAX(begin, t->dirty.at[i].begin),
			  e = CRN_MIN(end, t->dirty.at[i].end);

		count += b < e ? crn_pages(e - b) : 0;
	}
	while (cursor < end) {
		long n = crn_pagemap_written(
			t->pagemap, &cursor, end, false, runs, CRN_ARRAY_SIZE(runs));

		if (n < 0)
			return (int)n;
		for (long i = 0; i < n; i++)
			count += crn_pages(runs[i].end - runs[i].begin);
	}
	return (int)CRN_MIN(count, (size_t)INT32_MAX);
}

static uint64_t async_bytes(const void *tracker)
{
	return crn_mirror_bytes(&((const struct crn_async *)tracker)->mirror);
}

static uint64_t async_faults(const void *tracker)
{
	return 0; /* the kernel serves them */
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
	.page = { .unprotect = async_unprotect,
		.set_hot = async_set_hot,
		.collect = async_collect },
	.bytes = async_bytes,
	.faults = async_faults,
};
