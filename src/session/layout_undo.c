/* SPDX-License-Identifier: MIT */
/*
 * How a restore undoes the changes that map_layout.c has found: first the places of mappings and
 * then, when the content is back, their protections.
 *
 * A newer mapping that somebody still needs stays. If an older one was in its place, the newer one
 * serves as that.
 *
 *	area->born > id    the checkpoint does not hold the area: its content is left as it is
 *	area->born <= id   it does
 *
 * Both follow from the changes, which are undone newest first. Undoing a birth makes an area that
 * stays younger than id. Undoing an end makes what is there as old as possible; a part of an
 * explicit area becomes as old as that area. Changes of explicit areas that the checkpoint does not
 * hold are not undone, nor are changes of areas that were removed after it.
 *
 * Everything that may fail is checked or done before the first mapping changes. If something fails
 * after that (another thread maps memory just there, the kernel is short of memory), the process
 * ends with a line that says so, because a program must not see half a restore.
 */
#include <errno.h>
#include "session/engine.h"
#include "session/files.h"
#include "session/map_changes.h"
#include "base/check.h"
#include "base/log.h"
#include "os/memory.h"

/*
 * What a change is to a restore to `id`. The mapping of a file that has come since is a newer
 * mapping like others, once it is a part of the surface.
 */
static int kind_at(const struct crn_change *change, uint64_t id)
{
	bool newer = change->piece.born > id;

	if (change->kind == CRN_CHANGE_OPENED && newer)
		return CRN_CHANGE_BORN;
	return change->kind;
}

static bool is_file(const struct crn_change *change, uint64_t id)
{
	return (change->kind == CRN_CHANGE_OPENED || change->kind == CRN_CHANGE_FILE) &&
		change->piece.born <= id;
}

bool crn_must_stay(const cairn_t *c, const struct crn_piece *p)
{
	size_t i = crn_ranges_from(&c->excluded, p->begin);
	size_t j = crn_ranges_from(&c->builtin, p->begin);

	return (i < c->excluded.count && c->excluded.at[i].begin < p->end) ||
		(j < c->builtin.count && c->builtin.at[j].begin < p->end) ||
		(c->skip && c->skip->begin < p->end && c->skip->end > p->begin) ||
		p->flags & CRN_AREA_STACK;
}

/*
 * Is every byte of [begin, end) in a mapping that was born since `id`, and will be unmapped or
 * serve in the older one's place? `changes` of the list of mark `k` have not been looked at: the
 * newest change of an address says what is there now.
 */
static bool born_since(const cairn_t *c, uint64_t id, uintptr_t begin, uintptr_t end, size_t k,
	size_t changes)
{
	for (;; changes = crn_mark_at(c, --k)->changes.count) {
		const struct crn_change *at = crn_mark_at(c, k)->changes.at;

		while (changes-- > 0) {
			const struct crn_piece *p = &at[changes].piece;
			uintptr_t from = CRN_MAX(begin, p->begin), to = CRN_MIN(end, p->end);
			int kind = kind_at(&at[changes], id);

			if ((kind != CRN_CHANGE_BORN && kind != CRN_CHANGE_GONE) || from >= to)
				continue;
			if (kind == CRN_CHANGE_GONE || crn_change_younger(&at[changes], id))
				return false; /* what is there is not ours, or stays */
			if (crn_must_stay(c, p) && !crn_areas_cover(c, from, to))
				return false;
			return (begin >= from || born_since(c, id, begin, from, k, changes)) &&
				(to >= end || born_since(c, id, to, end, k, changes));
		}
		if (!k || crn_mark_at(c, k - 1)->id < id)
			return false;
	}
}

bool crn_place_frees(const cairn_t *c, uint64_t id, uintptr_t begin, uintptr_t end)
{
	size_t newest = c->marks.count - 1;

	if (crn_files_younger(c, id, begin, end))
		return !crn_must_stay(c, &(struct crn_piece){ .begin = begin, .end = end });
	return born_since(c, id, begin, end, newest, crn_mark_at(c, newest)->changes.count);
}

