/* SPDX-License-Identifier: MIT */
/* The table of areas. area_calls.c has the calls by which a program changes it. */
#include <errno.h>
#include "session/engine.h"
#include "base/check.h"
#include "base/copy.h"
#include "os/guarded.h"
#include "os/memory.h"

/* ---- Ranges: exclusions, omissions ------------------------------------------------------ */

size_t crn_ranges_from(const struct crn_ranges *r, uintptr_t addr)
{
	size_t i;

	CRN_FIRST(i, r->count, r->at[i].end > addr);
	return i;
}

int crn_ranges_add(cairn_t *c, struct crn_ranges *r, uintptr_t begin, uintptr_t end)
{
	size_t i, j;

	CRN_TRY(crn_grow(c, (void **)&r->at, &r->capacity, r->count + 1, sizeof(*r->at)));
	/* one that merely touches is joined as well */
	i = crn_ranges_from(r, begin ? begin - 1 : 0);
	for (j = i; j < r->count && r->at[j].begin <= end; j++) {
		begin = CRN_MIN(begin, r->at[j].begin);
		end = CRN_MAX(end, r->at[j].end);
	}
	/* Entries i .. j-1 become one. */
	if (j == i) {
		for (size_t k = r->count; k > i; k--)
			r->at[k] = r->at[k - 1];
		r->count++;
	} else {
		for (size_t k = j; k < r->count; k++)
			r->at[i + 1 + k - j] = r->at[k];
		r->count -= j - i - 1;
	}
	r->at[i].begin = begin;
	r->at[i].end = end;
	return 0;
}

/* ---- The table ------------------------------------------------------------------------------ */

size_t crn_area_from(const cairn_t *c, uintptr_t addr)
{
	size_t i;

	CRN_FIRST(i, c->area_count, c->areas[i]->end > addr);
	return i;
}

struct crn_area *crn_area_at(const cairn_t *c, uintptr_t addr)
{
	size_t i = crn_area_from(c, addr);

	return i < c->area_count && c->areas[i]->begin <= addr ? c->areas[i] : NULL;
}

bool crn_areas_cover(const cairn_t *c, uintptr_t begin, uintptr_t end)
{
	for (size_t i = crn_area_from(c, begin); begin < end; i++) {
		if (i == c->area_count || c->areas[i]->begin > begin)
			return false;
		begin = c->areas[i]->end;
	}
	return true;
}

bool crn_area_cuttable(const struct crn_area *area)
{
	return crn_flags_cuttable(area->flags);
}

static void table_insert(cairn_t *c, struct crn_area *area)
{
	size_t at = crn_area_from(c, area->begin);

	CRN_ASSERT(c->area_count < c->area_capacity);
	CRN_ASSERT(at == c->area_count || c->areas[at]->begin >= area->end);
	for (size_t i = c->area_count; i > at; i--)
		c->areas[i] = c->areas[i - 1];
	c->areas[at] = area;
	c->area_count++;
	c->cuttable += crn_area_cuttable(area);
}

static void table_remove(cairn_t *c, size_t at)
{
	c->cuttable -= crn_area_cuttable(c->areas[at]);
	c->area_count--;
	for (size_t i = at; i < c->area_count; i++)
		c->areas[i] = c->areas[i + 1];
}

bool crn_area_secret(cairn_t *c, uintptr_t page)
{
	uint8_t byte;
	bool secret;

	crn_own_calls(c, true);
	secret = crn_guarded_copy(&byte, (const void *)page, 1) >= 0 &&
		crn_memory_peek(&byte, (const void *)page, 1) == -EFAULT;
	crn_own_calls(c, false);
	return secret;
}

int crn_area_track(cairn_t *c, uintptr_t begin, uintptr_t end, uint32_t flags, uint64_t born)
{
	struct crn_area *area;
	int err;

	if (flags & CRN_AREA_SHARED && crn_area_secret(c, begin))
		return CAIRN_EUNSUPPORTED;
	CRN_TRY(crn_grow(
		c, (void **)&c->areas, &c->area_capacity, c->area_count + 1, sizeof(*c->areas)));
	area = crn_block_alloc(c->arena, sizeof(*area));
	if (!area)
		return CAIRN_EMEMORY;
	area->begin = begin;
	area->end = end;
	area->flags = flags;
	area->born = born;
	err = c->ops->area_add(c->tracker, area);
	if (err < 0) {
		crn_block_free(c->arena, area, sizeof(*area));
		return err;
	}
	area->flags &= ~CRN_AREA_NEW;
	table_insert(c, area);
	c->youngest = CRN_MAX(c->youngest, born);
	return 0;
}

void crn_area_untrack(cairn_t *c, size_t at)
{
	struct crn_area *area = c->areas[at];

	crn_strategy_forget(c, area->begin, area->end);
	c->ops->area_drop(c->tracker, area);
	table_remove(c, at);
	crn_block_free(c->arena, area, sizeof(*area));
}

/*
 * Cut [begin, end) out of the area at `at`; a middle cut needs a second area, which has been made
 * in *spare.
 */
static void cut_area(cairn_t *c, size_t at, uintptr_t begin, uintptr_t end, struct crn_area **spare)
{
	struct crn_area *area = c->areas[at];

	if (area->begin >= begin && area->end <= end) {
		table_remove(c, at);
		crn_block_free(c->arena, area, sizeof(*area));
	} else if (area->begin < begin && area->end > end) {
		struct crn_area *tail = *spare;

		*spare = NULL;
		*tail = *area;
		tail->begin = end;
		area->end = begin;
		table_insert(c, tail);
	} else if (area->begin < begin) {
		area->end = begin;
	} else {
		area->begin = end;
	}
}

