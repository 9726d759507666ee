/* SPDX-License-Identifier: MIT */
/*
 * The life of one interval under undo pages: handing over, showing, rewriting. undo_pages.h has the
 * states.
 */
#include <errno.h>
#include "base/arena.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/guarded.h"
#include "os/thread.h"
#include "track/undo_pages.h"

/*
 * Pages that nobody wrote, between two that are protected again, may be included in the same call:
 * setting what is set costs less than a call.
 */
#define GAP_PAGES 8

static uintptr_t get(const undo_word *w)
{
	return atomic_load_explicit(w, memory_order_relaxed);
}

static void set(undo_word *w, uintptr_t value)
{
	atomic_store_explicit(w, value, memory_order_relaxed);
}

/* Shell's sort, with Ciura's gaps: in place, no recursion, quick on what is nearly sorted. */
static void sort_pages(_Atomic uintptr_t *pages, size_t count)
{
	static const uint32_t gaps[] = { 1131376, 503056, 223580, 99370, 44164, 19628, 8861, 3938,
		1750, 701, 301, 132, 57, 23, 10, 4, 1 };
	uintptr_t *p = (uintptr_t *)pages;

	for (size_t g = 0; g < CRN_ARRAY_SIZE(gaps); g++) {
		size_t gap = gaps[g];

		for (size_t i = gap; i < count; i++) {
			uintptr_t page = p[i];
			size_t at = i;

			for (; at >= gap && p[at - gap] > page; at -= gap)
				p[at] = p[at - gap];
			p[at] = page;
		}
	}
}

/* The area of a page; consecutive pages are nearly always of one area. */
static struct undo_area *area_of(struct crn_undo_pages *u, struct undo_area *last, uintptr_t page)
{
	if (last && page >= last->begin && page < last->end)
		return last;
	last = undo_find(u, page);
	CRN_ASSERT(last);
	return last;
}

/* ---- Protecting again ------------------------------------------------------------ */

static bool mapped(struct crn_undo_pages *u, uintptr_t page)
{
	struct crn_mapping m;

	return crn_maps_find(&u->maps, page, &m) > 0;
}

/*
 * Protection of a run was refused: find out page by page which can be, and what becomes of the
 * others.
 */
static void protect_singly(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end, bool exec)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		undo_word *w = undo_word_of(a, page);
		int err;

		if (!(get(w) & UNDO_OPEN))
			continue;
		err = a->guard->protect(u, page, page + CRN_PAGE_SIZE, exec);
		if (err >= 0)
			continue;
		if (err == -ENOENT || !mapped(u, page)) {
			/*
			 * The mapping has gone away, perhaps another one is in its place: nothing
			 * to protect until the session notices.
			 */
			set(w, get(w) | UNDO_SEALED);
			continue;
		}
		set(w, (get(w) | UNDO_HOT) & ~(uintptr_t)UNDO_SAME);
		if (!atomic_exchange(&u->limit_told, 1))
			crn_warn("the kernel's limit of mappings (vm.max_map_count) is reached: "
				 "pages stay open and are copied at every checkpoint");
	}
}

/* May the page at `next` be protected in one call with a run that ends at `end`? */
static bool joins(const struct crn_undo_pages *u, const struct undo_area *a, uintptr_t end,
	uintptr_t next, uintptr_t exec)
{
	uintptr_t next_word;

	if (next >= a->end || next - end > GAP_PAGES * CRN_PAGE_SIZE)
		return false;
	next_word = get(undo_word_of(a, next));
	if (next_word & (UNDO_HOT | UNDO_SEALED) || (next_word & UNDO_EXEC) != exec ||
		undo_in_flight(u, next))
		return false;
	for (; end < next; end += CRN_PAGE_SIZE) {
		uintptr_t word = get(undo_word_of(a, end));

		if (word & (UNDO_OPEN | UNDO_SEALED) || (word & UNDO_EXEC) != exec)
			return false;
	}
	return true;
}

static void protect_saved(struct crn_undo_pages *u, size_t count)
{
	struct undo_area *a = NULL;

	for (size_t i = 0; i < count;) {
		uintptr_t begin = u->saved[i], end = begin + CRN_PAGE_SIZE, word;

		a = area_of(u, a, begin);
		word = get(undo_word_of(a, begin));
		i++;
		if (word & (UNDO_HOT | UNDO_SEALED) || undo_in_flight(u, begin))
			continue;
		for (; i < count && joins(u, a, end, u->saved[i], word & UNDO_EXEC); i++)
			end = u->saved[i] + CRN_PAGE_SIZE;
		if (a->guard->protect(u, begin, end, word & UNDO_EXEC) < 0)
			protect_singly(u, a, begin, end, word & UNDO_EXEC);
	}
}