/* The place of a vanished mapping must be free, or become so. */
static int place_available(cairn_t *c, uint64_t id, const struct crn_piece *p)
{
	struct crn_mapping m;
	int more;

	CRN_TRY(crn_maps_begin(&c->maps, p->begin, CRN_MAPS_NO_NAMES));
	while ((more = crn_maps_next(&c->maps, &m)) > 0 && m.begin < p->end) {
		if (!crn_place_frees(
			    c, id, CRN_MAX(m.begin, p->begin), CRN_MIN(m.end, p->end)))
			return CAIRN_ELAYOUT;
	}
	return more < 0 ? more : 0;
}

/*
 * What the tracker holds for the pages of a mapping that stays counts as written from now on. With
 * `forget` it is replaced by zeros.
 */
static int disown(cairn_t *c, const struct crn_piece *p, bool forget)
{
	if (!c->ops->held)
		return 0;
	for (size_t i = crn_area_from(c, p->begin); i < c->area_count; i++) {
		uintptr_t end = CRN_MIN(p->end, c->areas[i]->end), to = end;
		uintptr_t from = CRN_MAX(p->begin, c->areas[i]->begin);

		for (; from < end && c->ops->held(c->tracker, &from, &to); from = to, to = end) {
			CRN_TRY(c->ops->page.unprotect(c->tracker, from, to - from));
			for (uintptr_t page = from; forget && page < to; page += CRN_PAGE_SIZE)
				CRN_TRY(c->ops->rebase(c->tracker, page, NULL));
		}
		if (end == p->end)
			break;
	}
	return 0;
}

/*
 * What a stack has grown by since the newest checkpoint, under the agent: nobody's. No other thread
 * runs on it, nor does the agent, and the checkpoint's frames lie above. It is emptied and not
 * adopted, for that would copy it; the next look finds what the kernel still calls the stack.
 */
static bool is_dropped(const cairn_t *c, const struct crn_piece *p)
{
	const uint32_t grown = CRN_AREA_STACK | CRN_PIECE_NOTED;

	return c->agent && (p->flags & grown) == grown && !(c->ops->caps & CRN_TRACK_KEEPS);
}

/*
 * A mapping that stays is tracked, if it was only noted so far. The tracker will have to forget
 * what it held at the newest checkpoint: the memory for that is wanted now.
 */
static int prepare_to_stay(cairn_t *c, struct crn_piece *p, bool open_interval)
{
	if (is_dropped(c, p))
		return 0;
	/* What the tracker cannot take may stay, but not serve for an older one. */
	if (p->flags & CRN_PIECE_NOTED) {
		p->flags ^= CRN_PIECE_NOTED | CRN_PIECE_STAYS;
		if (crn_layout_adopt(c, p) == CAIRN_EMEMORY)
			return CAIRN_EMEMORY;
	}
	return open_interval ? 0 : disown(c, p, false);
}

/* The tracker may still hold what an older mapping had there at the newest checkpoint. */
static int let_go(cairn_t *c, const struct crn_piece *p, bool open_interval)
{
	if (open_interval && c->ops->area_gone)
		return crn_area_vanish(c, p->begin, p->end, NULL);
	return crn_area_forget(c, p->begin, p->end);
}

/* The layout does not have them: one that goes after a refused restore would not be missed. */
int crn_layout_unprepare(cairn_t *c)
{
	struct crn_changes *l = &crn_mark_newest(c)->changes;

	for (size_t i = 0; i < l->count; i++) {
		struct crn_piece *p = &l->at[i].piece;

		if (!(p->flags & CRN_PIECE_STAYS))
			continue;
		CRN_TRY(let_go(c, p, true));
		p->flags ^= CRN_PIECE_NOTED | CRN_PIECE_STAYS;
	}
	return 0;
}

/* It was not tracked before. */
static bool is_new(const struct crn_change *change)
{
	return change->kind == CRN_CHANGE_BORN || change->kind == CRN_CHANGE_OPENED;
}

/* A place of an explicit area that has ended: not where another one is now. */
static bool is_free(const cairn_t *c, const struct crn_change *change)
{
	const struct crn_added *is = NULL, *was = &change->added;

	if (change->piece.flags & CRN_AREA_EXPLICIT)
		is = crn_added_meets(c, was->begin, was->end);
	return !is || (is->begin == was->begin && is->end == was->end && is->born == was->born);
}