/*
 * What is left of an area begins anew, without what it knew of threads: that is asked again. If it
 * cannot, the next look finds it as something new.
 */
static int track_rest(cairn_t *c, uintptr_t begin, uintptr_t end, const struct crn_area *old)
{
	int err;

	if (begin >= end)
		return 0;
	err = crn_area_track(
		c, begin, end, old->flags | crn_surface_hot(c, begin, end), old->born);
	if (err < 0)
		crn_layout_leave_out(c, begin, end);
	return err;
}

/*
 * A tracker that goes by whole areas: the area ends, the interval cannot be undone. All that has
 * gone (of `found`, sorted) is left out at once: other mappings, which are not ours, may be in its
 * place already.
 */
static int vanish_whole(cairn_t *c, size_t at, const struct crn_changes *found)
{
	struct crn_area old = *c->areas[at];
	uintptr_t begin = old.begin;

	crn_area_untrack(c, at);
	c->control->lost = CAIRN_ELAYOUT;
	for (size_t i = 0; i < found->count && begin < old.end; i++) {
		const struct crn_piece *p = &found->at[i].piece;

		if (found->at[i].kind != CRN_CHANGE_GONE || p->end <= begin || p->begin >= old.end)
			continue;
		CRN_TRY(track_rest(c, begin, p->begin, &old));
		begin = p->end;
	}
	return track_rest(c, begin, old.end, &old);
}

void crn_area_let_go(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	size_t i;

	while ((i = crn_area_from(c, begin)) < c->area_count && c->areas[i]->begin < end) {
		crn_layout_leave_out(c, c->areas[i]->begin, c->areas[i]->end);
		crn_area_untrack(c, i);
		c->control->lost = CAIRN_ELAYOUT;
	}
}

int crn_area_vanish(
	cairn_t *c, uintptr_t begin, uintptr_t end, const struct crn_changes *found)
{
	struct crn_area *spare;
	size_t i;
	int err = 0;

	CRN_TRY(crn_grow(
		c, (void **)&c->areas, &c->area_capacity, c->area_count + 1, sizeof(*c->areas)));
	spare = crn_block_alloc(c->arena, sizeof(*spare));
	if (!spare)
		return CAIRN_EMEMORY;
	while ((i = crn_area_from(c, begin)) < c->area_count && c->areas[i]->begin < end) {
		struct crn_area part = *c->areas[i];
		uintptr_t next = CRN_MIN(end, part.end);

		part.begin = CRN_MAX(part.begin, begin);
		part.end = next;
		if (!c->ops->area_gone) {
			err = vanish_whole(c, i, found);
		} else {
			crn_strategy_forget(c, part.begin, part.end);
			err = c->ops->area_gone(c->tracker, &part);
			if (err >= 0)
				cut_area(c, i, part.begin, part.end, &spare);
		}
		if (err < 0 || next >= end)
			break;
		begin = next;
	}
	crn_block_free(c->arena, spare, sizeof(*spare));
	return err;
}

/* Make `addr` a border between areas, if it is inside one that may be cut. */
static int cut_at(cairn_t *c, uintptr_t addr)
{
	struct crn_area *area = crn_area_at(c, addr), *tail;

	if (!area || area->begin == addr || area->flags & CRN_AREA_STACK)
		return 0;
	CRN_TRY(crn_grow(
		c, (void **)&c->areas, &c->area_capacity, c->area_count + 1, sizeof(*c->areas)));
	tail = crn_block_alloc(c->arena, sizeof(*tail));
	if (!tail)
		return CAIRN_EMEMORY;
	*tail = *area;
	tail->begin = area->end = addr;
	table_insert(c, tail);
	return 0;
}

int crn_area_born(cairn_t *c, uintptr_t begin, uintptr_t end, uint64_t born)
{
	CRN_TRY(cut_at(c, begin));
	CRN_TRY(cut_at(c, end));
	for (size_t i = crn_area_from(c, begin); i < c->area_count; i++) {
		struct crn_area *a = c->areas[i];

		if (a->begin >= end)
			break;
		if (a->flags & CRN_AREA_STACK && born > a->born)
			continue;
		a->born = born;
		if (c->ops->area_born)
			CRN_TRY(c->ops->area_born(c->tracker, a));
		c->youngest = CRN_MAX(c->youngest, born);
	}
	return 0;
}

int crn_area_forget(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct crn_area *spare;
	size_t i;

	CRN_TRY(crn_grow(
		c, (void **)&c->areas, &c->area_capacity, c->area_count + 1, sizeof(*c->areas)));
	spare = crn_block_alloc(c->arena, sizeof(*spare));
	if (!spare)
		return CAIRN_EMEMORY;
	for (i = crn_area_from(c, begin); i < c->area_count && c->areas[i]->begin < end;) {
		struct crn_area part = *c->areas[i];

		part.begin = CRN_MAX(part.begin, begin);
		part.end = CRN_MIN(part.end, end);
		if (part.begin == c->areas[i]->begin && part.end == c->areas[i]->end) {
			crn_area_untrack(c, i);
		} else if (c->ops->area_gone) {
			crn_strategy_forget(c, part.begin, part.end);
			c->ops->area_drop(c->tracker, &part);
			cut_area(c, i, part.begin, part.end, &spare);
			i = crn_area_from(c, part.end);
		} else {
			i++; /* watched for nothing until the next look */
		}
	}
	crn_block_free(c->arena, spare, sizeof(*spare));
	return 0;
}
