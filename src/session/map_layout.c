/* SPDX-License-Identifier: MIT */
/*
 * How the program's mappings change between checkpoints. layout_undo.c undoes the changes.
 *
 * The layout is the list of pieces that the surface had at the last look. Looking again gives, for
 * every address, one of
 *
 *	before   now       change   tracking                        a restore to before
 *	-        piece     BORN     a new area                      unmaps it
 *	piece    -         GONE     its content goes to the journal maps it again, content from the journal
 *	piece    other     GONE+BORN
 *	piece    same, other protection  PROT                       sets the old protection
 *
 * If the program had reserved addresses without access, and has opened or unmapped them, they are
 * RESERVED: a restore reserves those that are free again, or else the program would later open
 * memory that others have mapped there. File mappings that are not pieces are listed as well
 * (files.c). If a piece appears where one of these was, it is OPENED instead of BORN; FILE is a
 * listed mapping that is gone or has changed.
 *
 * Changes are kept with the mark of the interval in which they happened, and undone newest first.
 */
#include <errno.h>
#include "session/engine.h"
#include "session/files.h"
#include "session/map_changes.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/memory.h"
#include "os/thread.h"

#define CRN_LOOKS_MAX 16 /* in one follow, while other threads unmap what is to be adopted */

/* ---- Lists ------------------------------------------------------------------------------ */

/* Cut [begin, end) out; room for one piece more has been reserved. */
void crn_pieces_cut(struct crn_pieces *l, uintptr_t begin, uintptr_t end)
{
	for (size_t i = 0; i < l->count; i++) {
		struct crn_piece *p = &l->at[i];

		if (p->end <= begin || p->begin >= end)
			continue;
		if (p->begin < begin && p->end > end) {
			CRN_ASSERT(l->count < l->capacity);
			for (size_t j = l->count++; j > i; j--)
				l->at[j] = l->at[j - 1];
			l->at[i].end = begin;
			l->at[i + 1].begin = end;
			return;
		}
		if (p->begin < begin) {
			p->end = begin;
		} else if (p->end > end) {
			p->begin = end;
		} else {
			l->count--;
			for (size_t j = i; j < l->count; j++)
				l->at[j] = l->at[j + 1];
			i--;
		}
	}
}

/*
 * The oldest change since says: of memory that came in the place of other memory it was the end.
 * Without one it is as `now`.
 */
static bool held_before(const cairn_t *c, uint64_t id, uintptr_t page, bool now)
{
	size_t k;

	CRN_FIRST(k, c->marks.count, crn_mark_at(c, k)->id >= id);
	for (; k < c->marks.count; k++) {
		const struct crn_changes *l = &crn_mark_at(c, k)->changes;

		for (size_t i = 0; i < l->count; i++) {
			const struct crn_piece *p = &l->at[i].piece;

			if (page < p->begin || page >= p->end)
				continue;
			if (l->at[i].kind == CRN_CHANGE_GONE)
				return !crn_change_younger(&l->at[i], id);
			if (l->at[i].kind == CRN_CHANGE_BORN || l->at[i].kind == CRN_CHANGE_OPENED)
				return false;
		}
	}
	return now;
}

bool crn_layout_held(const cairn_t *c, uint64_t id, uintptr_t page)
{
	const struct crn_area *area = crn_area_at(c, page);
	const struct crn_added *added = NULL;

	if (area && area->born <= id)
		return true;
	if (area && area->flags & CRN_AREA_EXPLICIT) {
		added = crn_added_meets(c, page, page + CRN_PAGE_SIZE);
		if (!added || added->born > id)
			return false;
	}
	return held_before(c, id, page, area);
}

bool crn_same_kind(const struct crn_piece *a, const struct crn_piece *b)
{
	uint32_t kind = CRN_AREA_SHARED | CRN_AREA_FILE;

	return (a->flags & kind) == (b->flags & kind) && a->inode == b->inode &&
		a->device == b->device && (!(a->flags & CRN_AREA_FILE) || a->base == b->base);
}

static bool same_pieces(const struct crn_pieces *a, const struct crn_pieces *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++) {
		const struct crn_piece *p = &a->at[i], *q = &b->at[i];

		if (p->begin != q->begin || p->end != q->end || p->prot != q->prot ||
			!crn_same_kind(p, q))
			return false;
	}
	return true;
}