static int undoable(cairn_t *c, uint64_t id, const struct crn_change *change)
{
	const struct crn_piece *p = &change->piece;

	/* A private file mapping comes back as a private copy; what was refused cannot. */
	if (p->flags & (CRN_AREA_SHARED | CRN_PIECE_REFUSED) || !c->ops->area_gone ||
		!is_free(c, change))
		return CAIRN_ELAYOUT;
	c->place_frames += crn_pages(p->end - p->begin) / 512 + 8;
	return place_available(c, id, p);
}

/*
 * What the program has sealed (mseal) keeps its protection for good; setting the one that it has
 * shows that. Not where a tracker has taken permissions away, which that would give back.
 */
static int protectable(cairn_t *c, const struct crn_piece *was)
{
	int err = 0;

	if (!(c->ops->caps & CRN_TRACK_SEES_KERNEL))
		return 0;
	crn_own_calls(c, true);
	for (size_t i = 0; i < c->layout.count && err != -EPERM; i++) {
		const struct crn_piece *now = &c->layout.at[i];
		uintptr_t begin = CRN_MAX(was->begin, now->begin);
		uintptr_t end = CRN_MIN(was->end, now->end);

		if (begin < end && now->prot != was->prot)
			err = crn_memory_protect((void *)begin, end - begin, now->prot);
	}
	crn_own_calls(c, false);
	return err == -EPERM ? CAIRN_ELAYOUT : 0;
}

/* Opened, and somebody still needs what is there. */
static bool stays(const cairn_t *c, const struct crn_change *change)
{
	return change->kind == CRN_CHANGE_OPENED && crn_must_stay(c, &change->piece);
}

int crn_layout_undoable(cairn_t *c, uint64_t id)
{
	size_t explicit_parts = 0;

	c->place_frames = 0;
	for (size_t k = c->marks.count; k-- > 0 && crn_mark_at(c, k)->id >= id;) {
		const struct crn_changes *l = &crn_mark_at(c, k)->changes;

		for (size_t i = 0; i < l->count; i++) {
			struct crn_piece *p = &l->at[i].piece;

			if (!crn_change_younger(&l->at[i], id) && is_new(&l->at[i]) &&
				crn_must_stay(c, p))
				CRN_TRY(prepare_to_stay(c, p, k == c->marks.count - 1));
		}
	}
	for (size_t k = c->marks.count; k-- > 0 && crn_mark_at(c, k)->id >= id;) {
		const struct crn_changes *l = &crn_mark_at(c, k)->changes;

		for (size_t i = 0; i < l->count; i++) {
			if (is_file(&l->at[i], id) && !stays(c, &l->at[i]))
				CRN_TRY(crn_file_undoable(c, id, &l->at[i].piece));
			if (crn_change_younger(&l->at[i], id))
				continue;
			if (l->at[i].kind == CRN_CHANGE_PROT)
				CRN_TRY(protectable(c, &l->at[i].piece));
			if (l->at[i].kind != CRN_CHANGE_GONE)
				continue;
			CRN_TRY(undoable(c, id, &l->at[i]));
			explicit_parts += l->at[i].piece.flags & CRN_AREA_EXPLICIT ? 1 : 0;
		}
	}
	return crn_added_reserve(c, explicit_parts);
}

/* ---- Places ---------------------------------------------------------------------------------- */

/*
 * A mapping that stays has not been there at `id`: what its pages held at the newest checkpoint
 * must not get into a record as what they held at `id`. As in any new mapping, that is zeros.
 */
static void stay(cairn_t *c, uint64_t id, const struct crn_piece *p, bool open_interval)
{
	int err;

	/*
	 * What a stack has grown by is nobody's, and hot: it would be copied at every checkpoint.
	 * The agent lets no other thread run on it, and does not run there itself.
	 */
	if (c->agent && p->flags & CRN_AREA_STACK)
		(void)crn_memory_advise((void *)p->begin, p->end - p->begin, MADV_DONTNEED);
	/* Trackers that cannot bring a mapping back have not made anything older. */
	if (p->flags & CRN_PIECE_REFUSED || !c->ops->area_gone)
		return;
	err = crn_area_born(c, p->begin, p->end, id + 1);
	if (err >= 0 && !open_interval)
		err = disown(c, p, true);
	if (err < 0)
		crn_half_way("keep a newer mapping at", p->begin, err);
}

