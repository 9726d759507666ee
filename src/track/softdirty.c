/* SPDX-License-Identifier: MIT */
/*
 * The soft-dirty tracker (LMC section VI-C): the kernel marks page table entries at the first write
 * after "4" was written to /proc/self/clear_refs, and /proc/self/pagemap shows the mark as bit 55.
 * Old content comes from a mirror. Works since Linux 3.11 where CONFIG_MEM_SOFT_DIRTY is on; a
 * kernel without it accepts the write all the same, so that the probe looks at the bit itself.
 *
 *	interval_end:	read the bits -> `dirty`;  clear them all;  hand over, copy
 *
 * Cost of a checkpoint: the pagemap of the whole surface, the walk of the whole address space by
 * clear_refs, a TLB flush; then one copy of each written page.
 *
 * Reading and clearing are two steps, and a store of another thread between them leaves no mark. So
 * while there are other threads, every page that showed no mark is compared with the mirror after
 * the clearing: slow, but nothing is lost.
 *
 * Pages that lose their entry (MADV_DONTNEED) lose the mark with it: a page with content in the
 * mirror and without an entry counts as written. Huge pages of hugetlbfs are never marked. Their
 * mapping looks like a file's, so the program's own pages of files are compared, but for those of
 * loaded objects.
 */
#include "track/faults.h"
#include "track/late_drops.h"
#include "track/mirror.h"
#include "track/range_list.h"
#include "base/arena.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/guarded.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/keeper.h"
#include "os/maps.h"
#include "os/pagemap.h"
#include "os/thread.h"
#include "track/track.h"

#define BATCH (CRN_PAGE_SIZE / sizeof(uint64_t)) /* entries read at a time */

struct soft_span {
	uintptr_t begin, end;
	uint32_t flags;        /* enum crn_area_flags */
	struct crn_area *area; /* of a stack: grows with it */
};

struct soft_tracker {
	struct crn_track_env *env;
	struct crn_faults *faults; /* for pages that vanish while they are read */
	struct crn_mirror mirror;
	int pagemap, clear_refs;
	struct crn_maps maps;
	char *maps_buffer;
	uint64_t *entries; /* BATCH of them: one page */

	struct soft_span *spans; /* disjoint, in no order */
	size_t span_count, span_capacity;

	struct crn_range_list dirty; /* written pages that the kernel may have forgotten */
	struct crn_range_list gone;  /* vanished in this interval, still mirrored */
	struct crn_late_drops late;
};

static int soft_probe(const struct crn_host *host)
{
	/* The cheap look first; the proof forks. */
	return host->pagemap && host->softdirty && crn_host_softdirty_proven() ? 0 : CAIRN_ENOTRACK;
}

static void soft_close(void *tracker)
{
	struct soft_tracker *t = tracker;
	struct crn_arena *a = t->env->arena;

	crn_range_list_close(&t->dirty);
	crn_range_list_close(&t->gone);
	crn_block_free(a, t->spans, t->span_capacity * sizeof(*t->spans));
	if (t->mirror.env)
		crn_mirror_close(&t->mirror);
	crn_block_free(a, t->entries, CRN_PAGE_SIZE);
	if (t->maps.buffer)
		crn_maps_close(&t->maps);
	crn_block_free(a, t->maps_buffer, CRN_MAPS_BUFFER);
	crn_keeper_drop(t->env->keeper, &t->pagemap);
	crn_keeper_drop(t->env->keeper, &t->clear_refs);
	crn_faults_close(t->faults);
	crn_block_free(a, t, sizeof(*t));
}

static int open_clear_refs(void)
{
	return crn_fd_open_own("/proc/self/clear_refs", O_WRONLY);
}

