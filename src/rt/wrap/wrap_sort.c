/* SPDX-License-Identifier: MIT */
/*
 * qsort: the program's function that compares may take a checkpoint, or go back to one. libc sorts
 * in memory that no restore reaches, and goes on to write the array, of which the new interval
 * keeps nothing. So addresses are sorted here, in the program's heap, and the elements follow when
 * nobody is called any more. Stable, as libc's is.
 */
#include <search.h>
#include <stdlib.h>
#include "base/status.h"
#include "rt/heap.h"
#include "rt/wrap/wrap.h"

typedef int compare_fn(const void *, const void *, void *);

struct sort {
	char *base;
	size_t count, size;
	compare_fn *compare;
	void *argument;
	uint64_t turn; /* at the begin */
	char **from, **to; /* addresses of elements: sorted in runs; these merged */
};

/* After each call an interval may have begun. */
static void merge(struct sort *s, size_t first, size_t second, size_t end)
{
	size_t a = first, b = second;

	for (size_t i = first; i < end; i++) {
		bool take_b = a == second ||
			(b < end && s->compare(s->from[a], s->from[b], s->argument) > 0);

		OBJECT(&s->to[i])
		s->to[i] = take_b ? s->from[b++] : s->from[a++];
	}
}

static void sort_addresses(struct sort *s)
{
	for (size_t run = 1; run < s->count; run *= 2) {
		char **merged = s->to;

		for (size_t at = 0; at < s->count; at += 2 * run)
			merge(s, at, CRN_MIN(at + run, s->count),
				CRN_MIN(at + 2 * run, s->count));
		s->to = s->from;
		s->from = merged;
	}
}

/* Each cycle of the permutation, through one place beside the array. */
static void move_elements(struct sort *s, char *beside)
{
	keep(s->base, s->count * s->size);
	keep(s->from, s->count * sizeof(*s->from));
	keep(beside, s->size);
	for (size_t i = 0; i < s->count; i++) {
		char *hole = s->base + i * s->size;

		if (s->from[i] == hole)
			continue;
		memcpy(beside, hole, s->size);
		for (size_t k = i;;) {
			char *next = s->from[k];

			s->from[k] = hole;
			if (next == s->base + i * s->size) {
				memcpy(hole, beside, s->size);
				break;
			}
			memcpy(hole, next, s->size);
			hole = next;
			k = (size_t)(next - s->base) / s->size;
		}
	}
}

/* No checkpoint that is taken meanwhile comes back, also not in a session that was opened here. */
static int compare_in_libc(const void *a, const void *b, void *sort)
{
	struct sort *s = sort;
	int order = s->compare(a, b, s->argument);

	if (__cairn_rt.turn != s->turn)
		crn_rt_give_up((uintptr_t)s->base, CAIRN_EUNSUPPORTED);
	return order;
}

static void sort_in_libc(struct sort *s)
{
	crn_rt_give_up((uintptr_t)s->base, CAIRN_EMEMORY);
	s->turn = __cairn_rt.turn;
	qsort_r(s->base, s->count, s->size, compare_in_libc, s);
}

static void sort(struct sort *s)
{
	size_t list = s->count * sizeof(char *);
	char *room = NULL;

	if (s->count < 2 || !s->size)
		return;
	if (__cairn_rt.active)
		room = crn_heap_alloc(2 * list + s->size, 16);
	if (!room) {
		sort_in_libc(s);
		return;
	}
	s->from = (char **)room;
	s->to = (char **)(room + list);
	keep(s->from, list);
	for (size_t i = 0; i < s->count; i++)
		s->from[i] = s->base + i * s->size;
	sort_addresses(s);
	move_elements(s, room + 2 * list);
	crn_heap_free(room);
}

WRAPPER(void, qsort_r, void *base, size_t count, size_t size, compare_fn *compare, void *argument)
{
	struct sort s = { .base = base, .count = count, .size = size, .compare = compare,
		.argument = argument };

	sort(&s);
}

static int compare_two(const void *a, const void *b, void *compare)
{
	return ((int (*)(const void *, const void *))compare)(a, b);
}

WRAPPER(void, qsort, void *base, size_t count, size_t size,
	int (*compare)(const void *, const void *))
{
	__cairn_wrap_qsort_r(base, count, size, compare_two, (void *)compare);
}

/* As libc's; what it writes is kept when nobody is called any more. */
WRAPPER(void *, lsearch, const void *key, void *base, size_t *count, size_t size,
	int (*compare)(const void *, const void *))
{
	void *found = lfind(key, base, count, size, compare);

	if (found)
		return found;
	found = (char *)base + *count * size;
	place(found, key, size);
	OBJECT(count)
	++*count;
	return found;
}
