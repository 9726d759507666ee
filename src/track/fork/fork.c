/* SPDX-License-Identifier: MIT */
/*
 * The fork tracker: a checkpoint is a frozen child, made by the kernel's copy-on-write ("Techniques
 * for in-memory checkpointing", section 3; LMC section VI). Unlike the papers, a restore does not
 * go on in the child: differing pages are copied back from it, so that pid, threads, parent and
 * descriptors stay what they are.
 *
 *	program     ----c1------c2------c3------>
 *	               \       \       \
 *	snapshots       1       2       3           K children; 3 is killed only by 3 + K,
 *	                                            or by a restore before it
 *
 * Cost: about 180 cycles for each mapped page at the checkpoint and again when the child is killed,
 * and a kernel copy at each first write. Needs no kernel feature but process_vm_readv, and sees
 * every write to private memory, whoever makes it. MAP_SHARED memory is shared with the
 * children as well: refused.
 *
 * Which pages differ: where pagemap shows frame numbers (privileged) equal entries are equal pages,
 * else all populated pages are compared.
 *
 * Mappings with MADV_DONTFORK or MADV_WIPEONFORK would be missing in the child. They are noticed
 * after the first fork that should have held them; from then on the advice is lifted around every
 * fork, as long as the program has not taken it back.
 */
#include "base/arena.h"
#include "base/bits.h"
#include "base/status.h"
#include "os/keeper.h"
#include "track/fork/fork_tracker.h"

struct fork_snapshot *fork_snapshot_find(struct fork_tracker *t, uint64_t id)
{
	for (uint32_t i = t->count; i-- > 0;) {
		struct fork_snapshot *s = fork_snapshot_at(t, i);

		if (s->id == id)
			return s;
		if (s->id < id)
			break;
	}
	return NULL;
}

/* ---- Opening and closing -------------------------------------------------------------------- */

static int fork_probe(const struct crn_host *host)
{
	return 0; /* what a sandbox forbids shows at the first checkpoint, with its own error */
}

static void fork_close(void *tracker)
{
	struct fork_tracker *t = tracker;
	struct crn_arena *a = t->env->arena;

	for (uint32_t i = 0; i < t->count; i++)
		fork_child_drop(t, fork_snapshot_at(t, i));
	/* First: those that we may not kill end by that alone. */
	crn_frozen_close(t->control);
	while (t->dying_count)
		crn_process_end(t->dying[--t->dying_count], false);
	crn_keeper_drop(t->env->keeper, &t->pagemap);
	if (t->maps.buffer)
		crn_maps_close(&t->maps);
	crn_block_free(a, t->maps_buffer, CRN_MAPS_BUFFER);
	crn_faults_close(t->faults);
	fork_stage_close(t);
	crn_block_free(a, t->theirs, FORK_BATCH * CRN_PAGE_SIZE);
	crn_block_free(a, t->mine, FORK_BATCH * CRN_PAGE_SIZE);
	crn_block_free(a, t->former, t->former_capacity * sizeof(*t->former));
	crn_block_free(a, t->pieces, t->piece_capacity * sizeof(*t->pieces));
	crn_block_free(a, t->ranges, t->range_capacity * sizeof(*t->ranges));
	crn_block_free(a, t->snapshots, (t->env->keep + 1) * sizeof(*t->snapshots));
	crn_block_free(a, t, sizeof(*t));
}

static int fork_open(void **out, struct crn_track_env *env)
{
	struct fork_tracker *t = crn_block_alloc(env->arena, sizeof(*t));
	int err;

	if (!t)
		return CAIRN_EMEMORY;
	err = crn_frozen_open(&t->control);
	if (err < 0) {
		crn_block_free(env->arena, t, sizeof(*t));
		return err;
	}
	t->env = env;
	t->pagemap = crn_pagemap_open();
	(void)crn_keeper_hold(env->keeper, &t->pagemap, crn_pagemap_open);
	t->snapshots = crn_block_alloc(env->arena, (env->keep + 1) * sizeof(*t->snapshots));
	t->theirs = crn_block_alloc(env->arena, FORK_BATCH * CRN_PAGE_SIZE);
	t->mine = crn_block_alloc(env->arena, FORK_BATCH * CRN_PAGE_SIZE);
	t->maps_buffer = crn_block_alloc(env->arena, CRN_MAPS_BUFFER);
	err = CAIRN_EMEMORY;
	if (t->snapshots && t->theirs && t->mine && t->maps_buffer)
		err = crn_maps_open(&t->maps, t->maps_buffer);
	if (err >= 0)
		err = crn_faults_open(&t->faults, env, NULL, NULL);
	if (err < 0) {
		fork_close(t);
		return err;
	}
	*out = t;
	return 0;
}

