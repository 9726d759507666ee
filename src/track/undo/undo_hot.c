/* SPDX-License-Identifier: MIT */
/*
 * Pages that stay open: single pages for strategies and touches, and whole hot areas (stacks, TLS,
 * alternate stacks), in which every populated page is copied at every checkpoint. A page of a hot
 * area that was not populated at interval_begin has old content of zeros and needs no frame.
 */
#include <errno.h>
#include "base/arena.h"
#include "base/check.h"
#include "base/status.h"
#include "os/guarded.h"
#include "os/memory.h"
#include "os/pagemap.h"
#include "track/undo/undo_pages.h"

void undo_note_saved(struct crn_undo_pages *u, uintptr_t page)
{
	size_t at = atomic_fetch_add(&u->saved_count, 1);

	CRN_ASSERT(at < u->saved_cap);
	atomic_store_explicit(&u->saved[at], page, memory_order_relaxed);
}

/* ---- Opening by range -------------------------------------------------------------- */

int undo_read_page(void *frame, uintptr_t page)
{
	if (crn_likely(crn_guarded_copy(frame, (const void *)page, CRN_PAGE_SIZE) >= 0))
		return 0;
	return crn_memory_force_read(frame, page, CRN_PAGE_SIZE);
}

/* What was copied is not its old content: that went with the end of a file. */
static bool was_cut(const struct crn_undo_pages *u, uintptr_t page)
{
	const struct undo_area *a = u->private_files ? undo_find(u, page) : NULL;

	return a && a->own && undo_cut_lost(u, a, page);
}

void undo_save_page(
	struct crn_undo_pages *u, undo_word *w, uintptr_t page, uintptr_t flags)
{
	uintptr_t word = undo_get(w) | UNDO_OPEN | flags;
	void *frame = crn_frame_alloc(u->env->arena);
	int err;

	if (crn_unlikely(u->events && u->depth))
		undo_whole_page(u, page);

	if (frame && u->env->seal)
		u->env->seal(u->env, frame, false);
	if (!frame) {
		u->env->lost(u->env, page, CAIRN_EMEMORY);
		word |= UNDO_LOST;
	} else if ((err = undo_read_page(frame, page)) < 0) {
		/* Gone, or beyond the end of its file: there is no content to keep. */
		crn_frame_free(u->env->arena, frame);
		word |= crn_is_bare(err) ? UNDO_ZERO : UNDO_LOST;
		if (was_cut(u, page))
			undo_cut_found(u, page);
		else if (!crn_is_bare(err))
			u->env->lost(u->env, page, err);
	} else if (crn_unlikely(was_cut(u, page))) {
		crn_frame_free(u->env->arena, frame);
		word |= UNDO_LOST;
		undo_cut_found(u, page);
	} else {
		atomic_fetch_add(&u->frame_count, 1);
		word |= (uintptr_t)frame;
		if (u->env->seal)
			u->env->seal(u->env, frame, true);
	}
	undo_set(w, word | undo_told_doubt(u, page));
	undo_note_saved(u, page);
}

static bool clean(const undo_word *w)
{
	return !(undo_get(w) & (UNDO_OPEN | UNDO_SEALED));
}

/* What userfaultfd guards is looked at page by page, before it is saved. */
static void note_exchanged(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	if (begin < end && a->guard == &undo_guard_mprotect &&
		!undo_whole_closed(u, a, begin, end))
		undo_whole_lost(u, a);
}

/*
 * A page cannot be opened alone because the kernel's limit of mappings is reached. Opening
 * everything up to an open neighbour, or to the edge of the area, moves a border and needs no new
 * mapping. All of it becomes hot, so that it is not split again.
 */
static int open_wider(struct crn_undo_pages *u, struct undo_area *a, uintptr_t *begin,
	uintptr_t *end, uintptr_t exec)
{
	int err = -ENOMEM;

	for (int side = 0; side < 3 && err < 0; side++) {
		uintptr_t from = *begin, to = *end;

		while (side != 1 && from > a->begin &&
			clean(undo_word_of(a, from - CRN_PAGE_SIZE)) &&
			(undo_get(undo_word_of(a, from - CRN_PAGE_SIZE)) & UNDO_EXEC) == exec)
			from -= CRN_PAGE_SIZE;
		while (side != 0 && to < a->end && clean(undo_word_of(a, to)) &&
			(undo_get(undo_word_of(a, to)) & UNDO_EXEC) == exec)
			to += CRN_PAGE_SIZE;
		for (uintptr_t page = from; page < to; page += CRN_PAGE_SIZE)
			if (clean(undo_word_of(a, page)))
				undo_save_page(u, undo_word_of(a, page), page, UNDO_HOT);
			else
				undo_set(undo_word_of(a, page),
					undo_get(undo_word_of(a, page)) | UNDO_HOT);
		note_exchanged(u, a, from, *begin);
		note_exchanged(u, a, *end, to);
		*begin = from;
		*end = to;
		err = a->guard->open(u, from, to, exec);
	}
	return err;
}

