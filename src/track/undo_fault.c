/* SPDX-License-Identifier: MIT */
/*
 * The write-fault handler of undo pages, and what a forked child needs of it.
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
#include "os/memory.h"
#include "os/thread.h"
#include "track/undo_pages.h"

extern const char crn_guarded_copy_at[], crn_guarded_copy_failed[];

/*
 * What a forked child finds when the arena has been wiped: which ranges it inherited protected, and
 * whose the signals were. Pages of the arena that stay on fork.
 */
struct inherit_range {
	uintptr_t begin, end;
	int prot;
};

struct inherit {
	struct crn_ksigaction segv, bus; /* the program's, if signals */
	bool signals;
	struct inherit_range *ranges;
	size_t count, cap;
	void *block, *range_block; /* of the arena, that hold this and the ranges */
};

/*
 * Written at open and close only, so a restore of .data (an area may hold it) finds them as they
 * are.
 */
static struct crn_undo_pages *_Atomic active;
static struct inherit *_Atomic inherited;

/* ---- One fault -------------------------------------------------------------------- */

enum verdict { NOT_OURS, SERVED, CROWDED };

/*
 * The page was opened by somebody else meanwhile, unless the program itself made it read-only: then
 * it would fault for ever.
 */
static enum verdict open_already(
	struct crn_undo_pages *u, const struct undo_area *a, uintptr_t page)
{
	struct crn_mapping m;
	int found;

	if (a->guard != &undo_guard_mprotect || atomic_exchange(&u->maps_busy, 1))
		return SERVED;
	found = crn_maps_find(&u->maps, page, &m);
	atomic_store(&u->maps_busy, 0);
	return found == 0 || (found > 0 && !(m.prot & PROT_WRITE)) ? NOT_OURS : SERVED;
}

/* Claim a clean page for this thread; anything but CROWDED is the verdict already. */
static enum verdict claim(
	struct crn_undo_pages *u, const struct undo_area *a, uintptr_t page, uintptr_t *word)
{
	undo_word *w = undo_word_of(a, page);
	unsigned round = 0;

	*word = atomic_load(w);
	for (;;) {
		if (*word & UNDO_SEALED)
			return *word & UNDO_OPEN ? open_already(u, a, page) : NOT_OURS;
		if (*word & UNDO_OPEN)
			return open_already(u, a, page);
		if (!(*word & UNDO_BUSY)) {
			if (atomic_compare_exchange_weak(w, word, *word | UNDO_BUSY))
				return CROWDED;
			continue;
		}
		if (round++ < 64)
			crn_pause();
		else
			crn_yield();
		*word = atomic_load(w);
	}
}

static enum verdict serve(struct crn_undo_pages *u, const struct undo_area *a, uintptr_t page)
{
	undo_word *w = undo_word_of(a, page);
	enum verdict verdict;
	uintptr_t word, next;
	void *frame;

	verdict = claim(u, a, page, &word);
	if (verdict != CROWDED)
		return verdict;
	frame = crn_frame_alloc(u->env->arena);
	next = (uintptr_t)frame;
	if (frame && u->env->seal)
		u->env->seal(u->env, frame, false);
	if (!frame) {
		next = UNDO_LOST;
	} else if (crn_guarded_copy(frame, (const void *)page, CRN_PAGE_SIZE) < 0) {
		crn_frame_free(u->env->arena, frame);
		next = UNDO_ZERO;
		frame = NULL;
	}
	if (a->guard->open(u, page, page + CRN_PAGE_SIZE, word & UNDO_EXEC) < 0) {
		if (frame)
			crn_frame_free(u->env->arena, frame);
		atomic_store(w, word);
		return CROWDED;
	}
	if (frame && u->env->seal)
		u->env->seal(u->env, frame, true);
	if (frame)
		atomic_fetch_add_explicit(&u->frame_count, 1, memory_order_relaxed);
	else if (next == UNDO_LOST)
		u->env->lost(u->env, page, CAIRN_EMEMORY);
	undo_note_saved(u, page);
	atomic_fetch_add_explicit(&u->faults, 1, memory_order_relaxed);
	atomic_store(w, word | UNDO_OPEN | next);
	return SERVED;
}

/* The page cannot be opened alone: with everybody else kept out, open more than it. */
static bool serve_crowded(struct crn_undo_pages *u, uintptr_t page, bool mine)
{
	struct undo_area *a;
	int err = 0;

	if (!mine)
		undo_gate_shut(u, UNDO_CLOSED_BY_HANDLER);
	else if (atomic_load(&u->inside))
		return true; /* not closed yet: the store comes again */
	a = undo_find(u, page);
	if (a && !(atomic_load(undo_word_of(a, page)) & UNDO_OPEN))
		err = undo_open_range(u, a, page, page + CRN_PAGE_SIZE);
	atomic_fetch_add_explicit(&u->faults, 1, memory_order_relaxed);
	if (!mine)
		undo_gate_unshut(u);
	if (err < 0)
		crn_error("page %p cannot be opened for writing: %s", (void *)page,
			cairn_strerror(err));
	return err >= 0;
}

