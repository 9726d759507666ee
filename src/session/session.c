/* SPDX-License-Identifier: MIT */
/*
 * Opening and closing the engine. Its state lies behind one pointer, `anchor`: a restore that puts
 * .data back cannot hurt, and after fork the child finds zeros behind it (MADV_WIPEONFORK), which
 * means: no engine. The few other mutable statics say why a restore of them does no harm.
 */
#include "session/engine.h"
#include "session/files.h"
#include "session/prices.h"
#include "session/run_identity.h"
#include "session/surface_list.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/keeper.h"
#include "os/limits.h"
#include "os/log_writer.h"
#include "os/memory.h"
#include "os/pkey.h"
#include "os/thread.h"
#include "rt/rt.h"
#include "track/feeds/feed.h"
#include "track/undo/undo_pages.h"

#define ALIVE  0x6e72696163ull /* "cairn" */
#define CLOSED 0x6465736f6c63ull

/* Set before anything is tracked, and then the same until the engine is closed. */
static struct crn_control *anchor;
static void *reserve_base;
static size_t reserve_size;
/*
 * Protection key of all but CRN_ARENA_LEADING; or none. A closed engine has given it back, but says
 * so elsewhere: this may be a part of the surface, which no close changes.
 */
static int reserve_key = -1;

/* The process's engine, or NULL. */
static cairn_t *current(void)
{
	return anchor && anchor->state == ALIVE ? anchor->session : NULL;
}

/* ---- The lock ------------------------------------------------------------------------- */

uintptr_t crn_self(const cairn_t *c)
{
	uintptr_t base = 0;

	/* The thread's TLS base names it, and costs no system call where the processor helps. */
#ifdef __x86_64__
	if (c->host.fsgsbase)
		__asm__ volatile("rdfsbase %0" : "=r"(base));
	else
#endif
		base = crn_tls_base();
	return base | 1; /* before TLS is set up there is but one thread */
}

/* A wake-up may be missed, and a handler that leaves by a restore may take one with it. */
#define WAIT_NS 10000000ull
#define CALLS	64u /* of a release, until it is believed that nobody waits any more */
/* Ticks, about 50 ms: who has waited for so long is the next one. */
#define PATIENCE   (1ull << 27)
#define COURTESIES 100 /* waits for whoever is next, until it is believed that he has left */

/*
 * Holder and lock are one word: a signal handler that interrupts the taking or the release must see
 * either all of it or nothing, or it would wait for what it has interrupted.
 *
 * `wanted` is another one, so that a release is a plain store. An exchange would not end before all
 * that was copied last has left the processor's store buffer, a tenth of what a checkpoint of some
 * hot pages takes beside the copies. The price: a release may not see that somebody has just come
 * to wait, who then sleeps for WAIT_NS.
 *
 * Whoever comes by takes the lock before those who are being woken up: that is quick, and unfair.
 * So one of those who have waited for long is named (`starving`), and nobody else takes it then.
 * Nobody waits for ever: each that is named has it after the call that is under way, and when it
 * leaves otherwise (its thread is cancelled) the others stop waiting for it.
 */
