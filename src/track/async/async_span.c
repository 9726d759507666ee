/* SPDX-License-Identifier: MIT */
/* What the async tracker has registered, and how that follows the program's mappings. */
#include <errno.h>
#include "track/async/async.h"
#include "base/arena.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/memory.h"
#include "os/userfault.h"

#define STACK_REACH (64ul << 30) /* how far below a stack we look for its neighbour */

/* ---- The span table ----------------------------------------------------------------- */

static int spans_reserve(struct crn_async *t, size_t more)
{
	return crn_table_grow(t->env->arena, (void **)&t->spans, &t->span_capacity, t->span_count,
		t->span_count + more, sizeof(*t->spans));
}

/* The first span that ends above addr. */
static size_t span_find(const struct crn_async *t, uintptr_t addr)
{
	size_t i;

	CRN_FIRST(i, t->span_count, t->spans[i].end > addr);
	return i;
}

const struct crn_span *crn_async_span_above(const struct crn_async *t, uintptr_t addr)
{
	size_t i = span_find(t, addr);

	return i < t->span_count ? &t->spans[i] : NULL;
}

/* Room has been reserved. */
static void span_insert(struct crn_async *t, size_t at, struct crn_span span)
{
	CRN_ASSERT(t->span_count < t->span_capacity);
	for (size_t i = t->span_count; i > at; i--)
		t->spans[i] = t->spans[i - 1];
	t->spans[at] = span;
	t->span_count++;
	t->runs_stale = true;
}

static int span_add(struct crn_async *t, struct crn_span span)
{
	size_t at;

	CRN_TRY(spans_reserve(t, 1));
	at = span_find(t, span.begin);
	CRN_ASSERT(at == t->span_count || t->spans[at].begin >= span.end);
	span_insert(t, at, span);
	return 0;
}

int crn_async_abandon(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	size_t i = span_find(t, begin);

	if (i < t->span_count && t->spans[i].begin < begin && t->spans[i].end > end)
		CRN_TRY(spans_reserve(t, 1));
	while (i < t->span_count && t->spans[i].begin < end) {
		struct crn_span *s = &t->spans[i];

		t->runs_stale = true;
		if (s->begin < begin && s->end > end) {
			struct crn_span tail = *s;

			tail.begin = end;
			s->end = begin;
			span_insert(t, i + 1, tail);
			return 0;
		}
		if (s->begin < begin) {
			s->end = begin;
			i++;
		} else if (s->end > end) {
			s->begin = end;
			i++;
		} else {
			t->span_count--;
			for (size_t j = i; j < t->span_count; j++)
				t->spans[j] = t->spans[j + 1];
		}
	}
	return 0;
}

void crn_async_release(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	for (size_t i = span_find(t, begin); i < t->span_count && t->spans[i].begin < end; i++) {
		uintptr_t from = CRN_MAX(t->spans[i].begin, begin);
		uintptr_t to = CRN_MIN(t->spans[i].end, end);

		if (t->spans[i].watched)
			crn_uffd_unregister(t->uffd, from, to - from);
	}
}

/* ---- Adopting ----------------------------------------------------------------------- */

/*
 * A guard page has no content, and counts as swapped out. The kernel has no protection for it: the
 * next scan would report it as written, once. So that is had here, and it is not copied. One that
 * has come in this interval (`changed`) goes when that is undone.
 */
static int settle_guards(struct crn_async *t, uintptr_t begin, uintptr_t end, bool changed)
{
	struct crn_page_run runs[16], ignored[16];

	for (uintptr_t cursor = begin; cursor < end;) {
		long n = crn_pagemap_guards(t->pagemap, &cursor, end, runs, CRN_ARRAY_SIZE(runs));

		CRN_TRY((int)CRN_MIN(n, 0));
		for (long i = 0; i < n; i++) {
			uintptr_t at = runs[i].begin;

			if (changed)
				CRN_TRY(crn_range_list_put(&t->dirty, at, runs[i].end));
			while (at < runs[i].end)
				CRN_TRY((int)CRN_MIN(0, crn_pagemap_written(t->pagemap, &at,
					runs[i].end, true, ignored, CRN_ARRAY_SIZE(ignored))));
		}
	}
	return 0;
}

