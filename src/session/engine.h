/* SPDX-License-Identifier: MIT */
/*
 * What the files of the session share; README.md lists them. There is one engine per process, and
 * everything below lives in the arena.
 *
 * Lock order: the session's lock is the only one.
 */
#ifndef CRN_ENGINE_H
#define CRN_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/arena.h"
#include "base/bits.h"
#include "base/status.h"
#include "journal/journal.h"
#include "os/host.h"
#include "os/maps.h"
#include "session/ended_threads.h"
#include "session/held_files.h"
#include "session/map_layout.h"
#include "session/session.h"
#include "session/timing.h"
#include "speculate/speculate.h"
#include "track/track.h"

/*
 * The registers that a C function must preserve, and where it returns to. registers.S knows the
 * offsets.
 */
struct crn_jump {
	uintptr_t rbx, rbp, r12, r13, r14, r15; /* 0 .. 40 */
	uintptr_t rsp, rip;                     /* 48, 56: as after the return */
	uint32_t mxcsr;                         /* 64 */
	uint16_t x87_control;                   /* 68 */
	uint16_t reserved;
};

/* A checkpoint that can be named. `changes` are those of the interval that it starts. */
struct crn_mark {
	uint64_t id;
	uint64_t *id_out;  /* where cairn_checkpoint's caller wants the id */
	uintptr_t thread;  /* who took it; 0: memory alone */
	uint64_t signals;  /* blocked then, if mask_known */
	bool mask_known;
	uint32_t keys; /* the register of protection keys */
	struct crn_jump jump;
	void *stack; /* image of [jump.rsp, + stack_len), if it is not in the surface */
	size_t stack_len, stack_size;
	void *tag;
	size_t tag_len, tag_size;
	struct crn_changes changes;
};

/* Marks in order of id: a ring of `capacity` (a power of two). */
struct crn_marks {
	struct crn_mark *at;
	size_t first, count, capacity;
};

#define CRN_FAILED_KEPT 64

enum crn_surface_mode {
	CRN_SURFACE_NONE,
	CRN_SURFACE_ALL,
	CRN_SURFACE_PROGRAM,
	CRN_SURFACE_LIST,
};

struct crn_ranges {
	struct crn_range *at; /* sorted, disjoint */
	size_t count, capacity;
};

/* A shared mapping, or a part of one, that goes back by its name (shared.c). */
struct crn_named {
	struct crn_range range;
	bool pages; /* private memory, which the tracker watches by pages besides */
	uint64_t inode;
	uint32_t dev_major, dev_minor;
};

struct crn_figures {
	uint64_t checkpoints, failed, restores, pages_saved, pages_restored;
	uint64_t checkpoint_ns, restore_ns;
	uint64_t faults_before, eager_before; /* the tracker's counts at the last reset */
	struct crn_long_figures long_before;
	uint64_t scans_before;
};

/*
 * What is written while no call is in progress, when everything else of the engine may be
 * read-only (CAIRN_PROTECT): by callers that come for the lock, by write-fault handlers, by the
 * agent's hooks. The first page of the arena. After fork it is zeros; after cairn_close the page
 * stays, so that closing changes nothing in the program's memory, not even our own pointer.
 */
struct crn_control {
	uint64_t state;
	cairn_t *session;
	uintptr_t lock; /* 0 free, else who holds it; futex: low half */
	uint32_t wanted; /* somebody may be waiting for it */
	uint32_t calls;  /* of a release to whoever waits; the lock */
	uintptr_t starving; /* who has waited for long: others let it go first; 0: nobody */
	uint32_t users; /* cairn_open calls that are not closed yet */
	int lost;       /* the open interval cannot be undone: why */
	bool watched;   /* map changes are reported */
	bool maps_stale; /* look at all of them */
	/*
	 * Else, if not 0: where a change was reported, first page << 28 | number of pages. One
	 * word, because any thread reports while another looks.
	 */
	uint64_t maps_changed;
	/* CAIRN_PROTECT: tables are writable now. Changes only while fault handlers are out. */
	bool opened;
	bool deaf; /* env.deaf */
	/* Protection keys that a call opens (os/pkey.h), and the register before it. */
	uint32_t keys, keys_before;
};