/*
 * A part of the range is something else by now, or nothing: pages beside it are to be open all the
 * same, as their words say.
 */
static void open_singly(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin,
	uintptr_t end, uintptr_t exec)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		(void)a->guard->open(u, page, page + CRN_PAGE_SIZE, exec);
}

int undo_open_range(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	if (a->hot)
		return 0;
	for (uintptr_t page = begin; page < end;) {
		uintptr_t from = page, exec = undo_get(undo_word_of(a, page)) & UNDO_EXEC, to;
		int err;

		for (; page < end && clean(undo_word_of(a, page)); page += CRN_PAGE_SIZE) {
			if ((undo_get(undo_word_of(a, page)) & UNDO_EXEC) != exec)
				break;
			undo_save_page(u, undo_word_of(a, page), page, 0);
		}
		if (page == from) {
			page += CRN_PAGE_SIZE;
			continue;
		}
		note_exchanged(u, a, from, page);
		to = page;
		err = a->guard->open(u, from, page, exec);
		if (err == -ENOMEM && crn_memory_all_mapped(from, page - from))
			err = open_wider(u, a, &from, &to, exec);
		if (err < 0)
			open_singly(u, a, from, to, exec);
		/* Its protection has gone, and perhaps its content, before it was saved. */
		if (err == -ENOENT && u->depth)
			undo_whole_lost(u, a);
		if (err < 0)
			return err;
	}
	return 0;
}

static bool sealed_and_clean(const undo_word *w)
{
	return (undo_get(w) & (UNDO_OPEN | UNDO_SEALED)) == UNDO_SEALED;
}

/*
 * What the program may not write is saved, too: its content may be about to go (MADV_DONTNEED).
 * Where userfaultfd guards it, it is opened as well: a restore stores to it.
 */
static int save_sealed(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		uintptr_t from = page;
		int err;

		for (; page < end && sealed_and_clean(undo_word_of(a, page)); page += CRN_PAGE_SIZE)
			undo_save_page(u, undo_word_of(a, page), page, 0);
		if (page == from || a->guard == &undo_guard_mprotect)
			continue;
		err = a->guard->open(u, from, page, false);
		if (err < 0) {
			open_singly(u, a, from, page, false);
			return err;
		}
	}
	return 0;
}

/* The same for callers that can be told that there is no memory: then nothing has changed. */
static int open_if_room(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	size_t count = 0;

	if (a->hot)
		return 0;
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		count += !(undo_get(undo_word_of(a, page)) & UNDO_OPEN);
	CRN_TRY(crn_frame_reserve(u->env->arena, count));
	CRN_TRY(save_sealed(u, a, begin, end));
	return undo_open_range(u, a, begin, end);
}

/*
 * The agent can tell nobody: the program's system call would fail. As at a store, what there is no
 * room for is lost.
 */
static int open_for_kernel(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	int err = open_if_room(u, a, begin, end);

	if (err != CAIRN_EMEMORY || !u->env->faults_forwarded)
		return err;
	CRN_TRY(save_sealed(u, a, begin, end));
	return undo_open_range(u, a, begin, end);
}

/* Call fn for the part of each area that lies in the range. */
static int each_part(struct crn_undo_pages *u, uintptr_t addr, size_t len,
	int (*fn)(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end))
{
	uintptr_t begin = crn_page_down(addr), end = crn_page_up(addr + len);
	int sum = 0, err;

	for (size_t i = undo_area_from(u, begin); i < u->area_count; i++) {
		struct undo_area *a = u->areas[i];

		if (a->begin >= end)
			break;
		err = fn(u, a, CRN_MAX(a->begin, begin), CRN_MIN(a->end, end));
		if (err < 0)
			return err;
		sum += err;
	}
	return sum;
}

int undo_unprotect(void *t, uintptr_t addr, size_t len)
{
	struct crn_undo_pages *u = t;
	int err;

	undo_gate_close(u);
	err = each_part(u, addr, len, open_for_kernel);
	/* Under the agent nothing is freed lazily, and each system call comes here. */
	if (!u->env->faults_forwarded)
		crn_hot_list_touch(&u->hot, crn_page_down(addr), crn_page_up(addr + len));
	undo_gate_open(u);
	return err;
}