/* Pages of one category: present (and not the shared zero page), swapped out, or either. */
static long scan_for(struct crn_async *t, uintptr_t *cursor, uintptr_t end, uint64_t anyof,
	struct crn_page_run *runs, size_t max)
{
	struct crn_scan scan = {
		.start = *cursor,
		.end = end,
		.vec = (uintptr_t)runs,
		.vec_len = max,
		.category_mask = CRN_PAGE_PFNZERO | CRN_PAGE_GUARD,
		.category_inverted = CRN_PAGE_PFNZERO | CRN_PAGE_GUARD,
		.category_anyof_mask = anyof,
		.return_mask = CRN_PAGE_PRESENT,
	};
	long n = crn_pagemap_scan(t->pagemap, &scan);

	if (n == -EINVAL) { /* a kernel that does not tell guard pages apart */
		scan.category_mask = scan.category_inverted = CRN_PAGE_PFNZERO;
		n = crn_pagemap_scan(t->pagemap, &scan);
	}

	if (n >= 0)
		*cursor = scan.walk_end;
	return n;
}

enum fate {
	FATE_FILL,  /* copy into the mirror */
	FATE_DIRTY, /* note as written */
};

static int each_populated(
	struct crn_async *t, uintptr_t begin, uintptr_t end, uint64_t anyof, enum fate fate)
{
	struct crn_page_run runs[64];

	for (uintptr_t cursor = begin; cursor < end;) {
		long n = scan_for(t, &cursor, end, anyof, runs, CRN_ARRAY_SIZE(runs));

		if (n < 0)
			return (int)n;
		for (long i = 0; i < n; i++) {
			if (fate == FATE_FILL)
				CRN_TRY(crn_mirror_fill(
					&t->mirror, runs[i].begin, runs[i].end, false));
			else
				CRN_TRY(crn_range_list_put(&t->dirty, runs[i].begin, runs[i].end));
		}
	}
	return 0;
}

static int dirty_mirrored(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	uintptr_t a = begin, b = end;

	for (; crn_mirror_next(&t->mirror, &a, &b); a = b, b = end)
		CRN_TRY(crn_range_list_put(&t->dirty, a, b));
	return 0;
}

/*
 * Register and protect, or neither. -EBUSY: a userfaultfd of the program's own has (a part of) it.
 * What is not ours must not be unregistered: some kernels would do it.
 */
static int arm(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	int err;

	/*
	 * One fault in an empty stretch would populate it as a whole, and all of that would count
	 * as written. Refused for some mappings: no matter.
	 */
	(void)crn_memory_advise((void *)begin, end - begin, MADV_NOHUGEPAGE);
	CRN_TRY(crn_uffd_register(t->uffd, begin, end - begin));
	err = crn_uffd_protect(t->uffd, begin, end - begin, true);
	if (err < 0)
		crn_uffd_unregister(t->uffd, begin, end - begin);
	return err;
}

/* The same for what may consist of huge pages, somewhere: an area may be of many mappings. */
static int arm_backed(struct crn_async *t, struct crn_span *s)
{
	CRN_TRY(arm(t, s->begin, s->end));
	s->huge = false;
	for (uintptr_t p = s->begin; p < s->end && !s->huge; p = (p | (CRN_ASYNC_CHUNK - 1)) + 1)
		s->huge = !crn_uffd_protect_single(t->uffd, p);
	t->has_huge |= s->huge;
	return 0;
}

/* Not registered means: found again, as written. */
static int disarm_if(struct crn_async *t, uintptr_t begin, uintptr_t end, int err)
{
	if (err < 0)
		crn_uffd_unregister(t->uffd, begin, end - begin);
	return err;
}

/*
 * Watch [begin, end) of private anonymous memory. Other threads may run: a page that becomes
 * populated before it is protected must be seen, so what is present is looked up after that. Pages
 * on swap cannot be told from protected holes then, so they are looked up before; nobody swaps out
 * what was just touched.
 */
