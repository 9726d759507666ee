/* SPDX-License-Identifier: MIT */
/*
 * What the files of the async tracker share: async.c drives, async_span.c knows what is registered,
 * async_written.c which of that has been written.
 */
#ifndef CRN_ASYNC_H
#define CRN_ASYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "os/maps.h"
#include "os/pagemap.h"
#include "track/faults.h"
#include "track/feeds/feed.h"
#include "track/hot_list.h"
#include "track/late_drops.h"
#include "track/mirror.h"
#include "track/range_list.h"
#include "track/track.h"

/* Unpopulated holes of this size and more are not registered until somebody uses them. */
#define CRN_ASYNC_HOLE (32ul << 20)
/* What is registered of a sparse area comes in pieces of what one page table covers. */
#define CRN_ASYNC_CHUNK (2ul << 20)

/*
 * A part of an area that is handled in one way. Spans are sorted and disjoint.
 *	watched: registered with WP_ASYNC; every page of it has a mirror slot
 *	sparse:  private anonymous, never populated when last looked at; not registered, no mirror
 */
struct crn_span {
	uintptr_t begin, end;
	uint32_t flags; /* enum crn_area_flags */
	bool watched;
	bool huge; /* pages of hugetlbfs: compared with the mirror (async_huge.c) */
	struct crn_area *area; /* of a stack: grows with it */
};

static inline bool crn_span_private_file(const struct crn_span *s)
{
	return s->watched && (s->flags & (CRN_AREA_FILE | CRN_AREA_SHARED)) == CRN_AREA_FILE;
}

/* Nobody cuts the file of a loaded object: there copies go by advice only. */
static inline bool crn_span_cuttable(const struct crn_span *s)
{
	return crn_span_private_file(s) && crn_flags_cuttable(s->flags);
}

struct crn_async {
	struct crn_track_env *env;
	struct crn_mirror mirror;
	struct crn_faults *faults; /* for pages that vanish while they are read */
	int uffd, pagemap;
	struct crn_maps maps;
	char *maps_buffer;

	struct crn_span *spans;
	size_t span_count, span_capacity;

	/* what one scan call covers: spans with no foreign mapping between */
	struct crn_range_list runs;
	bool runs_stale;

	/*
	 * Written pages that the kernel has already forgotten. The kernel writes straight into this
	 * list, so that nothing is lost when memory runs out: it is emptied only when the pages
	 * have been handed over. Entries beyond `count` are zero, which shows how many a scan wrote
	 * that then failed.
	 */
	struct crn_range_list dirty;
	bool mixed; /* not sorted, or an entry may be there twice */
	bool owed;  /* some entries are known here only, not to the kernel */

	/*
	 * Pages of private file mappings that were the program's own copies when last looked at.
	 * Dropping one (MADV_DONTNEED) brings the file's page back and leaves the protection on: no
	 * scan shows that. Sorted.
	 */
	struct crn_range_list owned, owned_now;
	bool has_private_files;
	bool has_cuttable; /* of some the file may be cut: that drops them, too */
	bool has_huge; /* some span: a fault opens all of a page there, and a feed tells of 4 KiB */

	struct crn_range_list gone; /* vanished in this interval, still mirrored */

	struct crn_late_drops late;

	/*
	 * Pages that a strategy leaves open (async_hot.c). `dirty` holds none of them but within
	 * interval_end.
	 */
	struct crn_hot_list hot;
	struct crn_range_list turn, protect; /* scratch */
	uintptr_t refused[16]; /* within interval_end: promotions that could not be */
	size_t refused_count;
	uint64_t eager;

	/*
	 * How writes become known; NULL: by a scan of everything. Pages in `open` are unprotected,
	 * or may become so without another report: they are compared with the mirror each time.
	 * Those in `were_open` are no longer that, or hot no longer, but have not been protected
	 * again yet.
	 */
	struct crn_feed *feed;
	struct crn_range_list fed; /* reported, not judged yet */
	struct crn_range_list open, still_open, were_open;
	struct crn_page_run coming;        /* is being adopted */
	struct crn_range_list coming_open; /* in it */
	bool unsteady; /* mappings may have changed since something came into `dirty` */
	unsigned own_depth;
	uint64_t sure_drains, scans;
};

/*
 * Find the pages written since interval_begin: t->dirty, sorted, without the hot ones. With
 * `protect` the kernel starts to watch them anew, and they are known here only. 0 or negative.
 */
int crn_async_find_written(struct crn_async *t, bool protect);
/* crn_pagemap_written, or crn_pagemap_stored where a feed would have told of what is emptied. */
typedef long crn_scan_fn(int pagemap, uintptr_t *cursor, uintptr_t end, bool protect,
	struct crn_page_run *runs, size_t max);
/* Append the written pages of one run to `l`; with `protect` the kernel forgets them. */
int crn_async_scan_run(struct crn_async *t, crn_scan_fn *scan, struct crn_range_list *l,
	uintptr_t begin, uintptr_t end, bool protect);

/*
 * Bring [begin, end) under watch. `changed`: what is there now was written in this interval; else
 * it is its start.
 */
int crn_async_adopt(struct crn_async *t, uintptr_t begin, uintptr_t end, uint32_t flags,
	struct crn_area *area, bool changed);
/*
 * Forget spans in [begin, end); the mirror is left alone. Fails with CAIRN_EMEMORY if a span must
 * be split and cannot.
 */
