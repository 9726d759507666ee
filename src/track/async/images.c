/* SPDX-License-Identifier: MIT */
/*
 * Tracker `async` with feed bpf-images: undo pages that the kernel copies. The pages are protected
 * as under `async` (the kernel opens them by itself, no system call fails, no signal comes), but a
 * program on the tracepoint of the fault copies each page before it is opened. So no mirror is
 * needed, and memory is used for what was written instead of what is tracked.
 *
 *	interval:	store -> fault -> BPF: copy, publish -> the page is opened, the store runs
 *	each call:	published copies become frames, as if a fault handler had made them (undo_pages.h)
 *	interval_end:	protect -> wait for copies under way -> hand over
 *
 * Law: old content that is not known to be right is lost, and reported as lost (env->lost).
 *
 *	- Of several images of a page the first is right (bpf_programs.h).
 *	- A page that was reported while it was being protected again may be stored to without
 *	  another report, or have an image from before its last store. It stays open, and is
 *	  copied here.
 *	- Whoever writes without a fault takes the lock of the address space. Images since that
 *	  moment are not believed, and a scan finds pages that were written but have no image. In
 *	  private file mappings not even a scan would do, because dropped pages do not show.
 *
 * Other threads cannot be kept out while an interval ends, as the gate keeps out fault handlers. So
 * a page that is protected again is handed over whole: the difference to its present content would
 * depend on the moment.
 *
 * Called with the session's lock held. No libc.
 */
#include <errno.h>
#include "base/arena.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/guarded.h"
#include "os/host.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "os/userfault.h"
#include "track/async/images.h"

#define FEATURES                                                                    \
	(CRN_UFFD_PAGEFAULT_FLAG_WP | CRN_UFFD_WP_ASYNC | CRN_UFFD_WP_UNPOPULATED | \
		CRN_UFFD_WP_SHMEM)

/* So many intervals without a past, one after the other, are told of. */
#define LOST_MANY 16u

/* One after another may come to write unseen: so often it is looked again. */
#define SETTLE_TRIES 3

/* ---- What has been written ------------------------------------------------------------------ */

void crn_images_lost(struct crn_undo_pages *u, uintptr_t page, int why)
{
	u->lost = u->lost_now = true;
	u->lost_why = why;
	crn_debug("the old content of %lx is lost: %s", page, cairn_strerror(why));
	u->env->lost(u->env, page, why);
}

static void lose(struct crn_undo_pages *u, undo_word *w, uintptr_t page, int why)
{
	uint8_t byte;

	/* Let there be something that the next image can be of, if the page was dropped. */
	(void)crn_guarded_copy(&byte, (const void *)page, 1);
	undo_set(w, (undo_get(w) & (UNDO_SEALED | UNDO_EXEC)) | UNDO_OPEN | UNDO_LOST);
	undo_note_saved(u, page);
	crn_images_lost(u, page, why);
}

static void note_image(void *arg, const struct crn_image *image)
{
	struct crn_undo_pages *u = arg;
	struct undo_area *a = undo_find(u, image->page);
	uintptr_t word;
	undo_word *w;
	void *frame;

	if (!a)
		return;
	w = undo_word_of(a, image->page);
	word = undo_get(w);
	if (word & UNDO_OPEN)
		return; /* not the first */
	u->faults++;
	if (!image->calm || !(image->old || (image->absent && word & UNDO_EMPTY))) {
		lose(u, w, image->page, CAIRN_EFAILED);
		return;
	}
	if (a->own && image->old && !undo_cut_image(a, image->page, image->old)) {
		lose(u, w, image->page, CAIRN_EFAILED);
		return;
	}
	frame = image->old ? crn_frame_alloc(u->env->arena) : NULL;
	if (image->old && !frame) {
		lose(u, w, image->page, CAIRN_EMEMORY);
		return;
	}
	if (frame) {
		crn_copy_page(frame, image->old);
		atomic_fetch_add(&u->frame_count, 1);
	}
	word &= UNDO_EXEC; /* and whoever sealed it has opened it */
	undo_set(w, word | UNDO_OPEN | (frame ? (uintptr_t)frame : UNDO_ZERO));
	undo_note_saved(u, image->page);
}

