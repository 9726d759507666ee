/* SPDX-License-Identifier: MIT */
#include "track/hooked/kept_intervals.h"
#include <errno.h>
#include "base/arena.h"
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/signal.h"

#define LIST_MIN (64ul << 10)

const struct crn_rt_shape __cairn_shape __attribute__((weak)) = { .kind = 0 };

int crn_kept_span(uintptr_t at, size_t max, size_t len, void **out)
{
	void *place = (void *)at;

	CRN_TRY(crn_memory_leave(place, max));
	CRN_TRY(crn_memory_enter(place, len));
	*out = place;
	return 0;
}

int crn_kept_list(uintptr_t at, size_t max, size_t *len, void **out)
{
	size_t want = *len, left = crn_memory_space_left(), least = CRN_MIN(want, LIST_MIN);
	int err = -ENOMEM;

	if (left < CRN_SPACE_MAX) /* the program needs most of it */
		want = CRN_MIN(want, crn_page_down(left / 4));
	for (; want && want >= least; want = crn_page_down(want / 2)) {
		err = crn_kept_span(at, max, want, out);
		if (err >= 0)
			break;
	}
	if (err < 0) {
		crn_error("no address space for %zu bytes of what stores overwrite (ulimit -v, "
			  "ulimit -d, vm.overcommit_memory=2)", least);
		return err;
	}
	if (want < *len)
		crn_warn("ulimit -v, ulimit -d or vm.overcommit_memory=2 leaves an interval %zu "
			 "bytes for what its stores overwrite, in place of %zu", want, *len);
	*len = want;
	return 0;
}

/* ---- The ring ---------------------------------------------------------------------------- */

static struct crn_kept_interval *interval_at(const struct crn_kept *k, uint32_t i)
{
	return &k->at[(k->first + i) % k->env->keep];
}

static void release(struct crn_kept *k, struct crn_kept_interval *i)
{
	k->packed_bytes -= i->log.size + i->pages.size;
	crn_packed_close(&i->log, k->env->arena);
	crn_packed_close(&i->pages, k->env->arena);
}

static void drop_oldest(struct crn_kept *k)
{
	release(k, interval_at(k, 0));
	k->first = (k->first + 1) % k->env->keep;
	k->count--;
}

uint64_t crn_kept_open_max(const struct crn_kept *k)
{
	uint64_t max = k->env->memory_max, used = crn_arena_bytes(k->env->arena);

	if (k->env->keep > 1)
		return max / 4;
	return max - CRN_MIN(used, max / 2);
}

int crn_kept_open(struct crn_kept *k, struct crn_track_env *env, const struct crn_hook_ops *hooks)
{
	if (!__cairn_shape.has_hooks()) {
		crn_error("no code of this program has hooks: compile it with cairn-cc, too");
		return CAIRN_EUNSUPPORTED;
	}
	k->env = env;
	k->hooks = hooks;
	k->at = crn_block_alloc(env->arena, env->keep * sizeof(*k->at));
	return k->at ? 0 : CAIRN_EMEMORY;
}

void crn_kept_ready(struct crn_kept *k)
{
	crn_page_mode_open(&k->pages, k->env, k->hooks);
}

void crn_kept_close(struct crn_kept *k)
{
	crn_page_mode_end(&k->pages, k->hooks, false);
	crn_page_mode_close(&k->pages);
	crn_page_areas_close(&k->areas, k->env);
	crn_rt()->hooked = false;
	crn_rt()->patience = -1;
	while (k->count)
		drop_oldest(k);
	crn_block_free(k->env->arena, k->at, k->env->keep * sizeof(*k->at));
}

/* ---- Taking ------------------------------------------------------------------------------ */

static int add_page(void *ctx, uintptr_t addr, const void *old, size_t len)
{
	*(size_t *)ctx += crn_log_need(len);
	return 0;
}

static int pack_page(void *ctx, uintptr_t addr, const void *old, size_t len)
{
	const struct crn_log_entry e = { .word = len, .where = addr | CRN_LOG_LONG << 56 };

	struct crn_packed_log *log = ctx;

	/* Another thread of a library's has written one more since they were counted. */
	if (log->size - log->filled < crn_log_need(len))
		return CAIRN_EMEMORY;
	crn_packed_put(log, old, len);
	crn_packed_put(log, &e, sizeof(e));
	return 0;
}

