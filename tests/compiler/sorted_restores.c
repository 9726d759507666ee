/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint that is taken while libc sorts, in the function that compares, and restores to it
 * from later calls of it: the array ends up sorted, as often as it is tried. If the session is
 * opened there, it cannot come back. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

struct item {
	long key, order;
	char rest[48];
};

static cairn_t *session;
static uint64_t id;
static long calls, take_at, back_at;
static long *restores; /* not of any checkpoint */

static void pass(void)
{
	calls++;
	if (calls == take_at)
		CHECK(cairn_checkpoint(session, &id) >= 0);
	if (calls == back_at && restores[0]-- > 0)
		CHECK_OK(cairn_restore(session, id));
}

static int compare_items(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	pass();
	return (x->key > y->key) - (x->key < y->key);
}

static int compare_ints(const void *a, const void *b, void *sign)
{
	const int *x = a, *y = b;

	pass();
	return *(int *)sign * ((*x > *y) - (*x < *y));
}

static void begin(long count, long from, long to)
{
	calls = 0;
	take_at = count * from / 8 + 1;
	back_at = count * to / 8 + 2;
	restores[0] = 3;
}

/* Stable, as libc's is. */
static void sort_items(size_t n, long from, long to)
{
	struct item *items = calloc(n, sizeof(*items));
	long sum = 0;

	CHECK(items);
	for (size_t i = 0; i < n; i++) {
		items[i].key = (long)(i * 7919 % 251);
		items[i].order = (long)i;
		sum += items[i].order * items[i].key;
	}
	begin((long)n * 4, from, to);
	qsort(items, n, sizeof(*items), compare_items);
	for (size_t i = 0; i < n; i++)
		sum -= items[i].order * items[i].key;
	for (size_t i = 1; i < n; i++)
		if (items[i - 1].key > items[i].key ||
			(items[i - 1].key == items[i].key && items[i - 1].order >= items[i].order))
			test_fail("%zu items, %ld to %ld: wrong at %zu", n, from, to, i);
	CHECK(sum == 0 && calls >= back_at && restores[0] < 0);
	free(items);
}

static void sort_ints(size_t n, long from, long to)
{
	int *ints = malloc(n * sizeof(*ints)), sign = -1;

	CHECK(ints);
	for (size_t i = 0; i < n; i++)
		ints[i] = (int)(i * 7919 % n);
	begin((long)n * 4, from, to);
	qsort_r(ints, n, sizeof(*ints), compare_ints, &sign);
	for (size_t i = 0; i < n; i++)
		if (ints[i] != (int)(n - 1 - i))
			test_fail("%zu ints, %ld to %ld: wrong at %zu", n, from, to, i);
	CHECK(calls >= back_at && restores[0] < 0);
	free(ints);
}

static const char *tracker;

/* libc has begun to sort, and goes on. */
static int compare_and_open(const void *a, const void *b)
{
	const int *x = a, *y = b;

	calls++;
	if (calls == 3)
		session = test_open_built(tracker);
	if (calls == 5)
		CHECK(cairn_checkpoint(session, &id) == CAIRN_TAKEN);
	if (calls > 5)
		CHECK(cairn_restore(session, id) == CAIRN_EFAILED);
	return (*x > *y) - (*x < *y);
}

static void open_while_sorting(void)
{
	int ints[100];

	for (int i = 0; i < 100; i++)
		ints[i] = i * 37 % 100;
	qsort(ints, 100, sizeof(*ints), compare_and_open);
	for (int i = 0; i < 100; i++)
		CHECK(ints[i] == i);
	CHECK(calls > 5 && cairn_restore(session, id) == CAIRN_EFAILED);
}

int main(int argc, char **argv)
{
	restores = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(argc == 2 && restores != MAP_FAILED);
	tracker = argv[1];
	open_while_sorting();
	CHECK_OK(cairn_area_exclude(session, restores, 4096));
	for (long from = 0; from < 7; from += 3)
		for (long to = from; to < 8; to++) {
			sort_ints(150, from, to);
			sort_ints(1000, from, to);
			sort_items(60, from, to);
			sort_items(700, from, to);
		}
	/* Nothing to sort, and elements of no particular size. */
	qsort(NULL, 0, 8, compare_items);
	CHECK_OK(cairn_close(session));
	return 0;
}