#define CRN_CHANGED_BITS  28 /* of control.maps_changed, for the number of pages */
#define CRN_CHANGED_PAGES ((1ul << CRN_CHANGED_BITS) - 1)

#define CRN_RESTORE_STACK (64ul << 10)
#define CRN_STRATEGY_MAX  128
#define CRN_BIRTHS_MAX    64

struct cairn {
	struct crn_track_env env; /* first: the tracker's callbacks find the session by it */
	struct crn_control *control;
	struct crn_arena *arena;
	struct crn_host host;
	const struct crn_tracker_ops *ops;
	void *tracker;
	struct crn_journal *journal;

	bool taken_told;       /* the log has the first mapping that somebody else's uffd has */
	bool memory_told;      /* the log has the first checkpoint that failed for memory */
	bool agent;            /* opened by the agent: joins are always welcome */
	int looks_left;        /* until a mapping that cannot be adopted is refused */
	bool partial;          /* the tracker could not take some mapping of the surface */
	bool unreadable;       /* the program has made a part of some area so */
	bool cut;              /* a file is shorter than some area that maps it */
	bool paused;           /* no checkpoint is kept or taken (pause.c) */
	bool maps_known;       /* looked at least once */
	bool noted;            /* some mapping is known to a coming restore alone */
	uintptr_t births[CRN_BIRTHS_MAX]; /* threads' memory told of since the last look: */
	uint32_t birth_count;             /* a thread newly born has no robust list to tell it */

	/* Options as given, defaults filled in. */
	enum crn_surface_mode mode;
	char surface[256];
	uint32_t keep, flags, threads;
	uint64_t memory_max;

	struct crn_area **areas; /* sorted by address, disjoint */
	size_t area_count, area_capacity;
	size_t cuttable;         /* of them: of files that somebody may cut short */
	struct crn_added *added; /* sorted, disjoint */
	size_t added_count, added_capacity;
	uint64_t youngest;       /* greatest area->born; removals count as well */

	struct crn_ranges excluded; /* by the program */
	struct crn_ranges builtin;  /* rseq, tid words, robust lists */
	uintptr_t thread_seen;      /* whose words are in builtin already */
	/* CRN_TRACK_STORES, while a restore runs or a checkpoint is looked at: others' as well */
	struct crn_ranges shared;
	struct crn_named *named; /* sorted, disjoint */
	size_t named_count, named_capacity;
	struct crn_held_files held;
	struct crn_ranges other_stacks; /* in restores: of threads not run in the open interval */
	struct crn_ended_threads ended;
	struct crn_ranges omitted;  /* never part of the surface */
	struct crn_ranges in_flight; /* what env.in_flight names, or its buffer */
	struct crn_ranges heads;    /* while maps are read: a byte of each thread's descriptor */
	/* anonymous memory without access, as when last looked at; as read just now */
	struct crn_ranges reserved, reserved_fresh;
	/* mappings of files beside the surface: as when last looked at, as read just now */
	struct crn_pieces files, files_fresh;
	struct crn_file_name **file_names;
	size_t file_name_count, file_name_capacity, file_names_kept, file_names_young;
	int files_pagemap;   /* -1: not opened yet */
	int closed_memory;   /* -1: not opened in this call; store.c */
	int unread;          /* a page that is there could not be read in this call: -errno */
	struct crn_fd_identity files_pagemap_id, closed_memory_id;
	uint64_t files_asked, files_look; /* how often; the checkpoint that the look is for */
	uint64_t files_faults; /* of the process by then */
	uint64_t files_sure; /* at this one all of them were their files' bytes */
	bool files_doubt;    /* mappings may have changed since */
	bool files_unasked;  /* some may have been exchanged before the last look */
	bool files_kept;     /* `files` is older than what was read: a restore that was refused */

	struct crn_maps maps;
	char *maps_buffer;
	struct crn_pieces layout, fresh, awkward; /* awkward: not readable and writable now */
	struct crn_pieces truthful;               /* scratch of surface.c */

	struct crn_marks marks;
	uint64_t last_id;
	uint64_t failed[CRN_FAILED_KEPT];
	size_t failed_count;
	/*
	 * A checkpoint has failed because memory has no room for the open interval: the next one
	 * gives up the past, or all would fail for ever.
	 */
	bool outgrown;
	bool outgrows; /* the same, in the checkpoint that is being taken */