int crn_async_abandon(struct crn_async *t, uintptr_t begin, uintptr_t end);
/* Unregister what is watched in [begin, end), and nothing else. */
void crn_async_release(struct crn_async *t, uintptr_t begin, uintptr_t end);
/* The first span that ends above addr, or NULL. */
const struct crn_span *crn_async_span_above(const struct crn_async *t, uintptr_t addr);
/*
 * Protect again what find_written found without `protect`, and what was open or hot, but for what
 * is so still. 0; CAIRN_EMEMORY: it stays in the lists.
 */
int crn_async_protect_written(struct crn_async *t);
/*
 * Parts of that: protect dirty and once open pages, but for what is open still, or hot.
 * What is written meanwhile may be in `dirty` then, hot or not. 0 or negative.
 */
int crn_async_protect_found(struct crn_async *t);
/* So many runs that protecting all that is written in one scan costs less, feed or not? */
bool crn_async_scan_is_cheaper(const struct crn_async *t);
/* `to` becomes `from`, which is sorted, without the pages that are hot. */
int crn_async_without_hot(
	struct crn_async *t, struct crn_range_list *to, const struct crn_range_list *from);
/*
 * [begin, end) will be adopted now: what the feed has reported of it until here is in the copy that
 * will be made. Only faults that are not over may still write: 0 or CAIRN_EMEMORY.
 */
int crn_async_before_adopt(struct crn_async *t, uintptr_t begin, uintptr_t end);
/*
 * It is adopted: those pages count as written. A sparse part has no room in the mirror for that:
 * there they are looked for at the next checkpoint. 0 or CAIRN_EMEMORY.
 */
int crn_async_after_adopt(struct crn_async *t);
/*
 * May a page that the feed has reported not be there any more, and a guarded load from it not
 * return? Then the kernel is asked for each page.
 */
bool crn_async_must_ask(const struct crn_async *t);
/* Around the engine's own system calls on the address space. Nests. */
void crn_async_own(struct crn_async *t, bool begin);
/* Recompute the runs. 0 or negative. */
int crn_async_plan(struct crn_async *t);
/* A scan of [begin, end) met something unregistered: find it and adopt it as written. */
int crn_async_repair(struct crn_async *t, uintptr_t begin, uintptr_t end);
/* Bring back what lies on swap in a mapping that is not protected yet. 0 or -errno. */
int crn_async_swap_in(struct crn_async *t, uintptr_t begin, uintptr_t end);
/* Append the program's own copies in a private file mapping to the list. */
int crn_async_find_owned(
	struct crn_async *t, uintptr_t begin, uintptr_t end, struct crn_range_list *to);
/* May a load from [begin, end) raise SIGBUS, because a file was cut short? */
bool crn_async_doubtful(struct crn_async *t, uintptr_t begin, uintptr_t end);
/* May the page be read at any time while it is tracked, because no file under it can be cut? */
bool crn_async_steady(struct crn_async *t, uintptr_t page);
/* A page was written: if it is of a private file mapping it is the program's own copy now. */
int crn_async_note_owned(struct crn_async *t, uintptr_t page);
/*
 * Copies that have gone since: note them as written. Without `all` only those are looked for that
 * cutting a file drops.
 */
int crn_async_check_owned(struct crn_async *t, bool all);
/* Is there any that cutting a file could drop? As far as known: a scan has to look. */
bool crn_async_owns_cuttable(const struct crn_async *t);
/* Pages that have come to life in sparse spans: watch them, as written. */
int crn_async_wake(struct crn_async *t);
/*
 * A fault below the stack's span: is it of the stack, for all that is known? 1, or 0: something
 * else is mapped there; or negative.
 */
int crn_async_stack_grows(struct crn_async *t, uintptr_t page);
/*
 * Of what a scan has reported, cut out what nobody tracks: a mapping that grows in place (mremap)
 * takes its registration along, into a hole that a run goes over. 0 or CAIRN_EMEMORY.
 */
int crn_async_cut_strange(struct crn_async *t, struct crn_range_list *l);
/* A written page below the stack's span: the stack has grown. */
int crn_async_grow_stack(struct crn_async *t, uintptr_t begin);

/* ---- async.c ---- */
/* 0 or CAIRN_EMEMORY: tables name memory that nobody tracks. */
int crn_async_finish_drops(struct crn_async *t);

/* ---- async_collapse.c ---- */
/*
 * Join private anonymous memory that will be scanned, and is not protected yet, into huge pages
 * where it is full. Content stays; what cannot be joined stays as it is.
 */
void crn_async_collapse(struct crn_async *t, uintptr_t begin, uintptr_t end);

/* ---- async_empty.c ---- */
/*
 * Take out of `dirty`, which is sorted, what is empty and was so at interval_begin. 0, or
 * CAIRN_EMEMORY: nothing has changed.
 */
int crn_async_leave_out_empty(struct crn_async *t);

/* ---- async_huge.c ---- */
/* Note as written what differs from the mirror in spans of huge pages. 0 or CAIRN_EMEMORY. */
int crn_async_compare_huge(struct crn_async *t);
bool crn_async_any_huge(const struct crn_async *t, uintptr_t begin, uintptr_t end);

/* ---- async_hot.c: under a strategy ---- */
extern const struct crn_hot_owner crn_async_hot_owner;
/* interval_end */
int crn_async_hot_end(struct crn_async *t, struct crn_sink *sink);
/* Take the hot pages out of `dirty`, which is sorted. 0 or CAIRN_EMEMORY. */
int crn_async_hot_filter(struct crn_async *t);
/* Show the sink the hot pages that have changed; or count them. */
int crn_async_hot_show(struct crn_async *t, struct crn_sink *sink);
size_t crn_async_hot_count(struct crn_async *t, uintptr_t begin, uintptr_t end);

#endif
