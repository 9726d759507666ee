/* SPDX-License-Identifier: MIT */
/*
 * The write-fault handler of undo pages.
 *
 * SAFETY of everything here: it runs at any instruction of the program that stores, in any thread,
 * also while that thread holds libc's locks. It uses raw system calls, lock-free frames and the
 * gate, no libc, no TLS. The only locks it waits for (the gate, UNDO_BUSY) are held by code that
 * never stores to protected pages. Faults inside crn_guarded_copy may come while it runs, so
 * SIGSEGV and SIGBUS stay unblocked.
 */
#include <errno.h>
#include "base/arena.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/guarded.h"
#include "os/memory.h"
#include "os/signal.h"
#include "os/thread.h"
#include "track/undo/undo_pages.h"

/* ---- One fault -------------------------------------------------------------------- */

enum verdict { NOT_OURS, SERVED, CROWDED, CLAIMED };

/* What is to be known of a guest that dies. */
static void note(struct crn_guest *guest, enum crn_guest_note what, uintptr_t value)
{
	if (crn_unlikely(guest))
		atomic_store(&guest->notes[what], value);
}

/*
 * Nothing of ours refuses the store, now: the page was opened meanwhile, or the area that it was in
 * has ended, by another thread. Or it is the program's own doing, and would fault for ever. Nobody
 * closes pages while we are in the gate, so a store tells. The agent's handler has blocked the very
 * signal that answers.
 */
static enum verdict not_refused(const struct crn_undo_pages *u, uintptr_t page)
{
	if (u->env->faults_forwarded)
		crn_signal_mask(SIG_UNBLOCK, 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1));
	if (crn_guarded_store((void *)page) >= 0)
		return SERVED;
	if (!u->events && !u->tells)
		return NOT_OURS;
	/* Protected memory that the program has moved is let go soon. */
	(void)crn_keeper_await_log(u->env->keeper);
	return crn_guarded_store((void *)page) < 0 ? NOT_OURS : SERVED;
}

/* Claim a clean page for this thread; anything but CLAIMED is the verdict already. */
static enum verdict claim(const struct crn_undo_pages *u, const struct undo_area *a,
	uintptr_t page, const struct crn_guest *g, uintptr_t *word)
{
	undo_word *w = undo_word_of(a, page);
	unsigned round = 0;

	*word = atomic_load(w);
	for (;;) {
		/* A userfaultfd that is on its way out refuses for a while yet (uffd.c). */
		if (*word & UNDO_OPEN && a->guard != &undo_guard_mprotect)
			return SERVED;
		if (*word & (UNDO_SEALED | UNDO_OPEN))
			return not_refused(u, page);
		if (!(*word & UNDO_BUSY)) {
			if (atomic_compare_exchange_weak(w, word, *word | undo_busy_by(u, g)))
				return CLAIMED;
			continue;
		}
		if (round++ < 64)
			crn_pause();
		else if (undo_guest_died(u))
			return CROWDED; /* who closes the gate finds out */
		else
			crn_yield();
		*word = atomic_load(w);
	}
}

static enum verdict serve(struct crn_undo_pages *u, const struct undo_area *a, uintptr_t page,
	struct crn_guest *g)
{
	undo_word *w = undo_word_of(a, page);
	enum verdict verdict;
	uintptr_t word, next, doubt;
	int why = CAIRN_EMEMORY, err;
	void *frame;
	bool cut;

