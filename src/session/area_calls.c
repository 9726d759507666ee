/* SPDX-License-Identifier: MIT */
/*
 * The calls by which a program says what is tracked, and explicit areas as the program has added
 * them.
 *
 * An explicit area is tracked in parts, one for each kind of memory; the table (area.c) has the
 * parts. It lasts until it is removed, or until nothing of it is mapped any more. Anything that is
 * mapped inside it meanwhile becomes part of it.
 */
#include "session/engine.h"
#include "session/map_changes.h"
#include "base/check.h"
#include "base/log.h"
#include "os/memory.h"

/* ---- As they were added --------------------------------------------------------------------- */

/* Index of the first that ends above addr. */
static size_t added_from(const cairn_t *c, uintptr_t addr)
{
	size_t i;

	CRN_FIRST(i, c->added_count, c->added[i].end > addr);
	return i;
}

const struct crn_added *crn_added_meets(const cairn_t *c, uintptr_t begin, uintptr_t end)
{
	size_t i = added_from(c, begin);

	return i < c->added_count && c->added[i].begin < end ? &c->added[i] : NULL;
}

int crn_added_reserve(cairn_t *c, size_t more)
{
	return crn_grow(c, (void **)&c->added, &c->added_capacity, c->added_count + more,
		sizeof(*c->added));
}

/* Room has been reserved. */
static void insert(cairn_t *c, const struct crn_added *added)
{
	size_t at = added_from(c, added->begin);

	CRN_ASSERT(c->added_count < c->added_capacity);
	for (size_t i = c->added_count++; i > at; i--)
		c->added[i] = c->added[i - 1];
	c->added[at] = *added;
}

static void drop(cairn_t *c, size_t at)
{
	c->added_count--;
	for (size_t i = at; i < c->added_count; i++)
		c->added[i] = c->added[i + 1];
}

void crn_added_revive(cairn_t *c, const struct crn_added *added)
{
	if (!crn_added_meets(c, added->begin, added->end))
		insert(c, added);
}

void crn_added_prune(cairn_t *c)
{
	for (size_t i = c->added_count; i-- > 0;) {
		const struct crn_added *a = &c->added[i];
		size_t k = crn_area_from(c, a->begin);

		if (!a->mapped && (k == c->area_count || c->areas[k]->begin >= a->end))
			drop(c, i);
	}
}

/* ---- The calls ------------------------------------------------------------------------------ */

/* Widen to whole pages. False if there is nothing, or it wraps. */
static bool widen(uintptr_t addr, size_t len, uintptr_t *begin, uintptr_t *end)
{
	if (!len || addr + len < addr || addr + len > UINTPTR_MAX - CRN_PAGE_SIZE)
		return false;
	*begin = crn_page_down(addr);
	*end = crn_page_up(addr + len);
	return true;
}

/* Is all of [begin, end) mapped, readable and writable, and of a kind that the tracker takes? */
static int inspect(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct crn_mapping m;
	uintptr_t at = begin;
	bool shared = false;
	int more;

	CRN_TRY(crn_maps_begin(&c->maps, begin, 0));
	while (at < end && (more = crn_maps_next(&c->maps, &m)) > 0) {
		if (m.begin > at ||
			(m.prot & (PROT_READ | PROT_WRITE)) != (PROT_READ | PROT_WRITE) ||
			crn_mapping_special(&m))
			return CAIRN_EUNMAPPED;
		if (m.shared && c->ops->caps & CRN_TRACK_SHARED && crn_area_secret(c, at))
			return CAIRN_EUNSUPPORTED;
		shared |= m.shared;
		at = m.end;
	}
	if (at < end)
		return more < 0 ? more : CAIRN_EUNMAPPED;
	return shared && !(c->ops->caps & CRN_TRACK_SHARED) ? CAIRN_ESHARED : 0;
}

/* An area may have been unmapped since anybody has looked: is it there, where it aliases p? */
static bool is_there(cairn_t *c, const struct crn_piece *area, const struct crn_piece *p)
{
	uint64_t first = CRN_MAX(area->begin + area->base, p->begin + p->base);
	struct crn_mapping m;
	struct crn_piece now;

	if (crn_maps_find(&c->maps, (uintptr_t)(first - area->base), &m) <= 0)
		return false;
	now = crn_piece_of(&m, crn_mapping_flags(&m));
	return crn_same_kind(&now, area);
}