void crn_layout_leave_out(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	/* Without memory for that, everything is found anew: what areas cover is no news. */
	if (crn_grow(c, (void **)&c->layout.at, &c->layout.capacity, c->layout.count + 1,
		    sizeof(*c->layout.at)) >= 0)
		crn_pieces_cut(&c->layout, begin, end);
	else
		c->layout.count = 0;
}

int crn_layout_reserve(cairn_t *c)
{
	CRN_TRY(crn_held_files_take(c, &c->fresh));
	return crn_grow(c, (void **)&c->layout.at, &c->layout.capacity,
		c->layout.count + c->fresh.count + 1, sizeof(*c->layout.at));
}

void crn_layout_learn(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct crn_pieces *l = &c->layout;
	size_t at, more = c->fresh.count;

	crn_pieces_cut(l, begin, end);
	CRN_FIRST(at, l->count, l->at[at].begin >= end);
	for (size_t i = l->count; i-- > at;)
		l->at[i + more] = l->at[i];
	for (size_t i = 0; i < more; i++)
		l->at[at + i] = c->fresh.at[i];
	l->count += more;
}

/* ---- Finding the changes ------------------------------------------------------------------- */

/* What is different between two pieces over the addresses they share. */
static int compare(cairn_t *c, struct crn_changes *to, const struct crn_piece *o,
	struct crn_piece *n, uintptr_t begin, uintptr_t end)
{
	if (!crn_same_kind(o, n)) {
		CRN_TRY(crn_change_add(c, to, o, begin, end, CRN_CHANGE_GONE));
		return crn_change_add(c, to, n, begin, end, CRN_CHANGE_BORN);
	}
	n->flags |= o->flags & CRN_PIECE_REFUSED;
	return o->prot == n->prot ? 0 : crn_change_add(c, to, o, begin, end, CRN_CHANGE_PROT);
}

/* What was reserved when last looked at and is not any more. */
static int diff_reserved(cairn_t *c, struct crn_changes *to)
{
	const struct crn_ranges *now = &c->reserved_fresh;
	const struct crn_piece nothing = { .begin = 0 };

	for (size_t k = 0; k < c->reserved.count; k++) {
		uintptr_t at = c->reserved.at[k].begin, end = c->reserved.at[k].end, stop;

		for (size_t i = crn_ranges_from(now, at); at < end; at = now->at[i++].end) {
			stop = i < now->count ? CRN_MIN(now->at[i].begin, end) : end;
			if (at < stop)
				CRN_TRY(crn_change_add(
					c, to, &nothing, at, stop, CRN_CHANGE_RESERVED));
			if (stop == end)
				break;
		}
	}
	return 0;
}

static int diff(cairn_t *c, struct crn_changes *to)
{
	size_t i = 0, j = 0;
	uintptr_t at = 0;

	while (i < c->layout.count || j < c->fresh.count) {
		struct crn_piece *o = i < c->layout.count ? &c->layout.at[i] : NULL;
		struct crn_piece *n = j < c->fresh.count ? &c->fresh.at[j] : NULL;
		uintptr_t ob = o ? CRN_MAX(o->begin, at) : UINTPTR_MAX;
		uintptr_t nb = n ? CRN_MAX(n->begin, at) : UINTPTR_MAX;

		if (ob < nb) {
			at = CRN_MIN(o->end, nb);
			CRN_TRY(crn_change_add(c, to, o, ob, at, CRN_CHANGE_GONE));
		} else if (nb < ob) {
			at = CRN_MIN(n->end, ob);
			CRN_TRY(crn_files_born(c, to, n, nb, at));
		} else {
			at = CRN_MIN(o->end, n->end);
			CRN_TRY(compare(c, to, o, n, ob, at));
		}
		i += o && o->end <= at;
		j += n && n->end <= at;
	}
	return 0;
}

/* ---- Following them -------------------------------------------------------------------------- */

/* A stack that grew: its tracker finds the pages below by itself. */
static bool continues_stack(cairn_t *c, const struct crn_piece *p)
{
	struct crn_area *above = crn_area_at(c, p->end);

	if (!(p->flags & CRN_AREA_STACK) || !above || !(above->flags & CRN_AREA_STACK) ||
		above->begin != p->end)
		return false;
	if (!(c->ops->caps & CRN_TRACK_MIRROR))
		return false;
	above->begin = p->begin;
	return true;
}

