/* SPDX-License-Identifier: MIT */
/* What the fork tracker's children hold: copying it back, and reading it. */
#include <errno.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "track/fork/fork_tracker.h"

/* What makes two pagemap entries different without making the pages different. */
#define ENTRY_NOISE (CRN_PAGEMAP_SOFT_DIRTY | CRN_PAGEMAP_EXCLUSIVE | CRN_PAGEMAP_UFFD_WP)
#define ENTRY_PFN   ((1ull << 55) - 1)

int fork_kept_check(void *tracker, uint64_t id)
{
	struct fork_tracker *t = tracker;
	struct fork_snapshot *s = fork_snapshot_find(t, id);
	uint32_t word;

	if (!s)
		return CAIRN_EEVICTED;
	CRN_TRY(fork_ranges_settle(t));
	/* Somebody (the OOM killer, an operator) may have killed the child. */
	if (crn_frozen_read(s->pid, &word, (uintptr_t)t->control, sizeof(word)) != sizeof(word))
		return CAIRN_EFAILED;
	return fork_child_intact(t, s);
}

/*
 * What differs is read into memory of the engine before the first store, so that a child that is
 * killed meanwhile makes a restore fail and not stop half way. Where that cannot be (there may not
 * be enough memory) all is read once more, and stored as it comes.
 */
struct fork_source {
	int pid, pagemap;
	bool anonymous, placed;
	bool whole;  /* what is there now will be replaced: nothing to compare with */
	bool staged; /* to be stored later */
};

/*
 * Equal entries are equal pages: both absent, the same swap slot, or the same frame (0 if we may
 * not see it).
 */
static bool entries_equal(uint64_t a, uint64_t b, bool placed)
{
	a &= ~ENTRY_NOISE;
	b &= ~ENTRY_NOISE;
	return a == b && !(placed && !a) && (!(a & CRN_PAGEMAP_PRESENT) || (a & ENTRY_PFN));
}

static int put(struct fork_tracker *t, const struct fork_source *from, uintptr_t page,
	const void *content)
{
	if (from->staged)
		return fork_stage_add(t, page, content);
	t->env->store(t->env, page, content, CRN_PAGE_SIZE);
	return 0;
}

/* Neither has anything there. */
static bool both_absent(const uint64_t *mine, const uint64_t *theirs, size_t count)
{
	uint64_t any = 0;

	for (size_t i = 0; i < count; i++)
		any |= mine[i] | theirs[i];
	return !(any & ~ENTRY_NOISE);
}

/* Where one of two has something again; sparse memory is large. */
static uintptr_t skip_hole(int one, int other, uintptr_t begin, uintptr_t end)
{
	end = crn_pagemap_first(one, begin, end);
	return crn_pagemap_first(other, begin, end);
}

/* [begin, end) is at most FORK_BATCH pages and may differ: compare, put what does. */
static int restore_run(
	struct fork_tracker *t, const struct fork_source *from, uintptr_t begin, uintptr_t end)
{
	while (begin < end) {
		long n = crn_frozen_read(from->pid, t->theirs, begin, end - begin);
		long m = 0;

		if (n < 0)
			return (int)n;
		n = (long)crn_page_down((uintptr_t)n);
		if (!from->whole)
			m = crn_memory_peek(t->mine, (void *)begin, (size_t)n);
		for (long at = 0; at < n; at += (long)CRN_PAGE_SIZE) {
			if (at + (long)CRN_PAGE_SIZE <= m &&
				crn_same_words(t->mine + at, t->theirs + at, CRN_PAGE_SIZE))
				continue;
			CRN_TRY(put(t, from, begin + (uintptr_t)at, t->theirs + at));
		}
		begin += (uintptr_t)n;
		if (begin == end)
			break;
		/*
		 * Not even there in the child: MADV_DONTFORK, and never written then. Beyond the
		 * end of a file, or a guard page then and now: stays.
		 */
		if (from->anonymous && (from->whole || crn_memory_readable(&begin, 1)))
			CRN_TRY(put(t, from, begin, NULL));
		begin += CRN_PAGE_SIZE;
	}
	return 0;
}

/* 1: there is nothing in either. */
static int restore_batch(
	struct fork_tracker *t, const struct fork_source *from, uintptr_t begin, uintptr_t end)
{
	uint64_t mine[FORK_BATCH], theirs[FORK_BATCH];
	size_t count = crn_pages(end - begin);
	size_t i = 0;