/* Does c->fresh map shared memory that an area maps, or map some twice? */
static bool maps_twice(cairn_t *c)
{
	for (size_t i = 0; i < c->fresh.count; i++) {
		const struct crn_piece *p = &c->fresh.at[i];

		if (crn_piece_aliases(&c->fresh, p))
			return true;
		for (size_t k = 0; p->flags & CRN_AREA_SHARED && k < c->layout.count; k++)
			if (crn_pieces_alias(&c->layout.at[k], p) &&
				is_there(c, &c->layout.at[k], p))
				return true;
	}
	return false;
}

static void untrack(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	size_t i;

	while ((i = crn_area_from(c, begin)) < c->area_count && c->areas[i]->begin < end)
		crn_area_untrack(c, i);
}

/* What c->fresh has found there: a part for each kind of memory. */
static int track(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	const uint32_t kind = CRN_AREA_SHARED | CRN_AREA_FILE | CRN_AREA_UNCUT;
	const struct crn_pieces *l = &c->fresh;

	for (size_t i = 0, j; i < l->count; i = j) {
		uint32_t flags = l->at[i].flags & kind;
		int err;

		for (j = i + 1; j < l->count && (l->at[j].flags & kind) == flags; j++)
			;
		err = crn_area_track(c, l->at[i].begin, l->at[j - 1].end,
			flags | CRN_AREA_EXPLICIT, c->last_id + 1);
		if (err < 0) {
			untrack(c, begin, end);
			/* Of a kind that the kernel does not protect: a BPF map, MAP_DROPPABLE. */
			return err == -EINVAL ? CAIRN_EUNSUPPORTED : err;
		}
	}
	return 0;
}

static int add_locked(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	uintptr_t engine, engine_end;
	size_t i = crn_area_from(c, begin);

	if ((i < c->area_count && c->areas[i]->begin < end) || crn_added_meets(c, begin, end))
		return CAIRN_EOVERLAP;
	crn_arena_range(c->arena, &engine, &engine_end);
	if (begin < engine_end && end > engine)
		return CAIRN_EUNMAPPED; /* the program has no such memory */
	CRN_TRY(inspect(c, begin, end));
	CRN_TRY(crn_added_reserve(c, 1));
	/* The layout learns of its pieces: what they become before the next look is a change. */
	CRN_TRY(crn_surface_read_range(c, begin, end));
	if (maps_twice(c))
		return CAIRN_EOVERLAP;
	CRN_TRY(crn_layout_reserve(c));
	CRN_TRY(track(c, begin, end));
	crn_layout_learn(c, begin, end);
	insert(c, &(struct crn_added){ .begin = begin, .end = end, .born = c->last_id + 1 });
	c->control->maps_stale = true;
	return 0;
}

int cairn_area_add(cairn_t *c, void *addr, size_t len)
{
	uintptr_t begin, end;
	int err;

	if (!widen((uintptr_t)addr, len, &begin, &end))
		return -EINVAL;
	CRN_TRY(crn_lock(c));
	if (c->ops->caps & CRN_TRACK_STORES) {
		err = crn_shared_name(c, begin, end);
		crn_unlock(c);
		return err;
	}
	err = crn_in_flight_begin(c);
	if (err >= 0)
		err = add_locked(c, begin, end);
	crn_in_flight_end(c);
	crn_unlock(c);
	return err;
}

/*
 * Memory that the surface has besides goes on to be tracked. It is no news: a restore to before
 * would take it away.
 */
static int pass_on(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	uint32_t births = c->birth_count;
	int err;

	crn_own_calls(c, true);
	err = crn_surface_read(c);
	crn_own_calls(c, false);
	c->birth_count = births; /* the next look is for them, too */
	CRN_TRY(err);
	CRN_TRY(crn_grow(c, (void **)&c->fresh.at, &c->fresh.capacity, c->fresh.count + 1,
		sizeof(*c->fresh.at)));
	crn_pieces_cut(&c->fresh, 0, begin);
	crn_pieces_cut(&c->fresh, end, UINTPTR_MAX);
	CRN_TRY(crn_layout_reserve(c));
	for (size_t i = 0; i < c->fresh.count; i++) {
		const struct crn_piece *p = &c->fresh.at[i];

		CRN_TRY(crn_area_track(c, p->begin, p->end,
			(p->flags & CRN_AREA_FLAGS) | CRN_AREA_REMOVED, c->last_id + 1));
	}
	crn_layout_learn(c, begin, end);
	return 0;
}