int crn_layout_adopt(cairn_t *c, const struct crn_piece *p)
{
	uint32_t flags = (p->flags & CRN_AREA_FLAGS) | (c->maps_known ? CRN_AREA_NEW : 0);
	uintptr_t at = p->begin;
	int err;

	while (at < p->end) {
		size_t i = crn_area_from(c, at);
		uintptr_t next = i < c->area_count ? c->areas[i]->begin : UINTPTR_MAX;

		if (next <= at) {
			at = c->areas[i]->end;
			continue;
		}
		next = CRN_MIN(next, p->end);
		/* Memory that is short is taken from the past first. */
		while ((err = crn_area_track(c, at, next, flags,
				c->maps_known ? c->last_id + 1 : 0)) == CAIRN_EMEMORY) {
			if (!c->journal || !crn_journal_evict(c->journal))
				break;
		}
		CRN_TRY(err);
		at = next;
	}
	return 0;
}

static void refuse(cairn_t *c, const struct crn_piece *p, int err)
{
	for (size_t i = 0; i < c->fresh.count; i++) {
		struct crn_piece *q = &c->fresh.at[i];

		if (q->begin < p->end && q->end > p->begin)
			q->flags |= CRN_PIECE_REFUSED;
	}
	crn_warn("mapping %zx-%zx is not tracked: %s", p->begin, p->end, cairn_strerror(err));
}

/* The next look finds it again. */
static int leave_out(cairn_t *c, const struct crn_piece *p, int err)
{
	crn_pieces_cut(&c->fresh, p->begin, p->end);
	return err;
}

/* `record` has room for every change. */
static int follow_born(cairn_t *c, const struct crn_change *change, enum crn_follow how,
	struct crn_changes *record)
{
	const struct crn_piece *p = &change->piece;
	bool alias = crn_piece_aliases(&c->fresh, p);
	int err;

	if (continues_stack(c, p) || crn_areas_cover(c, p->begin, p->end))
		return 0;
	if (how == CRN_FOLLOW_NOTE) {
		crn_debug("noted %zx-%zx after %lu", p->begin, p->end,
			(unsigned long)crn_mark_newest(c)->id);
		/* after the restore, if it is left or the restore is refused */
		crn_pieces_cut(&c->fresh, p->begin, p->end);
		c->noted = true;
		/* Opened it is found then, too. */
		c->files_kept |= change->kind == CRN_CHANGE_OPENED;
		record->at[record->count] = *change;
		record->at[record->count++].piece.flags |= CRN_PIECE_NOTED;
		/* What has been stored by it is not known. */
		return alias ? CAIRN_EUNSUPPORTED : 0;
	}
	err = alias ? CAIRN_EOVERLAP : crn_layout_adopt(c, p);
	crn_debug("born %zx-%zx: %d", p->begin, p->end, err);
	if (err == CAIRN_EMEMORY || err == -EBUSY) {
		if (err == -EBUSY && !c->taken_told)
			crn_error("mapping %zx-%zx belongs to a userfaultfd of the program's own",
				p->begin, p->end);
		c->taken_told |= err == -EBUSY;
		return leave_out(c, p, err);
	}
	if (err < 0 && !alias && --c->looks_left > 0)
		return leave_out(c, p, -EAGAIN);
	record->at[record->count] = *change;
	if (err < 0) {
		refuse(c, p, err);
		record->at[record->count].piece.flags |= CRN_PIECE_REFUSED;
	}
	record->count++;
	return 0;
}

int crn_layout_awkward(cairn_t *c)
{
	const int rw = PROT_READ | PROT_WRITE;

	CRN_TRY(crn_grow(c, (void **)&c->awkward.at, &c->awkward.capacity, c->layout.count,
		sizeof(*c->awkward.at)));
	c->awkward.count = 0;
	c->unreadable = c->partial = false;
	for (size_t i = 0; i < c->layout.count; i++) {
		const struct crn_piece *p = &c->layout.at[i];

		c->partial |= (p->flags & CRN_PIECE_REFUSED) != 0;
		if ((p->prot & rw) == rw)
			continue;
		c->awkward.at[c->awkward.count++] = *p;
		c->unreadable |= !(p->prot & PROT_READ);
	}
	c->env.closed = c->unreadable || c->cut;
	return 0;
}

/* What was read of reservations and files belongs to the layout from now on. */
static void take_lists(cairn_t *c)
{
	struct crn_ranges old = c->reserved;

	c->reserved = c->reserved_fresh;
	c->reserved_fresh = old;
	if (!c->files_kept)
		crn_files_take(c);
}

int crn_layout_replace(cairn_t *c)
{
	struct crn_pieces old = c->layout;

	take_lists(c);
	c->layout = c->fresh;
	c->fresh = old;
	crn_held_files_drop(c);
	return crn_layout_awkward(c);
}

