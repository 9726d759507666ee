/* SPDX-License-Identifier: MIT */
/*
 * The journal: what undoes the last K - 1 intervals, oldest first.
 *
 *	checkpoints    c0        c1        c2        c3 (newest)       present
 *	                |--------|---------|---------|-- open interval --|
 *	records         [ c0     ][ c1     ][ c2     ][ staged, if asked ]
 *	                 oldest              newest
 *	                 `-- evicted first        `-- truncated by a restore
 *
 * A record is named by the checkpoint that starts its interval and holds, for every page that the
 * interval wrote, the page's content at that checkpoint. The newest checkpoint has no record yet:
 * the tracker holds its content. Ids increase but may have gaps (failed checkpoints use up an id).
 *
 * An entry is one page of one record, in one of three forms:
 *	zero	the page was all zeros: no memory
 *	whole	a page frame, taken over from the tracker by pointer
 *	delta	old XOR new words (journal/delta.h), which undoes from the newer page and redoes
 *		from the older
 * Small intervals of a small K keep whole pages (a checkpoint then costs one copy per dirty page)
 * while all of them together fit into a cache, unless the tracker has found deltas to be cheaper
 * (sink->differences); others keep deltas, made when the page is handed over, while both versions
 * are in the cache.
 *
 * The content of page p at checkpoint c is found by going up from c: XOR the deltas of p together
 * until a zero or whole entry of p ends the chain, or the present page does.
 *
 * Invariants (crn_journal_check):
 *	record_count <= K - 1
 *	record[i].id < record[i + 1].id
 *	entry[i].page < entry[i + 1].page                 in each record
 *	frames owned == whole entries + spares + frames of the two FIFOs
 *	entries in all records == entries in the entry FIFO
 *
 * Thread-safety: the session's lock is held. Nothing here makes a system call (except through the
 * arena), so all of it is legal in a signal handler.
 */
#ifndef CRN_JOURNAL_H
#define CRN_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/sink.h"

struct crn_journal;

#define CRN_JOURNAL_KEEP_MAX  65536u
#define CRN_JOURNAL_WHOLE_MAX 16u
/* Of K intervals like this one: 640 KiB, what a second-level cache may hold beside the program. */
#define CRN_JOURNAL_WHOLE_FRAMES 160u
#define CRN_JOURNAL_NOW       UINT64_MAX

/* 0, or CAIRN_EOPTION (keep of 0 or beyond the maximum), CAIRN_EMEMORY. */
int crn_journal_open(struct crn_journal **out, struct crn_arena *arena, uint32_t keep);
/* Gives every frame and block back to the arena. NULL is allowed. */
void crn_journal_close(struct crn_journal *j);

/* ---- Writing: one record ------------------------------------------------------ */

/*
 * Begin the record of the interval that started at checkpoint `id` (greater than every id in the
 * journal) and return the sink that tracker->interval_end fills. prepare() may fail with
 * CAIRN_EMEMORY; after it returned 0, `count` takes cannot fail. A take without prepare() may fail
 * with CAIRN_EMEMORY. Pages come in any order, each at most once; extents are whole pages, several
 * per call if not owned. `lost`: neither this interval nor any before it can be undone, so that
 * nothing is kept, and no memory needed for it.
 */
struct crn_sink *crn_journal_begin(struct crn_journal *j, uint64_t id, bool lost);
/*
 * Seal the record: sort it and evict the oldest beyond K. After prepare() it returns 0; without,
 * CAIRN_EMEMORY is possible and leaves the record as it was: try again after an eviction, or abort.
 */
int crn_journal_commit(struct crn_journal *j);
/*
 * Forget the open record; frames that were taken over are freed. Pages that were absorbed are gone
 * with it, so after a take only a record of stage() is harmless to abort: that is what prepare() is
 * for.
 */
void crn_journal_abort(struct crn_journal *j);

/*
 * Begin a record that will only be looked at: fill it by tracker->undo, so that the walks below see
 * the open interval as well and each page once. Old contents are borrowed, not copied: they must
 * stay until abort ends the record.
 */
struct crn_sink *crn_journal_stage(struct crn_journal *j, uint64_t id);

/* ---- Dropping ------------------------------------------------------------------- */

/* Drop the oldest record (its checkpoint cannot be named any more). False if there is none. */
bool crn_journal_evict(struct crn_journal *j);
/* After a restore to `id`: drop the record of `id` and all newer ones. */
void crn_journal_truncate(struct crn_journal *j, uint64_t id);

/* ---- Reading ---------------------------------------------------------------------- */

/* Is there a record that starts at checkpoint `id`? */
bool crn_journal_has(const struct crn_journal *j, uint64_t id);
/* The id of the oldest record; false if the journal is empty. */
bool crn_journal_oldest(const struct crn_journal *j, uint64_t *id);
size_t crn_journal_count(const struct crn_journal *j);
/* Bytes of the arena that the journal occupies now. */
uint64_t crn_journal_bytes(const struct crn_journal *j);
/* Pages handed over since open, all forms together. */
uint64_t crn_journal_pages(const struct crn_journal *j);

/*
 * The content of one page at checkpoint `id`, given its content at the newest checkpoint (`newest`,
 * NULL: zeros). *content is `newest` itself, NULL (zeros), a frame of the journal or a scratch
 * page; it is valid until the next call on the journal. Returns 1 if the page was written in a kept
 * interval since `id`, else 0. A staged record is not looked at.
 */
int crn_journal_look(struct crn_journal *j, uint64_t id, uintptr_t page, const void *newest,
	const void **content);

/* Is the page in the staged record? Within a walk only: there is one, and it is sorted. */
bool crn_journal_staged(const struct crn_journal *j, uintptr_t page);

/*
 * Who walks. page() is called once for each page, in address order, with its content at `from` and
 * at `to` (NULL: zeros; valid during the call); non-zero stops the walk and is its result.
 * present() returns the page as it is now (NULL: zeros): the live page unless the walker knows
 * better; it is asked only when the chain of a page ends there.
 */
struct crn_walk {
	int (*page)(struct crn_walk *self, uintptr_t page, const void *at_from, const void *at_to);
	const void *(*present)(struct crn_walk *self, uintptr_t page);
	bool want_to; /* false: at_to is not made (NULL), which a restore does not need */
};

/*
 * Every page written in [from, to). from and to are ids of records; to may also be the id of the
 * newest checkpoint or CRN_JOURNAL_NOW. What "the present" is: if a record is staged, the page now;
 * else the page at the newest checkpoint, and `to` may be either. A restore to c is stage + undo,
 * then walk(c, CRN_JOURNAL_NOW) whose page() stores at_from into live memory and rebases the
 * tracker, then abort and truncate(c). page() must not change the journal. No memory is allocated.
 * Returns 0 or what page() returned.
 */
int crn_journal_walk(struct crn_journal *j, uint64_t from, uint64_t to, struct crn_walk *walk);

/* Walk everything and trap if an invariant does not hold. For tests and CRN_CHECKS=3. */
void crn_journal_check(const struct crn_journal *j);

#endif
