/* SPDX-License-Identifier: MIT */
/* Changes of the layout, kept with the mark of the interval in which they happened. */
#include "session/map_changes.h"
#include "base/copy.h"

void crn_changes_close(cairn_t *c, struct crn_changes *l)
{
	crn_block_free(c->arena, l->at, l->capacity * sizeof(*l->at));
	crn_fill(l, 0, sizeof(*l));
}

static int change_add(cairn_t *c, struct crn_changes *l, const struct crn_piece *piece,
	const struct crn_added *added, uintptr_t begin, uintptr_t end, int kind)
{
	struct crn_change *change;

	CRN_TRY(crn_grow(c, (void **)&l->at, &l->capacity, l->count + 1, sizeof(*l->at)));
	change = &l->at[l->count++];
	crn_fill(change, 0, sizeof(*change));
	change->piece = *piece;
	change->piece.begin = begin;
	change->piece.end = end;
	change->kind = kind;
	if (added)
		change->added = *added;
	return 0;
}

/*
 * One kind of the past from `begin` on: how old it is, and whether it was an explicit area once;
 * where that ends.
 */
static uintptr_t same_past(
	const cairn_t *c, struct crn_piece *piece, uintptr_t begin, uintptr_t end, int kind)
{
	bool ended = kind == CRN_CHANGE_GONE || kind == CRN_CHANGE_PROT;
	uintptr_t at = begin;

	for (size_t i = crn_area_from(c, begin); ended && at < end && i < c->area_count; i++) {
		const struct crn_area *a = c->areas[i];
		uint32_t removed = a->flags & CRN_AREA_REMOVED;

		if (a->begin > at)
			return at > begin ? at : CRN_MIN(end, a->begin);
		if (at > begin && (a->born != piece->born ||
					  removed != (piece->flags & CRN_AREA_REMOVED)))
			return at;
		piece->flags |= removed;
		piece->born = a->born;
		at = CRN_MIN(end, a->end);
	}
	return at > begin ? at : end;
}

int crn_change_add(cairn_t *c, struct crn_changes *l, const struct crn_piece *piece,
	uintptr_t begin, uintptr_t end, int kind)
{
	while (begin < end) {
		const struct crn_added *added = NULL;
		struct crn_piece part = *piece;
		uintptr_t stop = same_past(c, &part, begin, end, kind);

		if (piece->flags & CRN_AREA_EXPLICIT)
			added = crn_added_meets(c, begin, end);
		if (added)
			stop = CRN_MIN(stop, added->begin > begin ? added->begin : added->end);
		CRN_TRY(change_add(c, l, &part, added && added->begin <= begin ? added : NULL,
			begin, stop, kind));
		begin = stop;
	}
	return 0;
}

bool crn_change_younger(const struct crn_change *change, uint64_t id)
{
	const struct crn_piece *p = &change->piece;
	bool passed = change->kind == CRN_CHANGE_GONE && p->flags & CRN_AREA_SHARED;

	return (p->flags & CRN_AREA_EXPLICIT && change->added.born > id) ||
		((passed || p->flags & CRN_AREA_REMOVED) && p->born > id);
}

void crn_layout_forget(cairn_t *c, const struct crn_added *added)
{
	for (size_t k = 0; k < c->marks.count; k++) {
		struct crn_changes *l = &crn_mark_at(c, k)->changes;
		size_t left = 0;

		for (size_t i = 0; i < l->count; i++) {
			const struct crn_added *of = &l->at[i].added;

			if (of->begin != added->begin || of->end != added->end ||
				of->born != added->born)
				l->at[left++] = l->at[i];
		}
		l->count = left;
	}
}

static bool is_reserved(const cairn_t *c, const struct crn_piece *p)
{
	size_t i = crn_ranges_from(&c->reserved, p->begin);

	return i < c->reserved.count && c->reserved.at[i].begin <= p->begin &&
		c->reserved.at[i].end >= p->end;
}

static bool is_listed(const struct crn_changes *l, size_t count, const struct crn_change *change)
{
	const struct crn_piece *p = &change->piece;

	for (size_t i = 0; i < count; i++)
		if (l->at[i].piece.begin <= p->begin && l->at[i].piece.end >= p->end)
			return true;
	return false;
}

void crn_changes_keep_reserved(cairn_t *c, uint64_t id, struct crn_changes *target)
{
	size_t left = 0;

	for (size_t i = 0; i < target->count; i++) {
		const struct crn_change *change = &target->at[i];

		if (change->kind == CRN_CHANGE_RESERVED && !is_reserved(c, &change->piece) &&
			!is_listed(target, left, change))
			target->at[left++] = *change;
	}
	target->count = left;
	for (size_t k = c->marks.count; k-- > 0 && crn_mark_at(c, k)->id > id;) {
		const struct crn_changes *l = &crn_mark_at(c, k)->changes;

		for (size_t i = 0; i < l->count; i++) {
			const struct crn_piece *p = &l->at[i].piece;

			/* Without memory for it, they will be free. */
			if (l->at[i].kind == CRN_CHANGE_RESERVED && !is_reserved(c, p) &&
				!is_listed(target, target->count, &l->at[i]))
				(void)crn_change_add(c, target, p, p->begin, p->end,
					CRN_CHANGE_RESERVED);
		}
	}
}
