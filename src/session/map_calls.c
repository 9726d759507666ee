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

/* Is what it takes away, or gives, no part of the surface? The lock is held. */
static bool changes_nothing(const cairn_t *c, enum crn_maps_kind kind, const long args[6],
	const struct crn_range *r)
{
	size_t i = crn_area_from(c, r->begin);

	if (kind == CRN_MAPS_MAPS)
		return by_kind(c) && crn_maps_of_file((int)args[2], (int)args[3]);
	return kind == CRN_MAPS_UNMAPS && (i == c->area_count || c->areas[i]->begin >= r->end);
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
		tracked &= plain((int)args[2], (int)args[3]);
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

long crn_maps_call(cairn_t *c, long nr, const long args[6], enum crn_maps_kind kind,
	const struct crn_range ends[2])
{
	bool tell = kind == CRN_MAPS_PROTECTS && takes_permissions(c);
	bool locked = crn_lock(c) >= 0;
	bool nothing = locked && changes_nothing(c, kind, args, &ends[0]);
	uintptr_t addr = (uintptr_t)args[0];
	size_t len = crn_page_up((size_t)args[1]);
	long result;

	if (tell && locked)
		changing(c, addr, len);
	if (locked && kind == CRN_MAPS_PROTECTS)
		crn_files_protecting(c, addr, addr + len);
	if (locked)
		let_go(c, kind, ends);
	/* A server that maps a file for each answer would else be cause for doubt, and a scan. */
	if (nothing)
		crn_own_calls(c, true);
	result = crn_memory_call(nr, args);
	if (nothing)
		crn_own_calls(c, false);
	if (tell && locked && result >= 0)
		(void)c->ops->page.protection(c->tracker, addr, len, (int)args[2]);
	if (!nothing)
		crn_maps_changed(c);
	if (locked && (unsigned long)result < -4095ul)
		given(c, kind, args, ends, result);
	if (locked)
		crn_unlock(c);
	return result;
}

void crn_maps_drops(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	if (!c->ops->page.unprotect || crn_lock(c) < 0)
		return;
	for (size_t i = crn_area_from(c, begin); i < c->area_count && c->areas[i]->begin < end;
		i++) {
		const struct crn_area *a = c->areas[i];
		uintptr_t from = CRN_MAX(a->begin, begin), to = CRN_MIN(a->end, end);

		if ((a->flags & (CRN_AREA_FILE | CRN_AREA_SHARED)) == CRN_AREA_FILE &&
			c->ops->page.unprotect(c->tracker, from, to - from) < 0)
			crn_warn("what is dropped at %p cannot be noted", (void *)from);
	}
	crn_unlock(c);
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