	note(g, CRN_GUEST_PAGE, page);
	verdict = claim(u, a, page, g, &word);
	if (verdict != CLAIMED)
		return verdict;
	frame = crn_frame_alloc(u->env->arena);
	note(g, CRN_GUEST_FRAME, (uintptr_t)frame);
	next = (uintptr_t)frame;
	if (frame && u->env->seal)
		u->env->seal(u->env, frame, false);
	if (!frame) {
		next = UNDO_LOST;
	} else if ((err = undo_read_page(frame, page)) < 0) {
		/* Gone; or another thread has closed it since, and it cannot be read at all. */
		note(g, CRN_GUEST_FRAME, 0);
		crn_frame_free(u->env->arena, frame);
		next = crn_is_bare(err) ? UNDO_ZERO : UNDO_LOST;
		why = crn_is_bare(err) ? why : err;
		frame = NULL;
	}
	/* Other memory has come, closed to stores, and is the wrong content. */
	cut = crn_unlikely(a->own) && undo_cut_lost(u, a, page);
	if (cut || (crn_unlikely(a->object_count) &&
			   !undo_object_there(u, a, page, page + CRN_PAGE_SIZE))) {
		why = CAIRN_EFAILED;
		note(g, CRN_GUEST_FRAME, 0);
		if (frame)
			crn_frame_free(u->env->arena, frame);
		next = UNDO_LOST;
		frame = NULL;
	}
	doubt = undo_told_doubt(u, page);
	note(g, CRN_GUEST_NEXT, word | UNDO_OPEN | next | doubt);
	if (a->guard->open(u, page, page + CRN_PAGE_SIZE, word & UNDO_EXEC) < 0) {
		note(g, CRN_GUEST_NEXT, 0);
		note(g, CRN_GUEST_FRAME, 0);
		if (frame)
			crn_frame_free(u->env->arena, frame);
		atomic_store(w, word);
		return CROWDED;
	}
	if (frame && u->env->seal)
		u->env->seal(u->env, frame, true);
	if (frame)
		atomic_fetch_add_explicit(&u->frame_count, 1, memory_order_relaxed);
	else if (cut)
		undo_cut_found(u, page);
	else if (next == UNDO_LOST)
		u->env->lost(u->env, page, why);
	undo_note_saved(u, page);
	atomic_fetch_add_explicit(&u->faults, 1, memory_order_relaxed);
	atomic_store(w, word | UNDO_OPEN | next | doubt);
	return SERVED;
}

/* ---- Its neighbours ------------------------------------------------------------------- */

#define NEAR_MAX 512 /* pages at one fault: what is done here must end soon */

/*
 * Copy a clean page that nobody else is at; false: it is not that, or memory is short, which first
 * stores must not lack.
 */
static bool save_near(struct crn_undo_pages *u, const struct undo_area *a, uintptr_t page,
	uintptr_t exec)
{
	undo_word *w = undo_word_of(a, page);
	uintptr_t word = exec;
	void *frame;

	if (!crn_frames_plenty(u->env->arena) ||
		!atomic_compare_exchange_strong(w, &word, exec | UNDO_BUSY))
		return false;
	frame = crn_frame_alloc(u->env->arena);
	if (frame && u->env->seal)
		u->env->seal(u->env, frame, false);
	if (frame && (crn_guarded_copy(frame, (const void *)page, CRN_PAGE_SIZE) < 0 ||
			     (a->own && undo_cut_lost(u, a, page)))) {
		crn_frame_free(u->env->arena, frame);
		frame = NULL;
	}
	if (frame && u->env->seal)
		u->env->seal(u->env, frame, true);
	atomic_store(w, frame ? exec | UNDO_BUSY | (uintptr_t)frame : exec);
	return frame;
}

/*
 * Open a run of pages that have been saved; or give them back as they were. A call that fails may
 * have opened the first ones: those that one by one can be opened stay so.
 */
static void open_near(struct crn_undo_pages *u, const struct undo_area *a, uintptr_t begin,
	uintptr_t end, uintptr_t exec)
{
	bool open = begin < end && undo_whole_closed(u, a, begin, end);
	bool all = open && a->guard->open(u, begin, end, exec) >= 0;

	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		undo_word *w = undo_word_of(a, page);
		uintptr_t frame = atomic_load(w) & ~(uintptr_t)UNDO_FLAGS;

		open = open && (all || a->guard->open(u, page, page + CRN_PAGE_SIZE, exec) >= 0);
		if (open) {
			atomic_fetch_add_explicit(&u->frame_count, 1, memory_order_relaxed);
			undo_note_saved(u, page);
			atomic_store(w, exec | UNDO_OPEN | UNDO_NEAR | frame |
					undo_told_doubt(u, page));
		} else {
			if (u->env->seal)
				u->env->seal(u->env, (void *)frame, false);
			crn_frame_free(u->env->arena, (void *)frame);
			atomic_store(w, exec);
		}
	}
}

