/* SPDX-License-Identifier: MIT */
/*
 * Tracker `uffd`: undo pages behind userfaultfd write protection, delivered as SIGBUS to the
 * storing thread itself (a handler thread costs ten times as much). It costs about two thirds of
 * `mprotect`, and mappings are never split.
 *
 * The kernel offers this for private anonymous memory only. Areas of files and shared areas are
 * guarded by mprotect (and undo_told.c). A system call that writes to a clean page fails with
 * EFAULT, as under `mprotect`.
 */
#include <errno.h>
#include "base/status.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "os/pagemap.h"
#include "os/thread.h"
#include "os/userfault.h"
#include "track/undo/undo_pages.h"

/*
 * Once more, if the call has failed because the program has closed our descriptor: the keeper has
 * the file. Not for ever: what has been fetched once is there, unless it is closed again. SAFETY:
 * from write-fault handlers as well.
 */
static bool again(struct crn_undo_pages *u, int err)
{
	return err < 0 && crn_keeper_mend(u->env->keeper) > 0;
}

static int change(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool protect)
{
	int err;

	do
		err = crn_uffd_protect_beside(u->uffd, begin, end - begin, protect,
			u->events ? &u->env->keeper->readers.events : NULL);
	while (again(u, err));
	return err;
}

static int protect(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec)
{
	return change(u, begin, end, true);
}

/*
 * A file that the keeper holds and does not give us (the program has changed its user) would leave
 * pages that nobody can open: it goes, and all protection with it. The store runs unseen, and every
 * call says -EBADF from then on.
 */
static int unprotect(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec)
{
	int err = change(u, begin, end, false);

	if (crn_likely(err >= 0 || u->uffd >= 0))
		return err;
	crn_keeper_dismiss(u->env->keeper);
	crn_yield();
	return 0;
}

void undo_unregister(struct crn_undo_pages *u, const int *uffd, const struct undo_area *a)
{
	struct crn_mapping m;
	int err;

	do
		err = crn_uffd_unregister(*uffd, a->begin, a->end - a->begin);
	while (again(u, err));
	if (err >= 0)
		return;
	if (crn_maps_begin(&u->maps, a->begin, CRN_MAPS_NO_NAMES) < 0)
		return;
	while (crn_maps_next(&u->maps, &m) > 0 && m.begin < a->end) {
		uintptr_t from = CRN_MAX(m.begin, a->begin), to = CRN_MIN(m.end, a->end);

		crn_uffd_unregister(*uffd, from, to - from);
	}
}

static void uffd_end(struct crn_undo_pages *u, struct undo_area *a)
{
	undo_unregister(u, &u->uffd, a);
}

/* ---- Events ------------------------------------------------------------------------------ */

#define EVENTS (CRN_UFFD_EVENT_UNMAP | CRN_UFFD_EVENT_REMOVE | CRN_UFFD_EVENT_REMAP)

/* Who looks then wants to see the mark of each page that is protected (undo_whole.c). */
static bool with_events(const struct crn_undo_pages *u)
{
	const struct crn_host *host = u->env->host;
	uint64_t wanted = EVENTS | CRN_UFFD_WP_UNPOPULATED;

	return (host->uffd_features & wanted) == wanted && host->pagemap_scan &&
		crn_pagemap_tells_guards(u->pagemap, (void *)crn_page_down((uintptr_t)u));
}

static int open_file(const struct crn_host *host, bool events)
{
	return crn_uffd_open(CRN_UFFD_SIGBUS | CRN_UFFD_PAGEFAULT_FLAG_WP |
			(host->uffd_features & CRN_UFFD_WP_UNPOPULATED) | (events ? EVENTS : 0),
		NULL);
}

/*
 * Nobody reads events: an munmap of what is registered would sleep for ever. -EBUSY: something is
 * already.
 */
static int without_events(struct crn_undo_pages *u)
{
	int fd;

	for (size_t i = 0; i < u->area_count; i++)
		if (u->areas[i]->guard == &undo_guard_uffd)
			return -EBUSY;
	fd = open_file(u->env->host, false);
	if (fd < 0)
		return fd;
	crn_keeper_drop(u->env->keeper, &u->uffd);
	u->uffd = fd;
	u->events = false;
	return crn_keeper_hold(u->env->keeper, &u->uffd, NULL);
}

