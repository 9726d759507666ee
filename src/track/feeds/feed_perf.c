/* SPDX-License-Identifier: MIT */
/*
 * Written pages from perf. What the BPF feed learns from programs on tracepoints (feed_bpf.c has
 * the reasons), this feed reads from rings that the kernel fills. It needs neither CAP_BPF nor type
 * information of the kernel, but a fault costs more.
 *
 *	page fault	its page was written. (Read faults are told as well, which is no harm)
 *	lock taken	by somebody who changes a mapping, or may write without a fault: doubt;
 *			but the first one after a fault in kernel mode is that fault's. (Those in
 *			user mode take none)
 *
 * A ring belongs to a thread. The birth of a thread is recorded in the ring of its parent. There is
 * doubt until the child has a ring, and has been seen outside of any fault that its ring does not
 * show. A child process may share our memory (vfork): there is doubt until neither it nor any
 * process that it may have created does.
 *
 * A full ring, a lost record, a thread without a ring: doubt.
 *
 * What other processes do (process_vm_writev, ptrace) is seen only with CAP_PERFMON. Without it the
 * feed must be asked for by name, and cairn_area_touch must announce such writes.
 */
#include <errno.h>
#include "base/arena.h"
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "os/thread.h"
#include "track/feeds/perf_rings.h"

#define PASSES_MAX   16 /* over the list of threads, until all have rings */
#define FAILURES_MAX 16u /* to give all of them rings, one after the other */
#define MUTE_FROM    8u /* takings of the lock in one call of the engine's */
#define LISTEN_EVERY 16u

/* ---- Who there is ------------------------------------------------------------------------ */

struct adoption {
	struct crn_perf_feed *feed;
	size_t added;
	int error;
};

static int adopt_one(void *arg, int tid)
{
	struct adoption *a = arg;
	size_t before = a->feed->thread_count;
	int err = crn_perf_thread_add(a->feed, tid, tid == crn_gettid());

	a->added += a->feed->thread_count - before;
	if (err < 0 && err != -ESRCH)
		a->error = err;
	return err == -EUSERS ? err : 0;
}

/* Until nobody without a ring is left who could have created another. 0 or -errno. */
static int adopt_all(struct crn_perf_feed *f)
{
	struct adoption a = { .feed = f, .added = 1 };
	int err = 0;

	for (int pass = 0; pass < PASSES_MAX && a.added && err >= 0; pass++) {
		a.added = 0;
		a.error = 0;
		err = crn_thread_each(adopt_one, &a);
	}
	f->births.born = a.error < 0 || a.added;
	/* No room for rings (RLIMIT_MEMLOCK): trying at each checkpoint costs more than a scan. */
	f->failures = a.error < 0 ? f->failures + 1 : 0;
	f->broken |= f->failures == FAILURES_MAX;
	return err;
}

/* ---- Taking note ------------------------------------------------------------------------- */

static void note_rings(struct crn_perf_feed *f)
{
	for (size_t i = 0; i < f->thread_count; i++)
		crn_perf_thread_note(f, &f->threads[i]);
	crn_perf_others_note(f);
}

static void note(struct crn_perf_feed *f)
{
	note_rings(f);
	f->takings += !crn_births_settled(&f->births);
}

/* Two system calls, or as many records as there were the last time? */
static bool is_muting_cheaper(struct crn_perf_feed *f)
{
	bool many = f->own_takings >= MUTE_FROM;

	if (f->self != f->opener)
		return false;
	if (!many || ++f->own_count % LISTEN_EVERY == 0)
		f->own_takings = 0; /* they are counted now */
	return many && f->own_takings;
}

static void know_self(struct crn_perf_feed *f)
{
	if (!crn_feed_knows_caller(&f->feed, f->env))
		f->self = crn_gettid();
}

