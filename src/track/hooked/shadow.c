/* SPDX-License-Identifier: MIT */
/*
 * Shadow state (LMC, sections II to IV; "Techniques for in-memory checkpointing", section 3). Code
 * that the compiler has instrumented copies a region to the same place in the shadow before the
 * first store to it in an interval. There is no page fault and no system call. A checkpoint costs a
 * copy of the stack and one byte for each region that was written.
 *
 * Memory: at most the written set (its regions) in the shadow, one tag each, eight bytes each in
 * the list, and the same again for each checkpoint beyond the newest.
 */
#include "base/arena.h"
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/host.h"
#include "os/memory.h"
#include "os/thread.h"
#include "track/hooked/kept_intervals.h"
#include "track/hooked/tags.h"

#define HOOK_WAIT_NS 200000000u
#define HOOK_GONE_NS 5000000000u /* so long stopped: its thread has left it, and ended */

struct shadow {
	struct crn_kept kept; /* first */
	size_t list_size;
};

static size_t region(void)
{
	return 1ul << __cairn_shape.shift;
}

static int shadow_probe(const struct crn_host *host)
{
	return __cairn_shape.kind == CRN_RT_SHADOW ? 0 : CAIRN_ENOTRACK;
}

/* ---- The open interval ---------------------------------------------------------------------- */

/* What one entry of the list keeps, at most: of regions of one byte it is a word. */
static size_t granule(void)
{
	return CRN_MAX(region(), sizeof(uint64_t));
}

/* With its tags and the entry. */
static size_t entry_bytes(void)
{
	return granule() + granule() / region() + sizeof(uint64_t);
}

/* The bytes of a word that an entry names, run by run; `fn` negative stops. */
static int each_run(uint64_t entry, crn_undo_fn fn, void *ctx)
{
	uintptr_t at = entry & CRN_LIST_ADDR;
	uint32_t mask = (uint32_t)(entry >> CRN_LIST_MASK);

	for (uint32_t first = 0, end; mask >> first; first = end) {
		first += (uint32_t)__builtin_ctz(mask >> first);
		end = first + (uint32_t)__builtin_ctz(~(mask >> first));
		CRN_TRY(fn(ctx, at + first, crn_rt_shadow(at + first), end - first));
	}
	return 0;
}

/* Does the entry name whole words or regions whose content there is? */
static bool whole(uint64_t entry)
{
	return entry && !(entry & CRN_LIST_BLANK) &&
		(__cairn_shape.shift || entry >> CRN_LIST_MASK == 0xff);
}

/* Of such an entry, or words. */
static size_t regions(uint64_t entry)
{
	return __cairn_shape.shift ? crn_rt_run(entry) : 1;
}

/*
 * In any order: what is named twice has one content. Neighbours that were saved one after another
 * are one run. Entries of 0 name nothing.
 */
static int walk(crn_undo_fn fn, void *ctx)
{
	const uint64_t *d = crn_rt()->dirty, *end = crn_rt()->dirty_cur;

	while (d < end) {
		uintptr_t at = *d & CRN_LIST_ADDR;
		size_t n = 0;

		if (*d & CRN_LIST_BLANK) {
			d++;
			continue;
		}
		if (!whole(*d)) {
			CRN_TRY(each_run(*d++, fn, ctx));
			continue;
		}
		for (; d < end && whole(*d) && (*d & CRN_LIST_ADDR) == at + n * granule(); d++)
			n += regions(*d);
		CRN_TRY(fn(ctx, at, crn_rt_shadow(at), n * granule()));
	}
	return 0;
}

static uint64_t count(void)
{
	return crn_rt_listed(crn_rt()) - crn_rt()->blanks;
}

static int add_size(void *ctx, uintptr_t addr, const void *old, size_t len)
{
	*(size_t *)ctx += crn_log_need(len);
	return 0;
}

static size_t packed(void)
{
	size_t size = 0;

	(void)walk(add_size, &size);
	return size;
}

