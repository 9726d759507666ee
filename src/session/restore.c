/* SPDX-License-Identifier: MIT */
/*
 * Going back. Everything that may fail is checked first. Then mappings, content and protections are
 * restored, in this order.
 *
 * If id is the newest checkpoint, the content of a page at id is what the open interval overwrote.
 * Otherwise the journal's walk over the open interval (staged) and the records down to id gives
 * each page once.
 */
#include "session/engine.h"
#include "session/files.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/guarded.h"
#include "os/keeper.h"
#include "os/limits.h"
#include "os/signal.h"
#include "os/thread.h"
#include "rt/rt.h"
#include "session/ended_threads.h"

/* ---- Content --------------------------------------------------------------------------------- */

struct store_sink {
	struct crn_sink sink;
	cairn_t *c;
};

static int store_take(struct crn_sink *self, uintptr_t addr, size_t len, void *old, bool owned)
{
	cairn_t *c = ((struct store_sink *)self)->c;

	CRN_DASSERT(!owned);
	/* Nothing but a copy where nothing needs care: this is what a rewind of hot pages costs. */
	if (crn_likely(old && len == CRN_PAGE_SIZE && crn_page_quiet(c, addr)) &&
		crn_likely(crn_guarded_copy((void *)addr, old, len) >= 0))
		c->put++;
	else
		crn_store(&c->env, addr, old, len);
	return 0;
}

struct store_walk {
	struct crn_walk walk;
	cairn_t *c;
	size_t bare; /* counting: pages that need a frame of the tracker */
};

/*
 * The page at the newest checkpoint, where no record of it ends the chain before. What is not put
 * back is not read: with its area the mapping may be gone.
 */
static const void *newest_page(struct crn_walk *self, uintptr_t page)
{
	cairn_t *c = ((struct store_walk *)self)->c;

	return crn_may_put(c, page) ? crn_newest_copy(c, page) : NULL;
}

static int store_page(struct crn_walk *self, uintptr_t page, const void *at_from, const void *at_to)
{
	cairn_t *c = ((struct store_walk *)self)->c;

	if (!crn_may_put(c, page))
		return 0;
	/* The tracker first: it may have to open the page. */
	CRN_TRY(c->ops->rebase(c->tracker, page, at_from));
	c->env.store(&c->env, page, at_from, CRN_PAGE_SIZE);
	return 0;
}

static int count_page(struct crn_walk *self, uintptr_t page, const void *at_from, const void *at_to)
{
	struct store_walk *w = (struct store_walk *)self;
	const void *old = NULL;

	if (crn_on_other_stack(w->c, page))
		return CAIRN_ETHREADS;
	if (at_from && crn_may_put(w->c, page) && crn_cut_page(w->c, page))
		return CAIRN_ELAYOUT;
	if (!w->c->ops->look(w->c->tracker, page, &old) || at_from)
		w->bare += !old;
	/*
	 * Left as it is by the restore, it differs from what the tracker will hold: as if written.
	 */
	if (w->c->ops->caps & CRN_TRACK_MIRROR && crn_survives(w->c, page) &&
		crn_may_put(w->c, page))
		return w->c->ops->page.unprotect(w->c->tracker, page, CRN_PAGE_SIZE);
	return 0;
}

static void hold(cairn_t *c, bool *held)
{
	if (!*held && c->ops->hold)
		c->ops->hold(c->tracker, true);
	*held = true;
}

/*
 * Frames for the pages that the tracker has to hold from now on, and for its tables. What is older
 * than id may go for it. *held: write-fault handlers are kept out from now on.
 */
static int reserve_frames(cairn_t *c, uint64_t id, bool *held)
{
	struct store_walk w = { .walk = { .page = count_page, .present = newest_page }, .c = c };
	uint64_t newest = crn_mark_newest(c)->id, oldest;
	size_t need;
	int err;

	if (c->ops->caps & CRN_TRACK_KEEPS)
		return 0;
	c->unread = 0;
	if (id != newest)
		CRN_TRY(crn_journal_walk(c->journal, id, newest, &w.walk));
	CRN_TRY(c->unread);
	need = w.bare + w.bare / 256 + c->place_frames;
	if (!need)
		return 0;
	/* Other threads' first stores would eat them up. */
	hold(c, held);
	while ((err = crn_frame_reserve(c->arena, need + 8)) < 0) {
		if (!crn_journal_oldest(c->journal, &oldest) || oldest >= id ||
			!crn_journal_evict(c->journal))
			break;
	}
	return err;
}

