/* SPDX-License-Identifier: MIT */
/*
 * The objects that shared areas are mapped from. Nothing reports changes of their mappings. If
 * another object is mapped there, closed to stores, it is as closed as any clean page; only its
 * identity shows that the old content is no longer in live memory. The identity is checked where
 * that matters: when the past is looked at, when pages are saved, and at checkpoints that close
 * pages.
 */
#include "base/arena.h"
#include "base/status.h"
#include "track/undo/undo_pages.h"

/* A run of pages of one object, at one distance from their places in it. */
struct undo_object {
	uintptr_t begin, end;
	uint64_t inode, base;
	uint32_t dev_major, dev_minor;
};

static struct undo_object object_of(const struct crn_mapping *m)
{
	return (struct undo_object){
		.begin = m->begin,
		.end = m->end,
		.inode = m->inode,
		.base = m->offset - m->begin,
		.dev_major = m->dev_major,
		.dev_minor = m->dev_minor,
	};
}

static bool is_same(const struct undo_object *a, const struct undo_object *b)
{
	return a->inode == b->inode && a->base == b->base && a->dev_major == b->dev_major &&
		a->dev_minor == b->dev_minor;
}

/* It lies behind the last one that is known. */
static bool continues_last(const struct undo_area *a, const struct undo_object *o)
{
	const struct undo_object *last = a->object_count ? &a->objects[a->object_count - 1] : NULL;

	return last && last->end == o->begin && is_same(last, o);
}

int undo_object_note(struct crn_undo_pages *u, struct undo_area *a)
{
	struct crn_mapping m;
	int more;

	if (!(a->area->flags & CRN_AREA_SHARED) || !u->env->areas_alone)
		return 0;
	CRN_TRY(crn_maps_begin(&u->maps, a->begin, CRN_MAPS_NO_NAMES));
	while ((more = crn_maps_next(&u->maps, &m)) > 0 && m.begin < a->end) {
		struct undo_object o = object_of(&m);

		if (continues_last(a, &o)) {
			a->objects[a->object_count - 1].end = o.end;
			continue;
		}
		CRN_TRY(crn_table_grow(u->env->arena, (void **)&a->objects, &a->object_capacity,
			a->object_count, a->object_count + 1, sizeof(*a->objects)));
		a->objects[a->object_count++] = o;
	}
	return CRN_MIN(more, 0);
}

void undo_object_forget(struct crn_undo_pages *u, struct undo_area *a)
{
	crn_block_free(u->env->arena, a->objects, a->object_capacity * sizeof(*a->objects));
	a->objects = NULL;
	a->object_count = a->object_capacity = 0;
}

bool undo_object_is(const struct undo_area *a, const struct crn_mapping *m)
{
	const struct undo_object now = object_of(m);

	for (size_t i = 0; i < a->object_count; i++) {
		const struct undo_object *o = &a->objects[i];

		if (o->end > m->begin && o->begin < m->end && !(m->shared && is_same(o, &now)))
			return false;
	}
	return true;
}

bool undo_object_there(const struct crn_undo_pages *u, const struct undo_area *a, uintptr_t begin,
	uintptr_t end)
{
	struct crn_mapping m;

	for (; a->object_count && begin < end; begin = m.end) {
		int got = crn_maps_ask(&u->maps, begin, &m);

		if (got < 0)
			return true; /* nobody answers */
		if (!got || !undo_object_is(a, &m))
			return false;
	}
	return true;
}

void undo_object_look(struct crn_undo_pages *u)
{
	for (size_t i = 0; i < u->area_count; i++) {
		struct undo_area *a = u->areas[i];

		if (!a->lost && !undo_object_there(u, a, a->begin, a->end))
			undo_whole_lost(u, a);
	}
}