	/* the newest thread asked for its stack, and the answer */
	uintptr_t stack_thread, stack_low, stack_top;
	bool stack_grows; /* downwards, by itself */
	enum crn_stack_kind {
		CRN_STACK_OTHER,   /* of the program's making: its mapping, for all we know */
		CRN_STACK_OWN,     /* the kernel's, or libc's for a thread */
		CRN_STACK_IN_HEAP, /* a part of the heap: ends nobody knows where */
	} stack_kind;
	uint8_t *restore_stack;
	void *scratch; /* one page */
	bool apart;      /* open blocks are, and stay open while nothing else is: base/arena.h */
	bool closes;     /* CAIRN_PROTECT, by closing pages: protect.c */
	int frame_guard; /* userfaultfd that closes frames one by one; -1: mprotect, all of them */

	/* While a restore runs. */
	const struct crn_range *skip;
	uint64_t target;
	uintptr_t quiet_below, quiet_from; /* pages outside are put back whole and plainly */
	bool filter;  /* some pages of the journal may not be put back: look at the areas */
	uint64_t put; /* pages put back */
	size_t place_frames; /* most that the tracker needs for mappings that come back */

	struct crn_tracing *tracing; /* while a trace is recorded */
	/* keys of the open interval and of the next one */
	uint64_t context, context_next;
	/* Speculation; NULL under `none`. The lists are those of the last decision. */
	struct crn_speculation *speculation;
	struct crn_port port;
	struct crn_profile *profile; /* what an earlier run wrote, for oracles */
	struct crn_predictor predictor;
	const struct crn_hot_run *evicted;
	const struct crn_hot_page *promoted;
	size_t evicted_count, promoted_count;
	char strategy[CRN_STRATEGY_MAX]; /* in use, as it could be given */
	uint64_t strategy_seed;

	struct crn_figures figures;
	struct crn_timing timing; /* of checkpoints */
	const char *strategy_why;
	uint32_t signal_cost; /* the kernel's part of a fault that a handler serves, in cycles */
	uint32_t copy_first;  /* of the prices, when the session began */
	uint32_t unforgotten; /* checkpoints since prices that nobody can measure last came down */
};

/* ---- session.c */
int crn_lock(cairn_t *c); /* 0, -EDEADLK if the calling thread holds it, -EINVAL for NULL */
void crn_unlock(cairn_t *c);
uintptr_t crn_self(const cairn_t *c); /* names the calling thread; never 0 */

/* The program gets a result there, of which no hook of its own tells. */
static inline void crn_result(cairn_t *c, const void *to, size_t len)
{
	if (c->ops->caps & CRN_TRACK_STORES)
		(void)c->ops->page.unprotect(c->tracker, (uintptr_t)to, len);
}

/* Around calls that the tracker could take for the program's doing. */
static inline void crn_own_calls(cairn_t *c, bool begin)
{
	if (c->ops->own_calls)
		c->ops->own_calls(c->tracker, begin);
}

/* Before the past is looked at or a checkpoint taken: see track.h. */
static inline int crn_settle(cairn_t *c)
{
	return c->ops->settle ? c->ops->settle(c->tracker) : 0;
}

/* ---- protect.c: CAIRN_PROTECT without a protection key */
/* It is wanted: from the first close on. 0 or CAIRN_EMEMORY. */
int crn_protect_begin(cairn_t *c);
void crn_protect_end(cairn_t *c);
/* At the begin and end of a call, with the lock. 0 or negative. */
int crn_protect_open(cairn_t *c);
int crn_protect_close(cairn_t *c);

/* ---- choice.c */
bool crn_tracker_exists(const char *name);
/* Only a tracker that has feeds takes any but "auto"; tracker "auto" will be one that does. */
bool crn_tracker_takes_feed(const char *name, const char *feed);
/*
 * `whole`: it must be able to track more than explicit areas. That and the feed matter for "auto"
 * alone.
 */
int crn_tracker_choose(const struct crn_tracker_ops **out, const char *name, const char *feed,
	const struct crn_host *host, bool whole);

