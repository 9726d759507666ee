/* SPDX-License-Identifier: MIT */
/*
 * Rings for each thread of the process. An event lives as long as its ring is mapped.
 *
 *	slot of a thread: | user faults | kernel faults | lock taken | births, end | in user mode |
 *			    1 + 16 pages   1 + 16          1 + 8        1 + 8         1 + 1
 */
#include "track/feeds/perf_rings.h"
#include <errno.h>
#include "base/bits.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/thread.h"

#define FAULT_BYTES ((1 + CRN_PERF_FAULT_PAGES) * CRN_PAGE_SIZE)
#define LOCK_BYTES  ((1 + CRN_PERF_LOCK_PAGES) * CRN_PAGE_SIZE)
#define USER_BYTES  (2 * CRN_PAGE_SIZE)
#define SLOT_BYTES                           \
	(CRN_FAULT_RINGS * FAULT_BYTES +     \
		(CRN_RINGS - CRN_FAULT_RINGS) * LOCK_BYTES + USER_BYTES)

/* Its first page holds nothing: its protection is changed, which takes the lock to write. */
#define RESERVE_BYTES (CRN_PAGE_SIZE + CRN_PERF_THREADS * SLOT_BYTES)

static size_t pages_of(enum crn_perf_rings ring)
{
	return ring < CRN_FAULT_RINGS ? CRN_PERF_FAULT_PAGES : CRN_PERF_LOCK_PAGES;
}

static void *ring_of(const struct crn_perf_thread *t, enum crn_perf_rings ring)
{
	if (ring < CRN_FAULT_RINGS)
		return t->at + ring * FAULT_BYTES;
	return t->at + CRN_FAULT_RINGS * FAULT_BYTES + (ring - CRN_FAULT_RINGS) * LOCK_BYTES;
}

struct crn_perf_thread *crn_perf_thread_find(struct crn_perf_feed *f, int tid)
{
	for (size_t i = 0; i < f->thread_count; i++)
		if (f->threads[i].tid == tid && !f->threads[i].ended)
			return &f->threads[i];
	return NULL;
}

void crn_perf_opened_by(struct crn_perf_feed *f, int tid)
{
	f->ended[f->ended_count++ % CRN_PERF_ENDED] = tid;
}

/* ---- Opening ----------------------------------------------------------------------------- */

static int open_rings(struct crn_perf_feed *f, struct crn_perf_thread *t)
{
	struct crn_perf_event events[CRN_RINGS] = {
		[CRN_RING_USER] = { .kind = CRN_PERF_USER_FAULTS },
		[CRN_RING_KERNEL] = { .kind = CRN_PERF_KERNEL_FAULTS },
		[CRN_RING_TAKEN] = { .kind = CRN_PERF_POINT, .point = f->points.acquired,
			.filter = "success == 1", .keep = t->tid == f->opener, .fd = -1 },
		[CRN_RING_TASKS] = { .kind = CRN_PERF_TASKS },
	};
	int err = 0;

	/* Births first: whom it creates from now on is known. */
	for (int i = CRN_RINGS - 1; i >= 0 && err >= 0; i--) {
		events[i].tid = t->tid;
		events[i].cpu = -1;
		err = crn_perf_open(&events[i], ring_of(t, i), pages_of(i));
		crn_perf_opened_by(f, events[i].by);
	}
	if (events[CRN_RING_TAKEN].fd >= 0) {
		f->lock_fd = events[CRN_RING_TAKEN].fd;
		f->lock_id = events[CRN_RING_TAKEN].id;
	}
	return err;
}

int crn_perf_thread_add(struct crn_perf_feed *f, int tid, bool settled)
{
	struct crn_perf_thread *t = &f->threads[f->thread_count];
	size_t slot = 0;
	int err;

	if (crn_perf_thread_find(f, tid))
		return 0;
	while (slot < CRN_PERF_THREADS && f->slot_used[slot])
		slot++;
	if (slot == CRN_PERF_THREADS || f->thread_count == CRN_PERF_THREADS)
		return -EUSERS;
	if (!f->reserve)
		CRN_TRY(crn_perf_reserve((void **)&f->reserve, RESERVE_BYTES));
	*t = (struct crn_perf_thread){ .tid = tid, .slot = slot, .settled = settled,
		.at = f->reserve + CRN_PAGE_SIZE + slot * SLOT_BYTES };
	err = open_rings(f, t);
	if (err < 0) {
		crn_perf_unmap(t->at, SLOT_BYTES);
		return err;
	}
	f->slot_used[slot] = true;
	f->thread_count++;
	return 0;
}

