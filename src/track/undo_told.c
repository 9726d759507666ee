/* SPDX-License-Identifier: MIT */
/*
 * Tracker `mprotect` is told that a mapping has changed, so that it need not ask at each look
 * (undo_whole.c): of mmap and mprotect by perf (change_rings.h), of munmap and mremap by a
 * userfaultfd that protects nothing. Areas are registered with it for its events alone, which the
 * keeper reads.
 *
 * The keeper also holds the only descriptor, which is fetched when an area is added: if the readers
 * are killed the file ends, and nobody waits for them.
 */
#include "base/status.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/keeper.h"
#include "os/userfault.h"
#include "track/change_rings.h"
#include "track/undo_pages.h"

#define EVENTS CRN_UFFD_EVENT_UNMAP

void undo_told_open(struct crn_undo_pages *u)
{
	struct crn_track_env *env = u->env;
	uint64_t features = env->host->uffd_features;

	if (!env->areas_alone || (features & EVENTS) != EVENTS)
		return;
	if (!u->rings && crn_change_rings_open(&u->rings, env->arena) < 0)
		return;
	/* With WP_ASYNC it takes mappings of files as well. */
	u->uffd = crn_uffd_open(EVENTS | (features & CRN_UFFD_WP_ASYNC), NULL);
	if (u->uffd < 0)
		return;
	crn_keeper_read_events(env->keeper, &u->uffd);
	u->events = crn_keeper_hold(env->keeper, &u->uffd, NULL) >= 0;
	if (!u->events) {
		crn_keeper_read_events(env->keeper, NULL);
		crn_keeper_drop(env->keeper, &u->uffd);
	}
}

void undo_told_close(struct crn_undo_pages *u)
{
	crn_change_rings_close(u->rings);
	u->rings = NULL;
}

/* Who waits for readers goes on when the last descriptor is closed. */
static void forget(struct crn_undo_pages *u)
{
	for (size_t i = 0; i < u->area_count; i++)
		u->areas[i]->told = false;
	u->events = false;
	crn_keeper_drop(u->env->keeper, &u->uffd);
	crn_keeper_dismiss(u->env->keeper);
}

/* From the keeper, unless the program has changed its user. */
static bool fetch(struct crn_undo_pages *u)
{
	(void)crn_keeper_mend(u->env->keeper);
	return u->uffd >= 0;
}

static void give_back(struct crn_undo_pages *u)
{
	crn_fd_close(u->uffd);
	u->uffd = -1;
}

/* What nobody reads of must not be registered: its munmap would sleep for ever. */
void undo_told_add(struct crn_undo_pages *u, struct undo_area *a)
{
	bool reads = u->events && crn_keeper_reads(u->env->keeper);

	if (u->guard != &undo_guard_mprotect || !reads || a->area->flags & CRN_AREA_SHARED)
		return;
	if (!fetch(u))
		return;
	a->told = crn_uffd_register(u->uffd, a->begin, a->end - a->begin) >= 0;
	give_back(u);
}

void undo_told_drop(struct crn_undo_pages *u, struct undo_area *a)
{
	if (a->told && fetch(u)) {
		undo_unregister(u, a);
		give_back(u);
	}
	a->told = false;
}

/* Anew, as long as there can be readers. What has happened meanwhile the next look finds. */
void undo_told_renew(struct crn_undo_pages *u)
{
	struct crn_keeper *k = u->env->keeper;

	if (crn_keeper_renew(k) >= 0 && crn_keeper_reads(k)) {
		give_back(u);
		return;
	}
	forget(u);
	undo_told_open(u);
	if (u->events && !crn_keeper_reads(k))
		(void)crn_keeper_start(k);
	if (u->events && !crn_keeper_reads(k))
		forget(u);
	for (size_t i = 0; i < u->area_count; i++)
		undo_told_add(u, u->areas[i]);
}
