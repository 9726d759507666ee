/* SPDX-License-Identifier: MIT */
/*
 * Repairs after a child of vfork that was killed while our handler served its store. Whoever shuts
 * the gate next, with everybody else outside, repairs what the child has left: the page that it was
 * at, the list of open pages, the count of frames and, if it had shut the gate itself, pages that
 * are marked open and may not be. A frame that it had just taken may be lost.
 */
#include <errno.h>
#include "base/arena.h"
#include "os/memory.h"
#include "os/signal.h"
#include "os/thread.h"
#include "track/undo/undo_pages.h"

/* Who it is, from 1 on; 0: a thread. */
static uint32_t number_of(const struct crn_undo_pages *u, const struct crn_guest *guest)
{
	return guest ? (uint32_t)(guest - u->guests->at + 1) : 0;
}

/*
 * Each value is another one: whoever has seen that a closer is dead takes over from this one, and
 * not from a later guest in the same place.
 */
uint32_t undo_closed_by(
	struct crn_undo_pages *u, enum undo_closed how, const struct crn_guest *guest)
{
	if (crn_likely(!guest))
		return how;
	return how | number_of(u, guest) << 8 | atomic_fetch_add(&u->guests_closed, 1) << 16;
}

bool undo_closer_died(const struct crn_undo_pages *u, uint32_t closed)
{
	uint32_t number = closed >> 8 & 0xff;

	return crn_unlikely(number) && crn_guest_died(&u->guests->at[number - 1]);
}

uintptr_t undo_busy_by(const struct crn_undo_pages *u, const struct crn_guest *guest)
{
	return UNDO_BUSY | (uintptr_t)number_of(u, guest) << CRN_PAGE_SHIFT;
}

/* The gate is shut. Who was only about to take the page, or waited for it, has not left it so. */
static void finish_page(struct crn_undo_pages *u, struct crn_guest *g)
{
	uintptr_t page = atomic_load(&g->notes[CRN_GUEST_PAGE]), word;
	uintptr_t next = atomic_load(&g->notes[CRN_GUEST_NEXT]);
	uintptr_t frame = atomic_load(&g->notes[CRN_GUEST_FRAME]);
	struct undo_area *a = page ? undo_find(u, page) : NULL;
	undo_word *w;

	if (!a)
		return;
	w = undo_word_of(a, page);
	word = atomic_load(w);
	if ((word & (UNDO_BUSY | ~(uintptr_t)UNDO_FLAGS)) != undo_busy_by(u, g))
		return;
	word &= UNDO_FLAGS & ~UNDO_BUSY;
	if (next && a->guard->open(u, page, page + CRN_PAGE_SIZE, word & UNDO_EXEC) >= 0) {
		if (next & UNDO_LOST)
			u->env->lost(u->env, page, CAIRN_EFAILED);
		else if (undo_frame(next) && u->env->seal)
			u->env->seal(u->env, undo_frame(next), true);
		atomic_store(w, next);
		return;
	}
	atomic_store(&g->notes[CRN_GUEST_FRAME], 0);
	if (frame && u->env->seal)
		u->env->seal(u->env, (void *)frame, false);
	if (frame)
		crn_frame_free(u->env->arena, (void *)frame);
	atomic_store(w, word);
}

/* Could it have been in the middle of being opened? */
static bool was_opening(uintptr_t word, uintptr_t exec)
{
	return (word & (UNDO_OPEN | UNDO_SEALED | UNDO_EXEC)) == (UNDO_OPEN | exec);
}

/*
 * The limit of mappings does not let it be opened, so it is not: it is clean, as before. The next
 * store opens more than it.
 */
static void close_again(struct crn_undo_pages *u, undo_word *w)
{
	uintptr_t word = atomic_load(w);

	if (word & UNDO_LISTED)
		return;
	atomic_store(w, word & (UNDO_SEALED | UNDO_EXEC));
	if (undo_frame(word) && u->env->seal)
		u->env->seal(u->env, undo_frame(word), false);
	if (undo_frame(word))
		crn_frame_free(u->env->arena, undo_frame(word));
}

