/* SPDX-License-Identifier: MIT */
/*
 * The children of the fork tracker: making sure that they hold all that is tracked, and still do.
 */
#include <errno.h>
#include "base/arena.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "track/fork/fork_tracker.h"

/* ---- Advice ---------------------------------------------------------------------------------- */

/* What was known of the mapping at the checkpoint before; mostly it is the next one. */
static const struct fork_piece *former_piece(
	struct fork_tracker *t, uintptr_t begin, uintptr_t end)
{
	for (size_t i = 0; i < t->former_count; i++) {
		size_t at = (t->former_at + i) % t->former_count;

		if (t->former[at].begin >= end || t->former[at].end <= begin)
			continue;
		t->former_at = at + 1;
		return &t->former[at];
	}
	return NULL;
}

static int piece_add(struct fork_tracker *t, uintptr_t begin, uintptr_t end, bool file)
{
	const struct fork_piece *former = former_piece(t, begin, end);
	struct fork_piece *p;

	CRN_TRY(crn_table_grow(t->env->arena, (void **)&t->pieces, &t->piece_capacity,
		t->piece_count, t->piece_count + 1, sizeof(*t->pieces)));
	p = &t->pieces[t->piece_count++];
	*p = (struct fork_piece){ .begin = begin, .end = end, .file = file };
	if (!former)
		return 0;
	p->advised = former->advised;
	if (former->witness >= begin && former->witness < end)
		p->witness = former->witness;
	return 0;
}

static int pieces_in(struct fork_tracker *t, const struct fork_range *r)
{
	struct crn_mapping m;
	int more = crn_maps_begin(&t->maps, r->begin, CRN_MAPS_NO_NAMES);

	while (more >= 0 && (more = crn_maps_next(&t->maps, &m)) > 0 && m.begin < r->end) {
		CRN_TRY(piece_add(t, CRN_MAX(m.begin, r->begin), CRN_MIN(m.end, r->end),
			m.inode != 0));
	}
	return 0; /* without /proc nothing can be told: as if nobody gave such advice */
}

/* The mappings as they are now, with what is known of them. */
static int pieces_look(struct fork_tracker *t)
{
	struct fork_piece *table = t->former;
	size_t capacity = t->former_capacity;

	t->former = t->pieces;
	t->former_capacity = t->piece_capacity;
	t->former_count = t->piece_count;
	t->former_at = 0;
	t->pieces = table;
	t->piece_capacity = capacity;
	t->piece_count = 0;
	for (size_t i = 0; i < t->range_count; i++)
		if (t->ranges[i].last == FORK_LAST_OPEN)
			CRN_TRY(pieces_in(t, &t->ranges[i]));
	return 0;
}

static void advise(const struct fork_piece *p, unsigned which, int missing, int wiped)
{
	if (which & CRN_FORK_MISSING)
		(void)crn_memory_advise((void *)p->begin, p->end - p->begin, missing);
	if (which & CRN_FORK_WIPED)
		(void)crn_memory_advise((void *)p->begin, p->end - p->begin, wiped);
}

/* Whoever has given the advice may have taken it back. */
static void lift_advice(struct fork_tracker *t)
{
	for (size_t i = 0; i < t->piece_count; i++) {
		struct fork_piece *p = &t->pieces[i];

		p->lifted = p->advised ? crn_memory_fork_advice(p->begin) : 0;
		p->advised = p->lifted;
		advise(p, p->lifted, MADV_DOFORK, MADV_KEEPONFORK);
	}
}

static void put_advice_back(struct fork_tracker *t)
{
	for (size_t i = 0; i < t->piece_count; i++)
		advise(&t->pieces[i], t->pieces[i].lifted, MADV_DONTFORK, MADV_WIPEONFORK);
}

