/* SPDX-License-Identifier: MIT */
/*
 * Changes of the layout: map_layout.c and files.c find them, layout_undo.c undoes them. With the
 * session's lock.
 */
#ifndef CRN_MAP_CHANGES_H
#define CRN_MAP_CHANGES_H

#include "session/engine.h"

/* Parts of two explicit areas become two changes, and so do parts that were one and are not now. */
int crn_change_add(cairn_t *c, struct crn_changes *l, const struct crn_piece *piece,
	uintptr_t begin, uintptr_t end, int kind);
/*
 * It was no area at `id`, or it is not any more what it was then, or it is shared memory that has
 * come and gone since: a restore leaves it alone.
 */
bool crn_change_younger(const struct crn_change *change, uint64_t id);
void crn_changes_close(cairn_t *c, struct crn_changes *l);
/*
 * Once all changes since `id` have been undone: `target`, its mark's, keeps the reservations where
 * something stays, for that may go later, and nothing else.
 */
void crn_changes_keep_reserved(cairn_t *c, uint64_t id, struct crn_changes *target);
/* The area was removed: what has become of it is not to be undone. */
void crn_layout_forget(cairn_t *c, const struct crn_added *added);

#endif
