/* SPDX-License-Identifier: MIT */
/*
 * The fork tracker: a checkpoint is a frozen child, made by the kernel's copy-on-write ("Techniques
 *for in-memory checkpointing", section 3; LMC section VI). Unlike the papers, a restore does not go
 *on in the child: differing pages are copied back from it, so that pid, threads, parent and
 * descriptors stay what they are.
 *
 *	program     ----c1------c2------c3------>
 *	               \       \       \
 *	snapshots       1       2       3           K children; 3 is killed only by 3 + K, or by a
 *restore before it
 *
 * Cost: about 180 cycles for each mapped page at the checkpoint and again when the child is killed,
 * and a kernel copy at each first write. Needs no kernel feature but process_vm_readv, and sees
 * every write to private memory, whoever makes it. MAP_SHARED memory is shared with the
 * children as well: refused.
 *
 * Which pages differ: where pagemap shows frame numbers (privileged) equal entries are equal pages,
 * else all populated pages are compared.
 *
 * Ranges with MADV_DONTFORK or MADV_WIPEONFORK would be missing in the child. They are noticed
 *after the first fork that should have held them, and lifted around every fork from then on.
 */
#include "base/arena.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/pagemap.h"
#include "os/process.h"
#include "track/track.h"

#define DYING_MAX 64
#define LAST_OPEN UINT64_MAX
#define BATCH     64u /* pages that are compared at a time */

/* What makes two pagemap entries different without making the pages different. */
#define ENTRY_NOISE (CRN_PAGEMAP_SOFT_DIRTY | CRN_PAGEMAP_EXCLUSIVE | CRN_PAGEMAP_UFFD_WP)
#define ENTRY_PFN   ((1ull << 55) - 1)

struct fork_snapshot {
	uint64_t id;
	int pid;
};

/*
 * A range that is tracked, or was. `born`: the first checkpoint that holds it; `last`: the last
 * one, LAST_OPEN while it is tracked.
 */
struct fork_range {
	uintptr_t begin, end;
	uint32_t flags;  /* enum crn_area_flags */
	int fork_advice; /* MADV_DONTFORK or MADV_WIPEONFORK that is lifted around forks, or 0 */
	uint64_t born, last;
	/* put where another mapping was: what is in neither process may still differ */
	bool placed;
	uintptr_t witness; /* a populated page, to notice such advice by; 0: not found yet */
};

struct fork_tracker {
	struct crn_track_env *env;
	struct crn_frozen_control *control;
	int pagemap; /* or negative */

	struct fork_snapshot *snapshots; /* ring of keep + 1 */
	uint32_t first, count;

	struct fork_range *ranges; /* in no order; those that are tracked are disjoint */
	size_t range_count, range_capacity;

	int dying[DYING_MAX];
	size_t dying_count;

	uint8_t *theirs, *mine; /* BATCH pages each */
};

static struct fork_snapshot *snapshot_at(struct fork_tracker *t, uint32_t i)
{
	return &t->snapshots[(t->first + i) % (t->env->keep + 1)];
}

static struct fork_snapshot *snapshot_find(struct fork_tracker *t, uint64_t id)
{
	for (uint32_t i = t->count; i-- > 0;) {
		struct fork_snapshot *s = snapshot_at(t, i);

		if (s->id == id)
			return s;
		if (s->id < id)
			break;
	}
	return NULL;
}

/* ---- Children ----------------------------------------------------------------------------- */

/* Kill now, collect later: tearing down its memory takes as long as the fork took. */
static void child_drop(struct fork_tracker *t, int pid)
{
	size_t n = 0;

	if (pid <= 0)
		return;
	crn_frozen_kill(pid);
	for (size_t i = 0; i < t->dying_count; i++) {
		if (!crn_frozen_reap(t->dying[i], false))
			t->dying[n++] = t->dying[i];
	}
	t->dying_count = n;
	if (n == DYING_MAX) {
		(void)crn_frozen_reap(t->dying[--t->dying_count], true);
	}
	t->dying[t->dying_count++] = pid;
}

static void lift_advice(struct fork_tracker *t, bool back)
{
	for (size_t i = 0; i < t->range_count; i++) {
		struct fork_range *r = &t->ranges[i];
		int lifted = r->fork_advice == MADV_DONTFORK ? MADV_DOFORK : MADV_KEEPONFORK;

		if (r->fork_advice && r->last == LAST_OPEN)
			(void)crn_memory_advise((void *)r->begin, r->end - r->begin,
				back ? r->fork_advice : lifted);
	}
}

