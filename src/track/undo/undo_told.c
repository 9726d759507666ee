/* SPDX-License-Identifier: MIT */
/*
 * How the tracker learns of changed mappings in areas that mprotect guards (all private areas under
 * tracker `mprotect`, those of files under `uffd`), so that it need not ask at each look
 * (undo_whole.c). perf reports mmap and mprotect (change_rings.h). A userfaultfd that protects
 * nothing reports calls that take memory away; areas are registered with it only for its events,
 * which the keeper reads and logs.
 *
 * A loss shows nowhere else: a clean page without its content is as closed as any. So losses are
 * noted before pages change. If a page was open when its content went, that does not matter. If it
 * was clean, or was saved when its event was already there (UNDO_DOUBT), it is a loss.
 *
 * The keeper also holds the only descriptor, which is fetched when an area is added. If the readers
 * are killed, the userfaultfd ends, and nobody waits for them.
 */
#include "base/status.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/keeper.h"
#include "os/sharers.h"
#include "os/thread.h"
#include "os/userfault.h"
#include "track/undo/change_rings.h"
#include "track/undo/undo_pages.h"

#define EVENTS (CRN_UFFD_EVENT_UNMAP | CRN_UFFD_EVENT_REMOVE | CRN_UFFD_EVENT_REMAP)

void undo_told_open(struct crn_undo_pages *u)
{
	struct crn_track_env *env = u->env;
	uint64_t features = env->host->uffd_features;

	if (!env->areas_alone || (features & EVENTS) != EVENTS)
		return;
	/* With WP_ASYNC it takes mappings of files as well. */
	u->told_fd = crn_uffd_open(EVENTS | (features & CRN_UFFD_WP_ASYNC), NULL);
	if (u->told_fd < 0)
		return;
	u->noted = atomic_load(&env->keeper->readers.events.seen);
	crn_keeper_read_events(env->keeper, &u->told_fd);
	u->tells = crn_keeper_hold(env->keeper, &u->told_fd, NULL) >= 0;
	if (!u->tells)
		crn_keeper_drop(env->keeper, &u->told_fd);
}

void undo_told_close(struct crn_undo_pages *u)
{
	crn_change_rings_close(u->rings);
	crn_keeper_drop(u->env->keeper, &u->told_fd);
}

/* ---- Registered areas -------------------------------------------------------------------- */

/* From the keeper, unless the program has changed its user. */
static bool fetch(struct crn_undo_pages *u)
{
	(void)crn_keeper_mend(u->env->keeper);
	return u->told_fd >= 0;
}

/* The keeper keeps it. */
static void give_back(struct crn_undo_pages *u)
{
	crn_fd_close(u->told_fd);
	u->told_fd = -1;
}

static bool can_enlist(const struct crn_undo_pages *u, const struct undo_area *a)
{
	return u->tells && a->guard == &undo_guard_mprotect && !(a->area->flags & CRN_AREA_SHARED);
}

/* What nobody reads of must not be registered: its munmap would sleep for ever. */
static void enlist(struct crn_undo_pages *u, struct undo_area *a)
{
	a->torn = a->told = false;
	if (!can_enlist(u, a) || !crn_keeper_reads(u->env->keeper) || !fetch(u))
		return;
	a->told = crn_uffd_register(u->told_fd, a->begin, a->end - a->begin) >= 0;
	give_back(u);
	if (a->told && !u->rings)
		(void)crn_change_rings_open(&u->rings, u->env->arena, u->env->keeper);
}

/* ---- Taking note ------------------------------------------------------------------------- */

static bool lost_content(uintptr_t word)
{
	return !(word & UNDO_OPEN) || word & (UNDO_SEALED | UNDO_DOUBT);
}

/*
 * `later`: it may go at any time from now on, if the call is another thread's. Then the page must
 * not be closed: it would lose what it holds at that checkpoint.
 */
static void note_pages(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin,
	uintptr_t end, bool later)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		uintptr_t word = atomic_load(undo_word_of(a, page));

		a->lost |= lost_content(word);
		if (later && word & UNDO_OPEN &&
			crn_range_list_add(&u->open, page, page + CRN_PAGE_SIZE) < 0)
			a->lost = true;
	}
}

/* `torn`: what is there now, if anything, is another mapping. */
static void note_range(
	struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool torn, bool later)
{
	for (size_t i = 0; i < u->area_count; i++) {
		struct undo_area *a = u->areas[i];

		if (!a->told || a->end <= begin || a->begin >= end)
			continue;
		a->torn |= torn;
		note_pages(u, a, CRN_MAX(begin, a->begin), CRN_MIN(end, a->end), later);
	}
}

static bool takes_away(const struct crn_uffd_event *e, uintptr_t page)
{
	switch (e->kind) {
	case CRN_UFFD_REMAPPED:
		return page - e->args[0] < e->args[2] || page - e->args[1] < e->args[2];
	case CRN_UFFD_REMOVED:
	case CRN_UFFD_UNMAPPED:
		return page >= e->args[0] && page < e->args[1];
	}
	return false;
}