void crn_perf_threads_close(struct crn_perf_feed *f)
{
	if (f->reserve)
		(void)crn_memory_unmap(f->reserve, RESERVE_BYTES);
	f->reserve = NULL;
}

void crn_perf_thread_drop(struct crn_perf_feed *f, struct crn_perf_thread *t)
{
	crn_perf_unmap(t->at, SLOT_BYTES);
	f->slot_used[t->slot] = false;
	*t = f->threads[--f->thread_count];
}

void crn_perf_thread_settle(struct crn_perf_feed *f, struct crn_perf_thread *t)
{
	struct crn_perf_event user = { .kind = CRN_PERF_USER_TIME, .tid = t->tid, .cpu = -1 };
	uint8_t *ring = t->at + SLOT_BYTES - USER_BYTES;

	t->settled |= crn_thread_rests(t->tid) || (t->watched && crn_perf_head(ring));
	if (t->settled && t->watched) {
		crn_perf_unmap(ring, USER_BYTES);
		t->watched = false;
	} else if (!t->settled && !t->watched) {
		t->watched = crn_perf_open(&user, ring, 1) >= 0;
		crn_perf_opened_by(f, user.by);
	}
}

/* ---- Taking note ------------------------------------------------------------------------- */

/* Something found no room: what it was is not known. */
static void lose(struct crn_perf_feed *f, struct crn_perf_thread *t)
{
	f->takings++;
	f->inside = true;
	t->kernel_fault = false;
	t->lost = true;
}

/* Has the kernel found, or will it find at once, no room for a record? */
static bool is_full(const void *ring, size_t pages, uint64_t head)
{
	return head - crn_perf_freed(ring) + CRN_PERF_RECORD_MAX > pages * CRN_PAGE_SIZE;
}

static void note_tasks(struct crn_perf_feed *f, struct crn_perf_thread *t)
{
	f->takings += crn_births_read(&f->births, ring_of(t, CRN_RING_TASKS),
		CRN_PERF_LOCK_PAGES, &t->noted[CRN_RING_TASKS], &t->ended);
	f->broken |= f->births.broken;
}

void crn_perf_thread_forget_births(struct crn_perf_thread *t)
{
	void *ring = ring_of(t, CRN_RING_TASKS);

	t->noted[CRN_RING_TASKS] = crn_perf_head(ring);
	crn_perf_free_until(ring, t->noted[CRN_RING_TASKS]);
}

static void note_open(struct crn_perf_thread *t, enum crn_perf_rings ring, uint64_t at)
{
	size_t address = ring == CRN_RING_KERNEL; /* behind the time */

	t->open[ring] = crn_page_down(
		crn_perf_word(ring_of(t, ring), CRN_PERF_FAULT_PAGES, at, address));
	t->settled = true;
}

static void note_user_faults(struct crn_perf_feed *f, struct crn_perf_thread *t, uint64_t head)
{
	const void *ring = ring_of(t, CRN_RING_USER);
	uint64_t *at = &t->noted[CRN_RING_USER];

	while (*at < head) {
		struct crn_perf_record r = crn_perf_header(ring, CRN_PERF_FAULT_PAGES, *at);

		if (r.type == CRN_PERF_SAMPLE)
			note_open(t, CRN_RING_USER, *at);
		else
			lose(f, t);
		*at += r.size;
	}
}

/*
 * A fault may let go of the lock and take it again, and to write as well, for a stack: only the
 * next one shows that it is over.
 */
static void note_sample(
	struct crn_perf_feed *f, struct crn_perf_thread *t, enum crn_perf_rings ring)
{
	if (ring == CRN_RING_KERNEL) {
		note_open(t, ring, t->noted[ring]);
		t->kernel_fault = true;
		return;
	}
	if (f->own && f->self == t->tid) {
		f->own_takings++;
	} else if (!t->kernel_fault) {
		f->takings++;
		f->inside = true;
	}
	t->kernel_fault = false;
}

