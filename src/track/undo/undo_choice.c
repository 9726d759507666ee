/* SPDX-License-Identifier: MIT */
/*
 * Hot pages under a strategy. Its decisions are applied at the end of an interval, before anything
 * is protected. A written page that is promoted is simply left open. A page that is evicted is
 * protected in one run with the written pages. A clean page that is promoted is copied and opened
 * after the interval has been handed over.
 */
#include "base/arena.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/guarded.h"
#include "track/undo/undo_pages.h"

/* ---- What has changed ---------------------------------------------------------------- */

/* One without a frame: the old content is zeros, or lost. */
static bool bare_has_changed(
	const struct crn_hot_list *l, struct crn_hot_entry *e, struct undo_look *look)
{
	uintptr_t word = undo_get(e->where);

	e->hashed &= !(word & UNDO_LOST);
	e->changed = word & UNDO_LOST || crn_hot_look(l, e, NULL);
	look->bare += e->changed && !undo_frame(word);
	return e->changed;
}

void undo_hot_look(struct crn_undo_pages *u, struct undo_look *look)
{
	/* Without a strategy no page has a slot. */
	struct crn_hot_bits bits = { .map = u->env->predictor ? u->env->predictor->changed : NULL };
	uint64_t begin = crn_hot_meter_begin(&u->hot, true);
	struct crn_hot_entry *e = u->hot.at, *end = e + u->hot.count;
	bool stale = u->hot.stale;
	size_t count = 0;
	uint32_t price;

	for (; e < end; e++) {
		if (crn_unlikely(stale))
			e->old = undo_old(e->where);
		if (!(crn_likely(e->old) ? crn_hot_look(&u->hot, e, e->old)
					 : bare_has_changed(&u->hot, e, look))) {
			/* If it is evicted it stays open all the same, and is handed over. */
			count += undo_in_flight(u, e->page);
			continue;
		}
		count++;
		crn_hot_bits_add(&bits, e->slot);
	}
	crn_hot_bits_flush(&bits);
	look->count += count;
	u->hot.stale = false;
	price = crn_hot_meter_end(&u->hot, begin, NULL);
	if (crn_likely(u->env->predictor))
		u->env->predictor->price_hot = price;
}

bool undo_unchanged(uintptr_t word, uintptr_t page)
{
	const void *frame = undo_frame(word);

	return frame && crn_guarded_same(frame, (const void *)page);
}

bool undo_ask(struct crn_undo_pages *u, size_t count)
{
	struct crn_predictor *p = u->env->predictor;

	if (!p)
		return false;
	for (size_t i = 0; i < count; i++) {
		uintptr_t page = u->saved[i];
		undo_word *w = undo_word_of(undo_find(u, page), page);

		if (undo_get(w) & UNDO_HOT)
			continue;
		if (!(undo_get(w) & UNDO_NEAR)) {
			p->written(u->env, page);
			continue;
		}
		/* Opened along with another: not written, there is nothing to hand over. */
		if (undo_unchanged(undo_get(w), page))
			undo_set(w, undo_get(w) | UNDO_SAME);
		p->granted(u->env, page, !(undo_get(w) & UNDO_SAME));
	}
	return p->decide(u->env);
}

/* ---- Evictions ------------------------------------------------------------------------- */

static void evict(struct crn_undo_pages *u, struct crn_hot_entry *e)
{
	undo_word *w = e->where;
	uintptr_t word = undo_get(w) & ~(uintptr_t)(UNDO_HOT | UNDO_LISTED | UNDO_SAME);

	e->slot = CRN_HOT_NO_SLOT;
	if (e->pinned)
		return;
	undo_set(w, word | (e->changed ? 0 : UNDO_SAME));
	undo_note_saved(u, e->page);
	e->where = NULL;
}

static void evict_listed(struct crn_undo_pages *u)
{
	uintptr_t begin, end;
	size_t i = 0, at = 0;

	while (u->env->predictor->evicted(u->env, i++, &begin, &end))
		for (; at < u->hot.count && u->hot.at[at].page < end; at++)
			if (u->hot.at[at].page >= begin)
				evict(u, &u->hot.at[at]);
	if (i > 1)
		crn_hot_list_sweep(&u->hot);
}

/* ---- Promotions ------------------------------------------------------------------------ */

static void refuse(struct crn_undo_pages *u, uintptr_t page)
{
	if (u->refused_count < CRN_ARRAY_SIZE(u->refused))
		u->refused[u->refused_count++] = page;
}

/* An open page goes on the list. */
static void list(struct crn_undo_pages *u, undo_word *w, uintptr_t page, uint32_t slot)
{
	uintptr_t word = undo_get(w);
	bool made;
	struct crn_hot_entry *e = crn_hot_list_add(&u->hot, page, w, &made);

	if (!e) {
		refuse(u, page);
		return;
	}
	e->slot = slot;
	if (word & UNDO_LISTED)
		return;
	e->old = undo_old(w);
	e->changed = !(word & UNDO_SAME);
	undo_set(w, (word | UNDO_HOT | UNDO_LISTED) & ~(uintptr_t)(UNDO_SAME | UNDO_NEAR));
}