static int open_logs(struct crn_kept *k, struct crn_kept_interval *i, size_t size, size_t pages)
{
	CRN_TRY(crn_packed_open(&i->log, k->env->arena, size));
	if (!pages || crn_packed_open(&i->pages, k->env->arena, pages) >= 0)
		return 0;
	crn_packed_close(&i->log, k->env->arena);
	return CAIRN_EMEMORY;
}

/* What undoes the open interval, before its hooks forget it. */
static int pack(struct crn_kept *k)
{
	struct crn_kept_interval i = { .id = k->open };
	uint64_t size = k->hooks->packed(), max = k->env->memory_max / 8 * 5;
	size_t pages = 0;

	CRN_TRY(crn_page_areas_walk(&k->areas, k->open, add_page, &pages));
	if (k->count == k->env->keep - 1)
		drop_oldest(k);
	while (k->packed_bytes + size + pages > max || open_logs(k, &i, size, pages) < 0) {
		if (!k->count)
			return CAIRN_EMEMORY;
		drop_oldest(k);
	}
	k->hooks->pack(&i.log);
	if (pages && crn_page_areas_walk(&k->areas, k->open, pack_page, &i.pages) < 0)
		k->env->lost(k->env, 0, CAIRN_EMEMORY);
	k->packed_bytes += i.log.size + i.pages.size;
	*interval_at(k, k->count++) = i;
	return 0;
}

/* `exact`: whether there is a checkpoint that what was stored meanwhile does not belong to. */
static void begin(struct crn_kept *k, uint64_t id, bool exact)
{
	struct crn_rt *rt = crn_rt();
	bool whole;

	k->entries += k->hooks->count();
	whole = k->hooks->reset();
	rt->told = false;
	rt->fresh = 0;
	rt->turn = rt->turn ? rt->turn + 1 : crn_clock_ticks();
	k->open = rt->open = id;
	rt->oldest = k->count ? interval_at(k, 0)->id : id;
	/* Hooks that are stopped may spoil all of it. */
	if ((!whole && exact) || rt->stopped)
		rt->lost(rt->env, 0, -EINTR);
}

/* Hooks of two threads at once would mix up what they keep, if they are not made for that. */
static bool threads_right(const struct crn_kept *k)
{
	return __cairn_shape.threads || k->env->one_thread || __cairn_shape.one_thread();
}

/*
 * The interval does not end. What handlers have stored while it seemed to is in no list, and not in
 * a checkpoint either.
 */
static void go_on(void)
{
	struct crn_rt *rt = crn_rt();

	rt->ending = false;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (rt->active && rt->late)
		rt->lost(rt->env, 0, -EINTR);
}

/* What undoes the interval is packed away, and areas begin the next one. */
static int end_open(struct crn_kept *k, bool first)
{
	bool packs = !first && k->env->keep > 1;
	int err = packs ? pack(k) : 0;

	if (err < 0)
		return err;
	err = crn_page_areas_turn(&k->areas);
	if (err < 0 && packs)
		release(k, interval_at(k, --k->count));
	return err;
}

static int take(struct crn_kept *k, uint64_t id)
{
	bool first = !crn_rt()->active;
	int err;

	crn_page_mode_end(&k->pages, k->hooks, k->env->keep > 1);
	k->hooks->stop();
	err = end_open(k, first);
	if (err < 0) {
		go_on();
		return err;
	}
	if (first) {
		/* Of a session before, whose checkpoints had these ids, too. */
		if (crn_rt()->settled)
			crn_rt()->settled(UINT64_MAX);
		crn_rt()->env = k->env;
		crn_rt()->lost = k->env->lost;
		crn_rt()->grows_long = k->env->grows_long;
	}
	begin(k, id, k->count); /* those that are older cannot be brought back exactly */
	crn_rt()->active = crn_rt()->hooked = true;
	crn_page_mode_begin(&k->pages, k->hooks);
	if (crn_rt()->settled)
		crn_rt()->settled(crn_rt()->oldest);
	if (crn_rt()->trim)
		crn_rt()->trim(crn_rt()->oldest);
	return 0;
}