static int watch_anonymous(struct crn_async *t, uintptr_t begin, uintptr_t end, bool changed)
{
	enum fate fate = changed ? FATE_DIRTY : FATE_FILL;

	if (!changed)
		crn_async_collapse(t, begin, end);
	CRN_TRY(each_populated(t, begin, end, CRN_PAGE_SWAPPED, fate));
	if (changed)
		CRN_TRY(dirty_mirrored(t, begin, end));
	CRN_TRY(arm(t, begin, end));
	CRN_TRY(disarm_if(t, begin, end, settle_guards(t, begin, end, changed)));
	return disarm_if(t, begin, end, each_populated(t, begin, end, CRN_PAGE_PRESENT, fate));
}

/* Of a file, or shared: an absent page is not zeros. */
static int watch_backed(struct crn_async *t, struct crn_span *s, bool changed)
{
	bool shared = s->flags & CRN_AREA_SHARED, doubtful;
	uintptr_t begin = s->begin, end = s->end;

	if (changed)
		CRN_TRY(crn_range_list_put(&t->dirty, begin, end));
	if (!shared)
		CRN_TRY(crn_async_swap_in(t, begin, end));
	CRN_TRY(arm_backed(t, s));
	if (!shared) {
		t->has_private_files = true;
		CRN_TRY(disarm_if(t, begin, end,
			crn_async_find_owned(t, begin, end, &t->owned)));
		crn_range_list_normalise(&t->owned);
	}
	if (changed)
		return 0;
	/* A page may be bare all the same: then a load must be allowed to fault. */
	doubtful = shared || crn_flags_cuttable(s->flags) || !crn_faults_reach_us(t->faults);
	return disarm_if(t, begin, end, crn_mirror_fill(&t->mirror, begin, end, doubtful));
}

static int watch(struct crn_async *t, struct crn_span span, bool changed)
{
	bool backed = span.flags & (CRN_AREA_FILE | CRN_AREA_SHARED);
	int err;

	span.watched = true;
	t->has_cuttable |= crn_span_cuttable(&span);
	t->mixed |= changed;
	t->owed |= changed;
	crn_hot_list_rebased(&t->hot, span.begin, span.end);
	CRN_TRY(spans_reserve(t, 1));
	CRN_TRY(crn_mirror_cover(&t->mirror, span.begin, span.end));
	err = backed ? watch_backed(t, &span, changed)
		     : watch_anonymous(t, span.begin, span.end, changed);
	return err < 0 ? err : span_add(t, span); /* room was reserved */
}

/*
 * The next part of [at, end) worth registering: populated pages with holes below CRN_ASYNC_HOLE
 * between and around them. 1, 0 if the rest is one big hole, or negative.
 */
static int next_dense(
	struct crn_async *t, uintptr_t at, uintptr_t end, uintptr_t *from, uintptr_t *to)
{
	struct crn_page_run runs[64];
	uintptr_t cursor = at;

	*from = *to = 0;
	while (cursor < end) {
		long n = scan_for(t, &cursor, end, CRN_PAGE_PRESENT | CRN_PAGE_SWAPPED, runs,
			CRN_ARRAY_SIZE(runs));

		if (n < 0)
			return (int)n;
		for (long i = 0; i < n; i++) {
			if (!*to)
				*from = CRN_MAX(at, runs[i].begin & ~(CRN_ASYNC_CHUNK - 1));
			else if (runs[i].begin > *to && runs[i].begin - *to >= CRN_ASYNC_HOLE)
				return 1;
			*to = (runs[i].end + CRN_ASYNC_CHUNK - 1) & ~(CRN_ASYNC_CHUNK - 1);
			*to = CRN_MIN(end, *to);
		}
	}
	if (!*to) {
		*from = at;
		*to = end;
		return end - at < CRN_ASYNC_HOLE;
	}
	if (*from - at < CRN_ASYNC_HOLE)
		*from = at;
	if (end - *to < CRN_ASYNC_HOLE)
		*to = end;
	return 1;
}

int crn_async_adopt(struct crn_async *t, uintptr_t begin, uintptr_t end, uint32_t flags,
	struct crn_area *area, bool changed)
{
	struct crn_span span = { .flags = flags, .area = flags & CRN_AREA_STACK ? area : NULL };