static int open_parts(struct soft_tracker *t)
{
	CRN_TRY(crn_mirror_open(&t->mirror, t->env));
	t->entries = crn_block_alloc(t->env->arena, CRN_PAGE_SIZE);
	t->maps_buffer = crn_block_alloc(t->env->arena, CRN_MAPS_BUFFER);
	if (!t->entries || !t->maps_buffer)
		return CAIRN_EMEMORY;
	CRN_TRY(t->pagemap = crn_pagemap_open());
	CRN_TRY(crn_keeper_hold(t->env->keeper, &t->pagemap, crn_pagemap_open));
	CRN_TRY(t->clear_refs = open_clear_refs());
	CRN_TRY(crn_keeper_hold(t->env->keeper, &t->clear_refs, open_clear_refs));
	CRN_TRY(crn_maps_open(&t->maps, t->maps_buffer));
	return crn_faults_open(&t->faults, t->env, NULL, NULL);
}

static int soft_open(void **out, struct crn_track_env *env)
{
	struct soft_tracker *t = crn_block_alloc(env->arena, sizeof(*t));
	int err;

	if (!t)
		return CAIRN_EMEMORY;
	t->env = env;
	t->pagemap = t->clear_refs = -1;
	crn_range_list_open(&t->dirty, env->arena);
	crn_range_list_open(&t->gone, env->arena);
	err = open_parts(t);
	if (err < 0) {
		soft_close(t);
		return err;
	}
	*out = t;
	return 0;
}

/* ---- Areas ----------------------------------------------------------------------------------- */

static int spans_reserve(struct soft_tracker *t, size_t more)
{
	return crn_table_grow(t->env->arena, (void **)&t->spans, &t->span_capacity, t->span_count,
		t->span_count + more, sizeof(*t->spans));
}

static int mirror_range(struct soft_tracker *t, uintptr_t begin, uintptr_t end, bool doubtful)
{
	CRN_TRY(crn_mirror_cover(&t->mirror, begin, end));
	return crn_mirror_fill(&t->mirror, begin, end, doubtful);
}

/*
 * Anonymous memory that is not populated is zeros and needs no frame; a file's pages have content.
 */
static int fill(struct soft_tracker *t, const struct crn_area *area)
{
	uintptr_t cursor = area->begin;
	struct crn_page_run runs[16];

	if (area->flags & (CRN_AREA_FILE | CRN_AREA_SHARED))
		return mirror_range(t, area->begin, area->end, true);
	while (cursor < area->end) {
		long n = crn_pagemap_populated(
			t->pagemap, &cursor, area->end, runs, CRN_ARRAY_SIZE(runs));

		CRN_TRY((int)CRN_MIN(n, 0));
		for (long i = 0; i < n; i++)
			CRN_TRY(mirror_range(t, runs[i].begin, runs[i].end, false));
	}
	return 0;
}

/* What is there was written in this interval. In place of another mapping: what that was stays. */
static int add_written(struct soft_tracker *t, const struct crn_area *area, bool back)
{
	CRN_TRY(crn_mirror_cover(&t->mirror, area->begin, area->end));
	CRN_TRY(crn_range_list_add(&t->dirty, area->begin, area->end));
	if (!back)
		return 0;
	CRN_TRY(crn_mirror_replaced(&t->mirror, area->begin, area->end));
	return crn_range_list_cut(&t->gone, area->begin, area->end);
}

static int spans_cut(struct soft_tracker *t, uintptr_t begin, uintptr_t end)
{
	for (size_t i = t->span_count; i-- > 0;) {
		struct soft_span *s = &t->spans[i];
		bool split = s->begin < begin && s->end > end;

		if (s->end <= begin || s->begin >= end)
			continue;
		CRN_TRY(spans_reserve(t, split));
		s = &t->spans[i];
		s->area = NULL;
		if (split) {
			t->spans[t->span_count] = *s;
			t->spans[t->span_count++].begin = end;
			s->end = begin;
		} else if (s->begin < begin) {
			s->end = begin;
		} else if (s->end > end) {
			s->begin = end;
		} else {
			*s = t->spans[--t->span_count];
		}
	}
	return 0;
}