/*
 * What has become of it is nothing that a restore undoes. The journal may still name its pages:
 * restores must look before they store.
 */
static void remove_locked(cairn_t *c, size_t at)
{
	struct crn_added gone = c->added[at];

	untrack(c, gone.begin, gone.end);
	crn_layout_leave_out(c, gone.begin, gone.end);
	crn_layout_forget(c, &gone);
	drop(c, at);
	crn_held_files_drop(c);
	c->youngest = c->last_id + 1;
	c->control->maps_stale = true;
	if (c->mode != CRN_SURFACE_NONE && pass_on(c, gone.begin, gone.end) < 0)
		crn_warn("what was an area at %zx-%zx counts as mapped just now", gone.begin,
			gone.end);
	/* What stood in the way of restores may have gone with it. */
	(void)crn_layout_awkward(c);
}

int cairn_area_remove(cairn_t *c, void *addr, size_t len)
{
	uintptr_t begin, end;
	size_t i;
	int err = 0;

	if (!widen((uintptr_t)addr, len, &begin, &end))
		return CAIRN_ENOTAREA;
	CRN_TRY(crn_lock(c));
	err = crn_in_flight_begin(c);
	i = added_from(c, begin);
	if (err < 0)
		;
	else if (i < c->added_count && c->added[i].begin == begin && c->added[i].end == end)
		remove_locked(c, i);
	else if (c->ops->caps & CRN_TRACK_STORES)
		err = crn_shared_forget(c, begin, end);
	else
		err = CAIRN_ENOTAREA;
	crn_in_flight_end(c);
	crn_unlock(c);
	return err;
}

int cairn_area_exclude(cairn_t *c, void *addr, size_t len)
{
	uintptr_t begin = (uintptr_t)addr;
	int err;

	if (!len || begin + len < begin)
		return -EINVAL;
	CRN_TRY(crn_lock(c));
	err = crn_ranges_add(c, &c->excluded, begin, begin + len);
	crn_unlock(c);
	return err;
}

static bool is_added(const cairn_t *c, uintptr_t begin, uintptr_t end)
{
	const struct crn_added *a;

	for (; begin < end; begin = a->end) {
		a = crn_added_meets(c, begin, end);
		if (!a || a->begin > begin)
			return false;
	}
	return true;
}

/*
 * Of an explicit area a part that has been mapped anew may not be tracked yet: no checkpoint holds
 * what is there now.
 */
static int touch_tracked(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	if (!crn_areas_cover(c, begin, end) && !is_added(c, begin, end))
		return CAIRN_ENOTAREA;
	for (size_t i = crn_area_from(c, begin);
		i < c->area_count && c->areas[i]->begin < end && c->ops->page.unprotect; i++) {
		uintptr_t from = CRN_MAX(begin, c->areas[i]->begin);
		uintptr_t to = CRN_MIN(end, c->areas[i]->end);

		CRN_TRY(c->ops->page.unprotect(c->tracker, from, to - from));
	}
	return 0;
}

int cairn_area_touch(cairn_t *c, void *addr, size_t len)
{
	uintptr_t begin, end;
	int err;

	if (!widen((uintptr_t)addr, len, &begin, &end))
		return CAIRN_ENOTAREA;
	CRN_TRY(crn_lock(c));
	if (c->ops->caps & CRN_TRACK_STORES)
		/* bytes, not pages: the rest of a page may be another thread's or libc's */
		err = c->ops->page.unprotect(c->tracker, (uintptr_t)addr, len);
	else
		err = touch_tracked(c, begin, end);
	crn_unlock(c);
	return err;
}

int crn_data_limit_changing(cairn_t *c)
{
	int err;

	CRN_TRY(crn_lock(c));
	err = c->ops->page.data_limit ? c->ops->page.data_limit(c->tracker) : 0;
	crn_unlock(c);
	return err;
}

int crn_touch_all(cairn_t *c)
{
	int err;

	CRN_TRY(crn_lock(c));
	err = 0;
	for (size_t i = 0; i < c->area_count && err >= 0 && c->ops->page.unprotect; i++)
		err = c->ops->page.unprotect(c->tracker, c->areas[i]->begin,
			c->areas[i]->end - c->areas[i]->begin);
	crn_unlock(c);
	return err;
}
