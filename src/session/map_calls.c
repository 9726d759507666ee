/* SPDX-License-Identifier: MIT */
/*
 * Calls of the program that change its mappings, as the agent reports or makes them. map_layout.c
 * finds out at the next checkpoint what has become of the surface; this file does what cannot wait
 * until then.
 */
#include "session/engine.h"
#include "session/files.h"
#include "base/log.h"
#include "os/memory.h"

void crn_maps_watch(cairn_t *c)
{
	c->control->watched = true;
	c->control->maps_stale = true;
}

void crn_maps_changed(cairn_t *c)
{
	__atomic_store_n(&c->control->maps_stale, true, __ATOMIC_RELEASE);
}

static bool by_kind(const cairn_t *c)
{
	return c->mode == CRN_SURFACE_ALL || c->mode == CRN_SURFACE_PROGRAM;
}

/* Private memory of no file, to write to, that is mapped like most of it. */
static bool plain(int prot, int flags)
{
	const int all = MAP_TYPE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_HUGETLB | MAP_LOCKED;

	return prot & PROT_WRITE && (flags & all) == (MAP_PRIVATE | MAP_ANONYMOUS);
}

/* Both ends in pages; one word holds them, or all of the map is looked at. */
static void note_added(cairn_t *c, uint64_t begin, uint64_t end)
{
	uint64_t now = __atomic_load_n(&c->control->maps_changed, __ATOMIC_RELAXED), with;

	do {
		if (now) {
			begin = CRN_MIN(begin, now >> CRN_CHANGED_BITS);
			end = CRN_MAX(end, (now >> CRN_CHANGED_BITS) + (now & CRN_CHANGED_PAGES));
		}
		if (end - begin > CRN_CHANGED_PAGES) {
			crn_maps_changed(c);
			return;
		}
		with = begin << CRN_CHANGED_BITS | (end - begin);
	} while (!__atomic_compare_exchange_n(&c->control->maps_changed, &now, with, false,
		__ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

/*
 * The kernel joins two mappings only if they are alike, and never when both have been written
 * before they were. A heap that grows by a page between checkpoints would be a mapping for each,
 * of which a process may have 65530.
 */
static void resemble(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	if (c->ops->page.resemble && begin < end)
		c->ops->page.resemble(c->tracker, begin, end - begin);
}

void crn_maps_added(cairn_t *c, int prot, int flags, uintptr_t addr, size_t len)
{
	const int shared = MAP_SHARED, anonymous = MAP_ANONYMOUS;

	if (!by_kind(c) || flags & MAP_FIXED)
		crn_maps_changed(c); /* something may have been there */
	else if (flags & anonymous || (!(flags & shared) && prot & PROT_WRITE))
		note_added(c, crn_pages(addr), crn_pages(crn_page_up(addr + len)));
	if (c->mode == CRN_SURFACE_ALL && plain(prot, flags))
		resemble(c, addr, crn_page_up(addr + len));
}

/* ---- The program's own mprotect -------------------------------------------------------------- */

static void changing(cairn_t *c, uintptr_t addr, size_t len)
{
	/* No memory: the pages stay protected, and what the program does with them is lost. */
	if (c->ops->page.unprotect(c->tracker, addr, len) < 0)
		crn_lost(&c->env, addr, CAIRN_EMEMORY);
}

static bool takes_permissions(const cairn_t *c)
{
	return c && c->ops->caps & CRN_TRACK_PROTECTS;
}

void crn_protection_changing(cairn_t *c, uintptr_t addr, size_t len)
{
	if (!takes_permissions(c) || crn_lock(c) < 0)
		return;
	changing(c, addr, len);
	crn_unlock(c);
}

void crn_protection_changed(cairn_t *c, uintptr_t addr, size_t len, int prot)
{
	if (!takes_permissions(c) || crn_lock(c) < 0)
		return;
	(void)c->ops->page.protection(c->tracker, addr, len, prot);
	crn_unlock(c);
}

/* ---- Mappings that end or move --------------------------------------------------------------- */

bool crn_maps_of_file(int prot, int flags)
{
	const int others = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_ANONYMOUS | MAP_POPULATE |
		MAP_LOCKED;

	return !(flags & others) && ((flags & MAP_TYPE) != MAP_PRIVATE || !(prot & PROT_WRITE));
}

bool crn_maps_of_memory(int flags)
{
	return (flags & ~(MAP_NORESERVE | MAP_STACK)) == (MAP_PRIVATE | MAP_ANONYMOUS);
}

bool crn_maps_minds(const cairn_t *c)
{
	return c->ops->suspect;
}

/*
 * What becomes of the surface when the call succeeds. But for `ANYTHING` a feed need not doubt: its
 * pages are protected as before, or untracked before anybody can map something in their place.
 */
enum outcome {
	NOTHING, /* no part of it is concerned */
	MORE,    /* memory where none was: the next look finds it there */
	LESS,    /* memory is gone: followed at once */
	EMPTIED, /* its content is gone */
	ANYTHING,
};

/*
 * Is what a call empties tracked, and nobody else's? But for what nobody can write, as the end of a
 * stack. With a userfaultfd of the program's own the call might wait for a thread that waits for
 * our lock.
 */
static bool all_private(const cairn_t *c, uintptr_t begin, uintptr_t end)
{
	for (size_t i = crn_area_from(c, begin); begin < end; i++) {
		const struct crn_area *a = i < c->area_count ? c->areas[i] : NULL;
		uintptr_t next = a ? CRN_MIN(a->begin, end) : end;

		if (begin < next && crn_maps_closed(&c->maps, begin, next) != 1)
			return false;
		if (next == end)
			return true;
		if (a->flags & CRN_AREA_SHARED)
			return false;
		begin = a->end;
	}
	return true;
}

/*
 * Does the program open a part of what it has reserved, as malloc does with the arenas of threads?
 * Whatever has come there since the last look, nothing of it is tracked.
 */
static bool opens_reserved(const cairn_t *c, const long args[6])
{
	uintptr_t begin = (uintptr_t)args[0], end = begin + crn_page_up((size_t)args[1]);
	size_t i = crn_ranges_from(&c->reserved, begin), a = crn_area_from(c, begin);

	return c->mode == CRN_SURFACE_ALL && args[2] == (PROT_READ | PROT_WRITE) && args[3] == -1 &&
		begin < end &&
		i < c->reserved.count && c->reserved.at[i].begin <= begin &&
		c->reserved.at[i].end >= end &&
		(a == c->area_count || c->areas[a]->begin >= end);
}

/* The lock is held. */
static enum outcome outcome_of(const cairn_t *c, enum crn_maps_kind kind, const long args[6],
	const struct crn_range *r)
{
	size_t i = crn_area_from(c, r->begin);
	bool areas = i < c->area_count && c->areas[i]->begin < r->end;

	switch (kind) {
	case CRN_MAPS_MAPS:
		if (by_kind(c) && crn_maps_of_file((int)args[2], (int)args[3]))
			return NOTHING;
		return crn_maps_minds(c) && crn_maps_of_memory((int)args[3]) ? MORE : ANYTHING;
	case CRN_MAPS_UNMAPS:
		if (!areas)
			return NOTHING;
		/* fallthrough */
	case CRN_MAPS_BREAK:
		if (!crn_maps_minds(c) || !crn_layout_has_parts(c, r->begin, r->end))
			return ANYTHING;
		return r->begin < r->end ? LESS : MORE; /* of a break: does it fall? */
	case CRN_MAPS_PROTECTS:
		return crn_maps_minds(c) && opens_reserved(c, args) ? MORE : ANYTHING;
	case CRN_MAPS_DROPS:
		return crn_maps_minds(c) && all_private(c, r->begin, r->end) ? EMPTIED : ANYTHING;
	default:
		return ANYTHING;
	}
}

/* It has succeeded. */
static void follow_outcome(cairn_t *c, enum outcome outcome, enum crn_maps_kind kind,
	const long args[6], const struct crn_range *r, long result)
{
	int err;

	switch (outcome) {
	case MORE:
		if (kind == CRN_MAPS_MAPS)
			crn_maps_added(c, (int)args[2], (int)args[3], (uintptr_t)result,
				(size_t)args[1]);
		else if (kind == CRN_MAPS_PROTECTS)
			note_added(c, crn_pages((uintptr_t)args[0]),
				crn_pages((uintptr_t)args[0] + crn_page_up((size_t)args[1])));
		else if (r->end < (uintptr_t)result)
			note_added(c, crn_pages(r->end), crn_pages(crn_page_up((uintptr_t)result)));
		return;
	case LESS:
		err = crn_layout_follow_part(c, r->begin, crn_page_up(r->end));
		if (err >= 0)
			return;
		crn_debug("what is gone at %zx: %d", r->begin, err);
		c->ops->suspect(c->tracker);
		crn_maps_changed(c);
		return;
	default:
		return;
	}
}

/* Is all of it mapped, and nothing of it a file? Only where that is cheap to ask. */
static bool no_file(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct crn_mapping m;

	for (; begin < end; begin = m.end)
		if (!c->maps.query || crn_maps_find(&c->maps, begin, &m) != 1 ||
			crn_mapping_flags(&m))
			return false;
	return true;
}

/*
 * The kernel takes permissions along when it moves a mapping or lets it grow, to where the tracker
 * does not know them, and refuses to move one that they have split. And where one ends another may
 * begin before the next look, of the same size and kind, and open: what is known of its pages would
 * be wrong. So areas end here. Their content is not saved: nothing can take such a call back.
 */
static void let_go(cairn_t *c, enum crn_maps_kind kind, const struct crn_range ends[2])
{
	if (!takes_permissions(c))
		return;
	for (int i = 0; i < 2; i++)
		if (ends[i].begin < ends[i].end)
			crn_area_let_go(c, ends[i].begin, ends[i].end);
	/* An area that was a part of a mapping would split it now, and mremap wants one. */
	if (c->mode == CRN_SURFACE_ALL && kind == CRN_MAPS_MOVES &&
		no_file(c, ends[0].begin, ends[0].end))
		resemble(c, ends[0].begin, ends[0].end);
}

/* A call that succeeded has given the program memory: ends[0].end is where brk's ended before. */
static void given(cairn_t *c, enum crn_maps_kind kind, const long args[6],
	const struct crn_range ends[2], long result)
{
	uintptr_t begin = (uintptr_t)args[0], end = begin + crn_page_up((size_t)args[1]);
	bool tracked = c->mode == CRN_SURFACE_ALL;

	switch (kind) {
	case CRN_MAPS_BREAK:
		begin = crn_page_up(ends[0].end);
		end = crn_page_up((uintptr_t)result);
		tracked |= c->mode == CRN_SURFACE_PROGRAM || crn_area_at(c, begin - 1);
		break;
	case CRN_MAPS_MAPS:
		tracked &= args[3] & MAP_FIXED && plain((int)args[2], (int)args[3]);
		break;
	case CRN_MAPS_PROTECTS:
		tracked = tracked && args[2] & PROT_WRITE && no_file(c, begin, end);
		break;
	default:
		return;
	}
	if (tracked)
		resemble(c, begin, end);
}

/* In [begin, end) of an area, the runs of pages that hold something. */
static int note_held(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t a = begin, b = end; c->ops->held(c->tracker, &a, &b); a = b, b = end)
		CRN_TRY(c->ops->page.unprotect(c->tracker, a, b - a));
	return 0;
}

/*
 * The content of [begin, end) is about to be gone. The kernel's tables do not show that of private
 * mappings of files; a tracker that has to suspect nothing (`all`) will not look for the rest.
 */
static int note_dropped(cairn_t *c, uintptr_t begin, uintptr_t end, bool all)
{
	int err = 0;

	for (size_t i = crn_area_from(c, begin);
		i < c->area_count && c->areas[i]->begin < end && err >= 0; i++) {
		const struct crn_area *a = c->areas[i];
		uintptr_t from = CRN_MAX(a->begin, begin), to = CRN_MIN(a->end, end);

		if ((a->flags & (CRN_AREA_FILE | CRN_AREA_SHARED)) == CRN_AREA_FILE)
			err = c->ops->page.unprotect(c->tracker, from, to - from);
		else if (all)
			err = note_held(c, from, to);
	}
	return err;
}

void crn_maps_drops(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	if (!c->ops->page.unprotect || crn_lock(c) < 0)
		return;
	if (note_dropped(c, begin, end, false) < 0)
		crn_warn("what is dropped at %p cannot be noted", (void *)begin);
	crn_unlock(c);
}

long crn_maps_call(cairn_t *c, long nr, const long args[6], enum crn_maps_kind kind,
	const struct crn_range ends[2])
{
	bool tell = kind == CRN_MAPS_PROTECTS && takes_permissions(c);
	bool locked = crn_lock(c) >= 0;
	enum outcome outcome = locked ? outcome_of(c, kind, args, &ends[0]) : ANYTHING;
	uintptr_t addr = (uintptr_t)args[0];
	size_t len = crn_page_up((size_t)args[1]);
	bool made;
	long result;

	if (tell && locked)
		changing(c, addr, len);
	if (locked && kind == CRN_MAPS_PROTECTS)
		crn_files_protecting(c, addr, addr + len);
	if (locked)
		let_go(c, kind, ends);
	if (kind == CRN_MAPS_DROPS && locked && c->ops->page.unprotect &&
		note_dropped(c, ends[0].begin, ends[0].end, outcome == EMPTIED) < 0) {
		outcome = ANYTHING;
		crn_maps_changed(c); /* copies of files' pages are counted, too */
	}
	/* A server that maps memory for each answer would else be cause for doubt, and a scan. */
	if (outcome != ANYTHING)
		crn_own_calls(c, true);
	result = crn_memory_call(nr, args);
	made = (unsigned long)result < -4095ul;
	if (made && outcome != ANYTHING)
		follow_outcome(c, outcome, kind, args, &ends[0], result);
	if (tell && locked && result >= 0)
		(void)c->ops->page.protection(c->tracker, addr, len, (int)args[2]);
	if (outcome == ANYTHING && kind != CRN_MAPS_DROPS)
		crn_maps_changed(c);
	if (locked && made)
		given(c, kind, args, ends, result);
	if (outcome != ANYTHING)
		crn_own_calls(c, false);
	if (locked)
		crn_unlock(c);
	return result;
}

/* ---- Threads -------------------------------------------------------------------------------- */

void crn_thread_memory(cairn_t *c, uintptr_t addr, size_t len)
{
	if (!crn_refuses_kernel(c->ops) || crn_lock(c) < 0)
		return;
	if (c->birth_count == CRN_BIRTHS_MAX) {
		for (uint32_t i = 1; i < CRN_BIRTHS_MAX; i++)
			c->births[i - 1] = c->births[i];
		c->birth_count--;
	}
	c->births[c->birth_count++] = addr;
	c->control->maps_stale = true;
	/* Mapped, and found, before anybody knew what it is for. */
	if (c->ops->page.set_hot && c->ops->page.set_hot(c->tracker, addr, len, true) < 0)
		crn_warn("memory of a new thread at %p cannot be kept open", (void *)addr);
	crn_unlock(c);
}