static bool store_fault(struct crn_undo_pages *u, int sig, const siginfo_t *info)
{
	uintptr_t page = crn_page_down((uintptr_t)info->si_addr);
	enum verdict verdict = NOT_OURS;
	uintptr_t closer, self;
	bool mine = undo_gate_is_mine(u);
	struct undo_area *a;

	if (mine) {
		atomic_fetch_add(&u->inside, 1);
	} else if (!undo_gate_enter(u)) {
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
		verdict = serve(u, a, page);
	undo_gate_leave(u);
	return verdict == CROWDED ? serve_crowded(u, page, mine) : verdict == SERVED;
}

/* ---- In a forked child --------------------------------------------------------------- */

static void on_fault(int sig, siginfo_t *info, void *ucontext);

/* Give a signal back, unless the program has taken it meanwhile. */
static void uninstall(int sig, const struct crn_ksigaction *to)
{
	struct crn_ksigaction now;

	if (crn_signal_action(sig, NULL, &now) >= 0 && now.handler == (uintptr_t)on_fault)
		crn_signal_action(sig, to, NULL);
}

void crn_undo_pages_after_fork_child(void)
{
	struct crn_undo_pages *u = atomic_load(&active);
	struct inherit *in = atomic_load(&inherited);

	if (!u || u->magic == UNDO_MAGIC || !in)
		return;
	for (size_t i = 0; i < in->count; i++)
		crn_memory_protect((void *)in->ranges[i].begin,
			in->ranges[i].end - in->ranges[i].begin, in->ranges[i].prot);
	if (in->signals) {
		uninstall(SIGSEGV, &in->segv);
		uninstall(SIGBUS, &in->bus);
	}
	atomic_store(&active, NULL);
	atomic_store(&inherited, NULL);
}

/* The first fault in the child opens all that it inherited. */
static bool child_fault(const siginfo_t *info)
{
	struct inherit *in = atomic_load(&inherited);
	uintptr_t addr = (uintptr_t)info->si_addr;
	bool ours = false;

	for (size_t i = 0; in && i < in->count; i++)
		ours |= addr >= in->ranges[i].begin && addr < in->ranges[i].end;
	if (ours)
		crn_undo_pages_after_fork_child();
	return ours;
}

/* ---- The handler ------------------------------------------------------------------------ */

/*
 * In the middle of crn_guarded_copy. If it is the frame that refuses, another thread's call has
 * just made frames read-only again (CAIRN_PROTECT): it is opened, and the copy goes on where it
 * was. Else the source has gone away.
 */
static void copy_fault(struct crn_undo_pages *u, uintptr_t addr, void *ucontext)
{
	if (u->magic == UNDO_MAGIC && u->env->seal && crn_arena_owns(u->env->arena, addr))
		u->env->seal(u->env, (void *)crn_page_down(addr), false);
	else
		crn_signal_pc_set(ucontext, (uintptr_t)crn_guarded_copy_failed);
}

bool crn_undo_pages_fault(int sig, siginfo_t *info, void *ucontext)
{
	struct crn_undo_pages *u = atomic_load(&active);

	if (!u || (sig != SIGSEGV && sig != SIGBUS) || info->si_code <= 0)
		return false;
	if (crn_signal_pc(ucontext) == (uintptr_t)crn_guarded_copy_at) {
		copy_fault(u, (uintptr_t)info->si_addr, ucontext);
		return true;
	}
	if (!crn_signal_is_store(ucontext))
		return false;
	return u->magic == UNDO_MAGIC ? store_fault(u, sig, info) : child_fault(info);
}

static void on_fault(int sig, siginfo_t *info, void *ucontext)
{
	struct inherit *in = atomic_load(&inherited);
	struct crn_ksigaction *slot, action = { .handler = (uintptr_t)SIG_DFL };

	if (crn_undo_pages_fault(sig, info, ucontext))
		return;
	if (in) {
		slot = sig == SIGSEGV ? &in->segv : &in->bus;
		action = *slot;
		if (action.flags & SA_RESETHAND)
			*slot = (struct crn_ksigaction){ .handler = (uintptr_t)SIG_DFL };
	}
	crn_signal_chain(sig, &action, info, ucontext);
}

static int install(struct inherit *in)
{
	struct crn_ksigaction action = {
		.handler = (uintptr_t)on_fault,
		.flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | CRN_SA_RESTORER,
		.restorer = (uintptr_t)crn_sigreturn,
		.mask = ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1)),
	};
	int err = crn_signal_action(SIGSEGV, &action, &in->segv);

	if (err < 0)
		return err;
	err = crn_signal_action(SIGBUS, &action, &in->bus);
	if (err < 0) {
		crn_signal_action(SIGSEGV, &in->segv, NULL);
		return err;
	}
	in->signals = true;
	return 0;
}