/* Together, if that can be: a run that ends at a border of mappings needs no new one. */
static void open_run(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin,
	uintptr_t end, uintptr_t exec)
{
	if (a->guard->open(u, begin, end, exec) >= 0)
		return;
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		if (a->guard->open(u, page, page + CRN_PAGE_SIZE, exec) == -ENOMEM &&
			crn_memory_all_mapped(page, CRN_PAGE_SIZE))
			close_again(u, undo_word_of(a, page));
}

/* As undo_open_range leaves them: the page alone, or what is hot from now on. */
static void open_again(struct crn_undo_pages *u, uintptr_t at)
{
	struct undo_area *a = at ? undo_find(u, at) : NULL;
	uintptr_t end;

	if (!a || a->hot)
		return;
	for (uintptr_t page = a->begin; page < a->end; page = end) {
		uintptr_t word = atomic_load(undo_word_of(a, page)), exec = word & UNDO_EXEC;
		bool meant = false;

		for (end = page; end < a->end && was_opening(word, exec);) {
			meant |= end == at || word & UNDO_HOT;
			end += CRN_PAGE_SIZE;
			word = end < a->end ? atomic_load(undo_word_of(a, end)) : 0;
		}
		if (meant)
			open_run(u, a, page, end, exec);
		else if (end == page)
			end += CRN_PAGE_SIZE;
	}
}

/* What a word says is so; what is counted and listed may not be. */
static void count_again(struct crn_undo_pages *u)
{
	size_t saved = 0;
	uint64_t frames = 0;

	for (size_t i = 0; i < u->area_count; i++) {
		struct undo_area *a = u->areas[i];

		for (uintptr_t page = a->begin; page < a->end; page += CRN_PAGE_SIZE) {
			uintptr_t word = atomic_load(undo_word_of(a, page));

			frames += undo_frame(word) != NULL;
			if (!a->hot && word & UNDO_OPEN && !(word & UNDO_LISTED))
				u->saved[saved++] = page;
		}
	}
	atomic_store(&u->saved_count, saved);
	atomic_store(&u->frame_count, frames);
}

static void await_the_living(struct crn_undo_pages *u, const struct crn_guest *self)
{
	for (unsigned i = 0, round = 0; i < CRN_GUESTS_MAX;) {
		const struct crn_guest *g = &u->guests->at[i];
		bool inside = atomic_load(&u->guests->present) >> i & 1 && g != self &&
			      atomic_load(&((struct crn_guest *)g)->inside);

		if (!inside || crn_guest_died(g))
			i++;
		else if (round++ < 64)
			crn_pause();
		else
			crn_doze(100000);
	}
}

static uint32_t find_dead(const struct crn_undo_pages *u)
{
	uint32_t dead = 0;

	for (unsigned i = 0; i < CRN_GUESTS_MAX; i++)
		if (atomic_load(&u->guests->present) >> i & 1 &&
			crn_guest_died(&u->guests->at[i]))
			dead |= 1u << i;
	return dead;
}

/*
 * A guest that is at this may be killed as well, at any instruction: the next one does all of it
 * again, from the same notes.
 */
static void put_right(struct crn_undo_pages *u, uint32_t dead)
{
	for (unsigned i = 0; dead >> i; i++) {
		struct crn_guest *g = &u->guests->at[i];

		if (!(dead >> i & 1))
			continue;
		finish_page(u, g);
		open_again(u, atomic_load(&g->notes[CRN_GUEST_OPENS]));
	}
	count_again(u);
	for (unsigned i = 0; dead >> i; i++)
		if (dead >> i & 1)
			crn_guest_bury(u->guests, &u->guests->at[i]);
}

void undo_guests_settle(struct crn_undo_pages *u, const struct crn_guest *self)
{
	const uint64_t faults = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1);
	uint64_t mask = 0;
	uint32_t dead;

	await_the_living(u, self);
	if (!find_dead(u))
		return;
	/*
	 * A signal handler that interrupts undo_gate_close_to_read is served, and lists pages.
	 * Guests are in a handler, where all is blocked.
	 */
	if (!self)
		mask = crn_signal_mask(SIG_BLOCK, ~faults);
	dead = find_dead(u);
	if (dead)
		put_right(u, dead);
	if (!self)
		crn_signal_mask(SIG_SETMASK, mask);
}