/* The limits of Linux as the caller should see them: the checkpoint fails, the program goes on. */
static int fork_error(int err)
{
	return err == -ENOMEM || err == -EAGAIN ? CAIRN_EMEMORY : err;
}

/* The first populated page; 0 if there is none (then nothing can be lost in the child either). */
static uintptr_t find_witness(struct fork_tracker *t, const struct fork_range *r)
{
	struct crn_page_run run;
	uintptr_t cursor = r->begin;

	while (cursor < r->end) {
		long n = crn_pagemap_populated(t->pagemap, &cursor, r->end, &run, 1);

		if (n < 0)
			break;
		if (n > 0)
			return run.begin;
	}
	return 0;
}

static bool entry_holds(int pagemap, uintptr_t page)
{
	uint64_t entry;

	return crn_pagemap_entries(pagemap, page, &entry, 1) >= 0 &&
		(entry & (CRN_PAGEMAP_PRESENT | CRN_PAGEMAP_SWAP));
}

/* Before the fork: pages that are populated afterwards prove nothing. */
static void find_witnesses(struct fork_tracker *t)
{
	for (size_t i = 0; i < t->range_count && t->pagemap >= 0; i++) {
		struct fork_range *r = &t->ranges[i];

		if (r->last != LAST_OPEN || r->fork_advice || (r->flags & CRN_AREA_FILE))
			continue;
		if (!r->witness || !entry_holds(t->pagemap, r->witness))
			r->witness = find_witness(t, r);
	}
}

/*
 * Is something that we have missing in the child? Then the mapping's flags say why. Anonymous
 * memory only: a file's pages refault, and nobody wipes those.
 */
static bool child_lacks(struct fork_tracker *t, struct fork_range *r, int their_pagemap)
{
	if (r->last != LAST_OPEN || r->fork_advice || !r->witness || (r->flags & CRN_AREA_FILE))
		return false;
	if (entry_holds(their_pagemap, r->witness) || !entry_holds(t->pagemap, r->witness))
		return false;
	r->fork_advice = crn_memory_fork_advice(r->witness);
	return r->fork_advice != 0;
}

static bool child_is_whole(struct fork_tracker *t, int pid)
{
	int their_pagemap = crn_frozen_pagemap(pid);
	bool whole = true;

	if (their_pagemap < 0 || t->pagemap < 0) {
		crn_fd_close(their_pagemap);
		return true; /* cannot tell: /proc is not mounted or not ours to read */
	}
	for (size_t i = 0; i < t->range_count; i++)
		whole &= !child_lacks(t, &t->ranges[i], their_pagemap);
	crn_fd_close(their_pagemap);
	return whole;
}

/* A frozen child that holds every area. Its pid or an error. */
static int child_take(struct fork_tracker *t)
{
	int pid;

	for (int tries = 0;; tries++) {
		find_witnesses(t);
		lift_advice(t, false);
		pid = crn_frozen_take(t->control);
		lift_advice(t, true);
		if (pid < 0)
			return fork_error(pid);
		if (child_is_whole(t, pid))
			return pid;
		child_drop(t, pid);
		if (tries == 3)
			return CAIRN_EUNSUPPORTED; /* another thread changes the advice all the time
						    */
	}
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
		child_drop(t, snapshot_at(t, i)->pid);
	while (t->dying_count)
		(void)crn_frozen_reap(t->dying[--t->dying_count], true);
	crn_fd_close(t->pagemap);
	crn_frozen_close(t->control);
	crn_block_free(a, t->theirs, BATCH * CRN_PAGE_SIZE);
	crn_block_free(a, t->mine, BATCH * CRN_PAGE_SIZE);
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
	t->snapshots = crn_block_alloc(env->arena, (env->keep + 1) * sizeof(*t->snapshots));
	t->theirs = crn_block_alloc(env->arena, BATCH * CRN_PAGE_SIZE);
	t->mine = crn_block_alloc(env->arena, BATCH * CRN_PAGE_SIZE);
	if (!t->snapshots || !t->theirs || !t->mine) {
		fork_close(t);
		return CAIRN_EMEMORY;
	}
	*out = t;
	return 0;
}

/* ---- Areas --------------------------------------------------------------------------------------
 */

static int ranges_reserve(struct fork_tracker *t, size_t more)
{
	return crn_table_grow(t->env->arena, (void **)&t->ranges, &t->range_capacity,
		t->range_count, t->range_count + more, sizeof(*t->ranges));
}

