/* SPDX-License-Identifier: MIT */
/*
 * Written pages without content. Giving memory back (MADV_DONTNEED, which libc applies to the stack
 * of a thread that ends) also removes the protection, so a scan reports whole stacks as written.
 * But a page that is empty now and has no frame in the mirror has not changed:
 *
 *	a run of `dirty`   |PP...............PPP........|	P: populated
 *	frames                 FFFF                		F: had content at interval_begin
 *	stays in `dirty`   |PPPFFFF|         |PPP|
 *
 * The rest of the gaps is private anonymous memory, where absent means zeros. A later store to a
 * gap belongs to the next interval, which learns of it: without a feed the page is not protected,
 * and the next scan reports it; a feed reports the fault. With a feed the gap is therefore
 * protected as well, or one fault might populate a whole huge page there. Pages that have been
 * populated by then stay in `dirty`.
 */
#include "track/async/async.h"
#include "os/userfault.h"

/* Pages. A look costs a system call, and reading an empty page some 2000 cycles. */
#define LONG_RUN 16
#define LONG_GAP 4

static bool is_long(uintptr_t begin, uintptr_t end, size_t pages)
{
	return end - begin >= pages * CRN_PAGE_SIZE;
}

/* Protect the gap. What has been populated by then stays in `dirty`. */
static int close_gap(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	int err = crn_uffd_protect(t->uffd, begin, end - begin, true);
	struct crn_page_run runs[32];
	uintptr_t cursor = begin;

	while (err >= 0 && cursor < end) {
		long n = crn_pagemap_present(
			t->pagemap, &cursor, end, runs, CRN_ARRAY_SIZE(runs));

		err = (int)CRN_MIN(n, 0l);
		for (long i = 0; i < n; i++)
			CRN_TRY(crn_range_list_add(&t->turn, runs[i].begin, runs[i].end));
		begin = err < 0 ? begin : cursor;
	}
	return crn_range_list_add(&t->turn, begin, end); /* all, where it could not be told */
}

/* Nothing in [begin, end) is populated, nor has it a frame. */
static int leave_out(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	if (!is_long(begin, end, LONG_GAP))
		return crn_range_list_add(&t->turn, begin, end);
	return t->feed ? close_gap(t, begin, end) : 0;
}

static int settle_gap(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t from, to; begin < end; begin = to) {
		from = begin;
		to = end;
		if (!crn_mirror_next(&t->mirror, &from, &to))
			from = to = end;
		CRN_TRY(leave_out(t, begin, from));
		CRN_TRY(crn_range_list_add(&t->turn, from, to));
	}
	return 0;
}

/* A part of a run that lies in one span of private anonymous memory. */
static int settle_run(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	struct crn_page_run runs[32];

	for (uintptr_t cursor = begin; cursor < end;) {
		long n = crn_pagemap_populated(
			t->pagemap, &cursor, end, runs, CRN_ARRAY_SIZE(runs));

		if (n < 0)
			break; /* a mapping is not what it was: the others find out */
		for (long i = 0; i < n; i++) {
			CRN_TRY(settle_gap(t, begin, runs[i].begin));
			CRN_TRY(crn_range_list_add(&t->turn, runs[i].begin, runs[i].end));
			begin = runs[i].end;
		}
		CRN_TRY(settle_gap(t, begin, cursor));
		begin = cursor;
	}
	return crn_range_list_add(&t->turn, begin, end);
}

static int settle(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t to; begin < end; begin = to) {
		const struct crn_span *s = crn_async_span_above(t, begin);
		bool plain = s && s->begin <= begin && s->watched &&
			!(s->flags & (CRN_AREA_SHARED | CRN_AREA_FILE));

		to = s ? CRN_MIN(end, s->begin <= begin ? s->end : s->begin) : end;
		if (plain && is_long(begin, to, LONG_RUN))
			CRN_TRY(settle_run(t, begin, to));
		else
			CRN_TRY(crn_range_list_add(&t->turn, begin, to));
	}
	return 0;
}

static bool any_long(const struct crn_range_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		if (is_long(l->at[i].begin, l->at[i].end, LONG_RUN))
			return true;
	return false;
}

int crn_async_leave_out_empty(struct crn_async *t)
{
	int err = 0;

	if (crn_likely(!any_long(&t->dirty)))
		return 0;
	crn_range_list_shrink(&t->turn, 0);
	crn_async_own(t, true);
	for (size_t i = 0; i < t->dirty.count && err >= 0; i++)
		err = settle(t, t->dirty.at[i].begin, t->dirty.at[i].end);
	crn_async_own(t, false);
	if (err >= 0)
		crn_range_list_swap(&t->turn, &t->dirty);
	return err;
}