/* ---- area.c */
struct crn_area *crn_area_at(const cairn_t *c, uintptr_t addr); /* or NULL */
size_t crn_area_from(const cairn_t *c, uintptr_t addr); /* the first that ends above it */
/* Of a file that somebody may cut short? */
bool crn_area_cuttable(const struct crn_area *area);
bool crn_areas_cover(const cairn_t *c, uintptr_t begin, uintptr_t end);
/* Shared memory that no system call can read, which is how files are read: of memfd_secret(2). */
bool crn_area_secret(cairn_t *c, uintptr_t page);
int crn_area_track(cairn_t *c, uintptr_t begin, uintptr_t end, uint32_t flags, uint64_t born);
/* Areas[at] ends, and with it all that the tracker knows of it. */
void crn_area_untrack(cairn_t *c, size_t at);
/*
 * The mapping is gone: areas there end, with their content in the journal. A tracker that goes by
 * whole areas (no area_gone) is told of all that is gone at once, `found`; others take NULL.
 */
int crn_area_vanish(
	cairn_t *c, uintptr_t begin, uintptr_t end, const struct crn_changes *found);
/*
 * Areas that are touched by [begin, end) end as a whole, and open; the interval cannot be undone.
 * The next look finds what is there then as something new.
 */
void crn_area_let_go(cairn_t *c, uintptr_t begin, uintptr_t end);
/* The parts of areas in [begin, end) become as old as that. 0 or CAIRN_EMEMORY. */
int crn_area_born(cairn_t *c, uintptr_t begin, uintptr_t end, uint64_t born);
/* Stop tracking [begin, end); its past is of no interest any more. 0 or CAIRN_EMEMORY. */
int crn_area_forget(cairn_t *c, uintptr_t begin, uintptr_t end);
int crn_ranges_add(cairn_t *c, struct crn_ranges *r, uintptr_t begin, uintptr_t end);
size_t crn_ranges_from(const struct crn_ranges *r, uintptr_t addr); /* likewise */

/* ---- area_calls.c */
/* The lowest explicit area that has a byte in [begin, end), as it was added; or NULL. */
const struct crn_added *crn_added_meets(const cairn_t *c, uintptr_t begin, uintptr_t end);
int crn_added_reserve(cairn_t *c, size_t more);
/* It is there (again); room has been reserved. */
void crn_added_revive(cairn_t *c, const struct crn_added *added);
/* Those of which nothing is mapped, nor tracked, have ended. */
void crn_added_prune(cairn_t *c);

/* ---- shared.c; CRN_TRACK_STORES alone */
/* Fill c->shared: shared memory that a restore leaves as it is. 0 or negative. */
int crn_shared_find(cairn_t *c);
/* Name and forget, for cairn_area_add and cairn_area_remove; their errors. Whole pages. */
int crn_shared_name(cairn_t *c, uintptr_t begin, uintptr_t end);
int crn_shared_forget(cairn_t *c, uintptr_t begin, uintptr_t end);

/* ---- surface.c */
/* Read the map into c->fresh. */
int crn_surface_read(cairn_t *c);
/*
 * The same, if nothing has changed outside [begin, end): pieces there are taken from c->layout.
 * Only where crn_surface_has_parts.
 */
int crn_surface_read_part(cairn_t *c, uintptr_t begin, uintptr_t end);
bool crn_surface_has_parts(const cairn_t *c);
/* Read what of [begin, end) is mapped, as parts of an explicit area, into c->fresh. */
int crn_surface_read_range(cairn_t *c, uintptr_t begin, uintptr_t end);
/* CRN_AREA_HOT if a thread's descriptor lies there, as of the last look, and that matters; or 0. */
uint32_t crn_surface_hot(const cairn_t *c, uintptr_t begin, uintptr_t end);
/* While maps are read: [begin, end) of a mapping is a piece, but for what is never tracked. */
int crn_surface_add(cairn_t *c, const struct crn_mapping *m, uint32_t flags, uintptr_t begin,
	uintptr_t end);
/* ---- calls_in_flight.c */
/*
 * Ask the agent which memory the kernel may be writing for calls that are on their way, and tell
 * the tracker; around what adds areas and ends intervals. 0 or CAIRN_EMEMORY.
 */