/* ---- Taking ---------------------------------------------------------------------------------- */

static int fork_kept_take(void *tracker, uint64_t id)
{
	struct fork_tracker *t = tracker;
	struct fork_snapshot *s = fork_snapshot_at(t, t->count);

	CRN_TRY(fork_ranges_settle(t));
	(void)crn_keeper_mend(t->env->keeper); /* the program may have closed what is ours */
	*s = (struct fork_snapshot){ .id = id };
	CRN_TRY(fork_child_take(t, s));
	t->count++;
	if (t->count > t->env->keep) {
		fork_child_drop(t, fork_snapshot_at(t, 0));
		t->first = (t->first + 1) % (t->env->keep + 1);
		t->count--;
		fork_ranges_prune(t, fork_snapshot_at(t, 0)->id, FORK_LAST_OPEN);
	}
	return 0;
}

void fork_truncate(struct fork_tracker *t, uint64_t id)
{
	while (t->count && fork_snapshot_at(t, t->count - 1)->id > id)
		fork_child_drop(t, fork_snapshot_at(t, --t->count));
}

/* Without children the kernel copies nothing. */
static void fork_pause(void *tracker)
{
	struct fork_tracker *t = tracker;

	while (t->count)
		fork_child_drop(t, fork_snapshot_at(t, --t->count));
	fork_ranges_prune(t, FORK_LAST_OPEN, FORK_LAST_OPEN);
}

static int fork_interval_begin(void *tracker)
{
	return 0;
}

static int fork_interval_end(void *tracker, struct crn_sink *sink)
{
	return 0; /* the children hold all that there is to hand over */
}

static int fork_collect(void *tracker, uintptr_t addr, size_t len)
{
	struct fork_tracker *t = tracker;

	uint64_t newest = t->count ? fork_snapshot_at(t, t->count - 1)->id : 0;

	return t->count ? fork_kept_written(t, newest, addr, len) : 0;
}

/* ---- The rest of the table ------------------------------------------------------------------- */

static int fork_undo(void *tracker, struct crn_sink *sink)
{
	return CAIRN_EUNSUPPORTED; /* kept_restore */
}

static int fork_rebase(void *tracker, uintptr_t page, const void *content)
{
	return CAIRN_EUNSUPPORTED; /* kept_restore */
}

static int fork_look(void *tracker, uintptr_t page, const void **old)
{
	return CAIRN_EUNSUPPORTED; /* kept_peek */
}

/* The kernel's copies are counted nowhere: 0 is what the engine itself holds. */
static uint64_t fork_bytes(const void *tracker)
{
	return 0;
}

static uint64_t fork_faults(const void *tracker)
{
	return 0;
}

const struct crn_tracker_ops crn_tracker_fork = {
	.name = "fork",
	.caps = CRN_TRACK_SEES_KERNEL | CRN_TRACK_THREADS | CRN_TRACK_KEEPS,
	.probe = fork_probe,
	.open = fork_open,
	.close = fork_close,
	.area_add = fork_area_add,
	.area_drop = fork_area_drop,
	.area_gone = fork_area_gone,
	.area_born = fork_area_born,
	.interval_begin = fork_interval_begin,
	.interval_end = fork_interval_end,
	.undo = fork_undo,
	.rebase = fork_rebase,
	.look = fork_look,
	.kept_take = fork_kept_take,
	.pause = fork_pause,
	.kept_check = fork_kept_check,
	.kept_stage = fork_kept_stage,
	.kept_restore = fork_kept_restore,
	.kept_next = fork_kept_next,
	.kept_differs = fork_kept_differs,
	.kept_peek = fork_kept_peek,
	.kept_written = fork_kept_written,
	.page = { .collect = fork_collect },
	.bytes = fork_bytes,
	.faults = fork_faults,
};