/* The first populated page; 0 if there is none (then nothing can be lost in the child either). */
static uintptr_t find_witness(struct fork_tracker *t, const struct fork_piece *p)
{
	struct crn_page_run run;
	uintptr_t cursor = p->begin;

	while (cursor < p->end) {
		long n = crn_pagemap_populated(t->pagemap, &cursor, p->end, &run, 1);

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

/*
 * Before the fork: pages that are populated afterwards prove nothing. A file's pages are not
 * inherited, they are read again: there any page shows that the mapping is there.
 */
static void find_witnesses(struct fork_tracker *t)
{
	for (size_t i = 0; i < t->piece_count && t->pagemap >= 0; i++) {
		struct fork_piece *p = &t->pieces[i];

		if (p->file)
			p->witness = p->begin;
		else if (!p->witness || !entry_holds(t->pagemap, p->witness))
			p->witness = find_witness(t, p);
	}
}

/* Is something that we have missing in the child? Then the mapping's flags say why. */
static bool child_lacks(struct fork_tracker *t, struct fork_piece *p, int pid, int their_pagemap)
{
	uint8_t byte;

	if (p->lifted || !p->witness)
		return false;
	if (p->file) {
		if (crn_frozen_read(pid, &byte, p->witness, 1) == 1 ||
			t->env->load(t->env, &byte, p->witness, 1) < 0)
			return false;
	} else if (entry_holds(their_pagemap, p->witness) || !entry_holds(t->pagemap, p->witness)) {
		return false;
	}
	p->advised = crn_memory_fork_advice(p->witness);
	return p->advised;
}

static bool child_is_whole(struct fork_tracker *t, int pid)
{
	int their_pagemap = crn_frozen_pagemap(pid);
	bool whole = true;

	if (their_pagemap < 0 || t->pagemap < 0) {
		crn_fd_close(their_pagemap);
		return true; /* cannot tell: /proc is not mounted or not ours to read */
	}
	for (size_t i = 0; i < t->piece_count; i++)
		whole &= !child_lacks(t, &t->pieces[i], pid, their_pagemap);
	crn_fd_close(their_pagemap);
	return whole;
}

/* ---- Sentinels ------------------------------------------------------------------------------- */

/* A copy of our own, and not the file's page. */
static bool entry_owned(int pagemap, uintptr_t page)
{
	uint64_t entry;

	return crn_pagemap_entries(pagemap, page, &entry, 1) >= 0 &&
		(entry & (CRN_PAGEMAP_PRESENT | CRN_PAGEMAP_SWAP)) && !(entry & CRN_PAGEMAP_FILE);
}

/* On the last page of a mapping: whatever is cut off a file, that goes first. */
static int sentinel_place(struct fork_tracker *t, struct fork_snapshot *s, uintptr_t page)
{
	CRN_TRY(crn_table_grow(t->env->arena, (void **)&s->sentinels, &s->sentinel_capacity,
		s->sentinel_count, s->sentinel_count + 1, sizeof(*s->sentinels)));
	s->sentinels[s->sentinel_count++] = page;
	if (!entry_owned(t->pagemap, page))
		s->unsure |= crn_memory_own((void *)page) < 0;
	return 0;
}

/* An explicit area may go over several mappings. */
static int sentinels_in(struct fork_tracker *t, struct fork_snapshot *s, const struct fork_range *r)
{
	struct crn_mapping m;
	int more = crn_maps_begin(&t->maps, r->begin, CRN_MAPS_NO_NAMES);

	while (more >= 0 && (more = crn_maps_next(&t->maps, &m)) > 0 && m.begin < r->end) {
		if (m.inode && !m.shared)
			CRN_TRY(sentinel_place(t, s, CRN_MIN(m.end, r->end) - CRN_PAGE_SIZE));
	}
	s->unsure |= more < 0;
	return 0;
}

static int sentinels_place(struct fork_tracker *t, struct fork_snapshot *s)
{
	for (size_t i = 0; i < t->range_count; i++) {
		const struct fork_range *r = &t->ranges[i];

		if (r->last == FORK_LAST_OPEN && fork_range_cuttable(r))
			CRN_TRY(sentinels_in(t, s, r));
	}
	return 0;
}

int fork_child_intact(const struct fork_tracker *t, const struct fork_snapshot *s)
{
	bool all = !s->unsure;
	int pagemap;

	if (all && !s->sentinel_count)
		return 0;
	pagemap = crn_frozen_pagemap(s->pid);
	for (size_t i = 0; i < s->sentinel_count && all; i++)
		all = entry_owned(pagemap, s->sentinels[i]);
	crn_fd_close(pagemap);
	return all ? 0 : CAIRN_ELAYOUT;
}

/* ---- Their life ------------------------------------------------------------------------------ */

/* Whom we may not kill (the program has changed its user) ends when the session does. */
static void drop(struct fork_tracker *t, int pid)
{
	bool killed = crn_process_kill(pid) >= 0;
	size_t n = 0;

	for (size_t i = 0; i < t->dying_count; i++) {
		if (!crn_process_reap(t->dying[i], false))
			t->dying[n++] = t->dying[i];
	}
	t->dying_count = n;
	if (n == FORK_DYING_MAX && !killed)
		return; /* a zombie one day */
	if (n == FORK_DYING_MAX)
		crn_process_end(t->dying[--t->dying_count], false);
	t->dying[t->dying_count++] = pid;
}

void fork_child_drop(struct fork_tracker *t, struct fork_snapshot *s)
{
	if (s->pid > 0)
		drop(t, s->pid);
	crn_block_free(
		t->env->arena, s->sentinels, s->sentinel_capacity * sizeof(*s->sentinels));
	*s = (struct fork_snapshot){ 0 };
}

/* The limits of Linux as the caller should see them: the checkpoint fails, the program goes on. */
static int fork_error(struct fork_tracker *t, int err)
{
	if (err == -EXDEV) {
		if (!t->refused_told)
			crn_error("no checkpoints by tracker fork: the program's children are in "
				  "another PID namespace");
		t->refused_told = true;
		return CAIRN_EUNSUPPORTED;
	}
	return err == -ENOMEM || err == -EAGAIN ? CAIRN_EMEMORY : err;
}

/* A frozen child that holds every area. Its pid or an error. */
static int take(struct fork_tracker *t)
{
	int pid;

	CRN_TRY(pieces_look(t));
	for (int tries = 0;; tries++) {
		find_witnesses(t);
		lift_advice(t);
		pid = crn_frozen_take(t->control);
		put_advice_back(t);
		if (pid < 0)
			return fork_error(t, pid);
		if (child_is_whole(t, pid))
			return pid;
		drop(t, pid);
		if (tries == 3)
			return CAIRN_EUNSUPPORTED; /* another thread changes the advice always */
	}
}

int fork_child_take(struct fork_tracker *t, struct fork_snapshot *s)
{
	int err = sentinels_place(t, s);

	if (err >= 0)
		err = take(t);
	if (err < 0) {
		fork_child_drop(t, s);
		return err;
	}
	s->pid = err;
	return 0;
}
