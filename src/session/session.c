/* SPDX-License-Identifier: MIT */
/*
 * Opening and closing the engine. The only mutable static of the library is the pointer to it: a
 * restore that puts .data back cannot hurt, and after fork the child finds zeros behind it
 * (MADV_WIPEONFORK), which means: no engine.
 */
#include "session/engine.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/thread.h"
#include "track/undo_pages.h"

#define MEMORY_MIN (1ul << 20)

/*
 * What the pointer points to: in the first page of the arena. After fork it is zeros. After
 * cairn_close the page stays, so that closing changes nothing in the program's memory, not even our
 * own pointer.
 */
struct engine_anchor {
	uint64_t state;
	cairn_t *session;
};

#define ALIVE  0x6e72696163ull /* "cairn" */
#define CLOSED 0x6465736f6c63ull

/* Set before anything is tracked, and then the same until the engine is closed. */
static struct engine_anchor *anchor;
static void *reserve_base;
static size_t reserve_size;

cairn_t *crn_session_current(void)
{
	return anchor && anchor->state == ALIVE ? anchor->session : NULL;
}

/* ---- The lock ------------------------------------------------------------------------- */

uintptr_t crn_self(const cairn_t *c)
{
	uintptr_t base = 0;

	/* The thread's TLS base names it, and costs no system call where the processor helps. */
	if (c->host.fsgsbase)
		__asm__ volatile("rdfsbase %0" : "=r"(base));
	else
		base = crn_tls_base();
	return base | 1; /* before TLS is set up there is but one thread */
}

/* CAIRN_PROTECT: a wild store of the program must not reach what brings it back. */
static int protect_frames(cairn_t *c, int prot)
{
	uintptr_t begin, end;

	if (crn_likely(!(c->flags & CAIRN_PROTECT)))
		return 0;
	crn_arena_frames(c->arena, &begin, &end);
	return begin < end ? crn_memory_protect((void *)begin, end - begin, prot) : 0;
}

/*
 * SAFETY: from write-fault handlers, while no call is in progress: those wait for a handler to end,
 * and it for them.
 */
static void seal_frame(struct crn_track_env *env, void *frame, bool closed)
{
	(void)crn_memory_protect(frame, CRN_PAGE_SIZE, closed ? PROT_READ : PROT_READ | PROT_WRITE);
}

#define WANTED  2ul         /* crn_self() never has this bit */
#define WAIT_NS 10000000ull /* a handler that leaves by a restore may take a wake-up with it */

/*
 * Holder and lock are one word: a signal handler that interrupts the taking or the release must see
 * either all of it or nothing, or it would wait for what it has interrupted.
 */