/* Who has written to such a page was to report it before: by now it is open, or was missed. */
static void judge_strange(struct crn_undo_pages *u)
{
	for (size_t i = 0; i < u->strange.count; i++) {
		const struct crn_page_run *run = &u->strange.at[i];

		for (uintptr_t p = run->begin; p < run->end; p += CRN_PAGE_SIZE) {
			struct undo_area *a = undo_find(u, p);

			if (a && !(undo_get(undo_word_of(a, p)) & UNDO_OPEN))
				lose(u, undo_word_of(a, p), p, CAIRN_EFAILED);
		}
	}
	crn_range_list_shrink(&u->strange, 0);
}

/* Take what has been reported. 0, or negative: the feed is broken, or there is no memory. */
static int drain(struct crn_undo_pages *u)
{
	int doubt;

	CRN_TRY(crn_keeper_check(u->env->keeper));
	if (u->uffd < 0)
		return -EBADF;
	crn_range_list_shrink(&u->open, 0);
	doubt = u->feed->ops->images(u->feed, note_image, u, &u->open);
	crn_range_list_normalise(&u->open);
	u->doubt |= doubt > 0;
	if (doubt >= 0)
		judge_strange(u);
	return CRN_MIN(doubt, 0);
}

/* Written pages of the area that nobody has reported. -EPERM: some of it is not watched. */
static int find_unreported(struct crn_undo_pages *u, struct undo_area *a)
{
	struct crn_page_run runs[64];

	for (uintptr_t cursor = a->begin; cursor < a->end;) {
		long n = crn_pagemap_written(
			u->pagemap, &cursor, a->end, false, runs, CRN_ARRAY_SIZE(runs));

		CRN_TRY((int)CRN_MIN(n, 0));
		for (long i = 0; i < n; i++) {
			for (uintptr_t p = runs[i].begin; p < runs[i].end; p += CRN_PAGE_SIZE) {
				if (!(undo_get(undo_word_of(a, p)) & UNDO_OPEN))
					CRN_TRY(crn_range_list_add(
						&u->unreported, p, p + CRN_PAGE_SIZE));
			}
		}
	}
	return 0;
}

/*
 * A mapping is not what it was: watch what is there now, of whatever kind, until the session has
 * looked. 0 or negative: it is not watched.
 */
static int watch_again(struct crn_undo_pages *u, struct undo_area *a)
{
	int err;

	crn_images_lost(u, a->begin, CAIRN_ELAYOUT);
	undo_gate_close(u);
	err = crn_images_watch(u, a, false);
	undo_gate_open(u);
	return err;
}

/* What cannot be watched loses the past of every interval until it can, or is no area any more. */
static void watch_changed(struct crn_undo_pages *u)
{
	bool changed = u->changed;

	u->changed = false;
	for (size_t i = 0; changed && i < u->area_count; i++)
		if (u->areas[i]->guard && watch_again(u, u->areas[i]) < 0)
			u->changed = true;
}

/* Look at everything: is there an old content of each page that has been written? */
static int scan(struct crn_undo_pages *u)
{
	int err = 0;

	CRN_TRY(crn_keeper_mend(u->env->keeper));
	u->scans++;
	u->doubt = false;
	crn_range_list_shrink(&u->unreported, 0);
	u->feed->ops->own(u->feed, true);
	for (size_t i = 0; i < u->area_count && err >= 0; i++) {
		struct undo_area *a = u->areas[i];

		err = a->guard ? find_unreported(u, a) : 0;
		u->changed |= err < 0 && err != CAIRN_EMEMORY;
		err = err == CAIRN_EMEMORY ? err : 0;
	}
	u->feed->ops->own(u->feed, false);
	if (err < 0) {
		u->doubt = true;
		return err;
	}
	watch_changed(u);
	/* They may have been reported by now. */
	CRN_TRY(drain(u));
	for (size_t i = 0; i < u->unreported.count; i++) {
		const struct crn_page_run *run = &u->unreported.at[i];

		for (uintptr_t p = run->begin; p < run->end; p += CRN_PAGE_SIZE) {
			undo_word *w = undo_word_of(undo_find(u, p), p);

			if (!(undo_get(w) & UNDO_OPEN))
				lose(u, w, p, CAIRN_EFAILED);
		}
	}
	return 0;
}

