/* SPDX-License-Identifier: MIT */
/*
 * What the files of the async tracker share: async.c drives, async_span.c knows what is registered.
 */
#ifndef CRN_ASYNC_H
#define CRN_ASYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "os/maps.h"
#include "os/pagemap.h"
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
	struct crn_area *area; /* of a stack: grows with it */
};

struct crn_async {
	struct crn_track_env *env;
	struct crn_mirror mirror;
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
	 * scan shows that.
	 */
	struct crn_range_list owned, owned_now;
	bool has_private_files;

	struct crn_range_list gone; /* vanished in this interval, still mirrored */
};

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
/* Recompute the runs. 0 or negative. */
int crn_async_plan(struct crn_async *t);
/* A scan of [begin, end) met something unregistered: find it and adopt it as written. */
int crn_async_repair(struct crn_async *t, uintptr_t begin, uintptr_t end);
/* Append the program's own copies in a private file mapping to the list. */
int crn_async_find_owned(
	struct crn_async *t, uintptr_t begin, uintptr_t end, struct crn_range_list *to);
/* May a load from [begin, end) raise SIGBUS, because a file was cut short? */
bool crn_async_doubtful(struct crn_async *t, uintptr_t begin, uintptr_t end);
/* Copies that have been dropped since: note them as written. */
int crn_async_check_owned(struct crn_async *t);
/* Pages that have come to life in sparse spans: watch them, as written. */
int crn_async_wake(struct crn_async *t);
/* A written page below the stack's span: the stack has grown. */
int crn_async_grow_stack(struct crn_async *t, uintptr_t begin);

#endif