/* True if the layout tells the truth without it: it was noted there as not ours, and is gone. */
static bool undo_born(cairn_t *c, uint64_t id, const struct crn_piece *p, bool open_interval)
{
	bool gone = false;
	int err;

	crn_debug("unmap %zx-%zx: %s", p->begin, p->end, crn_must_stay(c, p) ? "stays" : "yes");
	if (is_dropped(c, p))
		return crn_memory_advise((void *)p->begin, p->end - p->begin, MADV_DONTNEED) >= 0;
	if (!crn_must_stay(c, p)) {
		uintptr_t end = crn_page_up(crn_memory_break(0));

		/* By brk, so that the kernel's idea of the heap's end goes back as well. */
		if (p->flags & CRN_PIECE_HEAP && end > p->begin)
			gone = crn_memory_break(p->begin) == p->begin && end >= p->end;
		/* The kernel may refuse to cut a mapping in two. */
		gone = gone || crn_memory_unmap((void *)p->begin, p->end - p->begin) >= 0;
	}
	if (!gone) {
		stay(c, id, p, open_interval);
		return false;
	}
	err = let_go(c, p, open_interval);
	if (err < 0)
		crn_half_way("forget a newer mapping at", p->begin, err);
	return (p->flags & (CRN_PIECE_NOTED | CRN_PIECE_HEAP)) == CRN_PIECE_NOTED;
}

static int map_again(
	cairn_t *c, const struct crn_piece *p, uintptr_t begin, uintptr_t end, uint64_t born)
{
	uint32_t flags = p->flags & CRN_AREA_FLAGS & ~CRN_AREA_FILE;

	CRN_TRY(crn_memory_map_at(begin, end - begin));
	return p->flags & CRN_PIECE_REFUSED ? 0 : crn_area_track(c, begin, end, flags, born);
}

/* A newer mapping in [begin, end) is the older one from now on. */
static int serve(cairn_t *c, uintptr_t begin, uintptr_t end, uint32_t flags, uint64_t born)
{
	if (!(c->ops->caps & CRN_TRACK_KEEPS))
		return crn_area_born(c, begin, end, born);
	/* What was kept is known by its area: that has to begin again. */
	CRN_TRY(crn_area_vanish(c, begin, end, NULL));
	return crn_area_track(c, begin, end, flags, born);
}

/*
 * Map what is not mapped in [begin, end) and track it. A newer mapping that had to stay serves as
 * the old one.
 */
static int fill_place(cairn_t *c, const struct crn_piece *p, uint64_t born)
{
	uint32_t flags = p->flags & CRN_AREA_FLAGS & ~CRN_AREA_FILE;

	for (uintptr_t at = p->begin, next; at < p->end; at = next) {
		size_t i = crn_area_from(c, at);
		uintptr_t begin = i < c->area_count ? c->areas[i]->begin : UINTPTR_MAX;

		if (begin > at) {
			next = CRN_MIN(begin, p->end);
			CRN_TRY(map_again(c, p, at, next, born));
		} else {
			next = CRN_MIN(c->areas[i]->end, p->end);
			CRN_TRY(serve(c, at, next, flags, born));
		}
	}
	return 0;
}