static bool try_lock(cairn_t *c, uint64_t *now, uint64_t with)
{
	return __atomic_compare_exchange_n(
		&c->lock, now, with, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void wait_for_lock(cairn_t *c, uint64_t self, uint64_t now)
{
	for (;;) {
		if (!now) {
			if (try_lock(c, &now, self | WANTED))
				return;
			continue;
		}
		if (!(now & WANTED) && !try_lock(c, &now, now | WANTED))
			continue;
		(void)crn_futex_wait((uint32_t *)&c->lock, (uint32_t)(now | WANTED), WAIT_NS);
		now = __atomic_load_n(&c->lock, __ATOMIC_RELAXED);
	}
}

static void release(cairn_t *c)
{
	if (__atomic_exchange_n(&c->lock, 0, __ATOMIC_RELEASE) & WANTED)
		crn_futex_wake((uint32_t *)&c->lock, 1);
}

int crn_lock(cairn_t *c)
{
	uint64_t self, now = 0;
	int err;

	if (!c || crn_session_current() != c)
		return -EINVAL;
	self = crn_self(c);
	if (!try_lock(c, &now, self)) {
		if ((now & ~WANTED) == self)
			/* a signal handler or callback that interrupted the engine */
			return -EDEADLK;
		wait_for_lock(c, self, now);
	}
	err = protect_frames(c, PROT_READ | PROT_WRITE);
	if (err < 0)
		release(c);
	return err;
}

void crn_unlock(cairn_t *c)
{
	(void)protect_frames(c, PROT_READ);
	release(c);
}

/* ---- Options ---------------------------------------------------------------------------- */

static bool tail_is_zero(const struct cairn_options *o)
{
	const uint8_t *at = (const uint8_t *)o;

	for (size_t i = sizeof(*o); i < o->size; i++) {
		if (at[i])
			return false;
	}
	return true;
}

/* A copy of the caller's options in our version of the struct, defaults filled in. */
static int read_options(struct cairn_options *to, const struct cairn_options *from)
{
	static const struct cairn_options defaults = CAIRN_OPTIONS_INIT;

	*to = defaults;
	if (from) {
		if (from->size < sizeof(from->size) || from->size > 4096)
			return CAIRN_EOPTION;
		if (from->size > sizeof(*to) && !tail_is_zero(from))
			return CAIRN_EOPTION; /* made for a newer library, and it matters */
		crn_copy(to, from, CRN_MIN(from->size, sizeof(*to)));
		to->size = sizeof(*to);
	}
	if (!to->tracker)
		to->tracker = "auto";
	if (!to->strategy)
		to->strategy = "none";
	if (!to->surface)
		to->surface = "all";
	if (!to->keep)
		to->keep = 1;
	if (to->keep > CRN_JOURNAL_KEEP_MAX || to->threads > CAIRN_THREADS_ONE || to->reserved ||
		to->flags & ~CAIRN_PROTECT || !crn_streq(to->strategy, "none"))
		return CAIRN_EOPTION;
	if (to->memory_max && to->memory_max < MEMORY_MIN)
		return CAIRN_EOPTION;
	return 0;
}

/*
 * A second cairn_open: the program's under the agent, or two parts of one program that want the
 * same.
 */
static int join(cairn_t *c, const struct cairn_options *o)
{
	if (!c->agent) {
		if (!crn_streq(o->surface, c->surface) || o->keep != c->keep ||
			o->flags != c->flags || o->threads != c->threads ||
			(o->memory_max && o->memory_max != c->memory_max))
			return CAIRN_EBUSY;
		if (!crn_streq(o->tracker, "auto") && !crn_streq(o->tracker, c->ops->name))
			return CAIRN_EBUSY;
	}
	__atomic_fetch_add(&c->users, 1, __ATOMIC_RELAXED);
	return 0;
}

/* ---- Opening ------------------------------------------------------------------------------ */

static int build(void *base, size_t reserved, const struct crn_host *host, uint64_t memory_max,
	cairn_t **out)
{
	struct crn_arena *arena;
	struct engine_anchor *a;
	cairn_t *c;

	CRN_TRY(crn_arena_init(&arena, base, reserved, memory_max, crn_memory_commit));
	a = crn_block_alloc(arena, sizeof(*a));
	c = crn_block_alloc(arena, sizeof(*c));
	if (!a || !c)
		return CAIRN_EMEMORY;
	c->arena = arena;
	c->host = *host;
	c->memory_max = memory_max;
	c->restore_stack = crn_block_alloc(arena, CRN_RESTORE_STACK);
	c->maps_buffer = crn_block_alloc(arena, CRN_MAPS_BUFFER);
	c->scratch = crn_frame_alloc(arena);
	if (!c->restore_stack || !c->maps_buffer || !c->scratch)
		return CAIRN_EMEMORY;
	a->session = c;
	*out = c;
	anchor = a; /* its state is still 0: nobody sees it yet */
	reserve_base = base;
	reserve_size = reserved;
	return 0;
}

static int start(cairn_t *c, const struct cairn_options *o)
{
	c->keep = o->keep;
	c->flags = o->flags;
	c->threads = o->threads;
	c->users = 1;
	c->maps_stale = true;
	if (!(c->ops->caps & (CRN_TRACK_SEES_KERNEL | CRN_TRACK_KEEPS)) && !c->agent &&
		!crn_streq(o->surface, "none"))
		return CAIRN_EAREAONLY;
	CRN_TRY(crn_surface_parse(c, o->surface));

	c->env.arena = c->arena;
	c->env.host = &c->host;
	c->env.keep = c->keep;
	c->env.faults_forwarded = c->agent;
	c->env.store = crn_store;
	c->env.load = crn_load;
	c->env.lost = crn_lost;
	c->env.seal = c->flags & CAIRN_PROTECT ? seal_frame : NULL;
	CRN_TRY(crn_maps_open(&c->maps, c->maps_buffer));
	CRN_TRY(crn_journal_open(&c->journal, c->arena, c->keep));
	CRN_TRY(c->ops->open(&c->tracker, &c->env));
	CRN_TRY(crn_marks_push(c, 0)); /* the implicit checkpoint */
	CRN_TRY(crn_layout_follow(c, CRN_FOLLOW_ADOPT));
	crn_mark_newest(c)->changes.count = 0; /* what was there before is no change */
	if (c->mode == CRN_SURFACE_LIST && !c->area_count)
		return CAIRN_ESURFACE;
	if (c->ops->caps & CRN_TRACK_KEEPS)
		CRN_TRY(c->ops->kept_take(c->tracker, 0));
	else
		CRN_TRY(c->ops->interval_begin(c->tracker));
	return protect_frames(c, PROT_READ);
}

static void tear_down(cairn_t *c)
{
	anchor->state = 0;
	if (c->tracker)
		c->ops->close(c->tracker);
	crn_journal_close(c->journal);
	if (c->maps.buffer)
		crn_maps_close(&c->maps);
	crn_memory_unmap((char *)reserve_base + CRN_PAGE_SIZE, reserve_size - CRN_PAGE_SIZE);
	crn_memory_advise(reserve_base, CRN_PAGE_SIZE, MADV_KEEPONFORK);
	anchor->state = CLOSED;
}

/*
 * What an engine left behind: one page if it was closed; in a forked child all of it, as zeros (its
 * descriptors point to the parent's memory and stay unused).
 */
void crn_after_fork_child(void)
{
	if (!anchor || anchor->state == ALIVE)
		return;
	crn_undo_pages_after_fork_child();
	crn_memory_unmap(reserve_base, anchor->state == CLOSED ? CRN_PAGE_SIZE : reserve_size);
	anchor = NULL;
}

int crn_session_open(cairn_t **out, const struct cairn_options *options,
	const struct crn_range *omit, size_t omit_count)
{
	const struct crn_tracker_ops *ops;
	struct cairn_options o;
	struct crn_host host;
	cairn_t *c = crn_session_current();
	size_t reserved;
	void *base;
	bool whole;
	int err;

	if (!out)
		return -EINVAL;
	CRN_TRY(read_options(&o, options));
	if (!crn_tracker_exists(o.tracker))
		return CAIRN_ETRACKER;
	if (c) {
		CRN_TRY(join(c, &o));
		*out = c;
		return 0;
	}
	crn_after_fork_child();
	(void)crn_log_start();
	crn_host_probe(&host);
	whole = !omit && !crn_streq(o.surface, "none");
	CRN_TRY(crn_tracker_choose(&ops, o.tracker, &host, whole));
	if (!o.memory_max)
		o.memory_max = host.memory_bytes / 2;

	CRN_TRY(crn_memory_reserve(&base, &reserved));
	err = build(base, reserved, &host, o.memory_max, &c);
	if (err < 0) {
		crn_memory_unmap(base, reserved);
		return err;
	}
	c->ops = ops;
	c->agent = omit != NULL;
	for (size_t i = 0; i < omit_count && err >= 0; i++)
		err = crn_ranges_add(c, &c->omitted, omit[i].begin, omit[i].end);
	if (err >= 0)
		err = start(c, &o);
	if (err < 0) {
		tear_down(c);
		return err;
	}
	crn_info("session open: tracker %s, surface %s, keep %u", ops->name, c->surface, c->keep);
	anchor->state = ALIVE;
	*out = c;
	return 0;
}

int cairn_open(cairn_t **out, const struct cairn_options *options)
{
	return crn_session_open(out, options, NULL, 0);
}

int cairn_close(cairn_t *c)
{
	CRN_TRY(crn_lock(c));
	if (--c->users) {
		crn_unlock(c);
		return 0;
	}
	tear_down(c);
	return 0;
}

/* ---- Small things ---------------------------------------------------------------------------- */

void *crn_session_alloc(cairn_t *c, size_t size)
{
	void *block;

	if (crn_lock(c) < 0)
		return NULL;
	block = crn_block_alloc(c->arena, size);
	crn_unlock(c);
	return block;
}

void crn_maps_watch(cairn_t *c)
{
	c->watched = true;
	c->maps_stale = true;
}

void crn_maps_changed(cairn_t *c)
{
	__atomic_store_n(&c->maps_stale, true, __ATOMIC_RELEASE);
}

int crn_surface_omit(uintptr_t begin, uintptr_t end)
{
	cairn_t *c = crn_session_current();
	int err;

	CRN_TRY(crn_lock(c));
	err = crn_ranges_add(c, &c->omitted, begin, end);
	if (err >= 0) {
		/* It has not vanished: a restore must not look for it. */
		err = crn_area_forget(c, begin, end);
		crn_layout_leave_out(c, begin, end);
		c->maps_stale = true;
	}
	crn_unlock(c);
	return err;
}

int crn_grow(cairn_t *c, void **at, size_t *capacity, size_t need, size_t entry_size)
{
	size_t wanted = *capacity ? *capacity : 16;
	void *block;

	if (crn_likely(need <= *capacity))
		return 0;
	while (wanted < need)
		wanted *= 2;
	block = crn_block_alloc(c->arena, wanted * entry_size);
	if (!block)
		return CAIRN_EMEMORY;
	crn_copy(block, *at, *capacity * entry_size);
	crn_block_free(c->arena, *at, *capacity * entry_size);
	*at = block;
	*capacity = wanted;
	return 0;
}
