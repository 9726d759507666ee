/* SPDX-License-Identifier: MIT */
/*
 * How old content changes hands: each open page gives its frame, or the difference, to the sink. It
 * then becomes clean, or stays open with a copy of its present content.
 */
#include <errno.h>
#include "base/arena.h"
#include "base/check.h"
#include "base/status.h"
#include "os/guarded.h"
#include "track/undo/undo_pages.h"

/* What a page is goes on being so when its content changes hands. */
#define STAYS (UNDO_OPEN | UNDO_HOT | UNDO_LISTED | UNDO_SEALED | UNDO_EXEC | UNDO_THERE)

/* ---- One page ------------------------------------------------------------------------- */

/* The sink refused what it had been prepared for: the content is lost, the page goes on. */
static int refused(struct crn_undo_pages *u, uintptr_t page, void *frame, int err)
{
	if (frame)
		crn_frame_free(u->env->arena, frame);
	u->env->lost(u->env, page, err);
	return err;
}

/*
 * Give the old content of an open page away. 1: `frame` is still ours and equals the live page; 0:
 * it is gone; negative: the sink failed, and it is gone as well.
 */
static int give(struct crn_undo_pages *u, uintptr_t word, uintptr_t page, struct crn_sink *sink,
	bool absorb)
{
	void *frame = undo_frame(word);
	int err = -EFAULT;

	if (word & UNDO_LOST)
		return 0;
	if (frame && absorb && sink->absorb)
		err = sink->absorb(sink, page, frame, (const void *)page);
	if (err > 0)
		return 1;
	if (err == -EFAULT) /* nothing was absorbed */
		err = sink->take(sink, page, CRN_PAGE_SIZE, frame, frame != NULL);
	if (frame)
		atomic_fetch_sub(&u->frame_count, 1);
	return err < 0 ? refused(u, page, frame, err) : 0;
}

/*
 * Hand the frame over as a whole; a new one for the live content, or NULL. *err is negative if the
 * sink failed.
 */
static void *swap_frame(
	struct crn_undo_pages *u, uintptr_t word, uintptr_t page, struct crn_sink *sink, int *err)
{
	void *frame = undo_frame(word), *fresh;
	struct crn_page_copy copy = { .to = frame, .from = (const void *)page };

	/*
	 * More pages may stay open than prepare() was told of. Under a feed stores go on meanwhile,
	 * and some of them may not be over (images_protected).
	 */
	if (frame && !(word & UNDO_LOST) && sink->exchange && sink->exchange(sink, &copy, 1))
		return copy.to;
	*err = give(u, word, page, sink, false);
	fresh = crn_frame_alloc(u->env->arena);
	if (fresh)
		atomic_fetch_add(&u->frame_count, 1);
	return fresh;
}

/* The old content has gone: the live one is the next, in this frame (NULL: there is none). */
static inline void renew(
	struct crn_undo_pages *u, undo_word *w, uintptr_t page, void *fresh)
{
	uintptr_t keep = undo_get(w) & STAYS;
	int err;

	if (!fresh) {
		undo_set(w, keep | UNDO_LOST);
		u->env->lost(u->env, page, CAIRN_EMEMORY);
	} else if ((err = undo_read_page(fresh, page)) < 0) {
		crn_frame_free(u->env->arena, fresh);
		atomic_fetch_sub(&u->frame_count, 1);
		undo_set(w, keep | (crn_is_bare(err) ? UNDO_ZERO : UNDO_LOST));
		if (!crn_is_bare(err))
			u->env->lost(u->env, page, err);
	} else {
		undo_set(w, keep | (uintptr_t)fresh);
	}
}

/*
 * What the sink's absorb has said: it has the difference, and the frame stays; or it has taken the
 * frame, and another replaces it. -EFAULT: the page cannot be read, nothing has happened.
 */
static int note_absorbed(
	struct crn_undo_pages *u, undo_word *w, uintptr_t page, void *frame, int absorbed)
{
	void *fresh;

	if (absorbed > 0 || absorbed == -EFAULT)
		return CRN_MIN(absorbed, 0);
	u->hot.stale = true;
	atomic_fetch_sub(&u->frame_count, 1);
	if (absorbed < 0)
		refused(u, page, frame, absorbed);
	fresh = crn_frame_alloc(u->env->arena);
	if (fresh)
		atomic_fetch_add(&u->frame_count, 1);
	renew(u, w, page, fresh);
	return absorbed;
}

int undo_turn(struct crn_undo_pages *u, undo_word *w, uintptr_t page, struct crn_sink *sink)
{
	void *frame = undo_frame(undo_get(w));
	int err = -EFAULT;

	if (frame && sink->absorb)
		err = note_absorbed(u, w, page, frame,
			sink->absorb(sink, page, frame, (const void *)page));
	if (err != -EFAULT)
		return err;
	err = 0;
	renew(u, w, page, swap_frame(u, undo_get(w), page, sink, &err));
	return err;
}