static void undo_gone(cairn_t *c, uint64_t id, const struct crn_change *change)
{
	const struct crn_piece *p = &change->piece;
	/* Born since, it goes when that is undone; if it has to stay, it is as old as can be. */
	uint64_t born = p->born <= id ? p->born : 0;
	int err;

	if (p->flags & CRN_AREA_EXPLICIT)
		born = CRN_MAX(born, change->added.born);
	crn_debug("map again %zx-%zx", p->begin, p->end);
	crn_files_give_way(c, id, p->begin, p->end);
	/* The heap's end need not be on a page's: what the kernel has mapped is what counts. */
	if (p->flags & CRN_PIECE_HEAP && crn_page_up(crn_memory_break(0)) == p->begin &&
		crn_memory_break(p->end) == p->end)
		err = crn_area_track(c, p->begin, p->end, p->flags & CRN_AREA_FLAGS, born);
	else
		err = fill_place(c, p, born);
	if (p->flags & CRN_AREA_EXPLICIT)
		crn_added_revive(c, &change->added);
	if (err < 0)
		crn_half_way("map memory again at", p->begin, err);
}

static void undo_file(cairn_t *c, const struct crn_piece *p)
{
	int err = crn_file_put(c, p);

	crn_debug("file %zx-%zx as it was", p->begin, p->end);
	if (err < 0)
		crn_half_way("map a file again at", p->begin, err);
}

/* That one and, if it is of the heap, those below it first, for brk. The place of the last one. */
static size_t undo_all_gone(cairn_t *c, uint64_t id, const struct crn_changes *l, size_t i)
{
	size_t first = i;

	while (first > 0 && l->at[first - 1].kind == CRN_CHANGE_GONE &&
		l->at[first - 1].piece.end == l->at[first].piece.begin &&
		l->at[first - 1].piece.flags & l->at[first].piece.flags & CRN_PIECE_HEAP)
		first--;
	for (size_t k = first; k <= i; k++)
		undo_gone(c, id, &l->at[k]);
	return first;
}

/*
 * The map as it is now becomes the layout, as far as areas cover it: the rest will be found as new.
 */
static int reread(cairn_t *c)
{
	c->files_look = c->last_id;
	c->files_kept = false;
	CRN_TRY(crn_surface_read(c));
	CRN_TRY(crn_grow(c, (void **)&c->fresh.at, &c->fresh.capacity,
		c->fresh.count + c->area_count + 2, sizeof(*c->fresh.at)));
	for (size_t i = 0; i <= c->area_count; i++) {
		uintptr_t from = i ? c->areas[i - 1]->end : 0;
		uintptr_t to = i < c->area_count ? c->areas[i]->begin : UINTPTR_MAX;

		if (from < to)
			crn_pieces_cut(&c->fresh, from, to);
	}
	c->control->maps_stale = true;
	return crn_layout_replace(c);
}

bool crn_layout_changed(const cairn_t *c, uint64_t id)
{
	for (size_t k = c->marks.count; k-- > 0 && crn_mark_at(c, k)->id >= id;) {
		if (crn_mark_at(c, k)->changes.count)
			return true;
	}
	return false;
}

void crn_layout_undo_places(cairn_t *c, uint64_t id)
{
	bool known = true;
	int err;

	for (size_t k = c->marks.count; k-- > 0 && crn_mark_at(c, k)->id >= id;) {
		const struct crn_changes *l = &crn_mark_at(c, k)->changes;

		for (size_t i = l->count; i-- > 0;) {
			if (crn_change_younger(&l->at[i], id))
				continue;
			known &= l->at[i].kind == CRN_CHANGE_BORN;
			if (is_file(&l->at[i], id) && !stays(c, &l->at[i]))
				undo_file(c, &l->at[i].piece);
			else if (is_new(&l->at[i]))
				known &= undo_born(
					c, id, &l->at[i].piece, k == c->marks.count - 1);
			if (l->at[i].kind == CRN_CHANGE_GONE)
				i = undo_all_gone(c, id, l, i);
		}
	}
	c->control->maps_stale = true;
	/* Reading the map of a server takes longer than all the rest. */
	err = known ? 0 : reread(c);
	if (err < 0)
		crn_half_way("read the map; surface of", 0, err);
}

/* ---- Protections ----------------------------------------------------------------------------- */

/* A part of an explicit area that is newer itself. */
static bool is_added_since(const cairn_t *c, uint64_t id, const struct crn_area *a)
{
	const struct crn_added *added = crn_added_meets(c, a->begin, a->end);

	return a->flags & CRN_AREA_EXPLICIT && (!added || added->born > id);
}

