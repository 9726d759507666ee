/* SPDX-License-Identifier: MIT */
/*
 * Tracker `uffd`: undo pages behind userfaultfd write protection, delivered as SIGBUS to the
 * storing thread itself (a handler thread costs ten times as much). About two thirds of the price
 * of `mprotect`, and mappings are never split.
 *
 * The kernel offers this for private anonymous memory only; areas of files and shared areas are
 * guarded by mprotect. A system call that writes to a clean page fails with EFAULT, as under
 * `mprotect`.
 */
#include <errno.h>
#include "base/status.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/memory.h"
#include "os/userfault.h"
#include "track/undo_pages.h"

static int protect(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec)
{
	return crn_uffd_protect(u->uffd, begin, end - begin, true);
}

static int unprotect(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec)
{
	return crn_uffd_protect(u->uffd, begin, end - begin, false);
}

/* Also when parts of the area are gone, or belong to somebody else by now. */
static void uffd_end(struct crn_undo_pages *u, struct undo_area *a)
{
	struct crn_mapping m;

	if (crn_uffd_unregister(u->uffd, a->begin, a->end - a->begin) >= 0)
		return;
	if (crn_maps_begin(&u->maps, a->begin, CRN_MAPS_NO_NAMES) < 0)
		return;
	while (crn_maps_next(&u->maps, &m) > 0 && m.begin < a->end) {
		uintptr_t from = CRN_MAX(m.begin, a->begin), to = CRN_MIN(m.end, a->end);

		crn_uffd_unregister(u->uffd, from, to - from);
	}
}

static int uffd_begin(struct crn_undo_pages *u, struct undo_area *a)
{
	size_t len = a->end - a->begin;
	int err = crn_uffd_register(u->uffd, a->begin, len);

	if (err < 0)
		return err;
	/*
	 * Before Linux 6.4 a page that is not there cannot be protected: let it be the zero page.
	 */
	if (!(u->env->host->uffd_features & CRN_UFFD_WP_UNPOPULATED))
		err = crn_memory_populate_read((void *)a->begin, len);
	if (err >= 0)
		err = protect(u, a->begin, a->end, false);
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
};

static int probe(const struct crn_host *host)
{
	return host->uffd_sigbus ? 0 : host->uffd_error < 0 ? host->uffd_error : CAIRN_ENOTRACK;
}

static int uffd_open(void **t, struct crn_track_env *env)
{
	uint64_t features = CRN_UFFD_SIGBUS | CRN_UFFD_PAGEFAULT_FLAG_WP |
		(env->host->uffd_features & CRN_UFFD_WP_UNPOPULATED);
	struct crn_undo_pages *u;
	int fd = crn_uffd_open(features, NULL);
	int err;

	if (fd < 0)
		return fd;
	err = undo_open(&u, env, &undo_guard_uffd);
	if (err < 0) {
		crn_fd_close(fd);
		return err;
	}
	u->uffd = fd;
	*t = u;
	return 0;
}

/*
 * Closing the descriptor ends all protection, and stores then go unseen: a program that closes all
 * descriptors (close_range) would get a wrong past without a word. So the question is asked, at a
 * hundred nanoseconds.
 */
static int uffd_interval_end(void *t, struct crn_sink *sink)
{
	const struct crn_undo_pages *u = t;

	return crn_fd_is_open(u->uffd) ? undo_interval_end(t, sink) : -EBADF;
}

static int uffd_undo(void *t, struct crn_sink *sink)
{
	const struct crn_undo_pages *u = t;

	return crn_fd_is_open(u->uffd) ? undo_undo(t, sink) : -EBADF;
}

const struct crn_tracker_ops crn_tracker_uffd = {
	.name = "uffd",
	.caps = CRN_TRACK_PAGES | CRN_TRACK_THREADS | CRN_TRACK_SHARED | CRN_TRACK_PROTECTS,
	.probe = probe,
	.open = uffd_open,
	.close = undo_close,
	.area_add = undo_area_add,
	.area_drop = undo_area_drop,
	.interval_begin = undo_interval_begin,
	.interval_end = uffd_interval_end,
	.undo = uffd_undo,
	.rebase = undo_rebase,
	.look = undo_look,
	.page = {
		.unprotect = undo_unprotect,
		.set_hot = undo_set_hot,
		.collect = undo_collect,
		.protection = undo_protection,
	},
	.bytes = undo_bytes,
	.faults = undo_faults,
};