static int cut_out(void *tracker, uintptr_t begin, uintptr_t end)
{
	struct soft_tracker *t = tracker;

	CRN_TRY(spans_cut(t, begin, end));
	CRN_TRY(crn_range_list_cut(&t->dirty, begin, end));
	return crn_range_list_cut(&t->gone, begin, end);
}

static int soft_area_add(void *tracker, struct crn_area *area)
{
	struct soft_tracker *t = tracker;
	bool back, written;
	int err;

	CRN_TRY(crn_late_drops_finish(&t->late, cut_out, t));
	back = crn_range_list_meets(&t->gone, area->begin, area->end);
	written = back || area->flags & CRN_AREA_NEW;
	area->flags &= ~CRN_AREA_NEW;
	CRN_TRY(spans_reserve(t, 1));
	if (written) {
		CRN_TRY(add_written(t, area, back));
	} else {
		err = fill(t, area);
		if (err < 0) {
			crn_mirror_drop(&t->mirror, area->begin, area->end);
			return err;
		}
	}
	t->spans[t->span_count++] = (struct soft_span){
		.begin = area->begin,
		.end = area->end,
		.flags = area->flags,
		.area = area->flags & CRN_AREA_STACK ? area : NULL,
	};
	return 0;
}

static void soft_area_drop(void *tracker, struct crn_area *area)
{
	struct soft_tracker *t = tracker;

	if (cut_out(t, area->begin, area->end) < 0) {
		crn_late_drops_add(&t->late, area->begin, area->end);
		for (size_t i = 0; i < t->span_count; i++)
			if (t->spans[i].area == area)
				t->spans[i].area = NULL;
	}
	crn_mirror_drop(&t->mirror, area->begin, area->end);
}

static int soft_area_gone(void *tracker, struct crn_area *area)
{
	struct soft_tracker *t = tracker;

	CRN_TRY(crn_range_list_reserve(&t->gone, 1));
	CRN_TRY(crn_range_list_cut(&t->dirty, area->begin, area->end));
	CRN_TRY(spans_cut(t, area->begin, area->end));
	return crn_range_list_add(&t->gone, area->begin, area->end);
}

/* ---- Which pages have been written ----------------------------------------------------------- */

static bool is_written(
	struct soft_tracker *t, const struct soft_span *s, uintptr_t page, uint64_t entry)
{
	bool marked = !(s->flags & CRN_AREA_SHARED) && !crn_flags_cuttable(s->flags);
	void **slot;

	if (entry & CRN_PAGEMAP_SOFT_DIRTY)
		return true;
	/*
	 * A page of our own. Not so the shared zero page or a file's page, which come after
	 * MADV_DONTNEED.
	 */
	if (marked &&
		(entry & CRN_PAGEMAP_SWAP ||
			(entry & CRN_PAGEMAP_PRESENT && entry & CRN_PAGEMAP_EXCLUSIVE &&
				!(entry & CRN_PAGEMAP_FILE))))
		return false;
	slot = crn_mirror_slot(&t->mirror, page);
	if (!slot || !*slot)
		return false;
	/* A file's page may be as it was: then it refaults the same. */
	if (!(entry & CRN_PAGEMAP_PRESENT) && !(s->flags & (CRN_AREA_FILE | CRN_AREA_SHARED)))
		return true;
	return t->env->closed || !crn_guarded_same(*slot, (const void *)page);
}