static int make_hot(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	if (a->hot)
		return 0;
	CRN_TRY(open_if_room(u, a, begin, end));
	/* They are in saved[] now and move to the list at the end of the interval. */
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		undo_word *w = undo_word_of(a, page);

		if (undo_get(w) & UNDO_OPEN && !(undo_get(w) & UNDO_SEALED))
			undo_set(w, undo_get(w) | UNDO_HOT);
		if (undo_get(w) & UNDO_LISTED)
			crn_hot_list_find(&u->hot, page)->pinned = true;
	}
	return 0;
}

static int make_cold(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	const uintptr_t flags = UNDO_HOT | UNDO_LISTED;
	size_t i = crn_hot_list_from(&u->hot, begin);

	if (a->hot)
		return 0;
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		undo_set(undo_word_of(a, page), undo_get(undo_word_of(a, page)) & ~flags);
	for (; i < u->hot.count && u->hot.at[i].page < end; i++) {
		undo_note_saved(u, u->hot.at[i].page);
		u->hot.at[i].where = NULL;
	}
	crn_hot_list_sweep(&u->hot);
	return 0;
}

int undo_set_hot(void *t, uintptr_t addr, size_t len, bool hot)
{
	struct crn_undo_pages *u = t;
	int err;

	undo_gate_close(u);
	err = each_part(u, addr, len, hot ? make_hot : make_cold);
	undo_gate_open(u);
	return err;
}

/* ---- The program's own mprotect ------------------------------------------------------ */

static int seal(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		undo_set(undo_word_of(a, page), undo_get(undo_word_of(a, page)) | UNDO_SEALED);
	return 0;
}

/* Pages that were sealed and clean are writable now, and nobody would notice: save them. */
static int unseal(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		undo_word *w = undo_word_of(a, page);

		undo_set(w, undo_get(w) & ~(uintptr_t)UNDO_SEALED);
		if (clean(w) && !a->hot)
			undo_save_page(u, w, page, 0);
	}
	/*
	 * The program's mprotect has opened what mprotect guards; userfaultfd's protection outlives
	 * it, and a store would fault for ever at a page whose word says open.
	 */
	if (a->hot || a->guard == &undo_guard_mprotect)
		return 0;
	return a->guard->open(u, begin, end, false);
}

static int mark_exec(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		undo_set(undo_word_of(a, page), undo_get(undo_word_of(a, page)) | UNDO_EXEC);
	return 0;
}

static int clear_exec(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		undo_set(undo_word_of(a, page),
			undo_get(undo_word_of(a, page)) & ~(uintptr_t)UNDO_EXEC);
	return 0;
}

int undo_protection(void *t, uintptr_t addr, size_t len, int prot)
{
	struct crn_undo_pages *u = t;

	undo_gate_close(u);
	each_part(u, addr, len, prot & PROT_EXEC ? mark_exec : clear_exec);
	each_part(u, addr, len, prot & PROT_WRITE ? unseal : seal);
	undo_gate_open(u);
	return 0;
}

/* ---- Hot areas ------------------------------------------------------------------------ */

static void mark(struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		undo_set(undo_word_of(a, page), undo_get(undo_word_of(a, page)) | UNDO_THERE);
	a->low = CRN_MIN(a->low, crn_pages(begin - a->begin));
	a->high = CRN_MAX(a->high, crn_pages(end - a->begin));
}

/* Set UNDO_THERE on each page that may hold something now. */
static void mark_populated(struct crn_undo_pages *u, struct undo_area *a)
{
	struct crn_page_run runs[32];
	uintptr_t cursor = a->begin;

	while (cursor < a->end && u->pagemap >= 0 &&
		!(a->area->flags & (CRN_AREA_FILE | CRN_AREA_SHARED))) {
		long count = crn_pagemap_populated(
			u->pagemap, &cursor, a->end, runs, CRN_ARRAY_SIZE(runs));

		if (count < 0)
			break;
		for (long i = 0; i < count; i++)
			mark(a, runs[i].begin, runs[i].end);
	}
	/* Nobody tells: then all of it. */
	if (cursor < a->end)
		mark(a, a->begin, a->end);
}

size_t undo_hot_area_count(struct crn_undo_pages *u, struct undo_area *a, size_t *bare)
{
	size_t count = 0;

	mark_populated(u, a);
	for (size_t i = a->low; i < a->high; i++) {
		uintptr_t word = undo_get(&a->words[i]);

		count += word & UNDO_THERE || undo_frame(word);
		*bare += word & UNDO_THERE && !undo_frame(word);
	}
	return count;
}