	if (from->whole || t->pagemap < 0 || from->pagemap < 0 ||
		crn_pagemap_entries(t->pagemap, begin, mine, count) < 0 ||
		crn_pagemap_entries(from->pagemap, begin, theirs, count) < 0)
		return restore_run(t, from, begin, end);
	while (i < count) {
		size_t k = i;

		while (k < count && !entries_equal(mine[k], theirs[k], from->placed))
			k++;
		if (k > i)
			CRN_TRY(restore_run(
				t, from, begin + i * CRN_PAGE_SIZE, begin + k * CRN_PAGE_SIZE));
		i = k + 1;
	}
	return !from->placed && both_absent(mine, theirs, count);
}

static int restore_range(
	struct fork_tracker *t, struct fork_source *from, const struct fork_range *r)
{
	const uintptr_t step = FORK_BATCH * CRN_PAGE_SIZE;

	from->anonymous = !(r->flags & CRN_AREA_FILE);
	from->placed = r->placed;
	for (uintptr_t at = r->begin; at < r->end;) {
		int absent = restore_batch(t, from, at, CRN_MIN(at + step, r->end));

		CRN_TRY(absent);
		at = CRN_MIN(at + step, r->end);
		if (absent)
			at = skip_hole(t->pagemap, from->pagemap, at, r->end);
	}
	return 0;
}

/*
 * Memory that the kernel takes away from a child that it has killed (short of memory) reads as if
 * it had never been there.
 */
static int read_all(struct fork_tracker *t, uint64_t id, bool moved)
{
	struct fork_source from = { .pid = fork_snapshot_find(t, id)->pid, .staged = true };
	int err = 0;

	from.pagemap = crn_frozen_pagemap(from.pid);
	for (size_t i = 0; i < t->range_count && err >= 0; i++) {
		const struct fork_range *r = &t->ranges[i];

		/* What is mapped again gets its content from what has been there. */
		from.whole = r->last != FORK_LAST_OPEN;
		if (from.whole ? moved && fork_range_holds(r, id) : r->born <= id)
			err = restore_range(t, &from, r);
	}
	crn_fd_close(from.pagemap);
	return err == -ESRCH || (err >= 0 && crn_frozen_dies(from.pid)) ? CAIRN_EFAILED : err;
}

int fork_kept_stage(void *tracker, uint64_t id, bool moved)
{
	struct fork_tracker *t = tracker;
	int err;

	CRN_TRY(fork_kept_check(t, id));
	(void)crn_keeper_mend(t->env->keeper);
	fork_stage_begin(t);
	err = read_all(t, id, moved);
	if (err >= 0)
		return 0;
	crn_debug("fork: %zu pages read before the first store: %d", t->stage.count, err);
	fork_stage_end(t);
	/* No memory for it; or what cannot be read need not be: some of it may be younger. */
	return err == CAIRN_EFAILED || err == -EMFILE || err == -ENFILE ? err : 0;
}

static int restore_directly(struct fork_tracker *t, uint64_t id)
{
	struct fork_source from = { 0 };
	int err = 0;

	CRN_TRY(fork_kept_check(t, id));
	from.pid = fork_snapshot_find(t, id)->pid;
	from.pagemap = crn_frozen_pagemap(from.pid);
	for (size_t i = 0; i < t->range_count && err >= 0; i++) {
		/* younger than the checkpoint: stays as it is; or no longer there */
		if (t->ranges[i].born <= id && t->ranges[i].last == FORK_LAST_OPEN)
			err = restore_range(t, &from, &t->ranges[i]);
	}
	crn_fd_close(from.pagemap);
	return err;
}

int fork_kept_restore(void *tracker, uint64_t id)
{
	struct fork_tracker *t = tracker;

	if (t->stage.ready)
		fork_stage_store(t, id);
	else
		CRN_TRY(restore_directly(t, id));
	fork_truncate(t, id);
	fork_ranges_prune(t, 0, id);
	return 0;
}

/* ---- Looking --------------------------------------------------------------------------------- */

