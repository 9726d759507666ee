/* SPDX-License-Identifier: MIT */
/*
 * The life of an interval under undo pages: ending it, showing it, rewriting it. undo_pages.h has
 * the states of a page, undo_turn.c what happens to each page at the end.
 */
#include <errno.h>
#include "base/arena.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/thread.h"
#include "track/undo/undo_pages.h"

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

/* ---- The end of an interval ------------------------------------------------------------ */

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
		uintptr_t page = u->saved[i];
		uintptr_t word = undo_get(undo_word_of(undo_find(u, page), page));

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
	sink->differences = crn_hot_wants_differences(&u->hot);
	err = sink->prepare(sink, look.count, look.bare);
	if (crn_likely(err != CAIRN_EMEMORY) || !u->env->predictor)
		return err;
	if (*quiet)
		undo_gate_close(u);
	*quiet = false;
	if (!undo_cool(u))
		return err;
	look_at_all(u, &look, false);
	return sink->prepare(sink, look.count, look.bare);
}

/* Both are taken while the caches are as the program has left them: undisturbed, they cost less. */
static void protect_saved(struct crn_undo_pages *u, size_t saved)
{
	uint64_t begin, faults = atomic_load(&u->faults) - u->priced_faults;
	uint64_t serving = atomic_load(&u->serve_ticks) - u->priced_ticks;
	struct crn_predictor *p = u->env->predictor;
	size_t count;

	if (!p) {
		(void)undo_protect_saved(u, saved);
		return;
	}
	begin = crn_clock_ticks();
	count = undo_protect_saved(u, saved);
	if (count)
		p->price_protect = (uint32_t)((crn_clock_ticks() - begin) / count);
	if (faults)
		p->price_serve = (uint32_t)(serving / faults);
	u->priced_faults += faults;
	u->priced_ticks += serving;
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
		return undo_hand_over_hot(u, sink);
	if (*quiet)
		undo_gate_close(u);
	*quiet = false;
	if (advised)
		undo_heed(u);
	saved = atomic_load(&u->saved_count);
	sort_pages(u->saved, saved);
	protect_saved(u, saved);
	if (crn_unlikely(u->private_files))
		undo_cut_note(u, saved);
	undo_object_look(u);
	if (u->guard->protected)
		u->guard->protected(u, saved);
	err = undo_hand_over(u, saved, sink);
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
	bool quiet = !atomic_load(&u->inside) && !atomic_load(&u->guests->present) &&
		     !atomic_load(&u->saved_count) && !u->hot_area_count;
	int err;

	if (quiet && !u->hot.count && !u->env->predictor)
		return 0;
	if (!quiet)
		undo_gate_close(u);
	err = end_interval(u, sink, &quiet);
	if (crn_unlikely(u->hot.touched) && err >= 0)
		crn_hot_list_forget_touched(&u->hot);
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
	return undo_frame(undo_get(undo_word_of(undo_find(u, page), page)));
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

		a = undo_area_of(u, a, page);
		word = undo_get(undo_word_of(a, page));
		if (word & UNDO_LOST)
			continue;
		CRN_TRY(sink->take(sink, page, CRN_PAGE_SIZE, undo_frame(word), false));
	}
	return 0;
}

static int show_hot(struct crn_undo_pages *u, struct crn_sink *sink)
{
	for (size_t i = 0; i < u->hot.count; i++) {
		uintptr_t word = undo_get(u->hot.at[i].where);

		if (!(word & UNDO_LOST) &&
			(u->hot.at[i].touched || !undo_unchanged(word, u->hot.at[i].page)))
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
	void *frame = undo_frame(undo_get(w));

	if (frame)
		return frame;
	frame = crn_frame_alloc(u->env->arena);
	if (frame)
		atomic_fetch_add(&u->frame_count, 1);
	return frame;
}

static int rewrite(struct crn_undo_pages *u, undo_word *w, const void *content)
{
	uintptr_t keep = undo_get(w) & (UNDO_HOT | UNDO_LISTED | UNDO_SEALED | UNDO_EXEC);
	void *frame = content ? frame_for(u, w) : NULL;

	if (content && !frame)
		return CAIRN_EMEMORY;
	if (content) {
		crn_copy_page(frame, content);
		undo_set(w, keep | UNDO_OPEN | (uintptr_t)frame);
		return 0;
	}
	undo_frame_drop(u, undo_get(w));
	undo_set(w, keep | UNDO_OPEN | UNDO_ZERO);
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
		if (!(undo_get(undo_word_of(a, page)) & UNDO_OPEN))
			err = undo_open_range(u, a, page, page + CRN_PAGE_SIZE);
		if (err >= 0)
			err = rewrite(u, undo_word_of(a, page), content);
		crn_hot_list_rebased(&u->hot, page, page + CRN_PAGE_SIZE);
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
	while (a && (word = atomic_load(undo_word_of(a, page))) & UNDO_BUSY) {
		crn_yield();
		if (undo_guest_died(u)) {
			undo_gate_close(u);
			undo_gate_open(u);
		}
	}
	if (!(word & UNDO_OPEN))
		return 0;
	*old = undo_frame(word);
	return word & UNDO_ZERO ? 1 : 0;
}