_Noreturn void crn_half_way(const char *what, uintptr_t addr, int err)
{
	crn_error("a restore stopped half way, and so does the process: cannot %s %zx: %s", what,
		addr, cairn_strerror(err));
	__builtin_trap();
}

/*
 * First to the newest checkpoint, then down the journal: no memory is needed, so it cannot fail
 * half way.
 */
static int put_content(cairn_t *c, uint64_t id, bool *held)
{
	struct store_sink s = { .sink = { .take = store_take }, .c = c };
	struct store_walk w = { .walk = { .page = store_page, .present = newest_page }, .c = c };
	uint64_t newest = crn_mark_newest(c)->id;

	if (c->ops->caps & CRN_TRACK_KEEPS)
		return c->ops->kept_restore(c->tracker, id);
	CRN_TRY(c->ops->undo(c->tracker, &s.sink));
	if (id == newest)
		return 0;
	hold(c, held);
	CRN_TRY(crn_journal_walk(c->journal, id, newest, &w.walk));
	CRN_TRY(c->unread);
	crn_journal_truncate(c->journal, id);
	return 0;
}

static int check_take(struct crn_sink *self, uintptr_t addr, size_t len, void *old, bool owned)
{
	cairn_t *c = ((struct store_sink *)self)->c;

	for (size_t at = 0; old && at < len; at += CRN_PAGE_SIZE) {
		if (crn_may_put(c, addr + at) && crn_cut_page(c, addr + at))
			return CAIRN_ELAYOUT;
	}
	return 0;
}

/* May every page that the open interval has written be put back? */
static int check_cut(cairn_t *c)
{
	struct store_sink s = { .sink = { .take = check_take }, .c = c };

	if (crn_likely(!c->cut))
		return 0;
	return c->ops->caps & CRN_TRACK_KEEPS ? CAIRN_ELAYOUT : c->ops->undo(c->tracker, &s.sink);
}

/* ---- Checks ---------------------------------------------------------------------------------- */

/* A file that was cut short has taken the end of its mappings along. */
static int check_files(cairn_t *c)
{
	uint8_t byte;

	for (size_t i = 0; i < c->area_count; i++) {
		const struct crn_area *a = c->areas[i];
		bool file = a->flags & CRN_AREA_FILE && a->flags & CRN_AREA_EXPLICIT;

		if ((file || a->flags & CRN_AREA_SHARED) &&
			c->env.load(&c->env, &byte, a->end - CRN_PAGE_SIZE, 1) < 0)
			return CAIRN_ELAYOUT;
	}
	return 0;
}

int crn_mappings_check(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	return c->ops->whole && !c->control->watched ? c->ops->whole(c->tracker, begin, end) : 0;
}

static int check_restorable(cairn_t *c, uint64_t id)
{
	CRN_TRY(crn_settle(c));
	CRN_TRY(crn_mark_usable(c, id));
	if (c->ops->caps & CRN_TRACK_KEEPS)
		CRN_TRY(c->ops->kept_check(c->tracker, id));
	CRN_TRY(crn_layout_follow(c, CRN_FOLLOW_NOTE));
	CRN_TRY(crn_mark_usable(c, id)); /* a mapping that vanished may have ended it */
	CRN_TRY(crn_files_settle(c, id));
	CRN_TRY(check_files(c));
	if (c->partial) /* half of the surface would go back */
		return CAIRN_EUNSUPPORTED;
	CRN_TRY(crn_layout_undoable(c, id));
	/* What mappings that stay have cost may have been the very record. */
	return crn_mark_usable(c, id);
}