static int scan_span(struct soft_tracker *t, const struct soft_span *s)
{
	for (uintptr_t at = s->begin; at < s->end; at += BATCH * CRN_PAGE_SIZE) {
		size_t count = CRN_MIN(BATCH, crn_pages(s->end - at));

		CRN_TRY(crn_pagemap_entries(t->pagemap, at, t->entries, count));
		for (size_t i = 0; i < count; i++) {
			uintptr_t page = at + i * CRN_PAGE_SIZE;

			if (!is_written(t, s, page, t->entries[i]))
				continue;
			CRN_TRY(crn_range_list_add(&t->dirty, page, page + CRN_PAGE_SIZE));
			if (!crn_mirror_slot(&t->mirror, page))
				CRN_TRY(crn_mirror_cover(&t->mirror, page, page + CRN_PAGE_SIZE));
		}
	}
	return 0;
}

/* A stack grows down without telling anybody. */
static int grow_stack(struct soft_tracker *t, struct soft_span *s)
{
	struct crn_mapping m;

	if (!(s->flags & CRN_AREA_STACK) || !s->area)
		return 0;
	if (crn_maps_find(&t->maps, s->end - 1, &m) == 1 && m.begin < s->begin) {
		s->begin = m.begin;
		s->area->begin = m.begin;
	}
	return 0;
}

/* All written pages to `dirty`, sorted. Nothing is forgotten, whatever fails. */
static int scan_all(struct soft_tracker *t)
{
	CRN_TRY(crn_late_drops_finish(&t->late, cut_out, t));
	CRN_TRY(crn_keeper_mend(t->env->keeper)); /* the program may have closed what is ours */
	for (size_t i = 0; i < t->span_count; i++) {
		CRN_TRY(grow_stack(t, &t->spans[i]));
		CRN_TRY(scan_span(t, &t->spans[i]));
	}
	crn_range_list_normalise(&t->dirty);
	return 0;
}

static int clear_all(struct soft_tracker *t)
{
	return crn_fd_write(t->clear_refs, "4", 1);
}

/* The page as it is, if the program can read it or we can. */
static const void *live_page(struct soft_tracker *t, uintptr_t page)
{
	if (!t->env->closed)
		return (const void *)page;
	return t->env->load(t->env, t->mirror.scratch, page, CRN_PAGE_SIZE) < 0 ? NULL
										: t->mirror.scratch;
}

static bool differs(struct soft_tracker *t, uintptr_t page)
{
	void **slot = crn_mirror_slot(&t->mirror, page);
	const void *live = live_page(t, page);

	return live && !crn_guarded_same(slot ? *slot : NULL, live);
}

/* What another thread stored between the scan and the clearing. */
static int recheck_span(struct soft_tracker *t, const struct soft_span *s)
{
	for (uintptr_t at = s->begin; at < s->end; at += BATCH * CRN_PAGE_SIZE) {
		size_t count = CRN_MIN(BATCH, crn_pages(s->end - at));

		CRN_TRY(crn_pagemap_entries(t->pagemap, at, t->entries, count));
		for (size_t i = 0; i < count; i++) {
			uintptr_t page = at + i * CRN_PAGE_SIZE;

			if (!(t->entries[i] & (CRN_PAGEMAP_PRESENT | CRN_PAGEMAP_SWAP)) ||
				!differs(t, page))
				continue;
			CRN_TRY(crn_mirror_cover(&t->mirror, page, page + CRN_PAGE_SIZE));
			CRN_TRY(crn_range_list_add(&t->dirty, page, page + CRN_PAGE_SIZE));
		}
	}
	return 0;
}

static int recheck_all(struct soft_tracker *t)
{
	for (size_t i = 0; i < t->span_count; i++)
		CRN_TRY(recheck_span(t, &t->spans[i]));
	crn_range_list_normalise(&t->dirty);
	return 0;
}

/* ---- Intervals ------------------------------------------------------------------------------- */

static int soft_interval_begin(void *tracker)
{
	return 0; /* interval_end has cleared the bits before it copied */
}