static void note_event(struct crn_undo_pages *u, const struct crn_uffd_event *e, bool alone)
{
	switch (e->kind) {
	case CRN_UFFD_REMAPPED:
		note_range(u, e->args[0], e->args[0] + e->args[2], true, false);
		note_range(u, e->args[1], e->args[1] + e->args[2], true, false);
		break;
	case CRN_UFFD_REMOVED:
		note_range(u, e->args[0], e->args[1], false, !alone);
		break;
	case CRN_UFFD_UNMAPPED:
		note_range(u, e->args[0], e->args[1], true, false);
		break;
	}
}

/* Any context: nothing is written. */
uintptr_t undo_told_pending(const struct crn_undo_pages *u, uintptr_t page)
{
	const struct crn_uffd_event *log = u->env->keeper->readers.events.log;
	uint32_t seen = crn_keeper_await_log(u->env->keeper), at = u->noted;

	if (seen - at >= CRN_UFFD_LOG)
		return UNDO_DOUBT;
	for (; at != seen; at++)
		if (takes_away(&log[at % CRN_UFFD_LOG], page))
			return UNDO_DOUBT;
	return 0;
}

static void settle_doubts(struct crn_undo_pages *u)
{
	for (size_t i = 0; i < atomic_load(&u->saved_count); i++) {
		struct undo_area *a = undo_find(u, u->saved[i]);

		if (a) /* else of the one that is being added, and saved just now */
			atomic_fetch_and(undo_word_of(a, u->saved[i]), ~(uintptr_t)UNDO_DOUBT);
	}
	for (size_t i = 0; i < u->hot.count; i++)
		atomic_fetch_and((undo_word *)u->hot.at[i].where, ~(uintptr_t)UNDO_DOUBT);
}

static void take_note(struct crn_undo_pages *u)
{
	const struct crn_uffd_event *log = u->env->keeper->readers.events.log;
	bool alone = crn_memory_alone();
	uint32_t seen;

	undo_gate_close(u);
	seen = crn_keeper_await_log(u->env->keeper);
	if (seen - u->noted >= CRN_UFFD_LOG) { /* the oldest are written over */
		note_range(u, 0, UINTPTR_MAX, true, false);
		u->noted = seen;
	}
	for (; u->noted != seen; u->noted++)
		note_event(u, &log[u->noted % CRN_UFFD_LOG], alone);
	crn_range_list_normalise(&u->open);
	settle_doubts(u);
	for (size_t i = 0; i < u->area_count; i++)
		if (u->areas[i]->torn)
			enlist(u, u->areas[i]);
	undo_gate_open(u);
}

static int is_busy(void *self, int tid)
{
	return tid != *(const int *)self && !crn_thread_rests(tid);
}

static void note_sharer(void *shared, int tid)
{
	*(bool *)shared = true;
}

/*
 * Whoever rests is in no madvise. That a page is empty tells nothing: it may have been
 * so before, or by another call.
 */
static void close_gone(struct crn_undo_pages *u)
{
	int self = crn_gettid();
	bool shared = false;

	if (crn_memory_alone() ||
		(crn_thread_each(is_busy, &self) == 0 &&
			crn_sharers_each(note_sharer, &shared) >= 0 && !shared))
		crn_range_list_shrink(&u->open, 0);
}

/* ---- Readers come and go ------------------------------------------------------------------ */

/* Who waits for readers goes on when the last descriptor is closed. Nothing is quiet any more. */
static void forget(struct crn_undo_pages *u)
{
	take_note(u);
	u->looked = u->noted - 1;
	for (size_t i = 0; i < u->area_count; i++)
		u->areas[i]->told = false;
	u->tells = false;
	crn_keeper_drop(u->env->keeper, &u->told_fd);
	crn_keeper_dismiss(u->env->keeper);
}

void undo_told_add(struct crn_undo_pages *u, struct undo_area *a)
{
	if (undo_told_more(u))
		take_note(u); /* before there is this area: what is told happened to another one */
	enlist(u, a);
}

void undo_told_drop(struct crn_undo_pages *u, struct undo_area *a)
{
	if (a->told && fetch(u)) {
		undo_unregister(u, &u->told_fd, a);
		give_back(u);
	}
	a->told = false;
}

/* Anew, as long as there can be readers. What has happened meanwhile the next look finds. */
static void renew(struct crn_undo_pages *u)
{
	struct crn_keeper *k = u->env->keeper;

	if (crn_keeper_renew(k) >= 0 && crn_keeper_reads(k)) {
		give_back(u);
		return;
	}
	forget(u);
	undo_told_open(u);
	if (u->tells && !crn_keeper_reads(k))
		(void)crn_keeper_start(k);
	if (u->tells && !crn_keeper_reads(k))
		forget(u);
	for (size_t i = 0; i < u->area_count; i++)
		enlist(u, u->areas[i]);
}

void undo_told_note(struct crn_undo_pages *u)
{
	if (u->tells && !crn_keeper_reads(u->env->keeper))
		renew(u);
	if (undo_told_more(u))
		take_note(u);
	if (u->open.count)
		close_gone(u);
}