int undo_hot_area_turn(struct crn_undo_pages *u, struct undo_area *a, struct crn_sink *sink)
{
	size_t low = crn_pages(a->end - a->begin), high = 0;
	int err = 0;

	for (size_t i = a->low; i < a->high; i++) {
		uintptr_t word = undo_get(&a->words[i]), page = a->begin + (i << CRN_PAGE_SHIFT);
		void *frame = undo_frame(word);
		int got = 0;

		if (word & UNDO_THERE) {
			got = undo_turn(u, &a->words[i], page, sink);
			u->eager++;
		} else if (frame) {
			/* The program has given the page back: its content is zeros now. */
			got = sink->take(sink, page, CRN_PAGE_SIZE, frame, true);
			atomic_fetch_sub(&u->frame_count, 1);
			if (got < 0)
				crn_frame_free(u->env->arena, frame);
			undo_set(&a->words[i], (word & UNDO_FLAGS) | UNDO_ZERO);
		}
		undo_set(&a->words[i], undo_get(&a->words[i]) & ~(uintptr_t)UNDO_THERE);
		if (undo_frame(undo_get(&a->words[i]))) {
			low = CRN_MIN(low, i);
			high = i + 1;
		}
		err = err < 0 ? err : got;
	}
	a->low = low;
	a->high = high;
	return err;
}

int undo_hot_area_show(struct crn_undo_pages *u, struct undo_area *a, struct crn_sink *sink)
{
	int err = 0;

	mark_populated(u, a);
	for (size_t i = a->low; i < a->high; i++) {
		uintptr_t word = undo_get(&a->words[i]), page = a->begin + (i << CRN_PAGE_SHIFT);

		undo_set(&a->words[i], word & ~(uintptr_t)UNDO_THERE);
		if (err < 0 || word & UNDO_LOST || !(word & UNDO_THERE || undo_frame(word)) ||
			undo_unchanged(word, page))
			continue;
		err = sink->take(sink, page, CRN_PAGE_SIZE, undo_frame(word), false);
	}
	return err;
}

int undo_hot_area_begin(struct crn_undo_pages *u, struct undo_area *a)
{
	struct crn_arena *arena = u->env->arena;
	size_t pages = crn_pages(a->end - a->begin), bare = 0;
	int err;

	for (size_t i = 0; i < pages; i++)
		undo_set(&a->words[i], UNDO_OPEN | UNDO_HOT | UNDO_ZERO);
	a->low = pages;
	a->high = 0;
	CRN_TRY(crn_frame_reserve(arena, undo_hot_area_count(u, a, &bare)));
	for (size_t i = a->low; i < a->high; i++) {
		uintptr_t page = a->begin + (i << CRN_PAGE_SHIFT);
		void *frame = NULL;

		if (undo_get(&a->words[i]) & UNDO_THERE)
			frame = crn_frame_alloc(arena);
		err = frame ? undo_read_page(frame, page) : 0;
		if (err < 0) {
			crn_frame_free(arena, frame);
			frame = NULL;
		}
		if (err < 0 && !crn_is_bare(err))
			return err;
		if (frame)
			atomic_fetch_add(&u->frame_count, 1);
		undo_set(&a->words[i],
			UNDO_OPEN | UNDO_HOT | (frame ? (uintptr_t)frame : UNDO_ZERO));
	}
	return 0;
}

/* ---- Counting what was written ---------------------------------------------------------- */

static int collect_part(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end)
{
	int count = 0;

	if (a->hot)
		mark_populated(u, a);
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		uintptr_t word = undo_get(undo_word_of(a, page));
		const void *frame = undo_frame(word);

		/* After a rewind pages are open but as they were: what counts is the content. */
		if (!(word & UNDO_OPEN) || (a->hot && !frame && !(word & UNDO_THERE)))
			continue;
		count += !crn_guarded_same(frame, (const void *)page);
	}
	for (size_t i = a->low; a->hot && i < a->high; i++)
		undo_set(&a->words[i], undo_get(&a->words[i]) & ~(uintptr_t)UNDO_THERE);
	return count;
}

int undo_collect(void *t, uintptr_t addr, size_t len)
{
	struct crn_undo_pages *u = t;
	int count;

	undo_gate_close(u);
	count = each_part(u, addr, len, collect_part);
	undo_gate_open(u);
	return count;
}