	if (flags & (CRN_AREA_FILE | CRN_AREA_SHARED | CRN_AREA_STACK) ||
		end - begin < CRN_ASYNC_HOLE) {
		span.begin = begin;
		span.end = end;
		return watch(t, span, changed);
	}
	for (uintptr_t at = begin; at < end; at = span.end) {
		uintptr_t from, to;
		int dense = next_dense(t, at, end, &from, &to);

		CRN_TRY(dense);
		if (!dense)
			from = end;
		if (from > at) {
			span.begin = at;
			span.end = from;
			span.watched = false;
			/* What was there before is gone with its mapping. */
			if (changed) {
				CRN_TRY(dirty_mirrored(t, at, from));
				t->mixed = t->owed = true;
			}
			CRN_TRY(span_add(t, span));
			if (from == end)
				break;
		}
		span.begin = from;
		span.end = to;
		CRN_TRY(watch(t, span, changed));
	}
	return 0;
}

/* ---- Following the program ------------------------------------------------------------- */

/*
 * [from, to) of a span must be looked at anew: its pages have been written. If that cannot be
 * finished the span stays as it was, or its pages would not be looked at any more.
 */
static int adopt_again(struct crn_async *t, struct crn_span span, uintptr_t from, uintptr_t to)
{
	int err;

	CRN_TRY(spans_reserve(t, 2));
	CRN_TRY(crn_async_abandon(t, from, to));
	err = crn_async_adopt(t, from, to, span.flags, span.area, true);
	if (err < 0) {
		(void)crn_async_abandon(t, from, to); /* whole spans: needs no memory */
		span.begin = from;
		span.end = to;
		(void)span_add(t, span); /* room was reserved */
	}
	return err;
}

static int wake_span(struct crn_async *t, struct crn_span span)
{
	struct crn_page_run runs[16];
	uintptr_t cursor = span.begin;
	long n;

	for (;;) {
		if (cursor >= span.end)
			return 0;
		n = scan_for(t, &cursor, span.end, CRN_PAGE_PRESENT | CRN_PAGE_SWAPPED, runs,
			CRN_ARRAY_SIZE(runs));
		if (n < 0)
			return (int)n;
		if (n)
			break;
	}
	return adopt_again(t, span, span.begin, span.end);
}

int crn_async_wake(struct crn_async *t)
{
	for (size_t i = 0; i < t->span_count; i++) {
		struct crn_span span = t->spans[i];

		if (span.watched)
			continue;
		CRN_TRY(wake_span(t, span));
		/* It may have been cut into several; go on behind it. */
		i = span_find(t, span.end - 1);
		if (i == t->span_count)
			break;
	}
	return 0;
}

bool crn_async_steady(struct crn_async *t, uintptr_t page)
{
	const struct crn_span *s = crn_async_span_above(t, page);

	return s && s->begin <= page && s->watched && !crn_flags_cuttable(s->flags);
}

/* Of a file: even what is there now may be gone before the load. */
bool crn_async_doubtful(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	for (size_t i = span_find(t, begin); i < t->span_count && t->spans[i].begin < end; i++)
		if (crn_flags_cuttable(t->spans[i].flags))
			return true;
	return false;
}

static bool is_registered(struct crn_async *t, uintptr_t page)
{
	struct crn_page_run run;
	uintptr_t cursor = page;

	return crn_pagemap_written(t->pagemap, &cursor, page + CRN_PAGE_SIZE, false, &run, 1) !=
		-EPERM;
}

int crn_async_repair(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	struct crn_mapping m;
	int more;

	t->runs_stale = true; /* perhaps a foreign mapping has come between two spans */
	CRN_TRY(crn_maps_begin(&t->maps, begin, CRN_MAPS_NO_NAMES));
	while ((more = crn_maps_next(&t->maps, &m)) > 0 && m.begin < end) {
		uintptr_t b = CRN_MAX(m.begin, begin), e = CRN_MIN(m.end, end);

		if (is_registered(t, b))
			continue;
		for (size_t i = span_find(t, b); i < t->span_count && t->spans[i].begin < e; i++) {
			struct crn_span s = t->spans[i];
			uintptr_t from = CRN_MAX(s.begin, b), to = CRN_MIN(s.end, e);

			if (!s.watched)
				continue;
			CRN_TRY(adopt_again(t, s, from, to));
			i = span_find(t, to - 1);
		}
	}
	return more < 0 ? more : 0;
}

/*
 * Is anything mapped in [begin, end)? 1, 0 or negative; *last is the end of the last mapping there.
 */
