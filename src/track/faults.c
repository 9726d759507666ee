/* SPDX-License-Identifier: MIT */
/*
 * The handler of SIGSEGV and SIGBUS, and what a forked child needs of it.
 *
 * SAFETY of everything that runs in the handler: it comes at any instruction of the program, in any
 * thread, even while that thread holds libc's locks. Raw system calls, no libc, no TLS, no lock.
 * Both signals stay unblocked, because serving a first store may meet memory that has vanished.
 *
 * When the session ends, by cairn_close or by the first fault in a forked child, other threads may
 * be in the handler, or on their way to it: the kernel has seen their fault and will call whatever
 * handler is installed when they run. So a thread gives the signals back only if it is alone.
 * Otherwise the handler stays (`over`) and serves stores that go through by now.
 *
 *	state       handler       active   its two pages
 *	session     ours          f        there
 *	over        ours          f        stay for good: a handler may have read `active` just now
 *	given back  the program's NULL     go with the next session
 */
#include "track/faults.h"
#include <errno.h>
#include <stdatomic.h>
#include "base/arena.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/guarded.h"
#include "os/host.h"
#include "os/memory.h"
#include "os/pkey.h"
#include "os/signal.h"
#include "os/thread.h"
#include "track/track.h"

#define ALIVE 0x6e6f77736562756eull
#define SERVED (1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1))
#define BUSY_MAX   64 /* a power of two */
#define BUSY_TRIES 4
#define HELD_MAX   8

/* A signal that was sent, and waits until its thread is out of our work. */
struct held {
	_Atomic uintptr_t thread; /* 0: free */
	siginfo_t info;
};

/*
 * None if begin >= end. Another thread may fork at any moment: at each instant these words say a
 * range that is closed, or none.
 */
struct inherit_range {
	uintptr_t begin, end;
	int prot;
};

/* The first of the two pages: a forked child finds zeros. */
struct of_process {
	uint64_t alive;          /* ALIVE: it is the process that has the session, or had */
	_Atomic uint32_t inside; /* handlers that use `active` */
	_Atomic uint32_t opener; /* in a child: a thread opens what was inherited */
	/* Threads, by their pointers, that are at what no handler of the program's may leave. */
	_Atomic uintptr_t busy[BUSY_MAX];
	_Atomic uint32_t held_count;
	struct held held[HELD_MAX];
	struct crn_guests guests;
};
_Static_assert(sizeof(struct of_process) <= CRN_PAGE_SIZE, "the first page");

/* The second, which stays on fork. */
struct crn_faults {
	struct of_process *process;
	struct crn_arena *arena;
	crn_store_fault *store;
	void *tracker;
	struct crn_ksigaction segv, bus; /* the program's, if signals */
	bool signals;
	bool knows_threads;              /* their pointers are had without a call */
	_Atomic uint32_t over;           /* nothing is closed any more */
	struct inherit_range *ranges;    /* a block of the arena that stays on fork, too */
	size_t count, cap;
	size_t none_count; /* of the first `count` ranges: none */
	void *range_block;
};

/*
 * Written at open and close only, the keys at open alone, so a restore of .data (an area may hold
 * it) finds them as they are.
 */
static struct crn_faults *_Atomic active;
static uint32_t keys; /* to open, before anything behind that can be read: os/pkey.h */

static void on_fault(int sig, siginfo_t *info, void *ucontext);

/* Of one call of the handler. */
struct stay {
	struct crn_faults *f; /* the active one, which stays whole until leave(), or NULL */
	struct crn_guest *guest;
	struct crn_guest_visit visit; /* of the guest */
};

static void leave(struct stay *s)
{
	if (s->guest)
		crn_guest_leave(&s->f->process->guests, &s->visit);
	else
		atomic_fetch_sub(&s->f->process->inside, 1);
}

static void enter(struct stay *s, bool guest)
{
	struct crn_faults *f;

	s->guest = NULL;
	while ((s->f = f = atomic_load(&active))) {
		if (crn_unlikely(guest))
			s->guest = crn_guest_enter(&f->process->guests, &s->visit);
		if (!s->guest)
			atomic_fetch_add(&f->process->inside, 1);
		if (crn_likely(atomic_load(&active) == f))
			return;
		leave(s);
	}
}

struct crn_guests *crn_faults_guests(struct crn_faults *f)
{
	return &f->process->guests;
}

/* ---- Signals that were sent ------------------------------------------------------------- */

/*
 * Somebody may send SIGSEGV or SIGBUS, and the program's handler go back to a checkpoint, which is
 * what it is for. Were it called in the middle of the service of a store, or while a call keeps
 * other signals back, it would wait for ever for what it has interrupted. These two cannot be
 * blocked there. So they are held, and sent once more when the thread's word is 0 again; where
 * there is no room (of threads or of signals) they are not.
 */
