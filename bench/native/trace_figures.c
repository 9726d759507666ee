/* SPDX-License-Identifier: MIT */
/*
 * HBFT section 3, for pages written in place of shadow entries: Figure 4, how few pages take how
 * many of the writes; Figure 5, in runs of which length the written pages lie; Figure 6, how much
 * the mean run length of a 2 MiB region changes from one interval to the next.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "replay_score.h"

static int falling(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x > y ? -1 : x < y;
}

static void *copy_of(const void *from, size_t bytes)
{
	void *copy = malloc(bytes ? bytes : 1);

	if (!copy)
		err(2, "no memory for the figures");
	return bytes ? memcpy(copy, from, bytes) : copy; /* a run without pages has no array */
}

/* Figure 4: of all writes, the share that the most written pages take. */
static void figure_4(const struct run *r)
{
	static const double shares[] = { 0.01, 0.05, 0.10, 0.15, 0.25, 0.50, 0.75, 1.00 };
	uintptr_t *pages = copy_of(r->pages, r->page_count * sizeof(*pages));
	uint64_t *writes = copy_of(pages, r->page_count * sizeof(*writes));
	size_t unique = 0, at = 0;
	uint64_t sum = 0;

	run_sort_pages(pages, r->page_count);
	for (size_t i = 0; i < r->page_count; i++) {
		if (!i || pages[i] != pages[i - 1])
			writes[unique++] = 0;
		writes[unique - 1]++;
	}
	qsort(writes, unique, sizeof(*writes), falling);
	printf("{\"table\":\"hbft4\",\"run\":\"%s\",\"unique\":%zu,\"writes\":%zu,\"coverage\":{",
		r->name, unique, r->page_count);
	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
		while (at < unique && (double)at < shares[i] * (double)unique)
			sum += writes[at++];
		printf("%s\"%g\":%.4f", i ? "," : "", shares[i],
			r->page_count ? (double)sum / (double)r->page_count : 0);
	}
	printf("}}\n");
	free(pages);
	free(writes);
}

static const unsigned run_groups[] = { 1, 4, 16, 64, 256, 512 };
static const double delta_groups[] = { 0, 1, 5, 16, 64, 512 };
#define GROUPS 6

struct figures {
	uint64_t pages[GROUPS], deltas[GROUPS], region_turns;
};

/* The mean run length of each region in one interval. */
struct strides {
	uintptr_t *region;
	double *mean;
	size_t count;
};

static void note_delta(struct figures *f, double delta)
{
	unsigned group = 0;

	while (group < GROUPS - 1 && delta > delta_groups[group])
		group++;
	f->deltas[group]++;
	f->region_turns++;
}

/* Runs do not cross regions: a page table ends there. */
static void note_runs(struct figures *f, const uintptr_t *pages, size_t count, struct strides *out)
{
	out->count = 0;
	for (size_t i = 0; i < count;) {
		uintptr_t region = pages[i] >> 21;
		size_t runs = 0, first = i;

		while (i < count && pages[i] >> 21 == region) {
			size_t length = 1;
			unsigned group = 0;

			while (i + length < count && pages[i + length] >> 21 == region &&
				pages[i + length] == pages[i] + length * 4096)
				length++;
			while (length > run_groups[group])
				group++;
			f->pages[group] += length;
			i += length;
			runs++;
		}
		out->region[out->count] = region;
		out->mean[out->count++] = (double)(i - first) / (double)runs;
	}
}

/* Regions that neither interval wrote stay out; one that only one of them wrote counts as 0. */
static void compare(struct figures *f, const struct strides *a, const struct strides *b)
{
	size_t i = 0, k = 0;

	while (i < a->count || k < b->count) {
		if (k == b->count || (i < a->count && a->region[i] < b->region[k]))
			note_delta(f, a->mean[i++]);
		else if (i == a->count || b->region[k] < a->region[i])
			note_delta(f, b->mean[k++]);
		else {
			double delta = a->mean[i++] - b->mean[k++];

			note_delta(f, delta < 0 ? -delta : delta);
		}
	}
}

static void print_groups(const struct run *r, const struct figures *f)
{
	printf("{\"table\":\"hbft5\",\"run\":\"%s\",\"pages_in_runs\":{", r->name);
	for (unsigned i = 0; i < GROUPS; i++)
		printf("%s\"%u-%u\":%.4f", i ? "," : "", i ? run_groups[i - 1] + 1 : 1,
			run_groups[i],
			r->page_count ? (double)f->pages[i] / (double)r->page_count : 0);
	printf("}}\n{\"table\":\"hbft6\",\"run\":\"%s\",\"delta_stride_at_most\":{", r->name);
	for (unsigned i = 0; i < GROUPS; i++)
		printf("%s\"%g\":%.4f", i ? "," : "", delta_groups[i],
			f->region_turns ? (double)f->deltas[i] / (double)f->region_turns : 0);
	printf("}}\n");
}

void replay_figures(const struct run *r)
{
	uintptr_t *pages = copy_of(r->pages, r->page_count * sizeof(*pages));
	struct figures f = { 0 };
	struct strides now, before;
	size_t most = 1;

	figure_4(r);
	for (size_t i = 0; i < r->interval_count; i++)
		most = r->intervals[i].count > most ? r->intervals[i].count : most;
	now = (struct strides){ calloc(most, sizeof(uintptr_t)), calloc(most, sizeof(double)), 0 };
	before = (struct strides){
		calloc(most, sizeof(uintptr_t)), calloc(most, sizeof(double)), 0 };
	if (!now.region || !now.mean || !before.region || !before.mean)
		err(2, "no memory for the figures");
	for (size_t i = 0; i < r->interval_count; i++) {
		uintptr_t *at = pages + r->intervals[i].first;
		struct strides other = before;

		before = now;
		now = other;
		run_sort_pages(at, r->intervals[i].count);
		note_runs(&f, at, r->intervals[i].count, &now);
		if (i)
			compare(&f, &before, &now);
	}
	print_groups(r, &f);
	free(now.region);
	free(now.mean);
	free(before.region);
	free(before.mean);
	free(pages);
}