/* All has been checked but for memory. */
static int restore_content(cairn_t *c, uint64_t id, bool moved, bool *held)
{
	int err;

	CRN_TRY(reserve_frames(c, id, held));
	if (c->ops->kept_stage)
		CRN_TRY(c->ops->kept_stage(c->tracker, id, moved));
	crn_store_plan(c);
	if (moved) {
		/* From here on the process would end for want of a table's next page. */
		crn_arena_overdraw(c->arena, true);
		crn_layout_undo_places(c, id);
		crn_store_plan(c); /* places have changed what needs care */
	}
	err = put_content(c, id, held);
	if (err < 0 && (moved || c->put))
		crn_half_way("put back content; pages so far:", c->put, err);
	return err;
}

/* Mappings as well. What is mapped again is tracked at once: our descriptors must be there. */
static int restore_layout(cairn_t *c, uint64_t id, bool *held)
{
	struct crn_limits limits;
	int err;

	CRN_TRY(crn_keeper_mend(c->env.keeper));
	crn_limits_lift(&limits);
	err = crn_layout_room(c, id);
	if (err >= 0)
		err = restore_content(c, id, true, held);
	if (err >= 0)
		crn_layout_undo_protections(c, id);
	crn_arena_overdraw(c->arena, false);
	crn_limits_settle(&limits);
	return err;
}

static int restore_memory(cairn_t *c, uint64_t id, const struct crn_range *skip)
{
	bool moved, held = false;
	size_t marks;
	int err;

	c->skip = skip;
	/* What libc and the kernel write for other threads is no store of the program's. */
	if (crn_beside_other_threads(c))
		CRN_TRY(crn_exempt_other_stacks(c));
	else if (c->mode == CRN_SURFACE_NONE || c->ops->caps & CRN_TRACK_STORES)
		CRN_TRY(crn_exempt_self(c));
	else
		CRN_TRY(crn_exempt_all(c));
	CRN_TRY(crn_ended_threads_begin(c));
	CRN_TRY(check_restorable(c, id));
	if (crn_beside_other_threads(c))
		CRN_TRY(crn_other_threads_born(c, id));
	CRN_TRY(crn_mappings_check(c, 0, UINTPTR_MAX));
	if (c->ops->caps & CRN_TRACK_STORES)
		CRN_TRY(crn_shared_find(c));
	c->target = id;
	c->put = 0;
	moved = crn_layout_changed(c, id);
	c->filter = moved || c->youngest > id;
	CRN_TRY(crn_other_threads_check(c, id));
	CRN_TRY(check_cut(c));
	err = moved ? restore_layout(c, id, &held) : restore_content(c, id, false, &held);
	c->shared.count = 0; /* the stack goes back wherever it is */
	if (held && c->ops->hold)
		c->ops->hold(c->tracker, false);
	CRN_TRY(err);
	marks = c->marks.count;
	crn_marks_truncate(c, id);
	crn_strategy_restored(c, marks - c->marks.count);
	c->outgrown = c->outgrows = false;
	c->figures.pages_restored += c->put;
	c->figures.restores++;
	return 0;
}

static int restore_timed(cairn_t *c, uint64_t id, const struct crn_range *skip)
{
	uint64_t start = crn_clock_ns(&c->host.clock);
	int err;

	for (unsigned i = 0; i < CRN_BLOCK_TRIES; i++) {
		crn_blocks_forget_refusal(c->arena);
		err = restore_memory(c, id, skip);
		if (err != CAIRN_EMEMORY || !crn_blocks_made(c, id))
			break;
	}
	c->skip = NULL;
	if (err >= 0)
		c->figures.restore_ns += crn_clock_ns(&c->host.clock) - start;
	return err;
}

/* ---- With registers -------------------------------------------------------------------------- */

struct restore_call {
	cairn_t *c;
	uint64_t id;
	uint64_t signals; /* blocked when it was called */
};

/* Lies on the stack that it goes to. */
struct return_to {
	struct crn_jump jump;
	uint64_t signals;
	uint32_t keys;
};

/*
 * The engine's stack is small, and the program's handlers do not know: none may run there. The
 * agent holds signals back anyway.
 */