static int soft_interval_end(void *tracker, struct crn_sink *sink)
{
	struct soft_tracker *t = tracker;

	CRN_TRY(scan_all(t));
	CRN_TRY(clear_all(t)); /* before the copy: what is written from here on is marked again */
	if (crn_thread_count() != 1)
		CRN_TRY(recheck_all(t));
	CRN_TRY(crn_mirror_prepare(&t->mirror, &t->dirty, &t->gone, 0, 0, sink));
	for (size_t i = 0; i < t->dirty.count; i++)
		CRN_TRY(crn_mirror_turn(
			&t->mirror, t->dirty.at[i].begin, t->dirty.at[i].end, false, sink));
	crn_range_list_shrink(&t->dirty, 0);
	return crn_mirror_give(&t->mirror, &t->gone, sink);
}

static int soft_undo(void *tracker, struct crn_sink *sink)
{
	struct soft_tracker *t = tracker;

	CRN_TRY(scan_all(t));
	for (size_t i = 0; i < t->dirty.count; i++)
		CRN_TRY(crn_mirror_show(
			&t->mirror, t->dirty.at[i].begin, t->dirty.at[i].end, sink));
	return 0;
}

static int soft_rebase(void *tracker, uintptr_t page, const void *content)
{
	return crn_mirror_put(&((struct soft_tracker *)tracker)->mirror, page, content);
}

static int soft_look(void *tracker, uintptr_t page, const void **old)
{
	void **slot = crn_mirror_slot(&((struct soft_tracker *)tracker)->mirror, page);

	*old = slot ? *slot : NULL;
	return *old ? 0 : 1;
}

static bool soft_held(void *tracker, uintptr_t *begin, uintptr_t *end)
{
	struct soft_tracker *t = tracker;

	return crn_mirror_next(&t->mirror, begin, end);
}

/* ---- Page operations ------------------------------------------------------------------------- */

static int soft_unprotect(void *tracker, uintptr_t addr, size_t len)
{
	struct soft_tracker *t = tracker;
	uintptr_t begin = crn_page_down(addr), end = crn_page_up(addr + len);

	CRN_TRY(crn_mirror_cover(&t->mirror, begin, end));
	return crn_range_list_add(&t->dirty, begin, end);
}

static int soft_set_hot(void *tracker, uintptr_t addr, size_t len, bool hot)
{
	return 0; /* no strategy yet: every page is found by the scan */
}

static int soft_collect(void *tracker, uintptr_t addr, size_t len)
{
	struct soft_tracker *t = tracker;
	size_t count = 0;

	CRN_TRY(scan_all(t));
	for (size_t i = 0; i < t->dirty.count; i++) {
		uintptr_t b = CRN_MAX(crn_page_down(addr), t->dirty.at[i].begin);
		uintptr_t e = CRN_MIN(crn_page_up(addr + len), t->dirty.at[i].end);

		count += b < e ? crn_pages(e - b) : 0;
	}
	return (int)CRN_MIN(count, (size_t)INT32_MAX);
}

static uint64_t soft_bytes(const void *tracker)
{
	return crn_mirror_bytes(&((const struct soft_tracker *)tracker)->mirror);
}

static uint64_t soft_faults(const void *tracker)
{
	return 0; /* the kernel serves them */
}

const struct crn_tracker_ops crn_tracker_softdirty = {
	.name = "softdirty",
	.caps = CRN_TRACK_PAGES | CRN_TRACK_SEES_KERNEL | CRN_TRACK_THREADS | CRN_TRACK_SHARED |
		CRN_TRACK_MIRROR,
	.probe = soft_probe,
	.open = soft_open,
	.close = soft_close,
	.area_add = soft_area_add,
	.area_drop = soft_area_drop,
	.area_gone = soft_area_gone,
	.interval_begin = soft_interval_begin,
	.interval_end = soft_interval_end,
	.undo = soft_undo,
	.rebase = soft_rebase,
	.look = soft_look,
	.held = soft_held,
	.page = { .unprotect = soft_unprotect, .set_hot = soft_set_hot, .collect = soft_collect },
	.bytes = soft_bytes,
	.faults = soft_faults,
};
