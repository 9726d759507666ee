/* SPDX-License-Identifier: MIT */
/*
 * The handler of SIGSEGV and SIGBUS, and what a forked child needs of it.
 *
 * SAFETY of everything that runs in the handler: it comes at any instruction of the program, in any
 * thread, also while that thread holds libc's locks. Raw system calls, no libc, no TLS, no lock.
 * Both signals stay unblocked, because a first store's service may meet memory that has vanished.
 */
#include "track/faults.h"
#include <stdatomic.h>
#include "base/arena.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/guarded.h"
#include "os/memory.h"
#include "os/pkey.h"
#include "os/signal.h"
#include "track/track.h"

#define ALIVE 0x6e6f77736562756eull

struct inherit_range {
	uintptr_t begin, end;
	int prot;
};

/* In pages of the arena that stay on fork. */
struct crn_faults {
	const uint64_t *alive; /* ALIVE; a forked child finds zeros, for that page is wiped */
	struct crn_arena *arena;
	crn_store_fault *store;
	void *tracker;
	struct crn_ksigaction segv, bus; /* the program's, if signals */
	bool signals;
	struct inherit_range *ranges;
	size_t count, cap;
	void *block, *range_block; /* of the arena, that hold this and the ranges */
};

/*
 * Written at open and close only, the keys at open alone, so a restore of .data (an area may hold
 * it) finds them as they are.
 */
static struct crn_faults *_Atomic active;
static uint32_t keys; /* to open, before anything behind that can be read: os/pkey.h */

static void on_fault(int sig, siginfo_t *info, void *ucontext);

/* ---- In a forked child --------------------------------------------------------------- */

/* Give a signal back, unless the program has taken it meanwhile. */
static void uninstall(int sig, const struct crn_ksigaction *to)
{
	struct crn_ksigaction now;

	if (crn_signal_action(sig, NULL, &now) >= 0 && now.handler == (uintptr_t)on_fault)
		crn_signal_action(sig, to, NULL);
}

static void uninstall_both(const struct crn_faults *f)
{
	if (!f->signals)
		return;
	uninstall(SIGSEGV, &f->segv);
	uninstall(SIGBUS, &f->bus);
}

/* Where the child has no such mapping (MADV_DONTFORK) the rest still gets its protection back. */
static void open_inherited(const struct inherit_range *r)
{
	if (crn_memory_protect((void *)r->begin, r->end - r->begin, r->prot) >= 0)
		return;
	for (uintptr_t page = r->begin; page < r->end; page += CRN_PAGE_SIZE)
		(void)crn_memory_protect((void *)page, CRN_PAGE_SIZE, r->prot);
}

void crn_faults_after_fork_child(void)
{
	struct crn_faults *f = atomic_load(&active);

	if (!f || *f->alive == ALIVE)
		return;
	for (size_t i = 0; i < f->count; i++)
		open_inherited(&f->ranges[i]);
	uninstall_both(f);
	atomic_store(&active, NULL);
}

/* The first fault in the child opens all that it inherited. */
static bool child_fault(const struct crn_faults *f, const siginfo_t *info)
{
	uintptr_t addr = (uintptr_t)info->si_addr;
	bool ours = false;

	for (size_t i = 0; i < f->count; i++)
		ours |= addr >= f->ranges[i].begin && addr < f->ranges[i].end;
	if (ours)
		crn_faults_after_fork_child();
	return ours;
}

/* ---- The handler ------------------------------------------------------------------------ */

static bool store_fault(const struct crn_faults *f, int sig, const siginfo_t *info)
{
	if (*f->alive != ALIVE)
		return child_fault(f, info);
	return f->store && f->store(f->tracker, sig, info);
}

static bool fault(int sig, siginfo_t *info, void *ucontext)
{
	struct crn_faults *f = atomic_load(&active);
	uintptr_t resume;

	if (!f || (sig != SIGSEGV && sig != SIGBUS) || info->si_code <= 0)
		return false;
	if (crn_signal_is_store(ucontext) && !crn_guarded_asks(crn_signal_pc(ucontext)) &&
		store_fault(f, sig, info))
		return true;
	resume = crn_guarded_resume(crn_signal_pc(ucontext));
	if (resume)
		crn_signal_pc_set(ucontext, resume);
	return resume;
}

bool crn_faults_serve(int sig, siginfo_t *info, void *ucontext)
{
	/* The kernel has started the handler with no key but the default one. */
	uint32_t opened = keys, before = crn_pkey_open(opened);
	bool served = fault(sig, info, ucontext);

	crn_pkey_restore(opened, before);
	return served;
}

/* True: served. Else *action is what the program wants to be done. */
static bool fault_opened(
	int sig, siginfo_t *info, void *ucontext, struct crn_ksigaction *action)
{
	/* Before it is served, which may be the end of it in a child. */
	struct crn_faults *f = atomic_load(&active);
	struct crn_ksigaction *slot;

	if (fault(sig, info, ucontext))
		return true;
	if (f) {
		slot = sig == SIGSEGV ? &f->segv : &f->bus;
		*action = *slot;
		if (action->flags & SA_RESETHAND)
			*slot = (struct crn_ksigaction){ .handler = (uintptr_t)SIG_DFL };
	}
	return false;
}