void undo_heed(struct crn_undo_pages *u)
{
	uintptr_t page;
	uint32_t slot;

	evict_listed(u);
	crn_hot_list_spread(&u->hot, u->env->predictor->promotions(u->env));
	for (size_t i = 0; u->env->predictor->promoted(u->env, i, &page, &slot); i++) {
		struct undo_area *a = undo_find(u, page);
		uintptr_t word = a ? undo_get(undo_word_of(a, page)) : 0;

		if (!a || a->hot || word & UNDO_SEALED)
			refuse(u, page);
		else if (word & UNDO_OPEN)
			list(u, undo_word_of(a, page), page, slot);
	}
	crn_hot_list_gather(&u->hot);
}

/*
 * Frames for `count` pages more, without eating what the journal still needs to bind the record.
 */
static bool room_for(struct crn_undo_pages *u, size_t count)
{
	size_t handed = u->hot.count + atomic_load(&u->saved_count) + u->page_count / 256;

	return crn_frame_reserve(u->env->arena, count + handed / 256 + 4) >= 0;
}

/* Of the promoted pages from *i on, the run of clean ones that can be opened in one call. */
static struct undo_area *next_clean_run(
	struct crn_undo_pages *u, size_t *i, uintptr_t *begin, uintptr_t *end)
{
	struct undo_area *a = NULL, *there;
	uintptr_t page, word;
	uint32_t slot;

	for (; u->env->predictor->promoted(u->env, *i, &page, &slot); (*i)++) {
		there = undo_find(u, page);
		word = there && !there->hot ? undo_get(undo_word_of(there, page)) : UNDO_OPEN;
		if (a && (there != a || page != *end || word & (UNDO_OPEN | UNDO_SEALED)))
			break;
		if (word & (UNDO_OPEN | UNDO_SEALED))
			continue;
		if (!a)
			*begin = page;
		a = there;
		*end = page + CRN_PAGE_SIZE;
	}
	return a;
}

static void list_run(struct crn_undo_pages *u, const struct undo_area *a, size_t i, uintptr_t begin,
	uintptr_t end)
{
	uintptr_t page;
	uint32_t slot;

	for (; u->env->predictor->promoted(u->env, i, &page, &slot) && page < end; i++) {
		undo_word *w = undo_word_of(a, page);

		if (page < begin)
			continue;
		if ((undo_get(w) & (UNDO_OPEN | UNDO_LOST)) == UNDO_OPEN)
			list(u, w, page, slot);
		else
			refuse(u, page);
	}
}

/* What the list has need not be in saved[], and would make the next checkpoint slower. */
static void drop_listed(struct crn_undo_pages *u)
{
	size_t count = atomic_load(&u->saved_count), kept = 0;

	for (size_t i = 0; i < count; i++) {
		uintptr_t page = u->saved[i];

		if (!(undo_get(undo_word_of(undo_find(u, page), page)) & UNDO_LISTED))
			u->saved[kept++] = page;
	}
	atomic_store(&u->saved_count, kept);
}

void undo_open_promoted(struct crn_undo_pages *u)
{
	uintptr_t begin = 0, end = 0;
	struct undo_area *a;
	size_t i = 0, from = 0;

	while ((a = next_clean_run(u, &i, &begin, &end))) {
		if (room_for(u, crn_pages(end - begin)))
			(void)undo_open_range(u, a, begin, end);
		list_run(u, a, from, begin, end);
		from = i;
	}
	drop_listed(u);
	for (i = 0; i < u->refused_count; i++)
		u->env->predictor->refused(u->env, u->refused[i]);
	u->refused_count = 0;
}

/* ---- Lack of memory ---------------------------------------------------------------------- */

bool undo_cool(struct crn_undo_pages *u)
{
	size_t count, kept = 0;

	/*
	 * With a feed (images.c) a fault that was reported before may open a page that has been
	 * protected, unnoticed, and the kernel's next copy of one that is opened again is too new.
	 */
	if (u->feed)
		return false;
	if (u->env->predictor->cool(u->env))
		evict_listed(u);
	count = atomic_load(&u->saved_count);
	for (size_t i = 0; i < count; i++) {
		uintptr_t page = u->saved[i];
		struct undo_area *a = undo_find(u, page);
		undo_word *w = undo_word_of(a, page);
		uintptr_t word = undo_get(w), keep = word & (UNDO_SEALED | UNDO_EXEC);
		bool same = word & UNDO_SAME || (word & UNDO_NEAR && undo_unchanged(word, page));

		undo_set(w, word & ~(uintptr_t)UNDO_SAME);
		if (!same || word & UNDO_SEALED || undo_in_flight(u, page) ||
			a->guard->protect(u, page, page + CRN_PAGE_SIZE, word & UNDO_EXEC) < 0) {
			u->saved[kept++] = page;
			continue;
		}
		/* Another thread may have written until it was protected. */
		if (!undo_unchanged(word, page)) {
			if (a->guard->open(u, page, page + CRN_PAGE_SIZE, word & UNDO_EXEC) >= 0) {
				u->saved[kept++] = page;
				continue;
			}
			u->env->lost(u->env, page, CAIRN_EMEMORY);
		}
		if (a->own)
			undo_cut_note_page(u, a, page);
		undo_frame_drop(u, word);
		undo_set(w, keep);
	}
	atomic_store(&u->saved_count, kept);
	return kept < count;
}