static int pack_run(void *ctx, uintptr_t addr, const void *old, size_t len)
{
	struct crn_log_entry e = { .word = len, .where = addr | CRN_LOG_LONG << 56 };

	if (len > sizeof(e.word)) {
		/* What it is padded with is of the shadow, too. */
		crn_packed_put(ctx, old, crn_log_need(len) - sizeof(e));
	} else {
		crn_copy(&e.word, old, len);
		e.where = addr | (uint64_t)len << 56;
	}
	crn_packed_put(ctx, &e, sizeof(e));
	return 0;
}

static void pack(struct crn_packed_log *to)
{
	(void)walk(pack_run, to);
}

static void set_plain(bool plain)
{
	struct crn_rt *rt = crn_rt();

	rt->plain = plain && *__cairn_shape.tags != CRN_TAGS_EPOCH && !rt->tag_pages;
}

/* Wait for the hooks of a word, of another thread; by the clock, as each yield may take long. */
static uintptr_t await_word(struct crn_rt *rt, uintptr_t *at)
{
	uint64_t until = 0;
	uintptr_t n;

	for (;;) {
		n = __atomic_load_n(at, __ATOMIC_SEQ_CST);
		if (!(n & CRN_RT_SAVES) || n & CRN_RT_STOPPED)
			return n;
		if (!until)
			until = crn_clock_kernel_ns() + HOOK_WAIT_NS;
		if (crn_clock_kernel_ns() < until) {
			crn_yield();
			continue;
		}
		if (!__atomic_compare_exchange_n(at, &n, n | CRN_RT_STOPPED, false,
			    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
			continue;
		rt->stopped_ns = crn_clock_kernel_ns();
		return n | CRN_RT_STOPPED;
	}
}

/*
 * Of other threads, which are soon done. One that was left by a jump is not, nor one whose thread
 * is stopped: nobody waits for those twice, but until they end, or their thread has a hook that
 * tells that they were left, no interval can be undone: they may list and tag in it what they have
 * saved for an older one. Own ones are interrupted, or were left.
 */
static void await_hooks(struct crn_rt *rt)
{
	uintptr_t own = crn_rt_saver(rt->ender);
	bool stopped = false;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uintptr_t *s = rt->saving; s < rt->saving + CRN_RT_SAVERS; s++) {
		uintptr_t n = __atomic_load_n(s, __ATOMIC_SEQ_CST);
		bool mine = n & CRN_RT_SAVES && (n & ~CRN_RT_SAVES) == own;

		n = mine ? n : await_word(rt, s);
		if (!(n & CRN_RT_STOPPED))
			continue;
		if (!mine && crn_clock_kernel_ns() - rt->stopped_ns <= HOOK_GONE_NS)
			stopped = true;
		else if (!__atomic_compare_exchange_n(s, &n, 0, false, __ATOMIC_SEQ_CST,
				 __ATOMIC_SEQ_CST))
			stopped = true;
	}
	rt->stopped = stopped;
}

/* Of what handlers store from here to `reset` nothing is saved: it is part of the checkpoint. */
static void stop(void)
{
	set_plain(false);
	crn_rt()->late = false;
	crn_rt()->ender = __cairn_shape.threads ? (uintptr_t)__builtin_thread_pointer() : 0;
	crn_rt()->ending = true;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (crn_rt()->ender)
		await_hooks(crn_rt());
}

static bool reset(void)
{
	struct crn_rt *rt = crn_rt();

	if (crn_unlikely(rt->stopped || rt->stale))
		crn_tags_renew();
	else
		crn_tags_reset();
	rt->stale = rt->stopped;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	rt->ending = false;
	set_plain(true);
	return !rt->late;
}

static uint64_t bytes(void)
{
	return count() * entry_bytes();
}

/* Old content of the last session, or before a pause, is given back. */
static void clear_shadow(void)
{
	(void)crn_memory_advise(crn_rt_shadow(CRN_RT_IMAGE_AT), CRN_RT_IMAGE_LEN, MADV_DONTNEED);
	(void)crn_memory_advise(crn_rt_shadow(CRN_RT_MAPS_AT), CRN_RT_MAPS_LEN, MADV_DONTNEED);
}

static void rest(void)
{
	set_plain(false);
	crn_rt()->active = false;
	crn_tags_forget_list();
	crn_tags_close();
	clear_shadow();
}

/* No tag is set from here to the first reset. */
static int wake(void)
{
	int err;

	crn_rt()->pid = __cairn_shape.threads ? crn_getpid() : 0;
	stop();
	err = crn_tags_open();
	if (err < 0)
		crn_rt()->ending = false;
	return err;
}

/* Hooks look at the list of what is paged. */
static void paged(bool on)
{
	set_plain(!on && crn_rt()->active);
}

/* What most hooks do: they look at a tag. */
static void try_out(size_t times)
{
	const volatile uint8_t *tag = crn_rt_tag((uintptr_t)crn_rt(), __cairn_shape.shift);

	while (times-- && *tag != 1)
		;
}

static const struct crn_hook_ops hooks = {
	.walk = walk,
	.stop = stop,
	.hold = crn_tags_clear,
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

static void list_close(struct shadow *t)
{
	struct crn_rt *rt = crn_rt();

	crn_memory_leave(rt->dirty, t->list_size);
	rt->dirty = rt->dirty_cur = rt->dirty_end = rt->dirty_limit = NULL;
}

static void shadow_close(void *tracker)
{
	struct shadow *t = tracker;

	set_plain(false);
	crn_rt()->active = crn_rt()->ending = false;
	list_close(t);
	crn_tags_close();
	clear_shadow();
	crn_kept_close(&t->kept);
	crn_block_free(t->kept.env->arena, t, sizeof(*t));
}

/* As much as memory_max allows; a list that is full makes the interval one that is not restored. */
static int list_open(struct shadow *t)
{
	uint64_t entries = crn_kept_open_max(&t->kept) / entry_bytes();
	void *at;

	entries = CRN_MIN(entries, (CRN_RT_LIST_MAX - CRN_PAGE_SIZE) / sizeof(uint64_t));
	t->list_size = crn_page_down(entries * sizeof(uint64_t)) + CRN_PAGE_SIZE;
	CRN_TRY(crn_kept_list(CRN_RT_LIST_AT, CRN_RT_LIST_MAX, &t->list_size, &at));
	crn_rt()->dirty = crn_rt()->dirty_cur = at;
	crn_rt()->dirty_limit = crn_rt()->dirty + t->list_size / sizeof(uint64_t);
	crn_rt()->dirty_end = crn_rt()->dirty_limit;
	return 0;
}

static int shadow_open(void **out, struct crn_track_env *env)
{
	struct shadow *t = crn_block_alloc(env->arena, sizeof(*t));
	int err = CAIRN_EMEMORY;

	if (!t)
		return err;
	err = CAIRN_EUNSUPPORTED;
	if (!__cairn_shape.saves()) {
		crn_error("this program was built with -fcairn-save=off: it cannot be restored");
		goto err_block;
	}
	err = crn_kept_open(&t->kept, env, &hooks);
	if (err < 0)
		goto err_block;
	err = list_open(t);
	if (err < 0)
		goto err_kept;
	err = wake();
	if (err < 0)
		goto err_list;
	crn_kept_ready(&t->kept);
	*out = t;
	return 0;

err_list:
	list_close(t);
err_kept:
	crn_kept_close(&t->kept);
err_block:
	crn_block_free(env->arena, t, sizeof(*t));
	return err;
}

const struct crn_tracker_ops crn_tracker_shadow = {
	.name = "shadow",
	.probe = shadow_probe,
	.open = shadow_open,
	.close = shadow_close,
	CRN_KEPT_ROWS,
};