static int fork_area_add(void *tracker, struct crn_area *area)
{
	struct fork_tracker *t = tracker;

	if (area->flags & CRN_AREA_SHARED)
		return CAIRN_ESHARED;
	CRN_TRY(ranges_reserve(t, 1));
	t->ranges[t->range_count++] = (struct fork_range){
		.begin = area->begin,
		.end = area->end,
		.flags = area->flags,
		.born = area->born,
		.last = LAST_OPEN,
		.placed = t->count && area->born <= snapshot_at(t, t->count - 1)->id,
	};
	return 0;
}

/* What is left of a range outside [begin, end): up to two parts. */
static size_t range_outside(
	const struct fork_range *r, uintptr_t begin, uintptr_t end, struct fork_range rest[2])
{
	size_t n = 0;

	if (r->begin < begin) {
		rest[n] = *r;
		rest[n++].end = begin;
	}
	if (r->end > end) {
		rest[n] = *r;
		rest[n++].begin = end;
	}
	return n;
}

/*
 * The part of every tracked range that lies in [begin, end) becomes past: the children of older
 * checkpoints keep their copies, and a mapping that comes back by a restore gets its content from
 * them.
 */
static int fork_area_gone(void *tracker, struct crn_area *area)
{
	struct fork_tracker *t = tracker;
	size_t count = t->range_count;
	uint64_t newest = t->count ? snapshot_at(t, t->count - 1)->id : 0;

	for (size_t i = 0; i < count; i++) {
		struct fork_range rest[2], *r = &t->ranges[i];
		size_t n;

		if (r->last != LAST_OPEN || r->end <= area->begin || r->begin >= area->end)
			continue;
		CRN_TRY(ranges_reserve(t, 2));
		r = &t->ranges[i];
		n = range_outside(r, area->begin, area->end, rest);
		for (size_t k = 0; k < n; k++)
			t->ranges[t->range_count++] = rest[k];
		r->begin = CRN_MAX(r->begin, area->begin);
		r->end = CRN_MIN(r->end, area->end);
		r->last = newest;
	}
	return 0;
}

/* The children know what the mapping that it serves as has held. */
static int fork_area_born(void *tracker, struct crn_area *area)
{
	struct fork_tracker *t = tracker;
	size_t count = t->range_count;

	for (size_t i = 0; i < count; i++) {
		struct fork_range rest[2], *r = &t->ranges[i];
		size_t n;

		if (r->last != LAST_OPEN || r->end <= area->begin || r->begin >= area->end)
			continue;
		CRN_TRY(ranges_reserve(t, 2));
		r = &t->ranges[i];
		n = range_outside(r, area->begin, area->end, rest);
		for (size_t k = 0; k < n; k++)
			t->ranges[t->range_count++] = rest[k];
		r->begin = CRN_MAX(r->begin, area->begin);
		r->end = CRN_MIN(r->end, area->end);
		r->placed |= area->born < r->born;
		r->born = area->born;
	}
	return 0;
}

/*
 * Without memory for a split the range stays: session/ then stores nothing there, it has no area.
 */
static void fork_area_drop(void *tracker, struct crn_area *area)
{
	(void)fork_area_gone(tracker, area);
}

/*
 * Forget past ranges that no kept checkpoint holds: of before `oldest`, of no checkpoint at all,
 * and (after a restore to `back`) those that are tracked again or were born later.
 */
static void ranges_prune(struct fork_tracker *t, uint64_t oldest, uint64_t back)
{
	for (size_t i = t->range_count; i-- > 0;) {
		const struct fork_range *r = &t->ranges[i];

		if (r->last != LAST_OPEN &&
			(r->last < oldest || r->last >= back || r->born > r->last))
			t->ranges[i] = t->ranges[--t->range_count];
	}
}

static bool range_holds(const struct fork_range *r, uint64_t id)
{
	return r->born <= id && id <= r->last;
}

/* ---- Taking -----------------------------------------------------------------------------------
 */

static int fork_kept_take(void *tracker, uint64_t id)
{
	struct fork_tracker *t = tracker;
	int pid = child_take(t);

	CRN_TRY(pid);
	*snapshot_at(t, t->count) = (struct fork_snapshot){ .id = id, .pid = pid };
	t->count++;
	if (t->count > t->env->keep) {
		child_drop(t, snapshot_at(t, 0)->pid);
		t->first = (t->first + 1) % (t->env->keep + 1);
		t->count--;
		ranges_prune(t, snapshot_at(t, 0)->id, LAST_OPEN);
	}
	return 0;
}

