/* SPDX-License-Identifier: MIT */
/*
 * The last K checkpoints of a tracker to which the program reports each store (shadow, undo log).
 * The open interval is undone from where its hooks keep it. When it ends and K > 1, its old content
 * is packed away as a log (rt/rt.h), whatever the tracker.
 *
 *	kept:   [id 4: log] [id 5: log]     open: 6 (shadow, or log)
 *
 * A restore to 4 undoes 6, then 5, then 4: the oldest content of a byte is put back last. Areas
 * that were named because code without hooks writes to them are restored by pages (page_areas.h).
 */
#ifndef CRN_KEPT_INTERVALS_H
#define CRN_KEPT_INTERVALS_H

#include <stddef.h>
#include <stdint.h>
#include "rt/rt.h"
#include "track/hooked/packed_log.h"
#include "track/hooked/page_areas.h"
#include "track/hooked/page_mode.h"
#include "track/track.h"

/* How one kind of hooks keeps the open interval. */
struct crn_hook_ops {
	int (*walk)(crn_undo_fn fn, void *ctx);
	void (*stop)(void);        /* the interval ends: what is stored now is not of it */
	/*
	 * Where there are threads, after `stop`: their next stores wait for `reset`, whatever has
	 * been saved. NULL: hooks are of one thread.
	 */
	void (*hold)(void);
	size_t (*packed)(void);    /* bytes of it as a log */
	void (*pack)(struct crn_packed_log *to); /* oldest entry first */
	/*
	 * A new interval: nothing has been stored to yet. False if a signal handler has stored
	 * since `stop`: the checkpoint is right, but packed() does not have that.
	 */
	bool (*reset)(void);
	/* Not active any more: the program stores unnoticed. What is held for it is given back. */
	void (*rest)(void);
	int (*wake)(void);         /* before a `reset` that ends it: 0 or negative */
	void (*paged)(bool on);    /* page mode begins, or is over; signals are blocked */
	void (*try_out)(size_t times); /* what that many hooks cost; before the first `reset` */
	uint64_t (*count)(void);   /* entries of the open interval */
	uint64_t (*bytes)(void);   /* held now for it */
};

struct crn_kept_interval {
	uint64_t id;
	struct crn_packed_log log;
	struct crn_packed_log pages; /* of areas that are watched by pages; undone after `log` */
};

struct crn_kept {
	struct crn_track_env *env;
	const struct crn_hook_ops *hooks;
	struct crn_kept_interval *at; /* a ring of env->keep entries */
	uint32_t first, count;
	uint64_t open; /* the checkpoint that starts the open interval */
	uint64_t packed_bytes, entries;
	struct crn_page_mode pages;
	struct crn_page_areas areas;
};

/*
 * Bytes that the open interval may take of memory_max: all that the session has left for it; with K
 * > 1 a quarter, and five eighths are for the older ones.
 */
uint64_t crn_kept_open_max(const struct crn_kept *k);

int crn_kept_open(struct crn_kept *k, struct crn_track_env *env, const struct crn_hook_ops *hooks);
/* The hooks' own part is open, too. */
void crn_kept_ready(struct crn_kept *k);
void crn_kept_close(struct crn_kept *k);

/*
 * Room of the engine's at a fixed place (rt/rt.h) that has `max` bytes: zeros, not committed.
 * What a process has of its parent's there goes. 0 or -errno.
 */
int crn_kept_span(uintptr_t at, size_t max, size_t len, void **out);

/*
 * The same for a list that may be shorter: *len becomes less where the limits of the process leave
 * no room for all of it, which is said.
 */
int crn_kept_list(uintptr_t at, size_t max, size_t *len, void **out);

/*
 * The rows of struct crn_tracker_ops that are the same for both; the tracker's state begins with a
 * struct crn_kept.
 */
int crn_kept_area_add(void *t, struct crn_area *area);
void crn_kept_area_drop(void *t, struct crn_area *area);
int crn_kept_begin(void *t);
int crn_kept_end(void *t, struct crn_sink *sink);
int crn_kept_undo(void *t, struct crn_sink *sink);
int crn_kept_rebase(void *t, uintptr_t page, const void *content);
int crn_kept_look(void *t, uintptr_t page, const void **old);
int crn_kept_take(void *t, uint64_t id);
void crn_kept_pause(void *t);
int crn_kept_resume(void *t);
int crn_kept_check(void *t, uint64_t id);
int crn_kept_restore(void *t, uint64_t id);
int crn_kept_next(void *t, uint64_t id, uintptr_t addr, uintptr_t *begin, uintptr_t *end);
int crn_kept_peek(void *t, uint64_t id, uintptr_t addr, void *buf, size_t len);
int crn_kept_written(void *t, uint64_t id, uintptr_t addr, size_t len);
int crn_kept_long(void *t);
void crn_kept_consider(void *t);
void crn_kept_longs(const void *t, struct crn_long_figures *out);
int crn_kept_touch(void *t, uintptr_t addr, size_t len);
uint64_t crn_kept_bytes(const void *t);
uint64_t crn_kept_entries(const void *t);

#define CRN_KEPT_ROWS                                                              \
	.caps = CRN_TRACK_STORES | CRN_TRACK_KEEPS, .area_add = crn_kept_area_add, \
	.area_drop = crn_kept_area_drop, .interval_begin = crn_kept_begin,         \
	.interval_end = crn_kept_end, .undo = crn_kept_undo,                       \
	.rebase = crn_kept_rebase, .look = crn_kept_look,                          \
	.kept_take = crn_kept_take, .kept_check = crn_kept_check,                  \
	.pause = crn_kept_pause, .resume = crn_kept_resume,                        \
	.kept_restore = crn_kept_restore, .kept_next = crn_kept_next,              \
	.kept_peek = crn_kept_peek, .kept_written = crn_kept_written,              \
	.interval_long = crn_kept_long, .interval_grows = crn_kept_consider,       \
	.intervals_long = crn_kept_longs,                                          \
	.page = { .unprotect = crn_kept_touch }, .bytes = crn_kept_bytes,          \
	.faults = crn_kept_entries

#endif