/* Which of the two has the oldest record; CRN_RINGS: none has any. Losses have no time. */
static enum crn_perf_rings oldest(const struct crn_perf_thread *t, const uint64_t *heads)
{
	enum crn_perf_rings found = CRN_RINGS;
	uint64_t best = UINT64_MAX;

	for (int i = CRN_RING_KERNEL; i <= CRN_RING_TAKEN; i++) {
		struct crn_perf_record r;
		uint64_t time = 0;

		if (t->noted[i] == heads[i])
			continue;
		r = crn_perf_header(ring_of(t, i), pages_of(i), t->noted[i]);
		if (r.type == CRN_PERF_SAMPLE)
			time = crn_perf_word(ring_of(t, i), pages_of(i), t->noted[i], 0);
		if (time < best) {
			best = time;
			found = i;
		}
	}
	return found;
}

static void note_takings(
	struct crn_perf_feed *f, struct crn_perf_thread *t, const uint64_t *heads)
{
	enum crn_perf_rings ring;

	while ((ring = oldest(t, heads)) != CRN_RINGS) {
		struct crn_perf_record r =
			crn_perf_header(ring_of(t, ring), pages_of(ring), t->noted[ring]);

		if (r.type == CRN_PERF_SAMPLE)
			note_sample(f, t, ring);
		else
			lose(f, t);
		t->noted[ring] += r.size;
	}
	if (crn_perf_freed(ring_of(t, CRN_RING_TAKEN)) != heads[CRN_RING_TAKEN])
		crn_perf_free_until(ring_of(t, CRN_RING_TAKEN), heads[CRN_RING_TAKEN]);
}

void crn_perf_thread_note(struct crn_perf_feed *f, struct crn_perf_thread *t)
{
	uint64_t heads[CRN_RING_TASKS];
	bool only_user, full = false;

	f->takings += !t->settled;
	t->lost = false;
	note_tasks(f, t); /* first: after its end the other rings say all */
	/* Backwards: the fault that a taking was for is seen if that is. */
	for (int i = CRN_RING_TAKEN; i >= 0; i--) {
		heads[i] = crn_perf_head(ring_of(t, i));
		full |= is_full(ring_of(t, i), pages_of(i), heads[i]);
	}
	only_user = heads[CRN_RING_USER] != t->noted[CRN_RING_USER] &&
		heads[CRN_RING_KERNEL] == t->noted[CRN_RING_KERNEL];
	note_user_faults(f, t, heads[CRN_RING_USER]);
	note_takings(f, t, heads);
	/*
	 * A thread is in one fault at a time: a new one in user mode ends the one in kernel mode.
	 * The other way round that is not known, because that ring's head was read first.
	 */
	if (only_user)
		t->open[CRN_RING_KERNEL] = 0;
	if (full)
		lose(f, t);
	t->settled &= !t->lost;
}

static int drain_faults(
	struct crn_perf_thread *t, enum crn_perf_rings which, struct crn_range_list *written)
{
	const size_t pages = CRN_PERF_FAULT_PAGES, address = which == CRN_RING_KERNEL;
	uint64_t *at = &t->drained[which], end = t->noted[which];
	void *ring = ring_of(t, which);
	int err = 0;

	if (*at == end)
		return 0;
	while (*at < end) {
		struct crn_perf_record r = crn_perf_header(ring, pages, *at);
		uintptr_t page = crn_page_down(crn_perf_word(ring, pages, *at, address));

		if (r.type == CRN_PERF_SAMPLE)
			err = crn_range_list_add(written, page, page + CRN_PAGE_SIZE);
		if (err < 0)
			break;
		*at += r.size;
	}
	crn_perf_free_until(ring, *at);
	return err;
}

int crn_perf_thread_drain(struct crn_perf_thread *t, struct crn_range_list *written)
{
	CRN_TRY(drain_faults(t, CRN_RING_USER, written));
	return drain_faults(t, CRN_RING_KERNEL, written);
}