static uint64_t block_signals(const cairn_t *c)
{
	return c->agent ? crn_signal_mask_get()
			: crn_signal_mask(SIG_BLOCK, ~CRN_SIGNALS_OF_FAULTS);
}

/* Below the checkpoint's stack pointer, behind the red zone. */
static struct return_to *place_of_return(const struct crn_mark *m)
{
	return (struct return_to *)((m->jump.rsp - 128 - sizeof(struct return_to)) & ~63ul);
}

/*
 * A handler that leaves by a restore leaves the signals blocked that the kernel blocked for it. The
 * checkpoint's mask comes back where it is known, else the faults are unblocked: a blocked fault
 * would kill.
 */
static uint64_t mask_after(const struct crn_mark *m, uint64_t before)
{
	return m->mask_known ? m->signals : before & ~CRN_SIGNALS_OF_FAULTS;
}

/* From registers.S, on that stack: signals may come again once the lock is free. */
void crn_jump_begins(cairn_t *c, const struct crn_jump *jump);
void crn_jump_begins(cairn_t *c, const struct crn_jump *jump)
{
	const struct return_to *to = (const struct return_to *)jump;
	uint64_t signals = to->signals;

	c->control->keys_before = to->keys; /* handlers have others than what they interrupt */
	crn_unlock(c);
	crn_signal_mask(SIG_SETMASK, signals);
}

#ifdef __SANITIZE_ADDRESS__
void __asan_handle_no_return(void);
void __asan_unpoison_memory_region(const volatile void *addr, size_t size);

#define NO_RED_ZONES __attribute__((no_sanitize("address")))

/*
 * Frames that end without returning leave their red zones behind: the caller's, and those of the
 * restore before this one.
 */
static void clear_red_zones(cairn_t *c)
{
	__asan_handle_no_return();
	__asan_unpoison_memory_region(c->restore_stack, CRN_RESTORE_STACK);
}
#else
#define NO_RED_ZONES

static void clear_red_zones(cairn_t *c)
{
}
#endif

/*
 * Once the lock is free, another thread's call may use this stack and the mark's slot. So the
 * registers go to the caller's stack, and the rest is done there.
 */
static NO_RED_ZONES _Noreturn void leave(
	cairn_t *c, const struct crn_mark *m, uint64_t signals)
{
	struct return_to *copy = place_of_return(m);

	copy->jump = m->jump;
	copy->signals = signals;
	copy->keys = m->keys;
	crn_jump_unlocked(c, &copy->jump, CAIRN_RESTORED);
}

/* On the engine's stack, so that the caller's own may be overwritten. Returns only if it fails. */
static NO_RED_ZONES long restore_and_jump(void *arg)
{
	struct restore_call call = *(struct restore_call *)arg;
	cairn_t *c = call.c;
	struct crn_mark *m;
	int err;

	err = restore_timed(c, call.id, NULL);
	if (err < 0)
		return err;
	m = crn_mark_newest(c);
	CRN_ASSERT(m->id == call.id);
	crn_store_bytes(c, m->jump.rsp, m->stack, m->stack_len);
	crn_other_threads_wake(c);
	crn_id_told(c, m, m->id_out);
	leave(c, m, mask_after(m, call.signals));
}

/* Of a stack that is no area the program may have unmapped a part, or closed it. */
static bool has_stack(const cairn_t *c, const struct crn_mark *m)
{
	uintptr_t begin = (uintptr_t)place_of_return(m);

	if (!m->stack_len)
		return true;
	for (uintptr_t page = crn_page_down(begin); page < m->jump.rsp + m->stack_len;
		page += CRN_PAGE_SIZE)
		if (!crn_area_at(c, page) && crn_guarded_store((void *)page) < 0)
			return false;
	return true;
}

