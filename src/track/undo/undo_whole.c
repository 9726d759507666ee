/* SPDX-License-Identifier: MIT */
/*
 * Are the mappings of explicit areas still the ones that were closed? Checkpoints of such areas
 * make no system call, so they do not notice a munmap or mremap. Memory that the program maps there
 * instead is not closed: clean pages would be written unseen, and their old content, which was only
 * in live memory, is gone. Open pages do not matter, because their old content is in frames.
 */
#include <errno.h>
#include <signal.h>
#include "base/log.h"
#include "base/status.h"
#include "os/guarded.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "os/pagemap.h"
#include "os/thread.h"
#include "os/userfault.h"
#include "track/undo/change_rings.h"
#include "track/undo/undo_pages.h"

/* Does the hardware have to refuse stores to it? A handler that has just opened it says so soon. */
static bool is_clean(
	const struct crn_undo_pages *u, const struct undo_area *a, uintptr_t page)
{
	uintptr_t word;

	while ((word = atomic_load(undo_word_of(a, page))) & UNDO_BUSY) {
		if (undo_guest_died(u))
			return false; /* it may have opened it before */
		crn_yield();
	}
	/* Sealed: it could not be closed any more (undo_protect.c). */
	return !(word & UNDO_OPEN) || word & UNDO_SEALED;
}

static bool any_clean(const struct crn_undo_pages *u, const struct undo_area *a,
	uintptr_t begin, uintptr_t end)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		if (is_clean(u, a, page))
			return true;
	return false;
}

/* ---- By mprotect ------------------------------------------------------------------------- */

/*
 * No mapping that can be written holds a clean page, and none has gone. A shared area is all of the
 * memory that was added: what would be put back over open pages might be another's.
 */
int undo_whole_mprotect(struct crn_undo_pages *u, struct undo_area *a)
{
	bool shared = a->area->flags & CRN_AREA_SHARED;
	struct crn_mapping m;
	int more;

	if (a->lost || !crn_memory_all_mapped(a->begin, a->end - a->begin))
		return CAIRN_ELAYOUT;
	CRN_TRY(crn_maps_begin(
		&u->maps, a->begin, CRN_MAPS_NO_NAMES | (shared ? 0 : CRN_MAPS_WRITABLE)));
	while ((more = crn_maps_next(&u->maps, &m)) > 0 && m.begin < a->end) {
		if (!undo_object_is(a, &m))
			return CAIRN_ELAYOUT;
		if (m.prot & PROT_WRITE &&
			any_clean(u, a, CRN_MAX(m.begin, a->begin), CRN_MIN(m.end, a->end)))
			return CAIRN_ELAYOUT;
	}
	return CRN_MIN(more, 0);
}

/* ---- By userfaultfd, asked --------------------------------------------------------------- */

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
		if (err == -ENOENT && any_clean(u, a, at, end))
			return CAIRN_ELAYOUT;
		if (err != -ENOENT)
			CRN_TRY(err);
	}
	return more < 0 ? more : at < a->end ? CAIRN_ELAYOUT : 0;
}

static int ask(struct crn_undo_pages *u, struct undo_area *a)
{
	int err = -ENOENT;
	uint8_t byte;

	/* One call for an area that is one mapping, whose first page is there once it is read. */
	if (crn_guarded_copy(&byte, (const void *)a->begin, 1) >= 0)
		err = registered(u, a->begin, a->end);
	return err == -ENOENT ? walk(u, a) : err;
}

/* ---- By userfaultfd, told ---------------------------------------------------------------- */

#define RUNS_MAX 32

/* A guard page has no mark, and needs none: whoever stores there is told. */
static bool is_guard(struct crn_undo_pages *u, uintptr_t page)
{
	struct crn_page_run run;
	uintptr_t cursor = page;

	return crn_pagemap_guards(u->pagemap, &cursor, page + CRN_PAGE_SIZE, &run, 1) > 0;
}

static bool any_unmarked(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		if (is_clean(u, a, page) && !is_guard(u, page))
			return true;
	return false;
}

/* Every clean page has the mark of its protection, which goes with its content. */
static int all_marked(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	struct crn_page_run runs[RUNS_MAX];
	uintptr_t at = begin, cursor = begin;
	long count;

	while (cursor < end) {
		do
			count = crn_pagemap_protected(
				u->pagemap, &cursor, end, runs, RUNS_MAX);
		while (count < 0 && crn_keeper_mend(u->env->keeper) > 0);
		if (count < 0)
			return (int)count;
		for (long i = 0; i < count; at = runs[i++].end)
			if (any_unmarked(u, a, at, runs[i].begin))
				return CAIRN_ELAYOUT;
	}
	return any_unmarked(u, a, at, end) ? CAIRN_ELAYOUT : 0;
}

int undo_whole_uffd(struct crn_undo_pages *u, struct undo_area *a)
{
	/* Open pages have no mark: what is to go back there must have a place. */
	if (a->lost || !crn_memory_all_mapped(a->begin, a->end - a->begin))
		return CAIRN_ELAYOUT;
	return u->events ? all_marked(u, a, a->begin, a->end) : ask(u, a);
}

/* Areas of two kinds: those of userfaultfd, and those that are told of (undo_told.c). */
struct quiet {
	bool protected, told;
};