static int fork_interval_begin(void *tracker)
{
	return 0;
}

static int fork_interval_end(void *tracker, struct crn_sink *sink)
{
	return 0; /* the children hold all that there is to hand over */
}

/* ---- Going back
 * --------------------------------------------------------------------------------------- */

static int fork_kept_check(void *tracker, uint64_t id)
{
	struct fork_tracker *t = tracker;
	struct fork_snapshot *s = snapshot_find(t, id);
	uint32_t word;

	if (!s)
		return CAIRN_EEVICTED;
	if (!crn_frozen_alive(t->control))
		return -EBADF;
	/* Somebody (the OOM killer, an operator) may have killed the child. */
	if (crn_frozen_read(s->pid, &word, (uintptr_t)t->control, sizeof(word)) != sizeof(word))
		return CAIRN_EFAILED;
	return 0;
}

struct fork_source {
	int pid, pagemap;
	bool anonymous, placed;
};

/* Equal entries are equal pages: both absent, the same swap slot, or the same frame (0 if we may
 * not see it). */
static bool entries_equal(uint64_t a, uint64_t b, bool placed)
{
	a &= ~ENTRY_NOISE;
	b &= ~ENTRY_NOISE;
	return a == b && !(placed && !a) && (!(a & CRN_PAGEMAP_PRESENT) || (a & ENTRY_PFN));
}

/* [begin, end) is at most BATCH pages and may differ: compare, store what does. */
static int restore_run(
	struct fork_tracker *t, int pid, uintptr_t begin, uintptr_t end, bool anonymous)
{
	while (begin < end) {
		long n = crn_frozen_read(pid, t->theirs, begin, end - begin);
		long m;

		if (n < 0)
			return (int)n;
		n = (long)crn_page_down((uintptr_t)n);
		m = crn_memory_peek(t->mine, (void *)begin, (size_t)n);
		for (long at = 0; at < n; at += (long)CRN_PAGE_SIZE) {
			if (at + (long)CRN_PAGE_SIZE <= m &&
				crn_same_words(t->mine + at, t->theirs + at, CRN_PAGE_SIZE))
				continue;
			t->env->store(t->env, begin + (uintptr_t)at, t->theirs + at, CRN_PAGE_SIZE);
		}
		begin += (uintptr_t)n;
		if (begin == end)
			break;
		/*
		 * Not even there in the child: MADV_DONTFORK, and never written then. Beyond the
		 * end of a file: stays.
		 */
		if (anonymous)
			t->env->store(t->env, begin, NULL, CRN_PAGE_SIZE);
		begin += CRN_PAGE_SIZE;
	}
	return 0;
}

static int restore_batch(
	struct fork_tracker *t, const struct fork_source *from, uintptr_t begin, uintptr_t end)
{
	uint64_t mine[BATCH], theirs[BATCH];
	size_t count = crn_pages(end - begin);
	size_t i = 0;

	if (t->pagemap < 0 || from->pagemap < 0 ||
		crn_pagemap_entries(t->pagemap, begin, mine, count) < 0 ||
		crn_pagemap_entries(from->pagemap, begin, theirs, count) < 0)
		return restore_run(t, from->pid, begin, end, from->anonymous);
	while (i < count) {
		size_t k = i;

		while (k < count && !entries_equal(mine[k], theirs[k], from->placed))
			k++;
		if (k > i)
			CRN_TRY(restore_run(t, from->pid, begin + i * CRN_PAGE_SIZE,
				begin + k * CRN_PAGE_SIZE, from->anonymous));
		i = k + 1;
	}
	return 0;
}

static void truncate_newer(struct fork_tracker *t, uint64_t id)
{
	while (t->count && snapshot_at(t, t->count - 1)->id > id)
		child_drop(t, snapshot_at(t, --t->count)->pid);
}

static int fork_kept_restore(void *tracker, uint64_t id)
{
	struct fork_tracker *t = tracker;
	struct fork_source from;
	int err = 0;

	CRN_TRY(fork_kept_check(t, id));
	from.pid = snapshot_find(t, id)->pid;
	from.pagemap = crn_frozen_pagemap(from.pid);
	for (size_t i = 0; i < t->range_count && err >= 0; i++) {
		const struct fork_range *r = &t->ranges[i];

		if (r->born > id || r->last != LAST_OPEN)
			/* younger than the checkpoint: stays as it is; or no longer there */
			continue;
		from.anonymous = !(r->flags & CRN_AREA_FILE);
		from.placed = r->placed;
		for (uintptr_t at = r->begin; at < r->end && err >= 0; at += BATCH * CRN_PAGE_SIZE)
			err = restore_batch(
				t, &from, at, CRN_MIN(at + BATCH * CRN_PAGE_SIZE, r->end));
	}
	crn_fd_close(from.pagemap);
	CRN_TRY(err);
	truncate_newer(t, id);
	ranges_prune(t, 0, id);
	return 0;
}

