/* SPDX-License-Identifier: MIT */
#include "track/range_list.h"
#include "base/copy.h"
#include "base/status.h"

#define SHORT 64 /* entries: sorted by insertion */

void crn_range_list_open(struct crn_range_list *l, struct crn_arena *arena)
{
	crn_fill(l, 0, sizeof(*l));
	l->arena = arena;
}

void crn_range_list_close(struct crn_range_list *l)
{
	crn_block_free(l->arena, l->at, l->capacity * sizeof(*l->at));
	l->at = NULL;
	l->count = l->capacity = 0;
}

int crn_range_list_reserve(struct crn_range_list *l, size_t more)
{
	return crn_table_grow(l->arena, (void **)&l->at, &l->capacity, l->count, l->count + more,
		sizeof(*l->at));
}

int crn_range_list_add(struct crn_range_list *l, uintptr_t begin, uintptr_t end)
{
	struct crn_page_run *last = l->count ? &l->at[l->count - 1] : NULL;

	if (begin >= end)
		return 0;
	if (last && last->end == begin) {
		last->end = end;
		return 0;
	}
	CRN_TRY(crn_range_list_reserve(l, 1));
	l->at[l->count].begin = begin;
	l->at[l->count].end = end;
	l->count++;
	return 0;
}

int crn_range_list_room(struct crn_range_list *l, size_t more)
{
	if (l->capacity - l->count >= more)
		return 0;
	crn_range_list_normalise(l);
	/* If it stays half full, this would be done again soon. */
	if (l->capacity - l->count < CRN_MAX(more, l->count) &&
		crn_range_list_reserve(l, CRN_MAX(more, l->count)) < 0 &&
		l->capacity - l->count < more)
		return CAIRN_EMEMORY;
	return 0;
}

int crn_range_list_put(struct crn_range_list *l, uintptr_t begin, uintptr_t end)
{
	CRN_TRY(crn_range_list_room(l, 1));
	return crn_range_list_add(l, begin, end);
}

int crn_range_list_cut(struct crn_range_list *l, uintptr_t begin, uintptr_t end)
{
	size_t kept = 0, count = l->count, inside = 0;

	for (size_t i = 0; i < count; i++)
		inside += l->at[i].begin < begin && l->at[i].end > end;
	CRN_TRY(crn_range_list_reserve(l, inside));

	for (size_t i = 0; i < count; i++) {
		struct crn_page_run r = l->at[i];

		if (r.end <= begin || r.begin >= end) {
			l->at[kept++] = r;
			continue;
		}
		if (r.begin < begin && r.end > end) {
			/* The tail goes behind all others; callers that need order normalise. */
			l->at[l->count].begin = end;
			l->at[l->count].end = r.end;
			l->count++;
		}
		if (r.begin < begin) {
			l->at[kept] = r;
			l->at[kept++].end = begin;
		} else if (r.end > end) {
			l->at[kept] = r;
			l->at[kept++].begin = end;
		}
	}
	for (size_t i = count; i < l->count; i++)
		l->at[kept++] = l->at[i];
	crn_range_list_shrink(l, kept);
	return 0;
}

int crn_range_list_without(struct crn_range_list *to, const struct crn_range_list *from,
	const struct crn_range_list *out)
{
	size_t k = 0;

	crn_range_list_shrink(to, 0);
	for (size_t i = 0; i < from->count; i++) {
		uintptr_t at = from->at[i].begin, end = from->at[i].end;

		while (k < out->count && out->at[k].end <= at)
			k++;
		for (; k < out->count && out->at[k].begin < end; k++) {
			if (out->at[k].begin > at)
				CRN_TRY(crn_range_list_add(to, at, out->at[k].begin));
			at = out->at[k].end;
			if (at >= end)
				break; /* it may reach into the next one */
		}
		if (at < end)
			CRN_TRY(crn_range_list_add(to, at, end));
	}
	return 0;
}

static void sift_down(struct crn_page_run *a, size_t root, size_t count)
{
	for (;;) {
		size_t child = 2 * root + 1;
		struct crn_page_run swap;

		if (child >= count)
			return;
		if (child + 1 < count && a[child].begin < a[child + 1].begin)
			child++;
		if (a[root].begin >= a[child].begin)
			return;
		swap = a[root];
		a[root] = a[child];
		a[child] = swap;
		root = child;
	}
}

static void sort_by_heap(struct crn_page_run *a, size_t count)
{
	struct crn_page_run swap;

	for (size_t i = count / 2; i-- > 0;)
		sift_down(a, i, count);
	for (size_t n = count; n-- > 1;) {
		swap = a[0];
		a[0] = a[n];
		a[n] = swap;
		sift_down(a, 0, n);
	}
}

static void sort_by_insertion(struct crn_page_run *a, size_t count)
{
	for (size_t n = 1; n < count; n++) {
		struct crn_page_run moved = a[n];
		size_t i = n;

		for (; i && a[i - 1].begin > moved.begin; i--)
			a[i] = a[i - 1];
		a[i] = moved;
	}
}

/* A sorted tail behind a sorted head: to its places. `spare` has room for it, and is zeros. */
static void merge(struct crn_page_run *a, size_t head, size_t tail, struct crn_page_run *spare)
{
	size_t bytes = tail * sizeof(*a);

	crn_copy(spare, a + head, bytes);
	for (size_t to = head + tail, t = tail; t;) {
		bool from_head = head && a[head - 1].begin > spare[t - 1].begin;

		a[--to] = from_head ? a[--head] : spare[--t];
	}
	crn_fill(spare, 0, bytes);
}

/* Much of a list is in order already, or what has come since it was is short. */
static void sort(struct crn_range_list *l)
{
	struct crn_page_run *a = l->at;
	size_t head = 1, tail;

	while (head < l->count && a[head - 1].begin <= a[head].begin)
		head++;
	tail = l->count - head;
	if (!tail)
		return;
	if (l->capacity - l->count < tail) {
		sort_by_heap(a, l->count);
		return;
	}
	if (tail <= SHORT)
		sort_by_insertion(a + head, tail);
	else
		sort_by_heap(a + head, tail);
	merge(a, head, tail, a + l->count);
}

void crn_range_list_normalise(struct crn_range_list *l)
{
	struct crn_page_run *a = l->at;
	size_t kept = 0;

	if (l->count < 2)
		return;
	sort(l);
	for (size_t i = 1; i < l->count; i++) {
		if (a[i].begin <= a[kept].end)
			a[kept].end = CRN_MAX(a[kept].end, a[i].end);
		else
			a[++kept] = a[i];
	}
	crn_range_list_shrink(l, kept + 1);
}

void crn_range_list_swap(struct crn_range_list *a, struct crn_range_list *b)
{
	struct crn_range_list swap = *a;

	*a = *b;
	*b = swap;
}

void crn_range_list_cut_off(struct crn_range_list *l, size_t count)
{
	crn_fill(l->at + count, 0, (l->count - count) * sizeof(*l->at));
	l->count = count;
}

bool crn_range_list_meets(const struct crn_range_list *l, uintptr_t begin, uintptr_t end)
{
	for (size_t i = 0; i < l->count; i++) {
		if (l->at[i].begin < end && l->at[i].end > begin)
			return true;
	}
	return false;
}

size_t crn_range_list_pages(const struct crn_range_list *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->count; i++)
		n += crn_pages(l->at[i].end - l->at[i].begin);
	return n;
}