static void on_fault(int sig, siginfo_t *info, void *ucontext)
{
	struct crn_ksigaction action = { .handler = (uintptr_t)SIG_DFL };
	uint32_t opened = keys, before = crn_pkey_open(opened);
	bool served = fault_opened(sig, info, ucontext, &action);

	crn_pkey_restore(opened, before);
	if (!served)
		crn_signal_chain(sig, &action, info, ucontext);
}

static int install(struct crn_faults *f)
{
	struct crn_ksigaction action = {
		.handler = (uintptr_t)on_fault,
		.flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | CRN_SA_RESTORER,
		.restorer = (uintptr_t)crn_sigreturn,
		.mask = ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1)),
	};
	int err = crn_signal_action(SIGSEGV, &action, &f->segv);

	if (err < 0)
		return err;
	err = crn_signal_action(SIGBUS, &action, &f->bus);
	if (err < 0) {
		crn_signal_action(SIGSEGV, &f->segv, NULL);
		return err;
	}
	f->signals = true;
	return 0;
}

/* ---- The blocks that a child keeps ------------------------------------------------------ */

static void *kept_alloc(struct crn_arena *arena, size_t len, void **block)
{
	void *at;

	*block = crn_block_alloc_open(arena, len + CRN_PAGE_SIZE);
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

static void faults_free(struct crn_faults *f)
{
	struct crn_arena *arena = f->arena;

	if (f->ranges)
		kept_free(arena, f->range_block, ranges_bytes(f->cap));
	if (f->alive)
		crn_block_free(arena, (void *)f->alive, sizeof(*f->alive));
	kept_free(arena, f->block, CRN_PAGE_SIZE);
}

static struct crn_faults *faults_alloc(struct crn_arena *arena, size_t cap)
{
	void *block;
	struct crn_faults *f = kept_alloc(arena, CRN_PAGE_SIZE, &block);
	uint64_t *alive;

	if (!f)
		return NULL;
	f->arena = arena;
	f->block = block;
	f->cap = cap;
	f->alive = alive = crn_block_alloc(arena, sizeof(*alive));
	f->ranges = kept_alloc(arena, ranges_bytes(cap), &f->range_block);
	if (!f->alive || !f->ranges) {
		faults_free(f);
		return NULL;
	}
	*alive = ALIVE;
	return f;
}

static int ranges_grow(struct crn_faults *f)
{
	struct inherit_range *ranges, *old = f->ranges;
	void *block, *old_block = f->range_block;

	ranges = kept_alloc(f->arena, ranges_bytes(f->cap * 2), &block);
	if (!ranges)
		return CAIRN_EMEMORY;
	crn_copy(ranges, old, f->count * sizeof(*ranges));
	/* Another thread may fork at any moment: its child must find whole ranges. */
	__atomic_store_n(&f->ranges, ranges, __ATOMIC_RELEASE);
	f->range_block = block;
	kept_free(f->arena, old_block, ranges_bytes(f->cap));
	f->cap *= 2;
	return 0;
}

int crn_faults_inherit(struct crn_faults *f, uintptr_t begin, uintptr_t end, int prot)
{
	if (f->count == f->cap)
		CRN_TRY(ranges_grow(f));
	f->ranges[f->count] = (struct inherit_range){ begin, end, prot };
	f->count++;
	return 0;
}

void crn_faults_disinherit(struct crn_faults *f, uintptr_t begin, uintptr_t end)
{
	size_t kept = 0;

	for (size_t i = 0; i < f->count; i++)
		if (f->ranges[i].begin < begin || f->ranges[i].begin >= end)
			f->ranges[kept++] = f->ranges[i];
	f->count = kept;
}

/* ---- Life ------------------------------------------------------------------------------- */

int crn_faults_open(struct crn_faults **out, struct crn_track_env *env, crn_store_fault *store,
	void *tracker)
{
	struct crn_faults *f;
	int err;

	crn_faults_after_fork_child();
	if (atomic_load(&active))
		return CAIRN_EBUSY;
	f = faults_alloc(env->arena, 64);
	if (!f)
		return CAIRN_EMEMORY;
	f->store = store;
	f->tracker = tracker;
	keys = crn_pkey_all();
	atomic_store(&active, f);
	err = env->faults_forwarded ? 0 : install(f);
	if (err < 0) {
		atomic_store(&active, NULL);
		faults_free(f);
		return err;
	}
	*out = f;
	return 0;
}

void crn_faults_close(struct crn_faults *f)
{
	if (!f)
		return;
	uninstall_both(f);
	atomic_store(&active, NULL);
	faults_free(f);
}