static void doubt_files(struct crn_undo_pages *u)
{
	for (size_t i = 0; i < u->area_count; i++) {
		uint32_t flags = u->areas[i]->area->flags;

		if ((flags & (CRN_AREA_FILE | CRN_AREA_SHARED)) == CRN_AREA_FILE)
			crn_images_lost(u, u->areas[i]->begin, CAIRN_EFAILED);
	}
}

static void lose_gone(struct crn_undo_pages *u, struct undo_area *a, uintptr_t page)
{
	lose(u, undo_word_of(a, page), page, CAIRN_EFAILED);
}

/* What has been stored to since is open by now, and has an image of what was there then. */
static void look_for_cuts(struct crn_undo_pages *u)
{
	for (size_t i = 0; i < u->area_count; i++) {
		struct undo_area *a = u->areas[i];

		undo_own(u, true);
		if (a->own && undo_cut_look(u, a, 0, UINTPTR_MAX, lose_gone) < 0)
			crn_images_lost(u, a->begin, CAIRN_EFAILED);
		undo_own(u, false);
	}
}

static int images_settle(void *t)
{
	struct crn_undo_pages *u = t;

	CRN_TRY(drain(u));
	if (crn_unlikely(u->private_files))
		look_for_cuts(u);
	if (crn_unlikely(u->doubt) && !u->feed->ops->is_calm(u->feed))
		doubt_files(u);
	u->doubt |= u->changed;
	for (unsigned tries = 0; u->doubt && tries < SETTLE_TRIES; tries++)
		CRN_TRY(scan(u));
	return 0;
}

/* ---- Areas ------------------------------------------------------------------------------- */

/* From the lowest page to the highest, the given ones included. */
static void set_bounds(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end)
{
	if (u->area_count) {
		begin = CRN_MIN(begin, u->areas[0]->begin);
		end = CRN_MAX(end, u->areas[u->area_count - 1]->end);
	}
	u->feed->ops->bounds(u->feed, begin, end);
}

/*
 * What has been reported until here was written before; a fault that is not over may open its page
 * after it has been protected: such pages are open from the start.
 */
static int images_area_add(void *t, struct crn_area *area)
{
	struct crn_undo_pages *u = t;
	int err;

	/* What the program has closed is fetched; what it has opened in its place is no map. */
	CRN_TRY(crn_keeper_mend(u->env->keeper));
	set_bounds(u, area->begin, area->end);
	err = drain(u);
	if (err >= 0)
		err = undo_area_add(u, area);
	if (err < 0)
		set_bounds(u, UINTPTR_MAX, 0);
	return err;
}

static void images_area_drop(void *t, struct crn_area *area)
{
	struct crn_undo_pages *u = t;

	(void)drain(u);
	undo_area_drop(u, area);
	set_bounds(u, UINTPTR_MAX, 0);
}

/* ---- The table --------------------------------------------------------------------------- */

static int images_probe(const struct crn_host *host)
{
	return crn_tracker_async.probe(host);
}

static void images_close(void *t)
{
	struct crn_undo_pages *u = t;

	crn_debug("feed %s: %lu scans", u->feed->ops->name, (unsigned long)u->scans);
	crn_range_list_close(&u->unreported);
	crn_range_list_close(&u->strange);
	while (u->area_count)
		undo_area_drop(u, u->areas[u->area_count - 1]->area);
	u->feed->ops->close(u->feed);
	u->feed = NULL;
	undo_close(u);
}

static int images_open(void **out, struct crn_track_env *env)
{
	struct crn_undo_pages *u;
	struct crn_feed *feed;
	int fd = crn_uffd_open(FEATURES, NULL), err;

	if (fd < 0)
		return fd;
	err = crn_feed_prove(&feed, &crn_feed_bpf_images, env, fd, true);
	if (err < 0)
		goto err_uffd;
	err = undo_open(&u, env, &crn_images_guard);
	if (err < 0)
		goto err_feed;
	u->feed = feed;
	u->uffd = fd;
	crn_range_list_open(&u->unreported, env->arena);
	crn_range_list_open(&u->strange, env->arena);
	err = u->pagemap < 0 ? u->pagemap : crn_keeper_hold(env->keeper, &u->uffd, NULL);
	if (err < 0) {
		images_close(u);
		return err;
	}
	*out = u;
	return 0;

err_feed:
	feed->ops->close(feed);
err_uffd:
	crn_fd_close(fd);
	return err;
}

