/* SPDX-License-Identifier: MIT */
/*
 * Are the mappings of explicit areas still those that were closed? Their checkpoints make no system
 * call, so nobody tells of a munmap or mremap. Of what the program maps there instead nothing is
 * closed: clean pages would be written unseen, and their old content, which was in live memory
 * alone, is gone. Open pages do not matter: their old content is in frames.
 */
#include <errno.h>
#include <signal.h>
#include "base/log.h"
#include "base/status.h"
#include "os/guarded.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "os/thread.h"
#include "os/userfault.h"
#include "track/undo_pages.h"

/* Does the hardware have to refuse stores to it? A handler that has just opened it says so soon. */
static bool is_clean(const struct undo_area *a, uintptr_t page)
{
	uintptr_t word;

	while ((word = atomic_load(undo_word_of(a, page))) & UNDO_BUSY)
		crn_yield();
	/* Sealed: it could not be closed any more (undo_protect.c). */
	return !(word & UNDO_OPEN) || word & UNDO_SEALED;
}

static bool any_clean(const struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		if (is_clean(a, page))
			return true;
	return false;
}

/* ---- By mprotect ------------------------------------------------------------------------- */

/* No mapping that can be written holds a clean page, and none has gone. */
int undo_whole_mprotect(struct crn_undo_pages *u, struct undo_area *a)
{
	struct crn_mapping m;
	int more;

	if (!crn_memory_all_mapped(a->begin, a->end - a->begin))
		return CAIRN_ELAYOUT;
	CRN_TRY(crn_maps_begin(&u->maps, a->begin, CRN_MAPS_NO_NAMES | CRN_MAPS_WRITABLE));
	while ((more = crn_maps_next(&u->maps, &m)) > 0 && m.begin < a->end)
		if (any_clean(a, CRN_MAX(m.begin, a->begin), CRN_MIN(m.end, a->end)))
			return CAIRN_ELAYOUT;
	return CRN_MIN(more, 0);
}

/* ---- By userfaultfd ---------------------------------------------------------------------- */

/* 0, -ENOENT, or -EBADF if nobody has the file any more. */
static int registered(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end)
{
	int err;

	do
		err = crn_uffd_whole(u->uffd, begin, end - begin);
	while (err < 0 && crn_keeper_mend(u->env->keeper) > 0);
	return err;
}

/* One mapping after the other: an area may consist of several. */
static int walk(struct crn_undo_pages *u, struct undo_area *a)
{
	uintptr_t at = a->begin, end;
	struct crn_mapping m;
	int more = 1, err;

	CRN_TRY(crn_maps_begin(&u->maps, at, CRN_MAPS_NO_NAMES));
	for (; at < a->end && (more = crn_maps_next(&u->maps, &m)) > 0; at = end) {
		if (m.begin > at)
			return CAIRN_ELAYOUT;
		end = CRN_MIN(m.end, a->end);
		err = registered(u, at, at + CRN_PAGE_SIZE);
		if (err == -ENOENT && any_clean(a, at, end))
			return CAIRN_ELAYOUT;
		if (err != -ENOENT)
			CRN_TRY(err);
	}
	return more < 0 ? more : at < a->end ? CAIRN_ELAYOUT : 0;
}

int undo_whole_uffd(struct crn_undo_pages *u, struct undo_area *a)
{
	int err = -ENOENT;
	uint8_t byte;

	/* One call for an area that is one mapping, whose first page is there once it is read. */
	if (crn_guarded_copy(&byte, (const void *)a->begin, 1) >= 0)
		err = registered(u, a->begin, a->end);
	return err == -ENOENT ? walk(u, a) : err;
}

/* ---- All areas --------------------------------------------------------------------------- */

int undo_whole(void *t, uintptr_t begin, uintptr_t end)
{
	struct crn_undo_pages *u = t;
	int err = 0;

	for (size_t i = 0; i < u->area_count && err >= 0; i++) {
		struct undo_area *a = u->areas[i];

		if (a->end <= begin || a->begin >= end || !a->guard || !a->guard->whole)
			continue;
		err = a->guard->whole(u, a);
		if (err == CAIRN_ELAYOUT)
			crn_error("area %lx-%lx has been unmapped, moved or opened: remove areas "
				  "before that",
				a->begin, a->end);
	}
	return err;
}
