/* SPDX-License-Identifier: MIT */
/*
 * A growing list of address ranges in the arena, laid out as the kernel's PAGEMAP_SCAN writes them,
 * so that it can be the scan's output buffer.
 *
 * Invariant: entries from count to capacity are all zero.
 * Thread-safety: the session's lock is held.
 */
#ifndef CRN_RANGE_LIST_H
#define CRN_RANGE_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/arena.h"
#include "os/pagemap.h"

struct crn_range_list {
	struct crn_arena *arena;
	struct crn_page_run *at;
	size_t count, capacity;
};

void crn_range_list_open(struct crn_range_list *l, struct crn_arena *arena);
void crn_range_list_close(struct crn_range_list *l);

/* Room for `more` entries behind the last one. 0 or CAIRN_EMEMORY. */
int crn_range_list_reserve(struct crn_range_list *l, size_t more);
/* Append; grows the last entry if the range continues it. 0 or CAIRN_EMEMORY. */
int crn_range_list_add(struct crn_range_list *l, uintptr_t begin, uintptr_t end);
/* The same, but before the list grows it is normalised: ranges may come again and again. */
int crn_range_list_room(struct crn_range_list *l, size_t more);
int crn_range_list_put(struct crn_range_list *l, uintptr_t begin, uintptr_t end);
/* Cut [begin, end) out of every entry. 0, or CAIRN_EMEMORY (nothing changed). */
int crn_range_list_cut(struct crn_range_list *l, uintptr_t begin, uintptr_t end);
/* `to` becomes `from` without `out`, both of which are normalised. 0 or CAIRN_EMEMORY. */
int crn_range_list_without(struct crn_range_list *to, const struct crn_range_list *from,
	const struct crn_range_list *out);
/* Sort, and make one of entries that touch or overlap. */
void crn_range_list_normalise(struct crn_range_list *l);
void crn_range_list_swap(struct crn_range_list *a, struct crn_range_list *b);
/* Keep the first `count` entries, of more. */
void crn_range_list_cut_off(struct crn_range_list *l, size_t count);
/* Keep the first `count` entries; mostly there are no others. */
static inline void crn_range_list_shrink(struct crn_range_list *l, size_t count)
{
	if (crn_unlikely(l->count > count))
		crn_range_list_cut_off(l, count);
}
/* Does some entry share a byte with [begin, end)? */
bool crn_range_list_meets(const struct crn_range_list *l, uintptr_t begin, uintptr_t end);
size_t crn_range_list_pages(const struct crn_range_list *l);

#endif
