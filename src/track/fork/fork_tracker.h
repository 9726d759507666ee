/* SPDX-License-Identifier: MIT */
/*
 * What the files of the fork tracker share. fork.c has the table and drives; fork_range.c knows
 * which memory is tracked and which checkpoints hold it; fork_child.c makes children that hold all
 * of it; fork_restore.c copies back from them, by way of fork_stage.c.
 */
#ifndef CRN_FORK_TRACKER_H
#define CRN_FORK_TRACKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"
#include "os/maps.h"
#include "os/pagemap.h"
#include "os/process.h"
#include "track/faults.h"
#include "track/late_drops.h"
#include "track/track.h"

#define FORK_DYING_MAX 64
#define FORK_LAST_OPEN UINT64_MAX
#define FORK_BATCH     64u /* pages that are compared at a time */

/*
 * A checkpoint. When a file is cut short the kernel takes the pages beyond away from everybody,
 * frozen children included; when it grows again nothing tells. So at each checkpoint the last page
 * of each private mapping of a file is made a copy of its own (a sentinel): what is cut off takes
 * that page along, and a child whose sentinel is no copy any more has lost content.
 */
struct fork_snapshot {
	uint64_t id;
	int pid;
	bool unsure; /* a sentinel could not be placed: content of files may have been lost */
	uintptr_t *sentinels;
	size_t sentinel_count, sentinel_capacity;
};

/*
 * A range that is tracked, or was. `born`: the first checkpoint that holds it; `last`: the last
 * one, FORK_LAST_OPEN while it is tracked.
 */
struct fork_range {
	uintptr_t begin, end;
	uint32_t flags;  /* enum crn_area_flags */
	uint64_t born, last;
	/* put where another mapping was: what is in neither process may still differ */
	bool placed;
};

/*
 * What of one mapping is tracked: advice about forks is of mappings, and a range may go over
 * several, or hold a part of one.
 */
struct fork_piece {
	uintptr_t begin, end;
	uintptr_t witness; /* a page that holds something; 0: there is none, and nothing to lose */
	bool file;
	bool advised;    /* was missing or wiped in a child: look again before each fork */
	unsigned lifted; /* enum crn_fork_advice, while a child is made */
};

/* What a restore will store, read before its first store. */
struct fork_stage {
	bool ready; /* it is all there is to be stored */
	struct fork_staged {
		uintptr_t page;
		void *frame; /* NULL: zeros */
	} *at;
	size_t count, capacity, frames;
};

struct fork_tracker {
	struct crn_track_env *env;
	struct crn_frozen_control *control;
	struct crn_faults *faults; /* for pages that cannot be stored to */
	int pagemap; /* or negative */
	struct crn_maps maps;
	char *maps_buffer;

	struct fork_snapshot *snapshots; /* ring of keep + 1 */
	uint32_t first, count;

	struct fork_range *ranges; /* in no order; those that are tracked are disjoint */
	size_t range_count, range_capacity;
	struct crn_late_drops late;
	struct fork_piece *pieces, *former; /* those of this checkpoint, and of the one before */
	size_t piece_count, piece_capacity, former_count, former_capacity, former_at;

	bool refused_told; /* that no child can be had */
	int dying[FORK_DYING_MAX];
	size_t dying_count;

	uint8_t *theirs, *mine; /* FORK_BATCH pages each */
	struct fork_stage stage;
};

/* ---- fork.c */
static inline struct fork_snapshot *fork_snapshot_at(struct fork_tracker *t, uint32_t i)
{
	return &t->snapshots[(t->first + i) % (t->env->keep + 1)];
}

struct fork_snapshot *fork_snapshot_find(struct fork_tracker *t, uint64_t id);
/* End the newest ones until `id` is the newest. */
void fork_truncate(struct fork_tracker *t, uint64_t id);

/* ---- fork_range.c: see track.h */
int fork_area_add(void *tracker, struct crn_area *area);
void fork_area_drop(void *tracker, struct crn_area *area);
int fork_area_gone(void *tracker, struct crn_area *area);
int fork_area_born(void *tracker, struct crn_area *area);
/* What could not be dropped when it should have been: 0 or CAIRN_EMEMORY. */
int fork_ranges_settle(struct fork_tracker *t);
/*
 * Forget past ranges that no kept checkpoint holds: of before `oldest`, of no checkpoint at all,
 * and (after a restore to `back`) those that are tracked again or were born later.
 */
void fork_ranges_prune(struct fork_tracker *t, uint64_t oldest, uint64_t back);
/* The range that checkpoint `id` holds at addr, or NULL. */
const struct fork_range *fork_range_at(const struct fork_tracker *t, uint64_t id, uintptr_t addr);

static inline bool fork_range_holds(const struct fork_range *r, uint64_t id)
{
	return r->born <= id && id <= r->last;
}

static inline bool fork_range_cuttable(const struct fork_range *r)
{
	return crn_flags_cuttable(r->flags);
}

/* ---- fork_child.c */
/* Fill in *s with a frozen child that holds every tracked range. 0 or negative. */
int fork_child_take(struct fork_tracker *t, struct fork_snapshot *s);
/* Kill now, collect later: tearing down its memory takes as long as the fork took. */
void fork_child_drop(struct fork_tracker *t, struct fork_snapshot *s);
/* Does the child still have all that it had? 0, or CAIRN_ELAYOUT if a file was cut short. */
int fork_child_intact(const struct fork_tracker *t, const struct fork_snapshot *s);

/* ---- fork_stage.c */
void fork_stage_begin(struct fork_tracker *t);
/* 0 or CAIRN_EMEMORY. */
int fork_stage_add(struct fork_tracker *t, uintptr_t page, const void *content);
/* Store what belongs to memory that checkpoint `id` holds. Ends it. */
void fork_stage_store(struct fork_tracker *t, uint64_t id);
void fork_stage_end(struct fork_tracker *t);
void fork_stage_close(struct fork_tracker *t);

/* ---- fork_restore.c: see track.h */
int fork_kept_check(void *tracker, uint64_t id);
int fork_kept_stage(void *tracker, uint64_t id, bool moved);
int fork_kept_restore(void *tracker, uint64_t id);
int fork_kept_next(
	void *tracker, uint64_t id, uintptr_t addr, uintptr_t *begin, uintptr_t *end);
int fork_kept_differs(
	void *tracker, uint64_t from, uint64_t to, uintptr_t *begin, uintptr_t *end);
int fork_kept_peek(void *tracker, uint64_t id, uintptr_t addr, void *buf, size_t len);
int fork_kept_written(void *tracker, uint64_t id, uintptr_t addr, size_t len);

#endif
