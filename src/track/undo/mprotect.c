/* SPDX-License-Identifier: MIT */
/*
 * Tracker `mprotect`: undo pages behind read-only mappings, the tracker of LMC section VI. It runs
 * everywhere, and costs a signal and two splits of a mapping for each page that an interval writes.
 * A system call that writes to a clean page fails with EFAULT, so pages of the surface that the
 * kernel writes are touched first or are hot.
 */
#include <errno.h>
#include "base/status.h"
#include "os/limits.h"
#include "os/memory.h"
#include "track/undo/undo_pages.h"

static int protect(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec)
{
	return crn_memory_protect((void *)begin, end - begin, PROT_READ | (exec ? PROT_EXEC : 0));
}

static int unprotect(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec)
{
	return crn_memory_reopen(
		(void *)begin, end - begin, PROT_READ | PROT_WRITE | (exec ? PROT_EXEC : 0));
}

/*
 * The run of pages from `at` on that agree in what the program may do with them; sealed ones are
 * skipped.
 */
static bool next_run(const struct undo_area *a, uintptr_t *at, uintptr_t *end, bool *exec)
{
	uintptr_t word, mask = UNDO_SEALED | UNDO_EXEC;

	while (*at < a->end && atomic_load(undo_word_of(a, *at)) & UNDO_SEALED)
		*at += CRN_PAGE_SIZE;
	if (*at >= a->end)
		return false;
	word = atomic_load(undo_word_of(a, *at)) & mask;
	*exec = word & UNDO_EXEC;
	for (*end = *at; *end < a->end; *end += CRN_PAGE_SIZE)
		if ((atomic_load(undo_word_of(a, *end)) & mask) != word)
			break;
	return true;
}

/*
 * Open what looks as we left it. The mapping may be gone, and another one in its place, of any
 * kind, that has been closed since like the one before.
 */
static void end_run(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec)
{
	int ours = PROT_READ | (exec ? PROT_EXEC : 0);
	struct crn_mapping m;

	if (crn_maps_begin(&u->maps, begin, CRN_MAPS_NO_NAMES) < 0)
		return;
	while (crn_maps_next(&u->maps, &m) > 0 && m.begin < end) {
		uintptr_t from = CRN_MAX(m.begin, begin), to = CRN_MIN(m.end, end);

		if (m.prot == ours)
			unprotect(u, from, to, exec);
	}
}

static void mprotect_end(struct crn_undo_pages *u, struct undo_area *a)
{
	uintptr_t end;
	bool exec;

	undo_told_drop(u, a);
	for (uintptr_t at = a->begin; next_run(a, &at, &end, &exec); at = end)
		end_run(u, at, end, exec);
	crn_faults_disinherit(u->handler, a->begin, a->end);
}

/* Close a page. Not in huge pages of hugetlbfs, which could not be opened one by one either. */
static int close_single(
	struct crn_undo_pages *u, const struct undo_area *a, uintptr_t page, bool exec)
{
	int err;

	if (!(a->area->flags & (CRN_AREA_FILE | CRN_AREA_SHARED)) ||
		atomic_load(undo_word_of(a, page)) & UNDO_OPEN)
		return 0;
	err = protect(u, page, page + CRN_PAGE_SIZE, exec);
	return err == -EINVAL ? CAIRN_EUNSUPPORTED : err;
}

static int mprotect_begin(struct crn_undo_pages *u, struct undo_area *a)
{
	uintptr_t end;
	bool exec;
	int err = 0;

	for (uintptr_t at = a->begin; next_run(a, &at, &end, &exec); at = end) {
		err = crn_faults_inherit(u->handler, at, end,
			PROT_READ | PROT_WRITE | (exec ? PROT_EXEC : 0));
		if (err >= 0)
			err = close_single(u, a, at, exec);
		if (err >= 0)
			err = undo_protect_closed(u, a, at, end, exec);
		if (err < 0) {
			mprotect_end(u, a);
			return err;
		}
	}
	undo_told_add(u, a);
	return 0;
}

const struct undo_guard undo_guard_mprotect = {
	.signal = SIGSEGV,
	.code = SEGV_ACCERR,
	.begin = mprotect_begin,
	.end = mprotect_end,
	.protect = protect,
	.open = unprotect,
	.whole = undo_whole_mprotect,
};

static int probe(const struct crn_host *host)
{
	return 0;
}

/* ---- RLIMIT_DATA ------------------------------------------------------------------------- */

/* NULL: in an area that is being added, whose closed pages are not counted yet either. */
static bool counts(const struct undo_area *a)
{
	return a && a->guard == &undo_guard_mprotect && !(a->area->flags & CRN_AREA_SHARED);
}

static size_t count_open(const struct crn_undo_pages *u)
{
	size_t open = 0;

	for (size_t i = 0; i < atomic_load(&((struct crn_undo_pages *)u)->saved_count); i++)
		open += counts(undo_find(u, u->saved[i]));
	for (size_t i = 0; i < u->hot.count; i++)
		open += counts(undo_find(u, u->hot.at[i].page));
	return open;
}

int undo_data_limit(struct crn_undo_pages *u)
{
	size_t closed = 0;
	uint64_t limit;

	for (size_t i = 0; i < u->area_count; i++) {
		if (counts(u->areas[i]))
			closed += crn_pages(u->areas[i]->end - u->areas[i]->begin);
	}
	/* Under uffd nothing but files may be: no system call then. */
	if (!closed)
		return 0;
	limit = crn_memory_data_limit();
	if (crn_likely(limit == UINT64_MAX))
		return 0;
	closed -= count_open(u);
	/* Twice: the copy that a first store makes is data as well. */
	return crn_memory_data_used() + (closed << (CRN_PAGE_SHIFT + 1)) > limit ? -ENOMEM : 0;
}

int undo_data_open(void *t)
{
	struct crn_undo_pages *u = t;

	for (size_t i = 0; i < u->area_count; i++) {
		const struct undo_area *a = u->areas[i];

		if (counts(a))
			CRN_TRY(undo_unprotect(u, a->begin, a->end - a->begin));
	}
	return 0;
}

static int mprotect_interval_end(void *t, struct crn_sink *sink)
{
	struct crn_undo_pages *u = t;

	undo_told_keep(u);
	/* Where nothing is protected again, nothing changes: a copy of hot pages needs no call. */
	if (atomic_load(&u->saved_count))
		CRN_TRY(undo_data_limit(t));
	return undo_interval_end(t, sink);
}

static int mprotect_undo(void *t, struct crn_sink *sink)
{
	undo_told_keep(t);
	return undo_undo(t, sink);
}

static int mprotect_open(void **t, struct crn_track_env *env)
{
	struct crn_undo_pages *u;

	CRN_TRY(undo_open(&u, env, &undo_guard_mprotect));
	undo_told_open(u);
	*t = u;
	return 0;
}

const struct crn_tracker_ops crn_tracker_mprotect = {
	.name = "mprotect",
	.probe = probe,
	.open = mprotect_open,
	.interval_end = mprotect_interval_end,
	.undo = mprotect_undo,
	UNDO_OPS,
};