/* The tracker finds out, when the past is asked for (crn_mappings_check): explicit areas stay. */
static bool finds_exchanges(const cairn_t *c)
{
	return c->ops->whole && !c->control->watched && c->mode == CRN_SURFACE_NONE;
}

/* A mapping that aliased areas has gone: what was stored by way of it nobody has seen. */
static int touch_aliased(cairn_t *c, const struct crn_piece *p)
{
	const bool shared = p->flags & CRN_AREA_SHARED && c->ops->caps & CRN_TRACK_SHARED;

	for (size_t i = 0; shared && i < c->fresh.count; i++) {
		const struct crn_piece *q = &c->fresh.at[i];

		if (crn_pieces_alias(p, q) && crn_areas_cover(c, q->begin, q->end))
			CRN_TRY(c->ops->page.unprotect(c->tracker, q->begin, q->end - q->begin));
	}
	return 0;
}

static int follow_changes(cairn_t *c, struct crn_changes *found, enum crn_follow how)
{
	struct crn_changes *record = &crn_mark_newest(c)->changes;
	int err = 0, first = 0;

	CRN_TRY(crn_grow(c, (void **)&record->at, &record->capacity, record->count + found->count,
		sizeof(*record->at)));
	CRN_TRY(crn_grow(c, (void **)&c->fresh.at, &c->fresh.capacity,
		c->fresh.count + found->count, sizeof(*c->fresh.at)));
	for (size_t i = 0; i < found->count; i++) {
		const struct crn_change *change = &found->at[i];

		if (change->kind == CRN_CHANGE_GONE && !finds_exchanges(c)) {
			CRN_TRY(touch_aliased(c, &change->piece));
			CRN_TRY(crn_area_vanish(c, change->piece.begin, change->piece.end, found));
			crn_debug("gone %zx-%zx", change->piece.begin, change->piece.end);
			record->at[record->count++] = *change;
			/* What has been followed is not found again, should the rest fail. */
			crn_pieces_cut(&c->layout, change->piece.begin, change->piece.end);
		}
	}
	for (size_t i = 0; i < found->count; i++) {
		const struct crn_change *change = &found->at[i];

		if (change->kind == CRN_CHANGE_BORN || change->kind == CRN_CHANGE_OPENED)
			err = follow_born(c, change, how, record);
		else if (change->kind != CRN_CHANGE_GONE)
			record->at[record->count++] = *change;
		if (err < 0 && !first)
			first = err;
		err = 0;
	}
	err = crn_layout_replace(c);
	return first ? first : err;
}

static bool is_noted(const struct crn_change *change)
{
	return change->piece.flags & CRN_PIECE_NOTED;
}

static bool noted_meets(const cairn_t *c, uintptr_t begin, uintptr_t end)
{
	const struct crn_changes *l = &crn_mark_newest(c)->changes;

	for (size_t i = 0; i < l->count; i++)
		if (is_noted(&l->at[i]) && l->at[i].piece.begin < end &&
			l->at[i].piece.end > begin)
			return true;
	return false;
}

/* A look at everything finds what is still there; what is there instead may not be ours. */
static void forget_noted(cairn_t *c)
{
	struct crn_changes *l = &crn_mark_newest(c)->changes;
	size_t left = 0;

	for (size_t i = 0; i < l->count; i++)
		if (!is_noted(&l->at[i]))
			l->at[left++] = l->at[i];
	l->count = left;
}

/* Where changes are reported, only there: a server's map takes longer to read than a restore. */
static int read_surface(cairn_t *c)
{
	bool stale = __atomic_exchange_n(&c->control->maps_stale, false, __ATOMIC_ACQUIRE);
	uint64_t changed = __atomic_exchange_n(&c->control->maps_changed, 0, __ATOMIC_ACQUIRE);
	uintptr_t begin = (changed >> CRN_CHANGED_BITS) << CRN_PAGE_SHIFT;
	uintptr_t end = begin + ((changed & CRN_CHANGED_PAGES) << CRN_PAGE_SHIFT);
	int err;

	crn_own_calls(c, true);
	if (!stale && changed && c->control->watched && c->maps_known &&
		crn_surface_has_parts(c) && !noted_meets(c, begin, end)) {
		err = crn_surface_read_part(c, begin, end);
	} else {
		forget_noted(c);
		err = crn_surface_read(c);
	}
	crn_own_calls(c, false);
	return err;
}

