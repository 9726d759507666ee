/* SPDX-License-Identifier: MIT */
/*
 * The program's limits while a restore maps memory again. Undoing changes in another order than
 * the program made them in would need more room, so what is counted here follows layout_undo.c.
 */
#include "session/engine.h"
#include "session/map_changes.h"
#include "os/limits.h"

struct room {
	int64_t now, most;
};

static void add(struct room *r, int64_t bytes)
{
	r->now += bytes;
	r->most = CRN_MAX(r->most, r->now);
}

static void count(const cairn_t *c, uint64_t id, const struct crn_change *change,
	struct room *space, struct room *data)
{
	const struct crn_piece *p = &change->piece;
	int64_t bytes = (int64_t)(p->end - p->begin);

	switch (change->kind) {
	case CRN_CHANGE_GONE: /* mapped as data first, whatever its protection */
		add(space, bytes);
		add(data, bytes);
		return;
	case CRN_CHANGE_BORN:
	case CRN_CHANGE_OPENED:
		/* The mapping of an older file keeps its place. */
		if ((change->kind == CRN_CHANGE_OPENED && p->born <= id) || crn_must_stay(c, p))
			return;
		add(space, -bytes);
		add(data, p->prot & PROT_WRITE ? -bytes : 0);
		return;
	case CRN_CHANGE_PROT:
		add(data, p->prot & PROT_WRITE ? bytes : 0);
		return;
	case CRN_CHANGE_RESERVED:
		add(space, bytes);
		return;
	case CRN_CHANGE_FILE:
		return;
	}
}

int crn_layout_room(const cairn_t *c, uint64_t id)
{
	struct room space = { 0, 0 }, data = { 0, 0 };

	for (size_t k = c->marks.count; k-- > 0 && crn_mark_at(c, k)->id >= id;) {
		const struct crn_changes *l = &crn_mark_at(c, k)->changes;

		for (size_t i = l->count; i-- > 0;)
			if (!crn_change_younger(&l->at[i], id))
				count(c, id, &l->at[i], &space, &data);
	}
	return crn_limits_leave((size_t)space.most, (size_t)data.most);
}