static const struct fork_range *range_at(const struct fork_tracker *t, uint64_t id, uintptr_t addr)
{
	for (size_t i = 0; i < t->range_count; i++) {
		const struct fork_range *r = &t->ranges[i];

		if (r->begin <= addr && addr < r->end && range_holds(r, id))
			return r;
	}
	return NULL;
}

static int fork_kept_next(
	void *tracker, uint64_t id, uintptr_t addr, uintptr_t *begin, uintptr_t *end)
{
	struct fork_tracker *t = tracker;
	int found = 0;

	for (size_t i = 0; i < t->range_count; i++) {
		const struct fork_range *r = &t->ranges[i];
		uintptr_t from = CRN_MAX(r->begin, addr);

		if (r->end <= addr || !range_holds(r, id) || (found && from >= *begin))
			continue;
		*begin = from;
		*end = r->end;
		found = 1;
	}
	return found;
}

/* [addr, addr+len) lies in one range that was held. */
static int peek_range(
	const struct fork_snapshot *s, bool anonymous, uintptr_t addr, uint8_t *buf, size_t len)
{
	while (len) {
		long n = crn_frozen_read(s->pid, buf, addr, len);

		if (n == -ESRCH)
			return CAIRN_EFAILED;
		CRN_TRY((int)CRN_MIN(n, 0));
		if (!n && !anonymous)
			return CAIRN_ENOTAREA; /* beyond the end of the file */
		if (!n) {
			n = (long)CRN_MIN(len, CRN_PAGE_SIZE - (addr & (CRN_PAGE_SIZE - 1)));
			crn_fill(buf, 0, (size_t)n); /* MADV_DONTFORK, and never written then */
		}
		addr += (uintptr_t)n;
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

static int fork_kept_peek(void *tracker, uint64_t id, uintptr_t addr, void *buf, size_t len)
{
	struct fork_tracker *t = tracker;
	const struct fork_snapshot *s = snapshot_find(t, id);
	uintptr_t at = addr, end = addr + len;

	if (!s)
		return CAIRN_EEVICTED;
	while (at < end) {
		const struct fork_range *r = range_at(t, id, at);
		uintptr_t stop;

		if (!r)
			return CAIRN_ENOTAREA;
		stop = CRN_MIN(end, r->end);
		CRN_TRY(peek_range(s, !(r->flags & CRN_AREA_FILE), at, (uint8_t *)buf + (at - addr),
			stop - at));
		at = stop;
	}
	return 0;
}

/* Compare page by page: this is for a thread's stack, not for the whole surface. */
static int fork_kept_written(void *tracker, uint64_t id, uintptr_t addr, size_t len)
{
	struct fork_tracker *t = tracker;
	int count = 0;

	for (uintptr_t page = crn_page_down(addr); page < addr + len; page += CRN_PAGE_SIZE) {
		int err = fork_kept_peek(t, id, page, t->theirs, CRN_PAGE_SIZE);

		if (err == CAIRN_ENOTAREA)
			continue;
		CRN_TRY(err);
		count += crn_memory_peek(t->mine, (void *)page, CRN_PAGE_SIZE) !=
				(long)CRN_PAGE_SIZE ||
			!crn_same_words(t->mine, t->theirs, CRN_PAGE_SIZE);
	}
	return count;
}

static int fork_collect(void *tracker, uintptr_t addr, size_t len)
{
	struct fork_tracker *t = tracker;

	return t->count ? fork_kept_written(t, snapshot_at(t, t->count - 1)->id, addr, len) : 0;
}

/* ---- The rest of the table
 * ------------------------------------------------------------------------------ */

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
	.kept_check = fork_kept_check,
	.kept_restore = fork_kept_restore,
	.kept_next = fork_kept_next,
	.kept_peek = fork_kept_peek,
	.kept_written = fork_kept_written,
	.page = { .collect = fork_collect },
	.bytes = fork_bytes,
	.faults = fork_faults,
};