/* ---- The block that a child keeps ------------------------------------------------------- */

static void *kept_alloc(struct crn_arena *arena, size_t len, void **block)
{
	void *at;

	*block = crn_block_alloc(arena, len + CRN_PAGE_SIZE);
	if (!*block)
		return NULL;
	at = (void *)crn_page_up((uintptr_t)*block);
	if (crn_memory_advise(at, len, MADV_KEEPONFORK) < 0) {
		crn_block_free(arena, *block, len + CRN_PAGE_SIZE);
		return NULL;
	}
	crn_fill(at, 0, len);
	return at;
}

static void kept_free(struct crn_arena *arena, void *block, size_t len)
{
	crn_memory_advise((void *)crn_page_up((uintptr_t)block), len, MADV_WIPEONFORK);
	crn_block_free(arena, block, len + CRN_PAGE_SIZE);
}

static size_t ranges_bytes(size_t cap)
{
	return crn_page_up(cap * sizeof(struct inherit_range));
}

static void inherit_free(struct crn_arena *arena, struct inherit *in)
{
	if (in->ranges)
		kept_free(arena, in->range_block, ranges_bytes(in->cap));
	kept_free(arena, in->block, CRN_PAGE_SIZE);
}

static struct inherit *inherit_alloc(struct crn_arena *arena, size_t cap)
{
	void *block;
	struct inherit *in = kept_alloc(arena, CRN_PAGE_SIZE, &block);

	if (!in)
		return NULL;
	in->block = block;
	in->cap = cap;
	in->ranges = kept_alloc(arena, ranges_bytes(cap), &in->range_block);
	if (in->ranges)
		return in;
	inherit_free(arena, in);
	return NULL;
}

static int inherit_grow(struct crn_arena *arena, struct inherit *in)
{
	struct inherit_range *ranges, *old = in->ranges;
	void *block, *old_block = in->range_block;

	ranges = kept_alloc(arena, ranges_bytes(in->cap * 2), &block);
	if (!ranges)
		return CAIRN_EMEMORY;
	crn_copy(ranges, old, in->count * sizeof(*ranges));
	/* Another thread may fork at any moment: its child must find whole ranges. */
	__atomic_store_n(&in->ranges, ranges, __ATOMIC_RELEASE);
	in->range_block = block;
	kept_free(arena, old_block, ranges_bytes(in->cap));
	in->cap *= 2;
	return 0;
}

int undo_inherit_add(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, int prot)
{
	struct inherit *in = atomic_load(&inherited);

	if (in->count == in->cap)
		CRN_TRY(inherit_grow(u->env->arena, in));
	in->ranges[in->count] = (struct inherit_range){ begin, end, prot };
	in->count++;
	return 0;
}

void undo_inherit_drop(uintptr_t begin, uintptr_t end)
{
	struct inherit *in = atomic_load(&inherited);
	size_t kept = 0;

	for (size_t i = 0; i < in->count; i++)
		if (in->ranges[i].begin < begin || in->ranges[i].begin >= end)
			in->ranges[kept++] = in->ranges[i];
	in->count = kept;
}

int undo_faults_begin(struct crn_undo_pages *u, bool signals)
{
	struct inherit *in;
	int err;

	crn_undo_pages_after_fork_child();
	if (atomic_load(&active))
		return CAIRN_EBUSY;
	in = inherit_alloc(u->env->arena, 64);
	if (!in)
		return CAIRN_EMEMORY;
	u->magic = UNDO_MAGIC;
	u->owns_signals = signals;
	atomic_store(&inherited, in);
	atomic_store(&active, u);
	err = signals ? install(in) : 0;
	if (err < 0) {
		atomic_store(&active, NULL);
		atomic_store(&inherited, NULL);
		inherit_free(u->env->arena, in);
	}
	return err;
}

void undo_faults_end(struct crn_undo_pages *u)
{
	struct inherit *in = atomic_load(&inherited);

	if (in->signals) {
		uninstall(SIGSEGV, &in->segv);
		uninstall(SIGBUS, &in->bus);
	}
	u->magic = 0;
	atomic_store(&active, NULL);
	atomic_store(&inherited, NULL);
	inherit_free(u->env->arena, in);
}