int cairn_restore(cairn_t *c, uint64_t id)
{
	struct restore_call call = { .c = c, .id = id };
	const struct crn_mark *m;
	int err;

	CRN_TRY(crn_lock(c));
	err = crn_mark_usable(c, id);
	if (err >= 0) {
		m = crn_mark_find(c, id);
		if (!m->thread)
			/* taken without registers: the implicit one, or the agent's */
			err = CAIRN_EUNSUPPORTED;
		else if (m->thread != crn_self(c))
			err = CAIRN_ETHREADS;
		else if (!has_stack(c, m))
			err = CAIRN_ELAYOUT;
	}
	if (err >= 0) {
		clear_red_zones(c);
		call.signals = block_signals(c);
		err = (int)crn_on_stack(
			restore_and_jump, &call, c->restore_stack + CRN_RESTORE_STACK);
		crn_signal_mask(SIG_SETMASK, call.signals);
	}
	crn_unlock(c);
	return err;
}

/* ---- Memory alone ---------------------------------------------------------------------------- */

#define STACK_GROWTH (256ul << 10)

/* Is it a stack alone that would stay? The heap of a program with hooks has no name. */
static bool keeps_stack_alone(const cairn_t *c, uintptr_t here, struct crn_range *stack)
{
	if (c->stack_kind == CRN_STACK_OWN)
		return true;
	if (c->ops->caps & CRN_TRACK_STORES)
		return __cairn_shape.stack(here, stack);
	return c->stack_kind != CRN_STACK_IN_HEAP;
}

/*
 * The caller's stack stays as it is: the whole mapping, for it is the caller's to run on, and what
 * it may grow into meanwhile, for so do we. It may have grown, or come, since anybody has looked.
 * The kernel joins mappings that lie side by side: where a stack of the program's own making is an
 * area, it ends with that. *out is empty if the stack is nothing that a restore touches.
 */
static int find_own_stack(cairn_t *c, uintptr_t here, struct crn_range *out)
{
	bool tracked = crn_area_at(c, here) || c->ops->caps & CRN_TRACK_STORES;
	const struct crn_added *added;
	uintptr_t below;
	size_t i;

	if (crn_likely(!tracked && c->mode == CRN_SURFACE_NONE))
		return 0;
	added = crn_added_meets(c, here, here + 1);
	i = crn_area_from(c, here);
	below = i ? c->areas[i - 1]->end : 0;
	c->stack_thread = 0; /* where it begins now */
	CRN_TRY(crn_stack_find(c, here, out));
	/* Of listed mappings none but the main thread's stack grows. */
	if (!tracked && c->mode == CRN_SURFACE_LIST &&
		!(c->stack_grows && crn_area_at(c, out->end - 1))) {
		out->end = 0;
		return 0;
	}
	if (!keeps_stack_alone(c, here, out))
		return CAIRN_EUNSUPPORTED; /* all of the heap would stay as it is */
	if (c->stack_grows && below <= out->begin)
		out->begin -= CRN_MIN(out->begin - below, STACK_GROWTH);
	if (c->stack_kind == CRN_STACK_OTHER && added) {
		out->begin = CRN_MAX(out->begin, added->begin);
		out->end = CRN_MIN(out->end, added->end);
	}
	return 0;
}

int cairn_rewind(cairn_t *c, uint64_t id)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	struct crn_range stack = { 0, 0 };
	int err;

	CRN_TRY(crn_lock(c));
	err = find_own_stack(c, here, &stack);
	if (err >= 0)
		err = restore_timed(c, id, stack.end ? &stack : NULL);
	if (err >= 0)
		crn_other_threads_wake(c);
	crn_unlock(c);
	return err;
}

int crn_memory_restore(
	cairn_t *c, uint64_t id, const struct crn_range *skip, struct crn_restored *out)
{
	int err;

	CRN_TRY(crn_lock(c));
	err = restore_timed(c, id, skip);
	if (err >= 0 && out)
		out->pages = c->put;
	crn_unlock(c);
	return err;
}

int crn_memory_restorable(cairn_t *c, uint64_t id)
{
	int err;

	CRN_TRY(crn_lock(c));
	err = check_restorable(c, id);
	if (err == CAIRN_EFAILED && c->control->lost == CAIRN_EMEMORY)
		err = CAIRN_EMEMORY;
	crn_unlock(c);
	return err;
}