static uintptr_t thread_of(const struct crn_faults *f)
{
	uintptr_t pointer = 0;

	if (f->knows_threads)
		__asm__ volatile("rdfsbase %0" : "=r"(pointer));
	return pointer;
}

/* The word that says `now` among those that are for this thread, or NULL. */
static _Atomic uintptr_t *word_of(struct crn_faults *f, uintptr_t thread, uintptr_t now)
{
	size_t first = (thread * 0x9e3779b97f4a7c15ull) >> 58;

	for (size_t i = 0; i < BUSY_TRIES; i++) {
		_Atomic uintptr_t *word = &f->process->busy[(first + i) % BUSY_MAX];

		if (atomic_load_explicit(word, memory_order_relaxed) == now)
			return word;
	}
	return NULL;
}

bool crn_faults_hold(struct crn_faults *f)
{
	uintptr_t thread = f ? thread_of(f) : 0, none = 0;
	_Atomic uintptr_t *word;

	if (!thread || word_of(f, thread, thread))
		return false;
	word = word_of(f, thread, 0);
	/* Taken by another thread just now: not worth a second try. */
	return word && atomic_compare_exchange_strong(word, &none, thread);
}

/* True: it comes again. Nobody but this thread has to do with its signals. */
static bool hold(struct crn_faults *f, const siginfo_t *info)
{
	uintptr_t thread = f ? thread_of(f) : 0;

	if (!thread || !word_of(f, thread, thread))
		return false;
	for (size_t i = 0; i < HELD_MAX; i++) {
		struct held *h = &f->process->held[i];
		uintptr_t none = 0;

		/* As the kernel does, the first one that waits stands for all. */
		if (atomic_load(&h->thread) == thread && h->info.si_signo == info->si_signo)
			return true;
		if (!atomic_compare_exchange_strong(&h->thread, &none, thread))
			continue;
		crn_copy(&h->info, info, sizeof(*info));
		atomic_fetch_add(&f->process->held_count, 1);
		return true;
	}
	return false;
}

/* They are blocked until the caller puts a mask back. */
static void send_again(struct crn_faults *f, uintptr_t thread)
{
	crn_signal_mask(SIG_BLOCK, SERVED);
	for (size_t i = 0; i < HELD_MAX; i++) {
		struct held *h = &f->process->held[i];
		siginfo_t info;

		if (atomic_load(&h->thread) != thread)
			continue;
		crn_copy(&info, &h->info, sizeof(info));
		atomic_store(&h->thread, 0);
		atomic_fetch_sub(&f->process->held_count, 1);
		crn_signal_requeue(crn_getpid(), crn_gettid(), info.si_signo, &info);
	}
}

void crn_faults_release(struct crn_faults *f)
{
	uintptr_t thread = thread_of(f);
	_Atomic uintptr_t *word = word_of(f, thread, thread);

	/* What comes from here on is the program's at once; what came before is counted. */
	if (word)
		atomic_store(word, 0);
	if (crn_unlikely(atomic_load(&f->process->held_count)))
		send_again(f, thread);
}

/* ---- The end ---------------------------------------------------------------------------- */

static bool is_ours(int sig)
{
	struct crn_ksigaction now;

	return crn_signal_action(sig, NULL, &now) >= 0 && now.handler == (uintptr_t)on_fault;
}

/* All is open. From here on stores that were refused before just run again. */
static void finish(struct crn_faults *f)
{
	bool alone = !f->signals || crn_thread_alone();

	/* The program may have taken one meanwhile. */
	if (alone && f->signals && is_ours(SIGSEGV))
		crn_signal_action(SIGSEGV, &f->segv, NULL);
	if (alone && f->signals && is_ours(SIGBUS))
		crn_signal_action(SIGBUS, &f->bus, NULL);
	atomic_store(&f->over, 1);
	f->process->guests.host = 0;
	if (alone)
		atomic_store(&active, NULL);
}

/*
 * Nobody uses the tracker, nor the ranges, when it returns: handlers wait for no call, and what
 * could leave one in its midst is held. Not in a handler.
 */
static void drain(struct crn_faults *f)
{
	unsigned round = 0;
	uint32_t seen;

	while ((seen = atomic_load(&f->process->inside)))
		crn_wait_while(&f->process->inside, seen, &round);
	while (seen = atomic_load(&f->process->guests.present),
		seen && crn_guests_live(&f->process->guests))
		crn_wait_while(&f->process->guests.present, seen, &round);
}

/* ---- In a forked child --------------------------------------------------------------- */

