/* SPDX-License-Identifier: MIT */
/*
 * The undo log ("Techniques for in-memory checkpointing", section 3; LMC's peer). Code that the
 * compiler has instrumented appends address, size and old content before every store. A checkpoint
 * costs a copy of the stack and one assignment, but the log grows with the number of stores, not
 * with what they write. Its limit is memory_max; an interval that exceeds it cannot be restored
 * (the log of messages says so).
 */
#include "base/arena.h"
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/memory.h"
#include "track/hooked/kept_intervals.h"

struct undolog {
	struct crn_kept kept; /* first */
	size_t size;
};

static int undolog_probe(const struct crn_host *host)
{
	return __cairn_shape.kind == CRN_RT_UNDOLOG ? 0 : CAIRN_ENOTRACK;
}

/* ---- The open interval ---------------------------------------------------------------------- */

/* Where the entries end: a hook that found the log full may not have come to say so yet. */
static uintptr_t log_top(uintptr_t cur)
{
	return CRN_MIN(cur, crn_rt()->log_limit);
}

static uintptr_t cursor(void)
{
	return crn_rt()->paged ? crn_rt()->log_paged : crn_rt()->log_cur;
}

static int walk(crn_undo_fn fn, void *ctx)
{
	struct crn_packed_log log = {
		.flat = (const char *)crn_rt()->log_base,
		.size = log_top(cursor()) - crn_rt()->log_base,
	};

	return crn_packed_walk(&log, fn, ctx);
}

static void stop(void)
{
	crn_rt()->log_stop = crn_rt()->log_cur;
}

static size_t packed(void)
{
	return crn_rt()->log_stop - crn_rt()->log_base;
}

static void pack(struct crn_packed_log *to)
{
	crn_packed_put(to, (const void *)crn_rt()->log_base, packed());
}

/* Hooks that find no room while it is not active turn to another place: until all three are set. */
static void start(struct crn_rt *rt)
{
	do {
		*(volatile uintptr_t *)&rt->log_cur = rt->log_base;
		*(volatile uintptr_t *)&rt->log_end = rt->log_limit;
		*(volatile uintptr_t *)&rt->active = true;
	} while (*(volatile uintptr_t *)&rt->log_end != rt->log_limit ||
		*(volatile uintptr_t *)&rt->log_cur - rt->log_base > rt->log_limit - rt->log_base);
}

static bool reset(void)
{
	struct crn_rt *rt = crn_rt();
	uintptr_t cur;

	if (!rt->active) {
		start(rt);
		return true;
	}
	if (rt->told) /* it went over its end */
		(void)crn_memory_advise((void *)rt->log_base, rt->log_end - rt->log_base,
			MADV_DONTNEED);
	do {
		cur = *(volatile uintptr_t *)&rt->log_cur;
		crn_fill((void *)rt->log_base, 0, log_top(cur) - rt->log_base);
	} while (!crn_rt_take(&rt->log_cur, cur, rt->log_base));
	return cur == rt->log_stop;
}

/* While the session rests hooks write elsewhere. */
static uint64_t bytes(void)
{
	return crn_rt()->active ? cursor() - crn_rt()->log_base : 0;
}

/* Entries differ in size: what is counted is their least size. */
static uint64_t count(void)
{
	return bytes() / sizeof(struct crn_log_entry);
}

/* With no room in the log hooks write elsewhere. */
static void rest(void)
{
	struct crn_rt *rt = crn_rt();

	rt->active = false;
	rt->log_end = 0;
	rt->log_cur = 0;
	(void)crn_memory_advise((void *)rt->log_base, rt->log_limit - rt->log_base, MADV_DONTNEED);
}

/* In page mode hooks find no room: stores of theirs that the kernel does not notice are rare. */
static void paged(bool on)
{
	struct crn_rt *rt = crn_rt();

	if (on) {
		rt->log_paged = rt->log_cur;
		rt->log_end = rt->log_cur = 0;
	} else {
		rt->log_cur = rt->log_paged;
		rt->log_end = rt->log_limit;
	}
}

/* What a hook does, in the zeros of the log that no interval has come to yet. */
static void try_out(size_t times)
{
	volatile struct crn_log_entry *log = (void *)crn_rt()->log_base;

	times = CRN_MIN(times, (crn_rt()->log_limit - crn_rt()->log_base) / sizeof(*log));
	for (size_t i = 0; i < times; i++) {
		log[i].word = *(volatile uint64_t *)&crn_rt()->open;
		log[i].where = (uintptr_t)log;
	}
	crn_fill((void *)log, 0, times * sizeof(*log));
}

static int wake(void)
{
	return 0; /* the first reset does it */
}

static const struct crn_hook_ops hooks = {
	.walk = walk,
	.stop = stop,
	.packed = packed,
	.pack = pack,
	.reset = reset,
	.rest = rest,
	.wake = wake,
	.paged = paged,
	.try_out = try_out,
	.count = count,
	.bytes = bytes,
};

/* ---- Opening and closing --------------------------------------------------------------------- */

static void undolog_close(void *tracker)
{
	struct undolog *t = tracker;
	void *log = (void *)crn_rt()->log_base;

	rest();
	crn_rt()->log_base = crn_rt()->log_limit = 0;
	crn_memory_leave(log, t->size);
	crn_kept_close(&t->kept);
	crn_block_free(t->kept.env->arena, t, sizeof(*t));
}

static int undolog_open(void **out, struct crn_track_env *env)
{
	struct undolog *t = crn_block_alloc(env->arena, sizeof(*t));
	void *at;
	int err = CAIRN_EMEMORY;

	if (!t)
		return err;
	err = crn_kept_open(&t->kept, env, &hooks);
	if (err < 0)
		goto err_block;
	t->size = crn_page_up(CRN_MIN(crn_kept_open_max(&t->kept), (uint64_t)CRN_RT_LOG_MAX));
	err = crn_kept_list(CRN_RT_LOG_AT, CRN_RT_LOG_MAX, &t->size, &at);
	if (err < 0)
		goto err_kept;
	crn_rt()->log_base = (uintptr_t)at;
	crn_rt()->log_limit = crn_rt()->log_base + t->size;
	crn_kept_ready(&t->kept);
	*out = t;
	return 0;

err_kept:
	crn_kept_close(&t->kept);
err_block:
	crn_block_free(env->arena, t, sizeof(*t));
	return err;
}

const struct crn_tracker_ops crn_tracker_undolog = {
	.name = "undolog",
	.probe = undolog_probe,
	.open = undolog_open,
	.close = undolog_close,
	CRN_KEPT_ROWS,
};