/* The interval of a page that is protected again ends. */
static int hand(struct crn_undo_pages *u, undo_word *w, uintptr_t page, struct crn_sink *sink)
{
	uintptr_t word = undo_get(w);
	int given = 1;

	/*
	 * With a feed (images.c) no difference: the frame itself goes, still warm.
	 * Another thread may have written since it was looked at, until it was protected.
	 */
	if (!(word & UNDO_SAME) || !undo_unchanged(word, page))
		given = give(u, word, page, sink, !u->feed && sink->keeps);
	if (given > 0) {
		undo_frame_drop(u, word);
		given = 0;
	}
	undo_set(w, word & (UNDO_SEALED | UNDO_EXEC));
	return given;
}

/* A page that cannot be protected, or must not be, has become hot in this interval. */
static bool list(struct crn_undo_pages *u, undo_word *w, uintptr_t page)
{
	bool made;
	struct crn_hot_entry *e = crn_hot_list_add(&u->hot, page, w, &made);

	if (!e)
		return false; /* it is found in saved[] again */
	e->pinned = true;
	e->old = undo_old(w);
	e->changed = false; /* handed over already */
	undo_set(w, undo_get(w) | UNDO_LISTED);
	return true;
}

/* ---- All of them ---------------------------------------------------------------------- */

/* Pages that stay open for a while, without being hot, are left in saved[]. */
static int hand_over_saved(struct crn_undo_pages *u, size_t count, struct crn_sink *sink)
{
	struct undo_area *a = NULL;
	size_t kept = 0;
	int err = 0;

	for (size_t i = 0; i < count; i++) {
		uintptr_t page = u->saved[i];
		undo_word *w;
		int got = 0;

		a = undo_area_of(u, a, page);
		w = undo_word_of(a, page);
		if (undo_get(w) & UNDO_LISTED)
			continue; /* comes with the hot ones */
		if (undo_get(w) & UNDO_HOT) {
			got = undo_turn(u, w, page, sink);
			if (!list(u, w, page))
				u->saved[kept++] = page;
		} else if (undo_in_flight(u, page)) {
			undo_set(w, undo_get(w) & ~(uintptr_t)UNDO_SAME); /* not from here on */
			got = undo_turn(u, w, page, sink);
			u->saved[kept++] = page;
		} else {
			got = hand(u, w, page, sink);
		}
		err = err < 0 ? err : got;
	}
	atomic_store(&u->saved_count, kept);
	return err;
}

static void replaced(void *undo_pages, struct crn_hot_entry *e)
{
	undo_set(e->where, (undo_get(e->where) & STAYS) | (uintptr_t)e->old);
}

/* renew() finds out why. */
static void unreadable(void *undo_pages, struct crn_hot_entry *e)
{
	renew(undo_pages, e->where, e->page, e->old);
	e->old = undo_old(e->where);
}

static int turn_hot(
	void *undo_pages, struct crn_hot_entry *e, int absorbed, struct crn_sink *sink)
{
	struct crn_undo_pages *u = undo_pages;
	int err = note_absorbed(u, e->where, e->page, e->old, absorbed);

	if (err == -EFAULT)
		err = undo_turn(u, e->where, e->page, sink);
	e->old = undo_old(e->where);
	return err;
}

const struct crn_hot_owner undo_hot_owner = { replaced, unreadable, turn_hot };

int undo_hand_over_hot(struct crn_undo_pages *u, struct crn_sink *sink)
{
	uint64_t begin = crn_hot_meter_begin(&u->hot, false);
	bool left = true;
	int err = 0;

	/* As undo_turn, without a look at what is not so of a hot page, and all copies together. */
	if (sink->exchange)
		u->eager += crn_hot_exchange(
			&u->hot, u->hot.at, u->hot.at + u->hot.count, sink, &left);
	if (left)
		err = crn_hot_turn(
			&u->hot, u->hot.at, u->hot.at + u->hot.count, sink, &u->eager);
	crn_hot_copy_now(&u->hot);
	(void)crn_hot_meter_end(&u->hot, begin, sink);
	return err;
}

static int hand_over_areas(struct crn_undo_pages *u, struct crn_sink *sink)
{
	int err = 0;

	for (size_t i = 0; u->hot_area_count && i < u->area_count; i++) {
		int got = u->areas[i]->hot ? undo_hot_area_turn(u, u->areas[i], sink) : 0;

		err = err < 0 ? err : got;
	}
	return err;
}

int undo_hand_over(struct crn_undo_pages *u, size_t saved, struct crn_sink *sink)
{
	int err = hand_over_saved(u, saved, sink);

	err = CRN_MIN(undo_hand_over_hot(u, sink), err);
	return CRN_MIN(hand_over_areas(u, sink), err);
}