/* ---- Handing over ------------------------------------------------------------------ */

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

	if (frame && !(word & UNDO_LOST) && sink->exchange) {
		fresh = sink->exchange(sink, page, frame);
		if (fresh)
			return fresh;
		/*
		 * Out of memory: nothing was taken. Without prepare() this can be; the content goes
		 * with the interval.
		 */
		*err = refused(u, page, NULL, CAIRN_EMEMORY);
		return frame;
	}
	*err = give(u, word, page, sink, false);
	fresh = crn_frame_alloc(u->env->arena);
	if (fresh)
		atomic_fetch_add(&u->frame_count, 1);
	return fresh;
}

/* The old content has gone: the live one is the next, in this frame (NULL: there is none). */
static void renew(struct crn_undo_pages *u, undo_word *w, uintptr_t page, void *fresh)
{
	uintptr_t keep =
		get(w) & (UNDO_HOT | UNDO_LISTED | UNDO_SEALED | UNDO_EXEC | UNDO_THERE);

	if (!fresh) {
		set(w, keep | UNDO_OPEN | UNDO_LOST);
		u->env->lost(u->env, page, CAIRN_EMEMORY);
	} else if (crn_guarded_copy(fresh, (const void *)page, CRN_PAGE_SIZE) < 0) {
		crn_frame_free(u->env->arena, fresh);
		atomic_fetch_sub(&u->frame_count, 1);
		set(w, keep | UNDO_OPEN | UNDO_ZERO);
	} else {
		set(w, keep | UNDO_OPEN | (uintptr_t)fresh);
	}
}

/*
 * Nothing but the difference is handed over, and the frame stays; or the sink has taken it, and
 * another replaces it. -EFAULT: the page cannot be read, nothing has happened.
 */
static int turn_absorbing(struct crn_undo_pages *u, undo_word *w, uintptr_t page, void *frame,
	struct crn_sink *sink)
{
	int err = sink->absorb(sink, page, frame, (const void *)page);
	void *fresh;

	if (crn_likely(err > 0))
		return 0;
	if (err == -EFAULT)
		return err;
	u->hot.stale = true;
	atomic_fetch_sub(&u->frame_count, 1);
	err = err < 0 ? refused(u, page, frame, err) : 0;
	fresh = crn_frame_alloc(u->env->arena);
	if (fresh)
		atomic_fetch_add(&u->frame_count, 1);
	renew(u, w, page, fresh);
	return err;
}

int undo_turn(struct crn_undo_pages *u, undo_word *w, uintptr_t page, struct crn_sink *sink)
{
	void *frame = undo_frame(get(w));
	int err = frame && sink->absorb ? turn_absorbing(u, w, page, frame, sink) : -EFAULT;

	if (err != -EFAULT)
		return err;
	err = 0;
	renew(u, w, page, swap_frame(u, get(w), page, sink, &err));
	return err;
}

/* The interval of a page that is protected again ends. */
static int hand(struct crn_undo_pages *u, undo_word *w, uintptr_t page, struct crn_sink *sink)
{
	uintptr_t word = get(w);
	int given = 1;

	/*
	 * With K = 1, or a feed (images.c), no difference: the frame itself goes, still warm.
	 * Another thread may have written since it was looked at, until it was protected.
	 */
	if (!(word & UNDO_SAME) || !undo_unchanged(word, page))
		given = give(u, word, page, sink, u->env->keep > 1 && !u->feed);
	if (given > 0) {
		undo_frame_drop(u, word);
		given = 0;
	}
	set(w, word & (UNDO_SEALED | UNDO_EXEC));
	return given;
}