int fork_kept_next(
	void *tracker, uint64_t id, uintptr_t addr, uintptr_t *begin, uintptr_t *end)
{
	struct fork_tracker *t = tracker;
	int found = 0;

	for (size_t i = 0; i < t->range_count; i++) {
		const struct fork_range *r = &t->ranges[i];
		uintptr_t from = CRN_MAX(r->begin, addr);

		if (r->end <= addr || !fork_range_holds(r, id) || (found && from >= *begin))
			continue;
		*begin = from;
		*end = r->end;
		found = 1;
	}
	return found;
}

/* The first run that may differ, of at most FORK_BATCH pages. */
static int differs(int one, int other, uintptr_t *begin, uintptr_t *end)
{
	uint64_t a[FORK_BATCH], b[FORK_BATCH];

	while (*begin < *end) {
		size_t count = CRN_MIN(crn_pages(*end - *begin), (size_t)FORK_BATCH), i = 0, k;

		if (crn_pagemap_entries(one, *begin, a, count) < 0 ||
			crn_pagemap_entries(other, *begin, b, count) < 0)
			return 1;
		while (i < count && entries_equal(a[i], b[i], false))
			i++;
		for (k = i; k < count && !entries_equal(a[k], b[k], false); k++)
			;
		if (k > i) {
			*end = *begin + k * CRN_PAGE_SIZE;
			*begin += i * CRN_PAGE_SIZE;
			return 1;
		}
		*begin += count * CRN_PAGE_SIZE;
		if (both_absent(a, b, count))
			*begin = skip_hole(one, other, *begin, *end);
	}
	return 0;
}

/*
 * What is in neither is the same if both times it is a part of one range; of a file that somebody
 * has cut short it may have been lost.
 */
int fork_kept_differs(
	void *tracker, uint64_t from, uint64_t to, uintptr_t *begin, uintptr_t *end)
{
	struct fork_tracker *t = tracker;
	const struct fork_snapshot *s = fork_snapshot_find(t, from);
	const struct fork_snapshot *newer = fork_snapshot_find(t, to);
	const struct fork_range *r = fork_range_at(t, from, *begin);
	bool now = to == FORK_LAST_OPEN;
	int one, other = t->pagemap, found;

	if (!s || !r || r->placed || fork_range_cuttable(r) || *end > r->end ||
		(now ? r->last != FORK_LAST_OPEN : !newer || !fork_range_holds(r, to)) ||
		crn_keeper_mend(t->env->keeper) < 0)
		return 1;
	one = crn_frozen_pagemap(s->pid);
	if (!now)
		other = crn_frozen_pagemap(newer->pid);
	found = one < 0 || other < 0 ? 1 : differs(one, other, begin, end);
	crn_fd_close(one);
	if (!now)
		crn_fd_close(other);
	/* The kernel may have taken it away while we looked: then it has nothing, and had. */
	if (crn_frozen_dies(s->pid) || (!now && crn_frozen_dies(newer->pid)))
		return CAIRN_EFAILED;
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
			if (crn_frozen_dies(s->pid))
				return CAIRN_EFAILED;
			n = (long)CRN_MIN(len, CRN_PAGE_SIZE - (addr & (CRN_PAGE_SIZE - 1)));
			crn_fill(buf, 0, (size_t)n); /* MADV_DONTFORK, and never written then */
		}
		addr += (uintptr_t)n;
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

int fork_kept_peek(void *tracker, uint64_t id, uintptr_t addr, void *buf, size_t len)
{
	struct fork_tracker *t = tracker;
	const struct fork_snapshot *s = fork_snapshot_find(t, id);
	uintptr_t at = addr, end = addr + len;

	if (!s)
		return CAIRN_EEVICTED;
	while (at < end) {
		const struct fork_range *r = fork_range_at(t, id, at);
		uintptr_t stop;
		int err;

		if (!r)
			return CAIRN_ENOTAREA;
		if (fork_range_cuttable(r))
			CRN_TRY(fork_child_intact(t, s));
		stop = CRN_MIN(end, r->end);
		err = peek_range(s, !(r->flags & CRN_AREA_FILE), at, (uint8_t *)buf + (at - addr),
			stop - at);
		/* Cut since we asked? Then the child has lost the page. */
		if (err == CAIRN_ENOTAREA && fork_range_cuttable(r))
			CRN_TRY(fork_child_intact(t, s));
		CRN_TRY(err);
		at = stop;
	}
	return 0;
}

/* Compare page by page: this is for a thread's stack, not for the whole surface. */
int fork_kept_written(void *tracker, uint64_t id, uintptr_t addr, size_t len)
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