/* No call that changes a mapping of the kind has returned since all were whole. */
static struct quiet is_quiet(const struct crn_undo_pages *u)
{
	bool quiet = crn_keeper_lives(u->env->keeper) &&
		atomic_load(&u->env->keeper->readers.events.seen) == u->looked;

	return (struct quiet){
		.protected = quiet && u->events,
		.told = quiet && u->tells && crn_change_rings_quiet(u->rings),
	};
}

void undo_whole_lost(struct crn_undo_pages *u, struct undo_area *a)
{
	a->lost = true;
	u->looked = atomic_load(&u->env->keeper->readers.events.seen) - 1;
}

void undo_whole_page(struct crn_undo_pages *u, uintptr_t page)
{
	struct undo_area *a = undo_find(u, page);

	if (!a || a->guard != &undo_guard_uffd)
		return;
	if (crn_keeper_await_log(u->env->keeper) == u->looked)
		return;
	if (all_marked(u, a, page, page + CRN_PAGE_SIZE) == CAIRN_ELAYOUT)
		undo_whole_lost(u, a);
}

/* ---- Before pages are opened ------------------------------------------------------------- */

/* Where the kernel tells of no mapping, each page does. */
static bool refuses_stores(uintptr_t begin, uintptr_t end)
{
	if (!crn_memory_all_mapped(begin, end - begin))
		return false;
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		if (crn_guarded_store((void *)page) >= 0)
			return false;
	return true;
}

static bool has_marks(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end)
{
	struct crn_page_run runs[RUNS_MAX];
	uintptr_t cursor = begin;
	size_t marked = 0;

	while (cursor < end) {
		long count =
			crn_pagemap_protected(u->pagemap, &cursor, end, runs, RUNS_MAX);

		if (count < 0)
			return false;
		for (long i = 0; i < count; i++)
			marked += runs[i].end - runs[i].begin;
	}
	return marked == end - begin;
}

bool undo_whole_closed(struct crn_undo_pages *u, const struct undo_area *a, uintptr_t begin,
	uintptr_t end)
{
	int closed;

	if (!u->env->areas_alone)
		return true; /* who changes mappings says so before */
	if (a->guard == &undo_guard_mprotect) {
		if (!undo_object_there(u, a, begin, end))
			return false;
		closed = crn_maps_closed(&u->maps, begin, end);
		return closed < 0 ? refuses_stores(begin, end) : closed;
	}
	return !u->events || crn_keeper_await_log(u->env->keeper) == u->looked ||
	       has_marks(u, begin, end);
}

/* ---- Noting ------------------------------------------------------------------------------ */

/*
 * What was seen before the look is dealt with, if nobody is about to let its causer go on. Pages
 * that are dropped go after that: where this has happened each look is a real one.
 */
static void note_whole(struct crn_undo_pages *u, uint32_t done, uint32_t seen)
{
	if (done != seen)
		return;
	if (u->events && atomic_load(&u->env->keeper->readers.events.dropped))
		return;
	/* Of what has come since it was last taken note of the look has seen nothing. */
	if (u->events || u->tells)
		u->looked = u->tells ? u->noted : seen;
}

/* ---- All areas --------------------------------------------------------------------------- */

static bool needs_look(
	const struct undo_area *a, uintptr_t begin, uintptr_t end, struct quiet quiet)
{
	if (a->end <= begin || a->begin >= end || !a->guard || !a->guard->whole)
		return false;
	return !(a->told ? quiet.told : a->guard == &undo_guard_uffd && quiet.protected);
}

static int look_for_cuts(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	int err = undo_cut_look(u, a, begin, end, NULL);

	u->cut_seen |= err == CAIRN_ELAYOUT;
	return err;
}

static int look(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, struct quiet quiet)
{
	int err = 0;

	for (size_t i = 0; i < u->area_count && err >= 0; i++) {
		struct undo_area *a = u->areas[i];

		if (needs_look(a, begin, end, quiet))
			err = a->guard->whole(u, a);
		if (err == CAIRN_ELAYOUT)
			crn_error("area %lx-%lx has been unmapped, moved or opened: remove areas "
				  "before that",
				a->begin, a->end);
		/* No event tells of that. */
		if (err >= 0 && a->own)
			err = look_for_cuts(u, a, begin, end);
	}
	return err;
}

int undo_whole(void *t, uintptr_t begin, uintptr_t end)
{
	struct crn_undo_pages *u = t;
	struct crn_uffd_events *e = &u->env->keeper->readers.events;
	uint32_t done, seen;
	struct quiet quiet;
	int err = 0;

	undo_told_keep(u);
	seen = u->events || u->tells ? crn_keeper_await_log(u->env->keeper) : 0;
	done = atomic_load(&e->done);
	quiet = is_quiet(u);

	/* Without the file nothing is protected: that is another answer. */
	if (u->events && !quiet.protected)
		err = CRN_MIN(crn_keeper_mend(u->env->keeper), 0);
	if (!quiet.told)
		crn_change_rings_look(u->rings);
	if (err >= 0)
		err = look(u, begin, end, quiet);
	if (err >= 0 && atomic_load(&u->cut_saved))
		err = CAIRN_ELAYOUT;
	if (err < 0 || begin != 0 || end != UINTPTR_MAX)
		return err;
	note_whole(u, done, seen);
	if (!quiet.told)
		crn_change_rings_note(u->rings);
	return 0;
}