/* Between the end of the areas' interval and that of the hooks' no handler stores. */
static bool hold_handlers(const struct crn_kept *k, uint64_t *mask)
{
	if (crn_likely(!k->areas.count))
		return false;
	*mask = crn_signal_mask(SIG_SETMASK, ~0ull);
	return true;
}

int crn_kept_take(void *t, uint64_t id)
{
	struct crn_kept *k = t;
	uint64_t mask;
	bool held;
	int err;

	if (!threads_right(k))
		return CAIRN_ETHREADS;
	CRN_TRY(crn_page_areas_whole(&k->areas));
	held = hold_handlers(k, &mask);
	err = take(k, id);
	if (held)
		(void)crn_signal_mask(SIG_SETMASK, mask);
	return err;
}

/*
 * LMC marks every region as saved. There are too many for that: hooks do it, at the first store to
 * each, as they do while no session is open.
 */
void crn_kept_pause(void *t)
{
	struct crn_kept *k = t;

	k->entries += k->hooks->count();
	crn_page_mode_end(&k->pages, k->hooks, false);
	crn_page_mode_disarm(&k->pages);
	crn_rt()->hooked = false;
	crn_rt()->patience = -1;
	k->hooks->rest();
	while (k->count)
		drop_oldest(k);
	/* What was put off for the checkpoints is done. */
	if (crn_rt()->settled)
		crn_rt()->settled(UINT64_MAX);
}

int crn_kept_resume(void *t)
{
	struct crn_kept *k = t;

	return k->hooks->wake();
}

/* ---- Restoring --------------------------------------------------------------------------- */

struct still_named {
	const struct crn_page_areas *areas;
	uint64_t id;
	crn_undo_fn fn;
	void *ctx;
};

/* Areas that have been removed since are left alone. */
static int if_named(void *ctx, uintptr_t addr, const void *old, size_t len)
{
	const struct still_named *s = ctx;

	return crn_page_areas_have(s->areas, addr, s->id) ? s->fn(s->ctx, addr, old, len) : 0;
}

static int each_interval(struct crn_kept *k, uint64_t id, crn_undo_fn fn, void *ctx)
{
	struct still_named named = { .areas = &k->areas, .fn = fn, .ctx = ctx };

	crn_page_mode_merge(&k->pages);
	CRN_TRY(k->hooks->walk(fn, ctx));
	CRN_TRY(crn_page_areas_walk(&k->areas, k->open, fn, ctx));
	for (uint32_t n = k->count; n-- > 0;) {
		const struct crn_kept_interval *i = interval_at(k, n);

		if (i->id < id)
			break;
		CRN_TRY(crn_packed_walk(&i->log, fn, ctx));
		named.id = i->id;
		CRN_TRY(crn_packed_walk(&i->pages, if_named, &named));
	}
	return 0;
}

int crn_kept_check(void *t, uint64_t id)
{
	struct crn_kept *k = t;

	if (!threads_right(k))
		return CAIRN_ETHREADS;
	if (id != k->open && (!k->count || interval_at(k, 0)->id > id))
		return CAIRN_EEVICTED;
	return crn_page_areas_whole(&k->areas);
}

static int put_back(void *ctx, uintptr_t addr, const void *old, size_t len)
{
	struct crn_kept *k = ctx;

	k->env->store(k->env, addr, old, len);
	return 0;
}

static int restore(struct crn_kept *k, uint64_t id)
{
	bool stopped = __cairn_shape.threads;
	int err;

	if (crn_rt()->undoing)
		crn_rt()->undoing(id);
	/* What is put back still counts as saved: another thread's store there would be lost. */
	if (stopped) {
		k->hooks->stop();
		k->hooks->hold();
	}
	err = each_interval(k, id, put_back, k);
	if (err >= 0) {
		crn_page_mode_end(&k->pages, k->hooks, false);
		if (!stopped)
			k->hooks->stop();
		stopped = true;
		err = crn_page_areas_turn(&k->areas);
	}
	if (err < 0) {
		if (stopped)
			go_on();
		return err;
	}
	while (k->count && interval_at(k, k->count - 1)->id >= id)
		release(k, interval_at(k, --k->count));
	begin(k, id, true);
	if (crn_rt()->let_go)
		crn_rt()->let_go();
	if (crn_rt()->undone)
		crn_rt()->undone(id);
	crn_page_mode_begin(&k->pages, k->hooks);
	return 0;
}