/*
 * All changes since `id` have been undone, but for newer mappings that stay: these are news of its
 * interval now.
 */
static void forget_changes(cairn_t *c, uint64_t id)
{
	const uint32_t stays = CRN_AREA_STACK | CRN_AREA_REMOVED;
	struct crn_changes *target = &crn_mark_find(c, id)->changes;

	crn_changes_keep_reserved(c, id, target);
	for (size_t k = c->marks.count; k-- > 0 && crn_mark_at(c, k)->id > id;)
		crn_mark_at(c, k)->changes.count = 0;
	for (size_t i = 0; i < c->layout.count; i++) {
		const struct crn_piece *p = &c->layout.at[i];

		for (size_t k = crn_area_from(c, p->begin); k < c->area_count; k++) {
			const struct crn_area *a = c->areas[k];

			if (a->begin >= p->end)
				break;
			if (a->born <= id || a->flags & stays || is_added_since(c, id, a))
				continue;
			/* Without memory for it, a restore to before will refuse too much. */
			(void)crn_change_add(c, target, p, CRN_MAX(a->begin, p->begin),
				CRN_MIN(a->end, p->end), CRN_CHANGE_BORN);
		}
	}
}

/*
 * Where a newer mapping was left in place or an older one is gone there is nothing to do. A call
 * ends at such a hole, and a part behind it may be older.
 */
static void protect_again(cairn_t *c, const struct crn_piece *p)
{
	if (crn_memory_protect((void *)p->begin, p->end - p->begin, p->prot) >= 0)
		return;
	for (size_t i = crn_area_from(c, p->begin);
		i < c->area_count && c->areas[i]->begin < p->end; i++) {
		uintptr_t begin = CRN_MAX(p->begin, c->areas[i]->begin);

		(void)crn_memory_protect(
			(void *)begin, CRN_MIN(p->end, c->areas[i]->end) - begin, p->prot);
	}
}

/* Reserve what is free of [begin, end). */
static int reserve_again(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct crn_mapping m;
	int more = 1;

	CRN_TRY(crn_maps_begin(&c->maps, begin, CRN_MAPS_NO_NAMES));
	while (begin < end) {
		more = more > 0 ? crn_maps_next(&c->maps, &m) : 0;
		CRN_TRY(more);
		if (!more || m.begin > begin)
			CRN_TRY(crn_memory_inhibit(
				begin, (more ? CRN_MIN(m.begin, end) : end) - begin));
		begin = more ? m.end : end;
	}
	return 0;
}

/* Once older mappings have their places, and protections: those of newer ones would open it. */
static void undo_reserved(cairn_t *c, uint64_t id)
{
	for (size_t k = c->marks.count; k-- > 0 && crn_mark_at(c, k)->id >= id;) {
		const struct crn_changes *l = &crn_mark_at(c, k)->changes;

		for (size_t i = 0; i < l->count; i++) {
			const struct crn_piece *p = &l->at[i].piece;
			int err;

			if (l->at[i].kind != CRN_CHANGE_RESERVED)
				continue;
			crn_files_give_way(c, id, p->begin, p->end);
			err = reserve_again(c, p->begin, p->end);
			if (err < 0)
				crn_half_way("reserve addresses at", p->begin, err);
		}
	}
}

void crn_layout_undo_protections(cairn_t *c, uint64_t id)
{
	bool changed = false;

	for (size_t k = c->marks.count; k-- > 0 && crn_mark_at(c, k)->id >= id;) {
		struct crn_changes *l = &crn_mark_at(c, k)->changes;

		for (size_t i = l->count; i-- > 0;) {
			const struct crn_piece *p = &l->at[i].piece;

			if (kind_at(&l->at[i], id) == CRN_CHANGE_BORN || stays(c, &l->at[i]) ||
				crn_change_younger(&l->at[i], id))
				continue;
			changed = true;
			if (l->at[i].kind != CRN_CHANGE_RESERVED &&
				(l->at[i].kind != CRN_CHANGE_FILE || p->born <= id))
				protect_again(c, p);
		}
	}
	undo_reserved(c, id);
	if (changed)
		(void)reread(c);
	forget_changes(c, id);
}