static int mapped_between(
	struct crn_async *t, uintptr_t begin, uintptr_t end, bool stack, uintptr_t *last)
{
	struct crn_mapping m;
	int more, found = 0;

	if (begin >= end)
		return 0;
	CRN_TRY(crn_maps_begin(&t->maps, begin, CRN_MAPS_NO_NAMES));
	while ((more = crn_maps_next(&t->maps, &m)) > 0 && m.begin < end) {
		if (m.end > end) {
			/*
			 * It reaches into what follows: a stack that has grown, or a mapping
			 * tracked in part.
			 */
			*last = stack ? *last : end;
			found |= !stack;
			break;
		}
		*last = m.end;
		found = 1;
	}
	return more < 0 ? more : found;
}

int crn_async_stack_grows(struct crn_async *t, uintptr_t page)
{
	const struct crn_span *stack = crn_async_span_above(t, page);
	struct crn_mapping m;
	int more;

	CRN_TRY(crn_maps_begin(&t->maps, page, CRN_MAPS_NO_NAMES));
	CRN_TRY(more = crn_maps_next(&t->maps, &m));
	return !more || m.begin > page || m.end > stack->begin;
}

int crn_async_plan(struct crn_async *t)
{
	uintptr_t before = 0, last;

	crn_range_list_shrink(&t->runs, 0);
	for (size_t i = 0; i < t->span_count; i++) {
		struct crn_span *s = &t->spans[i];
		uintptr_t begin = s->begin;
		int foreign;

		if (!s->watched) {
			/* sparse parts are mapped but not registered: no run goes over them */
			before = 0;
			continue;
		}
		if (s->flags & CRN_AREA_STACK) {
			/* It grows down without telling anybody: scan the hole below it as well. */
			last = s->begin > STACK_REACH ? s->begin - STACK_REACH : CRN_PAGE_SIZE;
			last = CRN_MAX(last, i ? t->spans[i - 1].end : 0);
			CRN_TRY(mapped_between(t, last, s->begin, true, &last));
			begin = last;
			before = 0;
		}
		foreign = before ? mapped_between(t, before, begin, false, &last) : 1;
		CRN_TRY(foreign);
		if (foreign) {
			CRN_TRY(crn_range_list_reserve(&t->runs, 1));
			t->runs.at[t->runs.count].begin = begin;
			t->runs.at[t->runs.count].end = s->end;
			t->runs.count++;
		} else {
			t->runs.at[t->runs.count - 1].end = s->end;
		}
		before = s->end;
	}
	t->runs_stale = false;
	return 0;
}

/* The first part of [*begin, *end) that nobody tracks, and that no stack has grown over. */
static bool next_strange(const struct crn_async *t, uintptr_t *begin, uintptr_t *end)
{
	const struct crn_span *s;

	for (uintptr_t at = *begin; at < *end; at = s->end) {
		s = crn_async_span_above(t, at);
		if (s && (s->begin <= at || s->flags & CRN_AREA_STACK))
			continue;
		*begin = at;
		*end = s ? CRN_MIN(*end, s->begin) : *end;
		return true;
	}
	return false;
}

int crn_async_cut_strange(struct crn_async *t, struct crn_range_list *l)
{
	for (size_t i = 0; i < l->count;) {
		uintptr_t begin = l->at[i].begin, end = l->at[i].end;

		if (crn_likely(!next_strange(t, &begin, &end))) {
			i++;
			continue;
		}
		CRN_TRY(crn_range_list_cut(l, begin, end));
		t->mixed = true;
	}
	return 0;
}

int crn_async_grow_stack(struct crn_async *t, uintptr_t begin)
{
	size_t i = span_find(t, begin);
	struct crn_span *s = &t->spans[i];

	if (i == t->span_count || !(s->flags & CRN_AREA_STACK))
		crn_error("%#lx has been written, below %#lx", begin,
			i < t->span_count ? s->begin : 0);
	CRN_ASSERT(i < t->span_count && s->flags & CRN_AREA_STACK);
	CRN_TRY(crn_mirror_cover(&t->mirror, begin, s->begin));
	s->begin = begin;
	if (s->area)
		s->area->begin = begin;
	return 0;
}
