/* SPDX-License-Identifier: MIT */
/*
 * A child of vfork was killed while our handler served its store. Whoever shuts the gate next has
 * everybody else outside, and puts right what it has left: the page that it was at, the list of
 * open pages and the count of frames, and, if it had shut the gate itself, pages that are said to
 * be open and may not be. A frame that it had just taken may be lost.
 */
#include "base/arena.h"
#include "os/thread.h"
#include "track/undo_pages.h"

uint32_t undo_closed_by(
	const struct crn_undo_pages *u, enum undo_closed how, const struct crn_guest *guest)
{
	return how | (guest ? (uint32_t)(guest - u->guests->at + 1) << 8 : 0);
}

bool undo_closer_died(const struct crn_undo_pages *u, uint32_t closed)
{
	return crn_unlikely(closed >> 8) && crn_guest_died(&u->guests->at[(closed >> 8) - 1]);
}

/*
 * It has died with the gate shut: of its own page nothing more is to be done, and what it was
 * opening is opened once more.
 */
void undo_guest_was_closing(struct crn_undo_pages *u, uint32_t closed)
{
	atomic_store(&u->guests->at[(closed >> 8) - 1].inside, 2);
}

/* The gate is shut, and the page is nobody's. */
static void finish_page(struct crn_undo_pages *u, struct crn_guest *g)
{
	uintptr_t page = atomic_load(&g->notes[CRN_GUEST_PAGE]), word;
	uintptr_t next = atomic_load(&g->notes[CRN_GUEST_NEXT]);
	uintptr_t frame = atomic_load(&g->notes[CRN_GUEST_FRAME]);
	struct undo_area *a = page ? undo_find(u, page) : NULL;
	undo_word *w;

	if (!a || !((word = atomic_load(w = undo_word_of(a, page))) & UNDO_BUSY))
		return;
	word &= ~(uintptr_t)UNDO_BUSY;
	if (next && a->guard->open(u, page, page + CRN_PAGE_SIZE, word & UNDO_EXEC) >= 0) {
		atomic_store(w, next & ~(uintptr_t)UNDO_BUSY);
		if (next & UNDO_LOST)
			u->env->lost(u->env, page, CAIRN_EFAILED);
		return;
	}
	if (frame && u->env->seal)
		u->env->seal(u->env, (void *)frame, false);
	if (frame)
		crn_frame_free(u->env->arena, (void *)frame);
	atomic_store(w, word);
}

/* As undo_open_range leaves them: the page alone, or what is hot from now on. */
static void open_again(struct crn_undo_pages *u, uintptr_t at)
{
	struct undo_area *a = undo_find(u, at);

	if (!a || a->hot)
		return;
	for (uintptr_t page = a->begin; page < a->end; page += CRN_PAGE_SIZE) {
		uintptr_t word = atomic_load(undo_word_of(a, page));

		if (word & UNDO_OPEN && !(word & UNDO_SEALED) && (page == at || word & UNDO_HOT))
			(void)a->guard->open(u, page, page + CRN_PAGE_SIZE, word & UNDO_EXEC);
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
		uint32_t word = 0;

		if (!inside || crn_guest_died(g))
			i++;
		else if (round++ < 64)
			crn_pause();
		else
			(void)crn_futex_wait(&word, 0, 100000);
	}
}

void undo_guests_settle(struct crn_undo_pages *u, const struct crn_guest *self)
{
	uint32_t dead = 0;

	await_the_living(u, self);
	for (unsigned i = 0; i < CRN_GUESTS_MAX; i++)
		if (atomic_load(&u->guests->present) >> i & 1 &&
			crn_guest_died(&u->guests->at[i]))
			dead |= 1u << i;
	if (!dead)
		return;
	for (unsigned i = 0; dead >> i; i++) {
		struct crn_guest *g = &u->guests->at[i];

		if (!(dead >> i & 1))
			continue;
		if (atomic_load(&g->inside) == 2)
			open_again(u, atomic_load(&g->notes[CRN_GUEST_PAGE]));
		else if (atomic_load(&g->inside))
			finish_page(u, g);
	}
	count_again(u);
	for (unsigned i = 0; dead >> i; i++)
		if (dead >> i & 1)
			crn_guest_bury(u->guests, &u->guests->at[i]);
}
