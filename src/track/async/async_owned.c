/* SPDX-License-Identifier: MIT */
/*
 * The program's own copies of pages of files (private mappings). When such a copy is dropped, the
 * page of the file comes back, still protected, so neither a fault nor a scan shows it. The copies
 * are therefore listed. A copy that is missing later has been dropped or lies on swap. The kernel's
 * report does not tell a swapped page from a protected hole or from a file page that nobody has
 * read, so the page is brought back first.
 */
#include "track/async/async.h"
#include "base/bits.h"
#include "base/status.h"

#define RUNS 32

/* Pages that have all of `with` and nothing of `without`: how many runs, or -errno. */
static long next_runs(struct crn_async *t, uintptr_t *cursor, uintptr_t end, uint64_t with,
	uint64_t without, struct crn_page_run runs[RUNS])
{
	struct crn_scan scan = {
		.start = *cursor,
		.end = end,
		.vec = (uintptr_t)runs,
		.vec_len = RUNS,
		.category_mask = with | without,
		.category_inverted = without,
		.return_mask = with,
	};
	long n = crn_pagemap_scan(t->pagemap, &scan);

	if (n >= 0)
		*cursor = scan.walk_end;
	return n;
}

int crn_async_find_owned(
	struct crn_async *t, uintptr_t begin, uintptr_t end, struct crn_range_list *to)
{
	struct crn_page_run runs[RUNS];

	for (uintptr_t cursor = begin; cursor < end;) {
		long n = next_runs(t, &cursor, end, CRN_PAGE_PRESENT, CRN_PAGE_FILE, runs);

		CRN_TRY((int)CRN_MIN(n, 0l));
		for (long i = 0; i < n; i++)
			CRN_TRY(crn_range_list_add(to, runs[i].begin, runs[i].end));
	}
	return 0;
}

static void bring_back(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	uint8_t byte;

	/* What cannot be read has no copy either. */
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		(void)t->env->load(t->env, &byte, page, sizeof(byte));
}

int crn_async_swap_in(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	struct crn_page_run runs[RUNS];

	for (uintptr_t cursor = begin; cursor < end;) {
		long n = next_runs(t, &cursor, end, CRN_PAGE_SWAPPED, 0, runs);

		CRN_TRY((int)CRN_MIN(n, 0l));
		for (long i = 0; i < n; i++)
			bring_back(t, runs[i].begin, runs[i].end);
	}
	return 0;
}

/* A page of a private file mapping that is written becomes the program's own copy. */
int crn_async_note_owned(struct crn_async *t, uintptr_t page)
{
	const struct crn_span *s = crn_async_span_above(t, page);

	if ((s->flags & (CRN_AREA_FILE | CRN_AREA_SHARED)) != CRN_AREA_FILE ||
		crn_range_list_meets(&t->owned, page, page + CRN_PAGE_SIZE))
		return 0;
	CRN_TRY(crn_range_list_add(&t->owned, page, page + CRN_PAGE_SIZE));
	crn_range_list_normalise(&t->owned);
	return 0;
}

/* A page of [begin, end) that is still mirrored was dropped. */
static int note_dropped(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	t->mixed = t->owed = true;
	for (uintptr_t a = begin, b = end; crn_mirror_next(&t->mirror, &a, &b); a = b, b = end)
		CRN_TRY(crn_range_list_put(&t->dirty, a, b));
	return 0;
}

bool crn_async_owns_cuttable(const struct crn_async *t)
{
	for (size_t i = 0; t->has_cuttable && t->owned.count && i < t->span_count; i++)
		if (crn_span_cuttable(&t->spans[i]) &&
			crn_range_list_meets(&t->owned, t->spans[i].begin, t->spans[i].end))
			return true;
	return false;
}

/* What is listed already, in spans that are not asked; `j` goes up with the address. */
static int list_kept(
	struct crn_async *t, const struct crn_span *s, size_t *j, struct crn_range_list *now)
{
	const struct crn_range_list *was = &t->owned;

	while (*j < was->count && was->at[*j].end <= s->begin)
		++*j;
	for (size_t i = *j; i < was->count && was->at[i].begin < s->end; i++)
		CRN_TRY(crn_range_list_add(
			now, CRN_MAX(was->at[i].begin, s->begin), CRN_MIN(was->at[i].end, s->end)));
	return 0;
}

/* All that there are now; without `all` only cuttable spans are asked. */
static int list_owned(struct crn_async *t, bool all, struct crn_range_list *now)
{
	size_t j = 0;

	crn_range_list_shrink(now, 0);
	for (size_t i = 0, next; i < t->span_count; i = next) {
		const struct crn_span *s = &t->spans[i];
		uintptr_t end = s->end;

		next = i + 1;
		if (!crn_span_private_file(s))
			continue;
		if (!all && !crn_span_cuttable(s)) {
			CRN_TRY(list_kept(t, s, &j, now));
			continue;
		}
		/* One call for constants and variables of an object. */
		for (; next < t->span_count && crn_span_private_file(&t->spans[next]) &&
			crn_span_cuttable(&t->spans[next]) == crn_span_cuttable(s) &&
			t->spans[next].begin == end;
			next++)
			end = t->spans[next].end;
		CRN_TRY(crn_async_find_owned(t, s->begin, end, now));
	}
	return 0;
}

/* The first part of [*begin, *end) that is not listed; `j` goes up with the address. */
static bool next_missing(
	const struct crn_range_list *now, size_t *j, uintptr_t *begin, uintptr_t *end)
{
	for (; *begin < *end; *begin = now->at[*j].end) {
		while (*j < now->count && now->at[*j].end <= *begin)
			++*j;
		if (*j == now->count || now->at[*j].begin > *begin) {
			if (*j < now->count)
				*end = CRN_MIN(*end, now->at[*j].begin);
			return true;
		}
	}
	return false;
}

static int check_owned(struct crn_async *t, bool all)
{
	struct crn_range_list *was = &t->owned, *now = &t->owned_now, swap;
	bool missing = false;

	CRN_TRY(list_owned(t, all, now));
	for (size_t i = 0, j = 0; i < was->count; i++) {
		uintptr_t a = was->at[i].begin, b = was->at[i].end;

		for (; next_missing(now, &j, &a, &b); a = b, b = was->at[i].end, missing = true)
			bring_back(t, a, b);
	}
	if (missing)
		CRN_TRY(list_owned(t, all, now));
	for (size_t i = 0, j = 0; missing && i < was->count; i++) {
		uintptr_t a = was->at[i].begin, b = was->at[i].end;

		for (; next_missing(now, &j, &a, &b); a = b, b = was->at[i].end)
			CRN_TRY(note_dropped(t, a, b));
	}
	swap = *was;
	*was = *now;
	*now = swap;
	return 0;
}

int crn_async_check_owned(struct crn_async *t, bool all)
{
	int err;

	crn_async_own(t, true);
	err = check_owned(t, all);
	crn_async_own(t, false);
	return err;
}