/* Where the child has no such mapping (MADV_DONTFORK) the rest still gets its protection back. */
static void open_inherited(const struct inherit_range *r)
{
	if (r->begin >= r->end)
		return;
	if (crn_memory_protect((void *)r->begin, r->end - r->begin, r->prot) >= 0)
		return;
	for (uintptr_t page = r->begin; page < r->end; page += CRN_PAGE_SIZE)
		(void)crn_memory_protect((void *)page, CRN_PAGE_SIZE, r->prot);
}

/*
 * One thread opens, once: the program may close pages of its own afterwards. Others wait. A child
 * that is born meanwhile has that to do again: `opener` is wiped, and it is not over.
 */
static void open_all(struct crn_faults *f)
{
	unsigned round = 0;
	uint32_t none = 0;

	if (!atomic_compare_exchange_strong(&f->process->opener, &none, 1)) {
		while (!atomic_load(&f->over))
			crn_wait_while(&f->over, 0, &round);
		return;
	}
	for (size_t i = 0; i < f->count; i++)
		open_inherited(&f->ranges[i]);
	finish(f);
}

bool crn_faults_after_fork_child(void)
{
	struct crn_faults *f = atomic_load(&active);

	if (!f)
		return false;
	if (!atomic_load(&f->over)) {
		if (f->process->alive == ALIVE)
			return false;
		open_all(f);
	}
	drain(f);
	if (atomic_load(&active) && crn_thread_alone())
		finish(f);
	return atomic_load(&active);
}

/* The first fault in the child opens all that it inherited. */
static bool child_fault(struct crn_faults *f, const siginfo_t *info)
{
	uintptr_t addr = (uintptr_t)info->si_addr;
	bool ours = false;

	for (size_t i = 0; i < f->count; i++)
		ours |= addr >= f->ranges[i].begin && addr < f->ranges[i].end;
	if (ours)
		open_all(f);
	return ours;
}

/* ---- The handler ------------------------------------------------------------------------ */

static bool store_fault(const struct stay *s, int sig, const siginfo_t *info)
{
	struct crn_guest *guest = s->guest && !s->visit.nested ? s->guest : NULL;
	struct crn_faults *f = s->f;

	/* The handler is still ours: it comes late, if nothing refuses the store now. */
	if (!f || atomic_load(&f->over))
		return crn_guarded_store(info->si_addr) >= 0;
	if (f->process->alive != ALIVE)
		return child_fault(f, info);
	return f->store && f->store(f->tracker, sig, info, guest);
}

static bool fault(const struct stay *s, int sig, siginfo_t *info, void *ucontext)
{
	uintptr_t resume;

	if ((sig != SIGSEGV && sig != SIGBUS) || info->si_code <= 0)
		return false;
	if (crn_signal_is_store(ucontext) && !crn_guarded_asks(crn_signal_pc(ucontext)) &&
		store_fault(s, sig, info))
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
	struct crn_faults *f = atomic_load(&active);
	struct stay s;
	bool served;

	enter(&s, f && crn_guest_calls(&f->process->guests));
	served = s.f && fault(&s, sig, info, ucontext);
	if (s.f)
		leave(&s);
	crn_pkey_restore(opened, before);
	return served;
}

/* True: served. Else *action is what the program wants to be done. */
static bool fault_opened(int sig, siginfo_t *info, void *ucontext, bool guest,
	struct crn_ksigaction *action)
{
	struct crn_ksigaction *slot;
	struct stay s;
	bool served;

	enter(&s, guest);
	served = fault(&s, sig, info, ucontext);
	if (!served && s.f) {
		slot = sig == SIGSEGV ? &s.f->segv : &s.f->bus;
		*action = *slot;
		if (action->flags & SA_RESETHAND)
			*slot = (struct crn_ksigaction){ .handler = (uintptr_t)SIG_DFL };
	}
	if (s.f)
		leave(&s);
	return served;
}

/* The same for a signal that may be held, or in which others are. */
static bool fault_held(int sig, siginfo_t *info, void *ucontext, struct crn_ksigaction *action)
{
	struct crn_faults *f = atomic_load(&active); /* its pages stay: see the drawing above */
	bool served, first, guest = f && crn_guest_calls(&f->process->guests);

	if (info->si_code <= 0 && hold(f, info))
		return true;
	/* A guest has its parent's word, and would leave it behind if it is killed. */
	first = !guest && crn_faults_hold(f);
	served = fault_opened(sig, info, ucontext, guest, action);
	if (first)
		crn_faults_release(f);
	return served;
}

static void on_fault(int sig, siginfo_t *info, void *ucontext)
{
	struct crn_ksigaction action = { .handler = (uintptr_t)SIG_DFL };
	uint32_t opened = keys, before = crn_pkey_open(opened);
	bool served = fault_held(sig, info, ucontext, &action);

	crn_pkey_restore(opened, before);
	if (!served)
		crn_signal_chain(sig, &action, info, ucontext);
}