/* A page that cannot be protected, or must not be, has become hot in this interval. */
static bool list(struct crn_undo_pages *u, undo_word *w, uintptr_t page)
{
	struct crn_hot_entry *e = crn_hot_list_add(&u->hot, u->env->arena, page, w);

	if (!e)
		return false; /* it is found in saved[] again */
	e->pinned = true;
	e->changed = false; /* handed over already */
	set(w, get(w) | UNDO_LISTED);
	return true;
}

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

		a = area_of(u, a, page);
		w = undo_word_of(a, page);
		if (get(w) & UNDO_LISTED)
			continue; /* comes with the hot ones */
		if (get(w) & UNDO_HOT) {
			got = undo_turn(u, w, page, sink);
			if (!list(u, w, page))
				u->saved[kept++] = page;
		} else if (undo_in_flight(u, page)) {
			set(w, get(w) & ~(uintptr_t)UNDO_SAME); /* not from here on */
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

static int turn_hot(struct crn_undo_pages *u, struct crn_hot_entry *e, struct crn_sink *sink)
{
	int err = -EFAULT;

	u->eager++;
	if (crn_likely(e->old && sink->absorb))
		err = turn_absorbing(u, e->where, e->page, e->old, sink);
	if (err != -EFAULT)
		return err;
	err = undo_turn(u, e->where, e->page, sink);
	e->old = undo_old(e->where);
	return err;
}

static int hand_over_hot(struct crn_undo_pages *u, struct crn_sink *sink)
{
	uint64_t begin = crn_hot_meter_begin(&u->hot, false);
	int err = 0;

	for (size_t i = 0; i < u->hot.count; i++) {
		struct crn_hot_entry *e = &u->hot.at[i];
		int got = e->changed ? turn_hot(u, e, sink) : 0;

		err = err < 0 ? err : got;
	}
	if (crn_likely(u->env->predictor))
		u->env->predictor->price = crn_hot_meter_end(&u->hot, begin, true);
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

/*
 * Which pages the sink will be given, at most; and which of the hot ones have changed. While the
 * gate is open, saved[] is being filled by handlers, for the next interval: an entry that is
 * counted need not be written yet.
 */
static void look_at_all(struct crn_undo_pages *u, struct undo_look *look, bool quiet)
{
	size_t saved = quiet ? 0 : atomic_load(&u->saved_count);

	*look = (struct undo_look){ .count = saved };
	for (size_t i = 0; i < saved; i++) {
		uintptr_t page = u->saved[i], word = get(undo_word_of(undo_find(u, page), page));

		look->bare += (word & UNDO_HOT || undo_in_flight(u, page)) && !undo_frame(word);
	}
	undo_hot_look(u, look);
	for (size_t i = 0; u->hot_area_count && i < u->area_count; i++)
		if (u->areas[i]->hot)
			look->count += undo_hot_area_count(u, u->areas[i], &look->bare);
}

static int prepare(struct crn_undo_pages *u, struct crn_sink *sink, bool *quiet)
{
	struct undo_look look;
	int err;

	look_at_all(u, &look, *quiet);
	if (!sink->prepare)
		return 0;
	err = sink->prepare(sink, look.count, look.bare);
	if (crn_likely(err != CAIRN_EMEMORY) || !u->hot.count || !u->env->predictor)
		return err;
	if (*quiet)
		undo_gate_close(u);
	*quiet = false;
	if (!undo_cool(u))
		return err;
	look_at_all(u, &look, false);
	return sink->prepare(sink, look.count, look.bare);
}

/*
 * `quiet`: the gate is open, and may stay so while nothing but copies of hot pages is to be done. A
 * store that another thread makes meanwhile to a clean page belongs to the next interval.
 */
static int end_interval(struct crn_undo_pages *u, struct crn_sink *sink, bool *quiet)
{
	bool advised;
	size_t saved;
	int err = prepare(u, sink, quiet);

	if (err < 0)
		return err;
	advised = undo_ask(u, *quiet ? 0 : atomic_load(&u->saved_count));
	if (crn_likely(*quiet && !advised))
		return hand_over_hot(u, sink);
	if (*quiet)
		undo_gate_close(u);
	*quiet = false;
	if (advised)
		undo_heed(u);
	saved = atomic_load(&u->saved_count);
	sort_pages(u->saved, saved);
	protect_saved(u, saved);
	if (u->guard->protected)
		u->guard->protected(u, saved);
	err = hand_over_saved(u, saved, sink);
	err = CRN_MIN(hand_over_hot(u, sink), err);
	err = CRN_MIN(hand_over_areas(u, sink), err);
	if (advised)
		undo_open_promoted(u);
	return err;
}

int undo_interval_end(void *t, struct crn_sink *sink)
{
	struct crn_undo_pages *u = t;
	/*
	 * A handler inside may have opened its page, and another thread written there, before
	 * saved[] names it. `inside` comes first: who has left in between is in saved[].
	 */
	bool quiet = !atomic_load(&u->inside) && !atomic_load(&u->saved_count) &&
		     !u->hot_area_count;
	int err;

	if (quiet && !u->hot.count && !u->env->predictor)
		return 0;
	if (!quiet)
		undo_gate_close(u);
	err = end_interval(u, sink, &quiet);
	if (!quiet)
		undo_gate_open(u);
	return CRN_MIN(err, 0);
}

/* All is done at the end of the interval before, in one pass while the pages are in the cache. */
int undo_interval_begin(void *t)
{
	return 0;
}

/* ---- Looking and rewriting ----------------------------------------------------------- */

static void *frame_of(struct crn_undo_pages *u, uintptr_t page)
{
	return undo_frame(get(undo_word_of(undo_find(u, page), page)));
}

static int show_saved(struct crn_undo_pages *u, struct crn_sink *sink)
{
	size_t count = atomic_load(&u->saved_count);
	struct undo_area *a = NULL;
	bool down;

	if (!count)
		return 0;
	/*
	 * Frames came from the arena in the order of the first stores, upwards or downwards;
	 * reading them upwards is a fifth faster, because the processor then fetches beyond the
	 * page's end.
	 */
	down = frame_of(u, u->saved[0]) > frame_of(u, u->saved[count - 1]);
	for (size_t i = 0; i < count; i++) {
		uintptr_t page = u->saved[down ? count - 1 - i : i], word;

		a = area_of(u, a, page);
		word = get(undo_word_of(a, page));
		if (word & UNDO_LOST)
			continue;
		CRN_TRY(sink->take(sink, page, CRN_PAGE_SIZE, undo_frame(word), false));
	}
	return 0;
}

static int show_hot(struct crn_undo_pages *u, struct crn_sink *sink)
{
	for (size_t i = 0; i < u->hot.count; i++) {
		uintptr_t word = get(u->hot.at[i].where);

		if (!(word & UNDO_LOST) && !undo_unchanged(word, u->hot.at[i].page))
			CRN_TRY(sink->take(sink, u->hot.at[i].page, CRN_PAGE_SIZE, undo_frame(word),
				false));
	}
	return 0;
}

int undo_undo(void *t, struct crn_sink *sink)
{
	struct crn_undo_pages *u = t;
	int err;

	undo_gate_close_to_read(u);
	err = show_saved(u, sink);
	if (err >= 0)
		err = show_hot(u, sink);
	for (size_t i = 0; err >= 0 && u->hot_area_count && i < u->area_count; i++)
		if (u->areas[i]->hot)
			err = undo_hot_area_show(u, u->areas[i], sink);
	undo_gate_open(u);
	return err;
}

/*
 * A frame that holds `content` for the page of w: its present one, or a new one. NULL: no memory.
 */
static void *frame_for(struct crn_undo_pages *u, undo_word *w)
{
	void *frame = undo_frame(get(w));

	if (frame)
		return frame;
	frame = crn_frame_alloc(u->env->arena);
	if (frame)
		atomic_fetch_add(&u->frame_count, 1);
	return frame;
}

static int rewrite(struct crn_undo_pages *u, undo_word *w, const void *content)
{
	uintptr_t keep = get(w) & (UNDO_HOT | UNDO_LISTED | UNDO_SEALED | UNDO_EXEC);
	void *frame = content ? frame_for(u, w) : NULL;

	if (content && !frame)
		return CAIRN_EMEMORY;
	if (content) {
		crn_copy_page(frame, content);
		set(w, keep | UNDO_OPEN | (uintptr_t)frame);
		return 0;
	}
	undo_frame_drop(u, get(w));
	set(w, keep | UNDO_OPEN | UNDO_ZERO);
	return 0;
}

int undo_rebase(void *t, uintptr_t page, const void *content)
{
	struct crn_undo_pages *u = t;
	struct undo_area *a;
	int err = 0;

	undo_gate_close(u);
	a = undo_find(u, page);
	if (!a) {
		err = CAIRN_ENOTAREA;
	} else {
		if (!(get(undo_word_of(a, page)) & UNDO_OPEN))
			err = undo_open_range(u, a, page, page + CRN_PAGE_SIZE);
		if (err >= 0)
			err = rewrite(u, undo_word_of(a, page), content);
		if (err >= 0 && a->hot) {
			size_t i = crn_pages(page - a->begin);

			a->low = CRN_MIN(a->low, i);
			a->high = CRN_MAX(a->high, i + 1);
		}
	}
	undo_gate_open(u);
	return err;
}

int undo_look(void *t, uintptr_t page, const void **old)
{
	struct crn_undo_pages *u = t;
	struct undo_area *a = undo_find(u, page);
	uintptr_t word = 0;

	*old = NULL;
	/* While a handler is at it the page may be open already, and the frame not yet named. */
	while (a && (word = atomic_load(undo_word_of(a, page))) & UNDO_BUSY)
		crn_yield();
	if (!(word & UNDO_OPEN))
		return 0;
	*old = undo_frame(word);
	return word & UNDO_ZERO ? 1 : 0;
}
