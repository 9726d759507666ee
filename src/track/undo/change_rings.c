/* SPDX-License-Identifier: MIT */
#include "track/undo/change_rings.h"
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/status.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "os/perf.h"
#include "os/thread.h"
#include "track/feeds/births.h"

#define THREADS_MAX  64u
#define PASSES_MAX   16 /* over the list of threads, until all have rings */
#define FAILURES_MAX 16u /* to give all of them rings, one after the other */

/* slot of a thread: | changes | births and end |	1 + 1 and 1 + 2 pages */
#define TASK_PAGES   2u
#define CHANGE_BYTES (2 * CRN_PAGE_SIZE)
#define SLOT_BYTES   (CHANGE_BYTES + (1 + TASK_PAGES) * CRN_PAGE_SIZE)

struct watched {
	int tid;
	size_t slot; /* of the reserve */
	uint8_t *changes; /* the kernel puts births here, too, where they may be written over */
	uint8_t *tasks;
	uint64_t noted; /* head of changes, at the last good look */
	uint64_t found; /* and at this one */
	uint64_t read;  /* of tasks */
	bool ended;
};

struct crn_change_rings {
	struct crn_arena *arena;
	uint8_t *reserve;
	struct watched threads[THREADS_MAX];
	size_t thread_count;
	bool slot_used[THREADS_MAX];
	struct crn_births births;
	bool broken; /* it cannot be complete any more */
	uint32_t failures; /* to make rings, in a row */
};

/* ---- Who there is ------------------------------------------------------------------------ */

static bool is_watched(const struct crn_change_rings *r, int tid)
{
	for (size_t i = 0; i < r->thread_count; i++)
		if (r->threads[i].tid == tid && !r->threads[i].ended)
			return true;
	return false;
}

static int open_rings(struct watched *t)
{
	struct crn_perf_event tasks = { .kind = CRN_PERF_TASKS, .tid = t->tid, .cpu = -1 };
	struct crn_perf_event changes = { .kind = CRN_PERF_CHANGES, .tid = t->tid, .cpu = -1 };

	/* Births first: whom it creates from now on is known. */
	CRN_TRY(crn_perf_open(&tasks, t->tasks, TASK_PAGES));
	return crn_perf_open(&changes, t->changes, 1);
}

static int watch(struct crn_change_rings *r, int tid)
{
	struct watched *t = &r->threads[r->thread_count];
	uint8_t *at = r->reserve;
	size_t slot = 0;
	int err;

	while (slot < THREADS_MAX && r->slot_used[slot])
		slot++;
	if (slot == THREADS_MAX)
		return -EUSERS;
	at += slot * SLOT_BYTES;
	*t = (struct watched){ .tid = tid, .slot = slot, .changes = at,
		.tasks = at + CHANGE_BYTES };
	err = open_rings(t);
	if (err < 0) {
		crn_perf_unmap(at, SLOT_BYTES);
		return err;
	}
	r->slot_used[slot] = true;
	r->thread_count++;
	return 0;
}

static void drop_ended(struct crn_change_rings *r)
{
	for (size_t i = r->thread_count; i-- > 0;) {
		struct watched *t = &r->threads[i];

		if (!t->ended)
			continue;
		crn_perf_unmap(t->changes, SLOT_BYTES);
		r->slot_used[t->slot] = false;
		*t = r->threads[--r->thread_count];
	}
}

struct adoption {
	struct crn_change_rings *rings;
	int error;
};

static int adopt_one(void *arg, int tid)
{
	struct adoption *a = arg;
	int err = is_watched(a->rings, tid) ? 0 : watch(a->rings, tid);

	if (err < 0 && err != -ESRCH)
		a->error = err;
	return a->error;
}

static void read_tasks(struct crn_change_rings *r, struct watched *t)
{
	(void)crn_births_read(&r->births, t->tasks, TASK_PAGES, &t->read, &t->ended);
	r->broken |= r->births.broken;
}

/* Until nobody without rings is left who could have created another. 0 or -errno. */
static int adopt_all(struct crn_change_rings *r)
{
	struct adoption a = { .rings = r };
	int err = 0;

	for (int pass = 0; pass < PASSES_MAX && !r->broken; pass++) {
		for (size_t i = 0; i < r->thread_count; i++)
			read_tasks(r, &r->threads[i]);
		if (!r->births.born)
			break;
		r->births.born = false;
		err = crn_thread_each(adopt_one, &a);
		if (err < 0)
			break;
	}
	r->births.born |= err < 0;
	return err;
}

/* ---- Looks ------------------------------------------------------------------------------- */

bool crn_change_rings_quiet(const struct crn_change_rings *r)
{
	if (!r || r->broken || !crn_births_settled(&r->births))
		return false;
	for (size_t i = 0; i < r->thread_count; i++) {
		const struct watched *t = &r->threads[i];

		/* A birth during the look may be in `noted`, and its thread have no rings. */
		if (crn_perf_head(t->changes) != t->noted || crn_perf_head(t->tasks) != t->read)
			return false;
	}
	return true;
}

void crn_change_rings_look(struct crn_change_rings *r)
{
	if (!r || r->broken)
		return;
	r->failures = adopt_all(r) < 0 ? r->failures + 1 : 0;
	r->broken |= r->failures == FAILURES_MAX;
	crn_births_settle(&r->births);
	r->broken |= r->births.broken;
	if (r->broken)
		crn_info("perf cannot tell of all mappings that change any more (%zu threads): "
			 "each rewind under mprotect looks", r->thread_count);
	for (size_t i = 0; i < r->thread_count; i++)
		r->threads[i].found = crn_perf_head(r->threads[i].changes);
}

void crn_change_rings_note(struct crn_change_rings *r)
{
	if (!r || r->broken)
		return;
	for (size_t i = 0; i < r->thread_count; i++)
		r->threads[i].noted = r->threads[i].found;
	drop_ended(r);
}

/* ---- Life -------------------------------------------------------------------------------- */

int crn_change_rings_open(struct crn_change_rings **out, struct crn_arena *arena,
	const struct crn_keeper *keeper)
{
	struct crn_change_rings *r = crn_block_alloc(arena, sizeof(*r));
	int err;

	if (!r)
		return CAIRN_EMEMORY;
	r->arena = arena;
	r->births.pid = crn_getpid();
	r->births.keeper = keeper;
	r->births.born = r->births.strangers = true;
	err = crn_perf_reserve((void **)&r->reserve, THREADS_MAX * SLOT_BYTES);
	if (err >= 0)
		err = adopt_all(r);
	if (err < 0) {
		crn_change_rings_close(r);
		return err;
	}
	*out = r;
	return 0;
}

void crn_change_rings_close(struct crn_change_rings *r)
{
	if (!r)
		return;
	if (r->reserve)
		(void)crn_memory_unmap(r->reserve, THREADS_MAX * SLOT_BYTES);
	crn_block_free(r->arena, r, sizeof(*r));
}