/* Nothing wrong is ever put back; but nothing at all may be of no use either. */
static void count_lost(struct crn_undo_pages *u)
{
	u->lost_intervals = u->lost_now ? u->lost_intervals + 1 : 0;
	u->lost_now = false;
	if (u->lost_intervals == LOST_MANY)
		crn_warn("feed %s: the past of %u intervals in a row could not be kept, the last "
			 "one for %s: feed auto keeps a mirror instead",
			u->feed->ops->name, LOST_MANY,
			u->lost_why == CAIRN_EMEMORY ? "lack of memory"
						     : "writes that raise no fault");
}

static int images_interval_end(void *t, struct crn_sink *sink)
{
	struct crn_undo_pages *u = t;

	CRN_TRY(images_settle(u));
	u->feed->ops->calm(u->feed);
	count_lost(u);
	return undo_interval_end(u, sink);
}

static int images_undo(void *t, struct crn_sink *sink)
{
	struct crn_undo_pages *u = t;

	u->lost = false;
	CRN_TRY(images_settle(u));
	return u->lost ? CAIRN_EFAILED : undo_undo(u, sink);
}

static int images_look(void *t, uintptr_t page, const void **old)
{
	(void)drain(t); /* if it cannot be done now, it is noticed by who settles */
	return undo_look(t, page, old);
}

static int images_unprotect(void *t, uintptr_t addr, size_t len)
{
	CRN_TRY(images_settle(t)); /* content that has gone before is not saved */
	return undo_unprotect(t, addr, len);
}

static int images_set_hot(void *t, uintptr_t addr, size_t len, bool hot)
{
	CRN_TRY(images_settle(t)); /* content that has gone before is not saved */
	return undo_set_hot(t, addr, len, hot);
}

static int images_collect(void *t, uintptr_t addr, size_t len)
{
	CRN_TRY(images_settle(t));
	return undo_collect(t, addr, len);
}

static int images_protection(void *t, uintptr_t addr, size_t len, int prot)
{
	CRN_TRY(drain(t));
	return undo_protection(t, addr, len, prot);
}

static void images_own_calls(void *t, bool begin)
{
	undo_own((struct crn_undo_pages *)t, begin);
}

static bool images_maps_quiet(void *t)
{
	struct crn_undo_pages *u = t;

	return u->feed->ops->maps_quiet(u->feed);
}

static const char *images_feed(const void *t, uint64_t *scans)
{
	const struct crn_undo_pages *u = t;

	*scans = u->scans;
	return u->feed->ops->name;
}

static uint64_t images_bytes(const void *t)
{
	const struct crn_undo_pages *u = t;

	return undo_bytes(t) + u->feed->ops->bytes(u->feed);
}

const struct crn_tracker_ops crn_tracker_async_images = {
	.name = "async",
	.caps = CRN_TRACK_PAGES | CRN_TRACK_THREADS | CRN_TRACK_SHARED,
	.probe = images_probe,
	.open = images_open,
	.close = images_close,
	.area_add = images_area_add,
	.area_drop = images_area_drop,
	.interval_begin = undo_interval_begin,
	.interval_end = images_interval_end,
	.undo = images_undo,
	.settle = images_settle,
	.rebase = undo_rebase,
	.hold = undo_hold,
	.look = images_look,
	.own_calls = images_own_calls,
	.maps_quiet = images_maps_quiet,
	.feed = images_feed,
	.page = {
		.unprotect = images_unprotect,
		.set_hot = images_set_hot,
		.collect = images_collect,
		.protection = images_protection,
		.resemble = undo_resemble,
	},
	.bytes = images_bytes,
	.faults = undo_faults,
	.eager = undo_eager,
};