/* The readers have been killed, and there can be no others: mprotect takes over, without a gap. */
static void leave_events(struct crn_undo_pages *u)
{
	undo_gate_close(u);
	for (size_t i = 0; i < u->area_count; i++) {
		struct undo_area *a = u->areas[i];

		if (a->guard != &undo_guard_uffd)
			continue;
		a->guard = &undo_guard_mprotect;
		if (a->guard->begin(u, a) >= 0)
			uffd_end(u, a);
		else
			a->guard = &undo_guard_uffd;
	}
	undo_gate_open(u);
}

static int uffd_begin(struct crn_undo_pages *u, struct undo_area *a)
{
	size_t len = a->end - a->begin;
	int err;

	if (u->events && !crn_keeper_reads(u->env->keeper))
		CRN_TRY(without_events(u));
	if (!u->area_count)
		u->looked = atomic_load(&u->env->keeper->readers.events.seen);
	do
		err = crn_uffd_register(u->uffd, a->begin, len);
	while (again(u, err));
	if (err < 0)
		return err;
	/* A page that KSM merges with another loses its protection. */
	(void)crn_memory_advise((void *)a->begin, len, MADV_UNMERGEABLE);
	/*
	 * Before Linux 6.4 a page that is not there cannot be protected: let it be the zero page.
	 */
	if (!(u->env->host->uffd_features & CRN_UFFD_WP_UNPOPULATED))
		err = crn_memory_populate_read((void *)a->begin, len);
	if (err >= 0)
		err = undo_protect_closed(u, a, a->begin, a->end, false);
	if (err < 0)
		uffd_end(u, a);
	return err;
}

const struct undo_guard undo_guard_uffd = {
	.signal = SIGBUS,
	.code = BUS_ADRERR,
	.begin = uffd_begin,
	.end = uffd_end,
	.protect = protect,
	.open = unprotect,
	.whole = undo_whole_uffd,
};

static int probe(const struct crn_host *host)
{
	return host->uffd_sigbus ? 0 : host->uffd_error < 0 ? host->uffd_error : CAIRN_ENOTRACK;
}

static int uffd_open(void **t, struct crn_track_env *env)
{
	struct crn_undo_pages *u;
	int err;

	CRN_TRY(undo_open(&u, env, &undo_guard_uffd));
	u->events = env->areas_alone && with_events(u);
	err = u->uffd = open_file(env->host, u->events);
	if (err >= 0)
		err = crn_keeper_hold(env->keeper, &u->uffd, NULL);
	if (err < 0) {
		undo_close(u);
		return err;
	}
	if (u->events)
		crn_keeper_read_events(env->keeper, &u->uffd);
	undo_told_open(u);
	*t = u;
	return 0;
}

/*
 * When the last descriptor of the file is closed all protection ends, and stores then go unseen:
 * that there is one is asked at each checkpoint. While a keeper lives it costs one load.
 */
static int whole(struct crn_undo_pages *u)
{
	undo_told_keep(u);
	CRN_TRY(crn_keeper_check(u->env->keeper));
	if (crn_unlikely(u->events && !crn_keeper_reads(u->env->keeper)))
		leave_events(u);
	return crn_likely(u->uffd >= 0) ? 0 : -EBADF;
}

static int uffd_interval_end(void *t, struct crn_sink *sink)
{
	struct crn_undo_pages *u = t;

	CRN_TRY(whole(u));
	if (atomic_load(&u->saved_count))
		CRN_TRY(undo_data_limit(u)); /* of files, which mprotect closes */
	return undo_interval_end(u, sink);
}

static int uffd_undo(void *t, struct crn_sink *sink)
{
	CRN_TRY(whole(t));
	return undo_undo(t, sink);
}

const struct crn_tracker_ops crn_tracker_uffd = {
	.name = "uffd",
	.probe = probe,
	.open = uffd_open,
	.interval_end = uffd_interval_end,
	.undo = uffd_undo,
	UNDO_OPS,
};