/* What of [begin, end) is closed, each run of it by one call. */
static void serve_run(struct crn_undo_pages *u, const struct undo_area *a, uintptr_t begin,
	uintptr_t end, uintptr_t exec)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		if (save_near(u, a, page, exec))
			continue;
		open_near(u, a, begin, page, exec);
		begin = page + CRN_PAGE_SIZE;
	}
	open_near(u, a, begin, end, exec);
}

/* A strategy may know that pages around this one will be written soon: one fault for all. */
static void serve_near(struct crn_undo_pages *u, const struct undo_area *a, uintptr_t page)
{
	uintptr_t begin, end, exec = atomic_load(undo_word_of(a, page)) & UNDO_EXEC;

	if (!u->env->predictor->near(u->env, page, &begin, &end))
		return;
	begin = CRN_MAX(begin, a->begin);
	if (page - begin > NEAR_MAX * CRN_PAGE_SIZE)
		begin = page - NEAR_MAX * CRN_PAGE_SIZE;
	end = CRN_MIN(CRN_MIN(end, a->end), page + NEAR_MAX * CRN_PAGE_SIZE);
	serve_run(u, a, page + CRN_PAGE_SIZE, end, exec);
	serve_run(u, a, begin, page, exec);
}

/* The page cannot be opened alone: with everybody else kept out, open more than it. */
static bool serve_crowded(
	struct crn_undo_pages *u, uintptr_t page, bool mine, struct crn_guest *guest)
{
	struct undo_area *a;
	int err = 0;

	if (!mine)
		undo_gate_shut(u, UNDO_CLOSED_BY_HANDLER, guest);
	else if (atomic_load(&u->inside))
		return true; /* not closed yet: the store comes again */
	else if (undo_guest_died(u))
		undo_guests_settle(u, guest);
	a = undo_find(u, page);
	note(guest, CRN_GUEST_OPENS, page);
	if (a && !(atomic_load(undo_word_of(a, page)) & UNDO_OPEN))
		err = undo_open_range(u, a, page, page + CRN_PAGE_SIZE);
	note(guest, CRN_GUEST_OPENS, 0);
	atomic_fetch_add_explicit(&u->faults, 1, memory_order_relaxed);
	if (!mine)
		undo_gate_unshut(u);
	if (err < 0)
		crn_error("page %p cannot be opened for writing: %s", (void *)page,
			cairn_strerror(err));
	return err >= 0;
}

/* Could it have come from a guard of this tracker? */
static bool refused_by_guard(const struct crn_undo_pages *u, int sig, int code)
{
	return (sig == undo_guard_mprotect.signal && code == undo_guard_mprotect.code) ||
		(sig == u->guard->signal && code == u->guard->code);
}

bool undo_store_fault(
	void *tracker, int sig, const siginfo_t *info, struct crn_guest *guest)
{
	struct crn_undo_pages *u = tracker;
	uintptr_t page = crn_page_down((uintptr_t)info->si_addr);
	enum verdict verdict = NOT_OURS;
	uintptr_t closer, self;
	bool mine = undo_gate_is_mine(u);
	uint64_t begin = u->env->predictor ? crn_clock_ticks() : 0;
	struct undo_area *a;

	if (mine) {
		undo_gate_pass(u, guest);
	} else if (!undo_gate_enter(u, guest)) {
		/*
		 * Closed by somebody: the store waits. Closed by this very thread: the engine
		 * itself is at fault.
		 */
		closer = atomic_load_explicit(&u->closer, memory_order_relaxed);
		self = undo_thread_pointer(u);
		return !closer || closer != self;
	}
	a = undo_find(u, page);
	if (a && a->guard && a->guard->signal == sig && a->guard->code == info->si_code)
		verdict = serve(u, a, page, guest);
	else if (refused_by_guard(u, sig, info->si_code))
		verdict = not_refused(u, (uintptr_t)info->si_addr);
	/* What the page alone costs: its neighbours would make faults dear. */
	if (begin)
		atomic_fetch_add_explicit(
			&u->serve_ticks, crn_clock_ticks() - begin, memory_order_relaxed);
	/* Not of many pages at once where each may be left behind. */
	if (verdict == SERVED && a && u->env->predictor && u->env->predictor->near && !mine &&
		!guest)
		serve_near(u, a, page);
	undo_gate_leave(u, guest);
	return verdict == CROWDED ? serve_crowded(u, page, mine, guest) : verdict == SERVED;
}