/* `before`: what the program had, if it is not ours that was there. */
static int take(int sig, struct crn_ksigaction *before)
{
	struct crn_ksigaction was, action = {
		.handler = (uintptr_t)on_fault,
		.flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | CRN_SA_RESTORER,
		.restorer = (uintptr_t)crn_sigreturn,
		.mask = ~SERVED,
	};
	int err = crn_signal_action(sig, &action, &was);

	if (err >= 0 && was.handler != (uintptr_t)on_fault)
		*before = was;
	return err;
}

static int install(struct crn_faults *f)
{
	int err = take(SIGSEGV, &f->segv);

	if (err < 0)
		return err;
	err = take(SIGBUS, &f->bus);
	if (err < 0) {
		crn_signal_action(SIGSEGV, &f->segv, NULL);
		return err;
	}
	f->signals = true;
	return 0;
}

bool crn_faults_reach_us(const struct crn_faults *f)
{
	/* The agent sees to that itself. */
	return !f->signals ||
		(!(crn_signal_mask_get() & SERVED) && is_ours(SIGSEGV) && is_ours(SIGBUS));
}

/* ---- The block that a child keeps ------------------------------------------------------- */

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

static int faults_alloc(struct crn_faults **out, struct crn_arena *arena, size_t cap)
{
	struct of_process *process = crn_arena_fault_pages(arena);
	struct crn_faults *f = (struct crn_faults *)((char *)process + CRN_PAGE_SIZE);

	if (crn_memory_advise(f, CRN_PAGE_SIZE, MADV_KEEPONFORK) < 0)
		return -EINVAL;
	*process = (struct of_process){ .alive = ALIVE };
	*f = (struct crn_faults){ .process = process, .arena = arena, .cap = cap };
	f->ranges = kept_alloc(arena, ranges_bytes(cap), &f->range_block);
	if (!f->ranges)
		return CAIRN_EMEMORY;
	*out = f;
	return 0;
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

static void set_range(struct inherit_range *r, uintptr_t begin, uintptr_t end, int prot)
{
	__atomic_store_n(&r->begin, UINTPTR_MAX, __ATOMIC_RELEASE);
	__atomic_store_n(&r->prot, prot, __ATOMIC_RELEASE);
	__atomic_store_n(&r->end, end, __ATOMIC_RELEASE);
	__atomic_store_n(&r->begin, begin, __ATOMIC_RELEASE);
}

int crn_faults_inherit(struct crn_faults *f, uintptr_t begin, uintptr_t end, int prot)
{
	size_t i = 0;

	if (f->none_count) {
		while (f->ranges[i].begin < f->ranges[i].end)
			i++;
		set_range(&f->ranges[i], begin, end, prot);
		f->none_count--;
		return 0;
	}
	if (f->count == f->cap)
		CRN_TRY(ranges_grow(f));
	set_range(&f->ranges[f->count], begin, end, prot);
	__atomic_store_n(&f->count, f->count + 1, __ATOMIC_RELEASE);
	return 0;
}

void crn_faults_disinherit(struct crn_faults *f, uintptr_t begin, uintptr_t end)
{
	for (size_t i = 0; i < f->count; i++) {
		struct inherit_range *r = &f->ranges[i];

		if (r->begin < begin || r->begin >= end || r->begin >= r->end)
			continue;
		__atomic_store_n(&r->begin, UINTPTR_MAX, __ATOMIC_RELEASE);
		f->none_count++;
	}
}

/* ---- Life ------------------------------------------------------------------------------- */

int crn_faults_open(struct crn_faults **out, struct crn_track_env *env, crn_store_fault *store,
	void *tracker)
{
	struct crn_faults *f, *before;
	int err;

	crn_faults_after_fork_child();
	before = atomic_load(&active);
	if (before && !atomic_load(&before->over))
		return CAIRN_EBUSY;
	CRN_TRY(faults_alloc(&f, env->arena, 64));
	f->store = store;
	f->process->guests.host = store ? crn_getpid() : 0;
	f->tracker = tracker;
	f->knows_threads = env->host->fsgsbase && !env->faults_forwarded;
	if (before) { /* its handler is still there, and knows the program's */
		f->segv = before->segv;
		f->bus = before->bus;
	}
	keys = crn_pkey_all();
	atomic_store(&active, f);
	err = env->faults_forwarded ? 0 : install(f);
	if (err < 0) {
		atomic_store(&active, before);
		kept_free(f->arena, f->range_block, ranges_bytes(f->cap));
		return err;
	}
	*out = f;
	return 0;
}

void crn_faults_close(struct crn_faults *f)
{
	if (!f)
		return;
	finish(f);
	drain(f);
	kept_free(f->arena, f->range_block, ranges_bytes(f->cap));
}
