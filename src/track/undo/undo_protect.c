/* SPDX-License-Identifier: MIT */
/* Protecting the pages of an interval again, in as few system calls as possible. */
#include <errno.h>
#include "base/check.h"
#include "base/log.h"
#include "track/undo/undo_pages.h"

/*
 * Pages that nobody wrote, between two that are protected again, may be included in the same call:
 * setting what is set costs less than a call. Not where the program may have opened them itself
 * without our knowledge: they would be closed before anybody has looked.
 */
#define GAP_PAGES 8
/* In a piece of this size one call for all costs less than one for each of so many runs. */
#define PIECE      (2ul << 20)
#define DENSE_RUNS 4

static bool mapped(struct crn_undo_pages *u, uintptr_t page)
{
	struct crn_mapping m;

	return crn_maps_find(&u->maps, page, &m) > 0;
}

/*
 * Protection of a run was refused: find out page by page which can be, and what becomes of the
 * others.
 */
static void protect_singly(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end, bool exec)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		undo_word *w = undo_word_of(a, page);
		int err;

		if (!(undo_get(w) & UNDO_OPEN))
			continue;
		err = a->guard->protect(u, page, page + CRN_PAGE_SIZE, exec);
		if (err >= 0)
			continue;
		if (err == -ENOENT || !mapped(u, page)) {
			/*
			 * The mapping has gone away, perhaps another one is in its place: nothing
			 * to protect until the session notices.
			 */
			undo_set(w, undo_get(w) | UNDO_SEALED);
			undo_whole_lost(u, a);
			continue;
		}
		undo_set(w, (undo_get(w) | UNDO_HOT) & ~(uintptr_t)UNDO_SAME);
		if (!atomic_exchange(&u->limit_told, 1))
			crn_warn("the kernel's limit of mappings (vm.max_map_count) is reached: "
				 "pages stay open and are copied at every checkpoint");
	}
}

/* May the page at `next` be protected in one call with a run that ends at `end`? */
static bool joins(const struct crn_undo_pages *u, const struct undo_area *a, uintptr_t end,
	uintptr_t next, uintptr_t exec)
{
	uintptr_t next_word;

	if (next >= a->end)
		return false;
	next_word = undo_get(undo_word_of(a, next));
	if (next_word & (UNDO_HOT | UNDO_SEALED) || (next_word & UNDO_EXEC) != exec ||
		undo_in_flight(u, next))
		return false;
	for (; end < next; end += CRN_PAGE_SIZE) {
		uintptr_t word = undo_get(undo_word_of(a, end));

		if (word & (UNDO_OPEN | UNDO_SEALED) || (word & UNDO_EXEC) != exec)
			return false;
	}
	return true;
}

/* How many of saved[i] and its successors fit into one run; *end is where that ends. */
static size_t count_run(const struct crn_undo_pages *u, const struct undo_area *a, size_t i,
	size_t count, uintptr_t *end)
{
	uintptr_t exec = undo_get(undo_word_of(a, u->saved[i])) & UNDO_EXEC;
	uintptr_t gap = a->guard->dense || u->env->areas_alone ? 0 : GAP_PAGES * CRN_PAGE_SIZE;
	size_t n = 1;

	*end = u->saved[i] + CRN_PAGE_SIZE;
	for (; i + n < count && u->saved[i + n] - *end <= gap; n++) {
		if (!joins(u, a, *end, u->saved[i + n], exec))
			break;
		*end = u->saved[i + n] + CRN_PAGE_SIZE;
	}
	return n;
}

/* The same for one call that finds the written pages in one piece of memory by itself; 0: few. */
static size_t count_dense(const struct crn_undo_pages *u, const struct undo_area *a, size_t i,
	size_t count, uintptr_t *end)
{
	uintptr_t limit = (u->saved[i] & ~(PIECE - 1)) + PIECE, before;
	uintptr_t exec = undo_get(undo_word_of(a, u->saved[i])) & UNDO_EXEC;
	size_t n = 1, runs = 1;

	if (!a->guard->dense)
		return 0;
	before = u->saved[i] + CRN_PAGE_SIZE;
	for (; i + n < count && u->saved[i + n] < limit; n++) {
		if (!joins(u, a, before, u->saved[i + n], exec))
			break;
		runs += u->saved[i + n] != before;
		before = u->saved[i + n] + CRN_PAGE_SIZE;
	}
	if (runs < DENSE_RUNS)
		return 0;
	*end = before;
	return n;
}

size_t undo_protect_saved(struct crn_undo_pages *u, size_t count)
{
	struct undo_area *a = NULL;
	size_t open = 0;

	for (size_t i = 0; i < count;) {
		uintptr_t begin = u->saved[i], end, word;
		size_t n;

		a = undo_area_of(u, a, begin);
		word = undo_get(undo_word_of(a, begin));
		if (word & (UNDO_HOT | UNDO_SEALED) || undo_in_flight(u, begin)) {
			i++;
			open++;
			continue;
		}
		n = count_dense(u, a, i, count, &end);
		if (n && a->guard->dense(u, begin, end) >= 0) {
			i += n;
			continue;
		}
		i += count_run(u, a, i, count, &end);
		if (a->guard->protect(u, begin, end, word & UNDO_EXEC) < 0)
			protect_singly(u, a, begin, end, word & UNDO_EXEC);
	}
	return count - open;
}