static void perf_own(struct crn_feed *feed, bool begin)
{
	struct crn_perf_feed *f = (struct crn_perf_feed *)feed;
	struct crn_perf_thread *t;

	if (begin)
		know_self(f);
	else if (f->muted && crn_perf_mute(f->lock_fd, f->lock_id, false) < 0)
		f->broken = true;
	t = crn_perf_thread_find(f, f->self);
	if (t) {
		crn_perf_thread_note(f, t); /* what was before; or what was ours */
		t->kernel_fault = false; /* whose taking was muted */
	}
	f->muted = begin && t && is_muting_cheaper(f) &&
		crn_perf_mute(f->lock_fd, f->lock_id, true) >= 0;
	f->own = begin;
}

/* Muting needs no record to be judged; it can be had for one thread, which is nearly always it. */
static void perf_own_closed(struct crn_feed *feed, bool begin)
{
	struct crn_perf_feed *f = (struct crn_perf_feed *)feed;

	if (f->lock_fd >= 0 && crn_gettid() == f->opener &&
		crn_perf_mute(f->lock_fd, f->lock_id, begin) < 0 && !begin)
		*f->env->deaf = true;
}

static bool perf_maps_quiet(struct crn_feed *feed)
{
	struct crn_perf_feed *f = (struct crn_perf_feed *)feed;
	bool quiet;

	note(f);
	quiet = f->takings == f->asked && !f->broken;
	f->asked = f->takings;
	return quiet;
}

static bool perf_unsteady(const struct crn_feed *feed)
{
	struct crn_perf_feed *f = (struct crn_perf_feed *)feed;

	note(f);
	return f->takings != f->drained_takings;
}

static void perf_suspect(struct crn_feed *feed)
{
	((struct crn_perf_feed *)feed)->doubt_again = true;
}

/* ---- Draining ---------------------------------------------------------------------------- */

/*
 * Hold the lock alone for a moment: who was inside before is out, and a scan finds what he wrote.
 * Somebody may have come in since.
 */
static void let_out(struct crn_perf_feed *f)
{
	uint64_t before = f->takings;

	if (crn_memory_protect(f->reserve, CRN_PAGE_SIZE, PROT_READ) < 0 ||
		crn_memory_protect(f->reserve, CRN_PAGE_SIZE, PROT_NONE) < 0)
		return;
	f->inside = false;
	note_rings(f);
	f->inside |= f->takings != before;
}

/* What we do here takes the lock and creates threads: it is not to be noted. 0 or -errno. */
static int mend(struct crn_perf_feed *f, int self)
{
	struct crn_perf_thread *t;
	int err = 0;

	perf_own(&f->feed, true);
	if (f->births.born)
		err = adopt_all(f);
	if (f->inside)
		let_out(f);
	for (size_t i = 0; i < f->thread_count; i++) {
		t = &f->threads[i];
		t->settled |= t->tid == self;
		if (!t->settled || t->watched)
			crn_perf_thread_settle(f, t);
	}
	t = crn_perf_thread_find(f, self);
	if (t)
		crn_perf_thread_forget_births(t);
	perf_own(&f->feed, false);
	crn_births_settle(&f->births);
	f->broken |= f->births.broken;
	return err;
}

static bool needs_mending(const struct crn_perf_feed *f)
{
	bool unsettled = false;

	for (size_t i = 0; i < f->thread_count; i++)
		unsettled |= !f->threads[i].settled || f->threads[i].watched;
	return unsettled || !crn_births_settled(&f->births) || f->inside;
}

/* Hand out what was noted. 0 or negative: the rest stays. */
static int hand_out(struct crn_perf_feed *f, int self, struct crn_range_list *written,
	struct crn_range_list *open)
{
	int err = 0;