int crn_in_flight_begin(cairn_t *c);
/* Add the memory that the kernel may be writing for calls; `others`: but the calling thread's. */
int crn_in_flight_add(cairn_t *c, struct crn_ranges *ranges, bool others);
void crn_in_flight_end(cairn_t *c);

/* ---- store.c */
/*
 * Has a file been cut short under an area? Its pages are then gone, and touching them would kill.
 * Sets c->cut and what the tracker must know of it. One system call if there are areas of files.
 */
void crn_cut_look(cairn_t *c);
/* Of a file that somebody may cut short at any moment: never touched but by system calls. */
bool crn_page_cuttable(const cairn_t *c, uintptr_t page);
bool crn_cut_page(const cairn_t *c, uintptr_t page); /* is it one of those that are gone? */
void crn_store(struct crn_track_env *env, uintptr_t addr, const void *old, size_t len);
int crn_load(struct crn_track_env *env, void *dst, uintptr_t addr, size_t len);
void crn_closed_end(cairn_t *c); /* at the end of a call: what loads have opened */
bool crn_closed_at(const struct crn_track_env *env, uintptr_t page);
/* Any bytes, around what survives: the image of a stack that is no area. */
void crn_store_bytes(cairn_t *c, uintptr_t addr, const void *old, size_t len);
/* Once skip, exclusions and layout are known: which pages need no looking at. */
void crn_store_plan(cairn_t *c);
/* One that nothing has to be done for but to copy. */
static inline bool crn_page_quiet(const cairn_t *c, uintptr_t page)
{
	return page < c->quiet_below || page >= c->quiet_from;
}

/*
 * Is (a part of) the page left alone by the restore that is under way? Excluded bytes count if it
 * is all of them.
 */
bool crn_survives(const cairn_t *c, uintptr_t page);
/* Areas that are younger than the checkpoint, or removed since, stay as they are. */
bool crn_may_put(const cairn_t *c, uintptr_t page);
void crn_lost(struct crn_track_env *env, uintptr_t addr, int why);
/* Note the calling thread's rseq area, tid word and robust list. */
int crn_exempt_self(cairn_t *c);
/* And those of every other thread. */
int crn_exempt_all(cairn_t *c);

/* ---- checkpoint.c */
struct crn_mark *crn_mark_find(const cairn_t *c, uint64_t id);
struct crn_mark *crn_mark_newest(const cairn_t *c);
struct crn_mark *crn_mark_at(const cairn_t *c, size_t i);
/*
 * 0, or why the id cannot be restored or looked at. The journal may evict at any time; a mark lasts
 * no longer than its record, and nobody has to tell it.
 */
int crn_mark_usable(const cairn_t *c, uint64_t id);
void crn_marks_truncate(cairn_t *c, uint64_t id); /* drop all newer ones */
int crn_marks_push(cairn_t *c, uint64_t id);
/* What was kept is lost; so many marks are left, for what they note of mappings. */
void crn_past_forget(cairn_t *c, size_t marks_left);
void crn_marks_drop_oldest(cairn_t *c);

/* ---- making_room.c: when memory_max is reached ---- */
/*
 * Memory that frames have once had is no room for a table or an image: then the oldest checkpoint
 * makes room for the new one, or none would be taken any more. False if there is but one.
 */
bool crn_give_up_oldest(cairn_t *c);
/*
 * Was a block missing, and is there room for it now? If need be it comes from checkpoints older
 * than `id`. A call that ended with CAIRN_EMEMORY may be tried again then.
 */
bool crn_blocks_made(cairn_t *c, uint64_t id);
/*
 * If nobody can go back behind the open interval any more, what it holds is of no use: it ends, and
 * nothing of it is kept. False if somebody can, or if that fails.
 */
bool crn_give_up_open(cairn_t *c);
#define CRN_BLOCK_TRIES 8 /* in one call: blocks of several sizes may be missing */

