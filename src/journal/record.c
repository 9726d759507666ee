/* SPDX-License-Identifier: MIT */
#include "journal/record.h"

uint32_t crn_record_lower(const struct crn_journal *j, uint64_t id)
{
	uint32_t lo = 0, hi = j->count;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (crn_record_at(j, mid)->id < id)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct crn_cursor crn_cursor_open(const struct crn_journal *j, const struct crn_record *r)
{
	struct crn_cursor c = { .left = r->count, .frame = r->entries.frame };
	size_t used = r->entries.used;

	if (!r->count)
		return c;
	if (!c.frame) { /* the FIFO was empty when the record began */
		c.frame = j->entries.head;
		used = 0;
	} else if (used + sizeof(struct crn_entry) > CRN_FIFO_CAPACITY) {
		c.frame = c.frame->next;
		used = 0;
	}
	c.at = (const struct crn_entry *)(c.frame->bytes + used);
	return c;
}

static void swap(struct crn_entry *a, struct crn_entry *b)
{
	struct crn_entry t = *a;

	*a = *b;
	*b = t;
}

static void sift_down(struct crn_entry *e, size_t root, size_t count)
{
	for (;;) {
		size_t child = 2 * root + 1;

		if (child >= count)
			return;
		if (child + 1 < count && e[child].key < e[child + 1].key)
			child++;
		if (e[root].key >= e[child].key)
			return;
		swap(&e[root], &e[child]);
		root = child;
	}
}

static void heap_sort(struct crn_entry *e, size_t count)
{
	for (size_t i = count / 2; i-- > 0;)
		sift_down(e, i, count);
	for (size_t i = count; i-- > 1;) {
		swap(&e[0], &e[i]);
		sift_down(e, 0, i);
	}
}

/*
 * By page, in place, without recursion. Insertion sort while it pays: trackers hand over in address
 * order, but for a few hot pages. A fixed budget of moves keeps the bad case at n log n.
 */
static void sort_entries(struct crn_entry *e, size_t count)
{
	size_t budget = 64 + 8 * count;

	for (size_t i = 1; i < count; i++) {
		struct crn_entry t = e[i];
		size_t k = i;

		while (k > 0 && e[k - 1].key > t.key && budget) {
			e[k] = e[k - 1];
			k--;
			budget--;
		}
		e[k] = t;
		if (!budget) {
			heap_sort(e, count);
			return;
		}
	}
}

void crn_staging_sort(struct crn_journal *j)
{
	struct crn_entry *e = j->staging;

	if (j->staging_sorted)
		return;
	sort_entries(e, j->staging_count);
	for (size_t i = 1; i < j->staging_count; i++)
		CRN_ASSERT(crn_entry_page(&e[i - 1]) < crn_entry_page(&e[i]));
	j->staging_sorted = true;
}