static bool must_look(const cairn_t *c)
{
	if (c->ops->caps & CRN_TRACK_STORES)
		return false;
	if (c->control->watched || c->control->maps_stale)
		return c->control->maps_stale || c->control->maps_changed;
	/* Threads are members of surface "program", and may be born without a new mapping. */
	if (c->maps_known && c->mode != CRN_SURFACE_PROGRAM && c->ops->maps_quiet &&
		c->ops->maps_quiet(c->tracker))
		return false;
	/* Else explicit areas stay where they are, and the tracker finds out if they do not. */
	return c->mode != CRN_SURFACE_NONE || !c->ops->whole;
}

/*
 * A stack grows without a call that anybody is told of. Trackers with a mirror find its pages by
 * themselves; for the others: what it grows by begins just below the area.
 */
static bool stack_has_grown(cairn_t *c)
{
	uintptr_t low = 0;
	bool grown;

	if (c->ops->caps & CRN_TRACK_MIRROR)
		return false;
	for (size_t i = c->area_count; i-- > 0;) {
		if (c->areas[i]->flags & CRN_AREA_STACK)
			low = c->areas[i]->begin;
		else if (low)
			break;
	}
	if (!low)
		return false;
	crn_own_calls(c, true);
	grown = crn_memory_mapped(low - CRN_PAGE_SIZE);
	crn_own_calls(c, false);
	return grown;
}

/* c->fresh has been read: what is different is followed. */
static int follow_read(cairn_t *c, enum crn_follow how)
{
	struct crn_changes found = { NULL, 0, 0 };
	int err = crn_files_diff(c, &found);

	if (err >= 0)
		err = diff_reserved(c, &found);
	if (err >= 0 &&
		!(c->maps_known && !found.count && same_pieces(&c->layout, &c->fresh))) {
		err = crn_layout_reserve(c); /* pieces are cut in place */
		if (err >= 0)
			err = diff(c, &found);
		if (err >= 0)
			err = follow_changes(c, &found, how);
		if (err >= 0)
			crn_added_prune(c);
	} else if (err >= 0) {
		take_lists(c);
	}
	crn_changes_close(c, &found);
	return err;
}

static int follow(cairn_t *c, enum crn_follow how)
{
	bool restores = how == CRN_FOLLOW_NOTE, look;
	int err;

	if ((c->control->watched && stack_has_grown(c)) || (c->noted && how == CRN_FOLLOW_ADOPT))
		c->control->maps_stale = true;
	c->noted &= how != CRN_FOLLOW_ADOPT;
	c->env.dropped = !c->control->watched || c->control->maps_stale;
	look = must_look(c);
	if (look ? !c->control->watched : restores && c->files_unasked)
		look |= crn_files_ask(c, restores);
	if (!look)
		return 0;
	CRN_TRY(crn_layout_unprepare(c));
	c->files_look = c->last_id + (how == CRN_FOLLOW_ADOPT);
	c->files_doubt = c->maps_known;
	c->files_kept = false;
	if (!restores && !c->control->watched)
		crn_files_look(c);
	err = read_surface(c);
	if (err >= 0)
		err = follow_read(c, how);
	if (err >= 0 && !restores)
		c->files_sure = c->files_look;
	if (err < 0)
		c->control->maps_stale = true;
	else
		c->maps_known = true;
	return err;
}

/* What cannot be adopted may have been unmapped since it was read: that takes another look. */
int crn_layout_follow(cairn_t *c, enum crn_follow how)
{
	int err, left;

	c->looks_left = CRN_LOOKS_MAX;
	do {
		left = c->looks_left;
		err = follow(c, how);
	} while (err == -EAGAIN && c->looks_left < left);
	c->looks_left = 0;
	crn_cut_look(c);
	return err;
}

bool crn_layout_has_parts(const cairn_t *c, uintptr_t begin, uintptr_t end)
{
	return c->control->watched && !c->control->maps_stale && c->maps_known && !c->noted &&
		!c->paused && crn_surface_has_parts(c) && !noted_meets(c, begin, end);
}

int crn_layout_follow_part(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	int err = crn_layout_unprepare(c);

	c->files_look = c->last_id + 1;
	c->files_kept = false;
	crn_own_calls(c, true);
	if (err >= 0)
		err = crn_surface_read_part(c, begin, end);
	crn_own_calls(c, false);
	return err < 0 ? err : follow_read(c, CRN_FOLLOW_ADOPT);
}