int crn_checkpoint_take(cairn_t *c, uint64_t *id, const struct crn_jump *jump);
/* The same, locked already, with its figures; NULL: memory alone. Not while the session rests. */
int crn_checkpoint_timed(cairn_t *c, uint64_t *id, const struct crn_jump *jump);
/* Its id goes to where the caller of cairn_checkpoint wants it. */
void crn_id_told(cairn_t *c, const struct crn_mark *m, uint64_t *to);
/*
 * The stack that rsp is on: its mapping's begin, and its end as a checkpoint sees it; sets
 * c->stack_kind. 0 or negative.
 */
int crn_stack_find(cairn_t *c, uintptr_t rsp, struct crn_range *out);
/* An address in the main thread's stack; 0 if /proc does not tell. */
uintptr_t crn_stack_start(void);

/* ---- long_interval.c */
void crn_grows_long(struct crn_track_env *env); /* as env.grows_long */

/* ---- recorded_profile.c */
/* Read the profile that the strategy names, if it does; the port then has it. */
int crn_profile_open(cairn_t *c, const char *spec);

/* ---- tracing.c; NULL: no trace is recorded */
struct crn_tracing;
/* The sink that notes what goes to `inner`, for one interval. */
struct crn_sink *crn_tracing_wrap(struct crn_tracing *t, struct crn_sink *inner);
/* The interval is over, and `key` was its context. */
void crn_tracing_interval(struct crn_tracing *t, uint64_t key);
int crn_tracing_close(cairn_t *c);

/* ---- other_threads.c */
/* Has another thread run in the open interval? 0 or CAIRN_ETHREADS; fills c->other_stacks. */
int crn_other_threads_check(cairn_t *c, uint64_t id);
bool crn_on_other_stack(const cairn_t *c, uintptr_t page);
/*
 * For trackers without areas, in programs of several threads: others' stacks and thread-local
 * variables, too, for their registers do not come back. CAIRN_EUNSUPPORTED: one is in the heap.
 */
int crn_exempt_other_stacks(cairn_t *c);
/* A program with hooks, for threads, has more than one, as far as libc knows. */
bool crn_beside_other_threads(const cairn_t *c);
/* Program with hooks: CAIRN_ETHREADS if a thread lives that it has made since the checkpoint. */
int crn_other_threads_born(cairn_t *c, uint64_t id);
/* After a restore: those who sleep on a word that is another now. */
void crn_other_threads_wake(const cairn_t *c);

/* ---- peek.c */
/*
 * A page at the newest checkpoint; NULL: zeros. Never the live page, which another thread may be
 * writing: a copy in c->scratch.
 */
const void *crn_newest_copy(cairn_t *c, uintptr_t page);

/* ---- restore.c */
/* Are explicit areas in [begin, end) still the mappings that they were? 0 or CAIRN_ELAYOUT. */
int crn_mappings_check(cairn_t *c, uintptr_t begin, uintptr_t end);
/* Some memory has gone back and the rest cannot: says so in the log and ends the process. */
_Noreturn void crn_half_way(const char *what, uintptr_t addr, int err);

/* ---- strategy.c */
/* What "auto" takes under this tracker. */
const char *crn_strategy_auto(const struct crn_tracker_ops *ops);
/*
 * After c->ops and the limits are known, before the tracker opens: under a cost bound it is another
 * one. 0, CAIRN_ESTRATEGY or memory.
 */
int crn_strategy_open(cairn_t *c, const char *spec);
/* [begin, end) is not tracked any more. */
void crn_strategy_forget(cairn_t *c, uintptr_t begin, uintptr_t end);
/* Memory went back over so many whole intervals, and the open one. */
void crn_strategy_restored(cairn_t *c, uint64_t intervals);
void crn_strategy_stats(const cairn_t *c, struct cairn_stats *out);

/* ---- registers.S */
_Noreturn void crn_jump_to(const struct crn_jump *jump, int value);
/* The same after crn_jump_begins (restore.c). `jump` is on the stack that it goes to, aligned. */
_Noreturn void crn_jump_unlocked(cairn_t *c, const struct crn_jump *jump, int value);
/* Call fn(arg) on another stack. */
long crn_on_stack(long (*fn)(void *arg), void *arg, void *stack_top);

/* A growing array of plain entries in the arena. 0 or CAIRN_EMEMORY. */
int crn_grow(cairn_t *c, void **at, size_t *capacity, size_t need, size_t entry_size);

#endif