/*
 * What has been put back still counts as saved: a handler that stored there would change the
 * checkpoint, and nobody would know. A fault of the restore itself is the program's to see, if no
 * areas have to begin an interval at the same moment.
 */
int crn_kept_restore(void *t, uint64_t id)
{
	const uint64_t faults = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) |
		1ull << (SIGFPE - 1) | 1ull << (SIGILL - 1) | 1ull << (SIGTRAP - 1);
	struct crn_kept *k = t;
	uint64_t mask = crn_signal_mask(SIG_BLOCK, k->areas.count ? ~0ull : ~faults);
	int err = restore(k, id);

	(void)crn_signal_mask(SIG_SETMASK, mask);
	return err;
}

/* ---- Long intervals -------------------------------------------------------------------------- */

int crn_kept_long(void *t)
{
	struct crn_kept *k = t;

	return crn_page_mode_switch(&k->pages, k->hooks);
}

void crn_kept_consider(void *t)
{
	struct crn_kept *k = t;

	crn_page_mode_consider(&k->pages, k->hooks);
}

void crn_kept_longs(const void *t, struct crn_long_figures *out)
{
	const struct crn_kept *k = t;

	*out = k->pages.figures;
}

/* ---- Looking ----------------------------------------------------------------------------- */

struct overlay {
	uintptr_t addr;
	size_t len;
	uint8_t *buf;
};

static int lay_over(void *ctx, uintptr_t addr, const void *old, size_t len)
{
	struct overlay *o = ctx;
	uintptr_t from = CRN_MAX(addr, o->addr), to = CRN_MIN(addr + len, o->addr + o->len);

	if (from < to)
		crn_copy(o->buf + (from - o->addr), (const uint8_t *)old + (from - addr),
			to - from);
	return 0;
}

int crn_kept_peek(void *t, uint64_t id, uintptr_t addr, void *buf, size_t len)
{
	struct crn_kept *k = t;
	struct overlay o = { addr, len, buf };

	if (k->env->load(k->env, buf, addr, len) < 0)
		return CAIRN_ENOTAREA;
	return each_interval(k, id, lay_over, &o);
}

int crn_kept_touch(void *t, uintptr_t addr, size_t len)
{
	__cairn_shape.save(addr, len);
	return 0;
}

uint64_t crn_kept_bytes(const void *t)
{
	const struct crn_kept *k = t;

	return k->hooks->bytes() + k->packed_bytes + crn_page_mode_bytes(&k->pages) +
		crn_page_areas_bytes(&k->areas);
}

uint64_t crn_kept_entries(const void *t)
{
	const struct crn_kept *k = t;

	return k->entries + k->hooks->count();
}

/* ---- Areas that are watched by pages --------------------------------------------------------- */

int crn_kept_area_add(void *t, struct crn_area *area)
{
	struct crn_kept *k = t;

	return crn_page_areas_add(&k->areas, k->env, area->begin, area->end, area->born);
}

void crn_kept_area_drop(void *t, struct crn_area *area)
{
	struct crn_kept *k = t;

	(void)crn_page_areas_remove(&k->areas, area->begin, area->end);
}

/* ---- Rows without a meaning here: there are no pages --------------------------------------- */

int crn_kept_begin(void *t)
{
	return 0;
}

int crn_kept_end(void *t, struct crn_sink *sink)
{
	return 0; /* kept_take, which may fail, does it all */
}

int crn_kept_undo(void *t, struct crn_sink *sink)
{
	return CAIRN_EUNSUPPORTED;
}

int crn_kept_rebase(void *t, uintptr_t page, const void *content)
{
	return CAIRN_EUNSUPPORTED;
}

int crn_kept_look(void *t, uintptr_t page, const void **old)
{
	return CAIRN_EUNSUPPORTED;
}

int crn_kept_next(void *t, uint64_t id, uintptr_t addr, uintptr_t *begin, uintptr_t *end)
{
	return 0;
}

int crn_kept_written(void *t, uint64_t id, uintptr_t addr, size_t len)
{
	return CAIRN_EUNSUPPORTED;
}