static bool try_lock(cairn_t *c, uintptr_t *now, uintptr_t with)
{
	return __atomic_compare_exchange_n(
		&c->control->lock, now, with, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* False: somebody has it, *now if it is not 0; or somebody else is the next one. */
static bool try_in_turn(cairn_t *c, uintptr_t *now, uintptr_t self, unsigned courtesies)
{
	uintptr_t next = __atomic_load_n(&c->control->starving, __ATOMIC_RELAXED);

	*now = 0;
	if (!next || next == self || courtesies == COURTESIES)
		return try_lock(c, now, self);
	*now = __atomic_load_n(&c->control->lock, __ATOMIC_RELAXED);
	return false;
}

static int wait_for_lock(cairn_t *c, uintptr_t self)
{
	struct crn_control *l = c->control;
	uint64_t since = crn_clock_ticks();
	unsigned courtesies = 0;
	uintptr_t now, none;

	while (!try_in_turn(c, &now, self, courtesies)) {
		if (now == self)
			/* a signal handler or callback that interrupted the engine */
			return -EDEADLK;
		__atomic_store_n(&l->wanted, 1, __ATOMIC_SEQ_CST);
		courtesies += !now;
		(void)crn_futex_wait((uint32_t *)&l->lock, (uint32_t)now, WAIT_NS);
		none = 0;
		if (crn_clock_ticks() - since > PATIENCE)
			(void)__atomic_compare_exchange_n(&l->starving, &none, self, false,
				__ATOMIC_RELAXED, __ATOMIC_RELAXED);
	}
	/* By others, perhaps: whoever waits last does not know it. */
	__atomic_store_n(&l->wanted, 1, __ATOMIC_RELAXED);
	if (courtesies == COURTESIES || __atomic_load_n(&l->starving, __ATOMIC_RELAXED) == self)
		__atomic_store_n(&l->starving, 0, __ATOMIC_RELAXED);
	return 0;
}

static void release(cairn_t *c)
{
	struct crn_control *l = c->control;
	bool wanted = __atomic_load_n(&l->wanted, __ATOMIC_RELAXED);
	/* If only one of them may take it, he must be among those that are woken up. */
	int count = __atomic_load_n(&l->starving, __ATOMIC_RELAXED) ? INT32_MAX : 1;

	/* Who waits all the same is called now, and says so again. */
	if (crn_unlikely(wanted) && ++l->calls % CALLS == 0)
		__atomic_store_n(&l->wanted, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&l->lock, 0, __ATOMIC_RELEASE);
	if (crn_unlikely(wanted))
		crn_futex_wake((uint32_t *)&l->lock, count); /* its memory may be gone by now */
}

static int take_lock(cairn_t *c)
{
	uintptr_t self = crn_self(c), now = 0;
	int err;

	if (crn_unlikely(__atomic_load_n(&c->control->starving, __ATOMIC_RELAXED)) ||
		!try_lock(c, &now, self))
		CRN_TRY(wait_for_lock(c, self));
	err = crn_protect_open(c);
	if (err < 0) {
		(void)crn_protect_close(c);
		release(c);
		return err;
	}
	c->env.calls++;
	return err;
}

int crn_lock(cairn_t *c)
{
	uint32_t keys, before;
	int err;

	if (!c || current() != c)
		return -EINVAL;
	keys = anchor->keys;
	before = crn_pkey_open(keys); /* nothing behind `c` can be read before that */
	err = take_lock(c);
	if (err < 0)
		crn_pkey_restore(keys, before);
	else
		anchor->keys_before = before;
	return err;
}

void crn_unlock(cairn_t *c)
{
	uint32_t keys = anchor->keys, before = anchor->keys_before;

	if (crn_unlikely(c->closed_memory >= 0))
		crn_closed_end(c);
	(void)crn_protect_close(c);
	release(c);
	crn_pkey_restore(keys, before);
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
		to->strategy = "auto";
	if (!to->feed)
		to->feed = "auto";
	if (!to->surface)
		to->surface = "all";
	if (!to->keep)
		to->keep = 1;
	if (to->keep > CRN_JOURNAL_KEEP_MAX || to->threads > CAIRN_THREADS_ONE || to->reserved ||
		to->flags & ~(CAIRN_PROTECT | CRN_FEED_SHARED) || !crn_feed_exists(to->feed))
		return CAIRN_EOPTION;
	if (to->memory_max && to->memory_max < CRN_MEMORY_MIN)
		return CAIRN_EOPTION;
	return 0;
}

static bool has_feed(const cairn_t *c, const char *feed)
{
	uint64_t scans;

	return crn_streq(feed, "auto") ||
		(c->ops->feed && crn_streq(feed, c->ops->feed(c->tracker, &scans)));
}

/*
 * A second cairn_open: the program's under the agent, or two parts of one program that want the
 * same.
 */
static int join_locked(cairn_t *c, const struct cairn_options *o)
{
	if (!c->agent) {
		if (!crn_streq(o->surface, c->surface) || o->keep != c->keep ||
			o->flags != c->flags || o->threads != c->threads ||
			(o->memory_max && o->memory_max != c->memory_max))
			return CAIRN_EBUSY;
		if (!crn_streq(o->tracker, "auto") && !crn_streq(o->tracker, c->ops->name))
			return CAIRN_EBUSY;
		if (!crn_streq(o->strategy, "auto") && !crn_streq(o->strategy, c->strategy))
			return CAIRN_EBUSY;
		if (!has_feed(c, o->feed))
			return CAIRN_EBUSY;
	}
	__atomic_fetch_add(&c->control->users, 1, __ATOMIC_RELAXED);
	return 0;
}

static int join(cairn_t *c, const struct cairn_options *o)
{
	int err;

	CRN_TRY(crn_lock(c));
	err = join_locked(c, o);
	crn_unlock(c);
	return err;
}

/* ---- Opening ------------------------------------------------------------------------------ */

/* Nothing of the engine but its leading pages can be used without the key. */
static void take_key(void *base, size_t reserved)
{
	int key = crn_pkey_alloc();

	if (key < 0)
		return; /* not here, or none left */
	if (crn_pkey_protect((char *)base + CRN_ARENA_LEADING, reserved - CRN_ARENA_LEADING,
		    PROT_NONE, key) < 0)
		(void)crn_pkey_free(key);
	else
		reserve_key = key;
}

/* The memory that had it is gone. */
static void give_key_back(void)
{
	if (reserve_key >= 0)
		(void)crn_pkey_free(reserve_key);
}

static void drop_key(void)
{
	give_key_back();
	reserve_key = -1;
}

/*
 * The first block, which begins with a page. It has no key: our handler of faults runs on it, and
 * the kernel gives handlers no key but the default one. Between calls nothing is on it.
 */
static void *make_restore_stack(struct crn_arena *arena)
{
	void *stack = crn_block_alloc(arena, CRN_RESTORE_STACK);

	CRN_ASSERT(((uintptr_t)stack & (CRN_PAGE_SIZE - 1)) == 0);
	if (stack && reserve_key >= 0 &&
		crn_pkey_protect(stack, CRN_RESTORE_STACK, PROT_READ | PROT_WRITE, 0) < 0)
		return NULL;
	return stack;
}

static int build(void *base, size_t reserved, const struct crn_host *host, uint64_t memory_max,
	bool apart, cairn_t **out)
{
	struct crn_arena *arena;
	struct crn_control *a = base;
	uint8_t *stack;
	cairn_t *c;

	CRN_TRY(crn_arena_init(&arena, base, reserved, memory_max, apart,
		crn_memory_commit_own));
	stack = make_restore_stack(arena);
	c = crn_block_alloc(arena, sizeof(*c));
	if (!c)
		return CAIRN_EMEMORY;
	c->control = a;
	a->keys = crn_pkey_all();
	c->arena = arena;
	c->host = *host;
	c->frame_guard = -1;
	c->apart = apart;
	c->memory_max = memory_max;
	c->restore_stack = stack;
	c->maps_buffer = crn_block_alloc(arena, CRN_MAPS_BUFFER);
	c->scratch = crn_block_alloc(arena, CRN_PAGE_SIZE);
	if (!c->restore_stack || !c->maps_buffer || !c->scratch)
		return CAIRN_EMEMORY;
	a->session = c;
	*out = c;
	anchor = a; /* its state is still 0: nobody sees it yet */
	reserve_base = base;
	reserve_size = reserved;
	return 0;
}

static void fill_env(cairn_t *c, const struct cairn_options *o)
{
	c->env.arena = c->arena;
	c->env.host = &c->host;
	c->env.keep = c->keep;
	c->env.memory_max = c->memory_max;
	c->env.one_thread = c->threads == CAIRN_THREADS_ONE;
	c->env.areas_alone = c->mode == CRN_SURFACE_NONE && !c->agent;
	c->env.feed = o->feed;
	c->env.faults_forwarded = c->agent;
	c->env.store = crn_store;
	c->env.load = crn_load;
	c->env.closed_at = crn_closed_at;
	c->env.lost = crn_lost;
	c->env.grows_long = crn_grows_long;
	c->env.deaf = &c->control->deaf;
}

static int start(cairn_t *c, const struct cairn_options *o)
{
	int err;

	c->keep = o->keep;
	c->flags = o->flags & CAIRN_PROTECT;
	c->threads = o->threads;
	c->control->users = 1;
	c->control->maps_stale = true;
	c->control->opened = true;
	if (crn_refuses_kernel(c->ops) && !c->agent && !crn_streq(o->surface, "none"))
		return CAIRN_EAREAONLY;
	if (c->ops->caps & CRN_TRACK_PROTECTS && crn_memory_shared()) {
		crn_error("another process uses this memory and would die of its first store to "
			  "what %s closes: begin it after the session, or take another tracker",
			c->ops->name);
		return CAIRN_EUNSUPPORTED;
	}
	CRN_TRY(crn_surface_parse(c, o->surface));
	/* What hooks keep is memory like any other; of pages only one can be in charge. */
	if (!c->agent && !(c->ops->caps & CRN_TRACK_STORES) && crn_has_agent()) {
		crn_error("this program has an engine of its own, from libcairn.a, and cairn run "
			  "has one for it: link libcairn.so, which shares that");
		return CAIRN_EBUSY;
	}
	if (c->ops->caps & CRN_TRACK_STORES && c->mode != CRN_SURFACE_ALL)
		return CAIRN_EUNSUPPORTED; /* such a tracker has no areas */

	fill_env(c, o);
	crn_files_open(c);
	c->closed_memory = -1;
	CRN_TRY(crn_maps_open(&c->maps, c->maps_buffer));
	CRN_TRY(crn_journal_open(&c->journal, c->arena, c->keep));
	CRN_TRY(crn_keeper_open(&c->env.keeper));
	CRN_TRY(crn_strategy_open(c, o->strategy));
	CRN_TRY(c->ops->open(&c->tracker, &c->env));
	/* A key needs nothing: crn_lock opens it for its thread, and for no other. */
	if (c->flags & CAIRN_PROTECT && reserve_key < 0)
		CRN_TRY(crn_protect_begin(c));
	/* Nothing is tracked yet. Without it a call may answer -EBADF some day. */
	(void)crn_keeper_start(c->env.keeper);
	crn_prices_try(c);
	CRN_TRY(crn_marks_push(c, 0)); /* the implicit checkpoint */
	CRN_TRY(crn_in_flight_begin(c));
	CRN_TRY(crn_layout_follow(c, CRN_FOLLOW_ADOPT));
	crn_in_flight_end(c);
	crn_mark_newest(c)->changes.count = 0; /* what was there before is no change */
	if (c->mode == CRN_SURFACE_LIST && !c->area_count)
		return CAIRN_ESURFACE;
	if (c->ops->caps & CRN_TRACK_KEEPS)
		CRN_TRY(c->ops->kept_take(c->tracker, 0));
	else
		CRN_TRY(c->ops->interval_begin(c->tracker));
	crn_closed_end(c);
	err = crn_protect_close(c);
	if (err < 0)
		(void)crn_protect_open(c); /* what closes the session must be able to write */
	return err;
}

static void tear_down(cairn_t *c)
{
	anchor->state = 0;
	(void)crn_tracing_close(c);
	crn_profile_close(c);
	crn_protect_end(c);
	if (c->tracker)
		c->ops->close(c->tracker);
	crn_keeper_close(c->env.keeper);
	crn_journal_close(c->journal);
	if (c->maps.buffer) {
		crn_maps_close(&c->maps);
		crn_files_close(c);
		crn_held_files_close(c);
		crn_closed_end(c);
	}
	crn_memory_leave(
		(char *)reserve_base + CRN_ARENA_LEADING, reserve_size - CRN_ARENA_LEADING);
	crn_memory_advise(reserve_base, CRN_PAGE_SIZE, MADV_KEEPONFORK);
	give_key_back();
	anchor->state = CLOSED;
}

size_t crn_session_reserved(void)
{
	return anchor ? reserve_size : 0;
}

/*
 * What an engine left behind: its leading pages if it was closed; in a forked child all of it, as
 * zeros (its descriptors point to the parent's memory and stay unused).
 */
void crn_after_fork_child(void)
{
	size_t stays, end;

	if (!anchor || anchor->state == ALIVE)
		return;
	if (anchor->state == CLOSED)
		reserve_key = -1;
	/* Control is zeros; what a handler keeps for the child is behind the key. */
	if (reserve_key >= 0)
		(void)crn_pkey_open(crn_pkey_bits(reserve_key));
	stays = crn_faults_after_fork_child() ? CRN_ARENA_LEADING : 0;
	end = anchor->state == CLOSED ? CRN_ARENA_LEADING : reserve_size;
	crn_memory_leave((char *)reserve_base + stays, end - stays);
	drop_key();
	anchor = NULL;
}

int crn_session_open(cairn_t **out, const struct cairn_options *options,
	const struct crn_range *omit, size_t omit_count)
{
	const struct crn_tracker_ops *ops;
	char why[CRN_STRATEGY_WHY];
	struct cairn_options o;
	struct crn_host host;
	cairn_t *c = current();
	size_t reserved;
	void *base;
	bool whole, apart;
	int err;

	if (!out)
		return -EINVAL;
	CRN_TRY(read_options(&o, options));
	if (o.flags & CRN_FEED_SHARED && !omit)
		return CAIRN_EOPTION;
	if (!crn_tracker_exists(o.tracker))
		return CAIRN_ETRACKER;
	if (!crn_tracker_takes_feed(o.tracker, o.feed)) {
		crn_error("feed %s is for tracker async: %s has no feeds", o.feed, o.tracker);
		return -EINVAL;
	}
	if (crn_strategy_check(o.strategy, o.tracker, why) < 0) {
		crn_error("%s", why);
		return CAIRN_ESTRATEGY;
	}
	if (c) {
		CRN_TRY(join(c, &o));
		*out = c;
		return 0;
	}
	crn_after_fork_child();
	(void)crn_log_start();
	crn_host_probe(&host);
	whole = !omit && !crn_streq(o.surface, "none");
	CRN_TRY(crn_tracker_choose(&ops, o.tracker, o.feed, &host, whole));
	if (!o.memory_max)
		o.memory_max = host.memory_bytes / 2;

	base = ops->caps & CRN_TRACK_STORES ? (void *)CRN_RT_ENGINE_AT : NULL;
	CRN_TRY(crn_memory_reserve(&base, &reserved));
	/* The agent writes to its tables at any time: with it pages are closed instead. */
	if (o.flags & CAIRN_PROTECT && !omit)
		take_key(base, reserved);
	/* Write-fault handlers and the agent write to open blocks. */
	apart = omit || !(ops->caps & (CRN_TRACK_MIRROR | CRN_TRACK_KEEPS));
	err = build(base, reserved, &host, o.memory_max, apart, &c);
	if (err < 0) {
		crn_memory_leave(base, reserved);
		drop_key();
		return err;
	}
	c->ops = ops;
	c->agent = omit != NULL;
	for (size_t i = 0; i < omit_count && err >= 0; i++)
		err = crn_ranges_add(c, &c->omitted, omit[i].begin, omit[i].end);
	c->env.shares_feed = o.flags & CRN_FEED_SHARED;
	if (err >= 0)
		err = start(c, &o);
	if (err < 0) {
		tear_down(c);
		return err;
	}
	crn_info("session open: tracker %s, surface %s, keep %u", ops->name, c->surface, c->keep);
	anchor->state = ALIVE;
	*out = c;
	if (reserve_key >= 0)
		crn_pkey_register_set(crn_pkey_register() | crn_pkey_bits(reserve_key));
	return 0;
}

int cairn_open(cairn_t **out, const struct cairn_options *options)
{
	return crn_session_open(out, options, NULL, 0);
}

int cairn_close(cairn_t *c)
{
	CRN_TRY(crn_lock(c));
	if (--c->control->users) {
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
	block = crn_block_alloc_open(c->arena, size);
	crn_unlock(c);
	return block;
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