	for (size_t i = 0; i < f->thread_count && err >= 0;) {
		struct crn_perf_thread *t = &f->threads[i];

		err = crn_perf_thread_drain(t, written);
		for (int k = 0; k < CRN_FAULT_RINGS && t->tid != self && !t->ended; k++)
			if (t->open[k])
				(void)crn_range_list_add(
					open, t->open[k], t->open[k] + CRN_PAGE_SIZE);
		if (t->ended && err >= 0) {
			/* Somebody may get its number, and would not be seen. */
			f->broken |= t->tid == f->opener;
			crn_perf_thread_drop(f, t);
		} else {
			i++;
		}
	}
	return err;
}

static int perf_drain(
	struct crn_feed *feed, struct crn_range_list *written, struct crn_range_list *open)
{
	struct crn_perf_feed *f = (struct crn_perf_feed *)feed;
	bool doubt;
	int self, err;

	know_self(f);
	self = f->self;
	CRN_TRY(crn_range_list_reserve(open, CRN_FAULT_RINGS * CRN_PERF_THREADS));
	note(f);
	if (!crn_perf_thread_find(f, self))
		f->births.born = f->births.strangers = true;
	doubt = f->doubt_again || !crn_births_settled(&f->births) ||
		f->takings != f->drained_takings || f->inside;
	if (needs_mending(f))
		CRN_TRY(mend(f, self));
	doubt |= f->takings != f->drained_takings;
	if (f->broken || *f->env->deaf)
		return -EUSERS;
	f->drained_takings = f->takings;
	f->doubt_again = f->inside;
	err = hand_out(f, self, written, open);
	if (err < 0)
		f->doubt_again |= doubt;
	return err < 0 ? err : doubt;
}

/* ---- Open and close ---------------------------------------------------------------------- */

static void perf_close(struct crn_feed *feed)
{
	struct crn_perf_feed *f = (struct crn_perf_feed *)feed;

	while (f->thread_count)
		crn_perf_thread_drop(f, &f->threads[f->thread_count - 1]);
	if (f->held)
		crn_keeper_drop(f->env->keeper, &f->lock_fd);
	else
		crn_fd_close(f->lock_fd);
	crn_perf_threads_close(f);
	crn_perf_others_close(f);
	crn_block_free(f->env->arena, f, sizeof(*f));
}

static int perf_open(struct crn_feed **out, struct crn_track_env *env)
{
	struct crn_perf_feed *f = crn_block_alloc(env->arena, sizeof(*f));
	int err;

	if (!f)
		return CAIRN_EMEMORY;
	f->feed.ops = &crn_feed_perf;
	f->env = env;
	f->births.pid = crn_getpid();
	f->births.keeper = env->keeper;
	f->self = f->opener = crn_gettid();
	f->lock_fd = -1;
	err = crn_perf_points(&f->points);
	if (err >= 0)
		err = crn_perf_thread_add(f, f->self, true);
	if (err >= 0) {
		err = crn_perf_others_open(f);
		if (err < 0 && crn_streq(env->feed, f->feed.ops->name)) {
			crn_info("feed perf: what other processes write is not seen: %s",
				cairn_strerror(err));
			err = 0;
		}
	}
	if (err < 0) {
		perf_close(&f->feed);
		return err;
	}
	f->births.born = f->births.strangers = true; /* who is there already */
	*out = &f->feed;
	return 0;
}

/* Only to be had again: a mapping holds each event. */
static int perf_hold(struct crn_feed *feed)
{
	struct crn_perf_feed *f = (struct crn_perf_feed *)feed;

	CRN_TRY(crn_keeper_hold(f->env->keeper, &f->lock_fd, NULL));
	f->held = true;
	return 0;
}

const struct crn_feed_ops crn_feed_perf = {
	.name = "perf",
	.births_doubt = true,
	.open = perf_open,
	.close = perf_close,
	.hold = perf_hold,
	.drain = perf_drain,
	.own = perf_own,
	.own_closed = perf_own_closed,
	.maps_quiet = perf_maps_quiet,
	.unsteady = perf_unsteady,
	.suspect = perf_suspect,
};
