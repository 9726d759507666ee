/* SPDX-License-Identifier: MIT */
/*
 * A tracker notices writes and keeps (or can tell) the content from before them. One file per
 * tracker behind this table; session/ drives it, journal/ receives what it hands over. Trackers
 * speak of intervals and extents, not of pages, because the compiler's trackers work on smaller
 * units.
 *
 *	open -> area_add... -> interval_begin -> (program runs) -> interval_end(sink) -> interval_begin ...
 *	                                     `-> undo(put) -> (program runs from the same start again)
 *
 * Law: at interval_end the sink has received every extent whose content differs from what it was at
 * interval_begin (more is allowed, less never), each with its content at interval_begin. undo hands
 * over the same and changes nothing else. After undo, rebase tells the tracker that an extent's
 * content "at interval_begin" is now something older: the restore went further back.
 *
 * All calls but the write-fault handler come with the session's lock held, on one thread. No
 * malloc, no stdio, no libc state: they run in signal handlers. Memory comes from the arena of the
 * environment.
 */
#ifndef CRN_TRACK_H
#define CRN_TRACK_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"
#include "base/sink.h"

struct crn_arena;
struct crn_host;
struct crn_keeper;

/* A registered range, page aligned. Owned by session/; `priv` belongs to the area's tracker. */
struct crn_area {
	uintptr_t begin, end;
	uint32_t flags; /* enum crn_area_flags */
	uint64_t born;  /* id of the first checkpoint that covers it */
	void *priv;
};

enum crn_area_flags {
	CRN_AREA_SHARED = 1u << 0, /* MAP_SHARED */
	CRN_AREA_FILE = 1u << 1,   /* backed by a file: an absent page is not zero */
	CRN_AREA_STACK = 1u << 2,  /* a stack: the kernel writes signal frames into it */
	/* always copied eagerly, never protected (stacks, TLS under signal trackers) */
	CRN_AREA_HOT = 1u << 3,
	CRN_AREA_EXPLICIT = 1u << 4, /* added by cairn_area_add, not found by the surface */
	/*
	 * Mapped in the open interval: its content at interval_begin counts as zeros, so the past
	 * has no hole where one mapping was replaced by another. For mirror trackers, in area_add
	 * only.
	 */
	CRN_AREA_NEW = 1u << 5,
	/* nobody can cut it short: of a loaded object, or memory that is shared without a file */
	CRN_AREA_UNCUT = 1u << 6,
	/* was an explicit one: a restore to before leaves the mapping where it is */
	CRN_AREA_REMOVED = 1u << 7,
};

/* By its flags: is it of a file that somebody may cut short? */
static inline bool crn_flags_cuttable(uint32_t flags)
{
	return (flags & (CRN_AREA_FILE | CRN_AREA_UNCUT)) == CRN_AREA_FILE;
}

enum crn_tracker_caps {
	CRN_TRACK_PAGES = 1u << 0,        /* granule is the OS page; page_ops are there */
	/* kernel writes into tracked memory are noticed, and do not fail */
	CRN_TRACK_SEES_KERNEL = 1u << 1,
	CRN_TRACK_THREADS = 1u << 2,      /* every thread's stores are noticed */
	CRN_TRACK_SHARED = 1u << 3,       /* MAP_SHARED areas can be tracked */
	CRN_TRACK_KEEPS = 1u << 4,        /* keeps its own checkpoints: no journal records */
	/* holds the content at interval_begin of every page, written or not */
	CRN_TRACK_MIRROR = 1u << 5,
	/* removes write permission from mappings: the map does not show the program's own */
	CRN_TRACK_PROTECTS = 1u << 6,
	/*
	 * The program itself reports each store, wherever it goes: there are no areas, no mapping
	 * is followed, and the tracker hands byte runs of any length to env->store.
	 */
	CRN_TRACK_STORES = 1u << 7,
	/* keeps nothing: a cost bound (dummy.c); its checkpoints cannot be restored or looked at */
	CRN_TRACK_NOTHING = 1u << 8,
};

struct crn_track_env;

/*
 * A strategy, as a tracker sees it; the session fills it. Slots name hot pages. At interval_end the
 * tracker sets the bit of each hot page that has changed, calls `written` for each cold page that
 * was written, and then calls `decide`. If that returns true, it applies the lists. Evicted pages
 * are protected again. Promoted pages stay open if they are, and are copied and opened otherwise.
 * When the lists are no longer needed, `refused` is called for each page that could not be made
 * hot. Hot pages are left open, and copied if they have changed.
 */
struct crn_predictor {
	uint64_t *changed; /* bit `slot`; moves in `decide` */
	bool exact; /* no page is to be taken for changed unseen; set before the tracker opens */
	/*
	 * What pages have cost, in cycles per page, as the tracker has measured while the program's
	 * caches are as they are. Set now and then, at the end of an interval; 0: not measured.
	 * price_serve lies apart: a checkpoint of hot pages alone asks for the others only.
	 */
	uint32_t price_hot;     /* looked at; what has changed costs the same as elsewhere */
	uint32_t price_protect; /* protected again */
	size_t dummies;    /* CRN_TRACK_NOTHING: pages to copy now; set by `decide` */
	void (*written)(struct crn_track_env *env, uintptr_t page);
	/* The same for a page that was opened because `near` had named it. */
	void (*granted)(struct crn_track_env *env, uintptr_t page, bool changed);
	bool (*decide)(struct crn_track_env *env);
	/* Memory is short: fills the list of evictions. False if nothing is hot. */
	bool (*cool)(struct crn_track_env *env);
	/* Entry i of the lists; false: there is none. Sorted by address. How many promotions. */
	bool (*evicted)(struct crn_track_env *env, size_t i, uintptr_t *begin, uintptr_t *end);
	bool (*promoted)(struct crn_track_env *env, size_t i, uintptr_t *page, uint32_t *slot);
	size_t (*promotions)(struct crn_track_env *env);
	void (*refused)(struct crn_track_env *env, uintptr_t page);
	/*
	 * At a write fault: which pages around it to save and open as well. NULL: none. Any
	 * context; the only function here that write-fault handlers call.
	 */
	bool (*near)(
		struct crn_track_env *env, uintptr_t page, uintptr_t *begin, uintptr_t *end);
	uint32_t price_serve; /* serving a first store, without entering and leaving the handler */
};

/*
 * True if a load has failed because nothing is there: no page, the end of a file. Otherwise the
 * load could not be made (a page that the program has closed, and no descriptor left), and the
 * content is not known.
 */
static inline bool crn_is_bare(int err)
{
	return err == -EFAULT || err == -EIO;
}

/* What a tracker may use of the rest of the engine. */
struct crn_track_env {
	struct crn_arena *arena;
	const struct crn_host *host;
	struct crn_keeper *keeper; /* of the tracker's descriptors: os/keeper.h */
	struct crn_predictor *predictor; /* NULL: no page becomes hot by itself */
	uint64_t calls; /* number of the session's present call; one thread makes it. 0: unknown */
	uint32_t keep; /* K */
	uint64_t memory_max; /* bytes that the engine may use */
	bool one_thread;     /* CAIRN_THREADS_ONE: a promise of the program */
	bool areas_alone;    /* all areas are explicit, and nobody reports calls on mappings */
	/*
	 * Somebody else (the agent) owns SIGSEGV and SIGBUS and calls crn_faults_serve: install no
	 * handlers.
	 */
	bool faults_forwarded;
	const char *feed; /* of "async": a name, "auto" or "scan" */
	bool shares_feed; /* "auto" is the feed that all sessions share, or none */
	/* The last feed that "auto" tried and that did not pass its test, and why. Or NULL. */
	const char *feed_refused, *feed_why;
	/*
	 * Put old bytes into live memory around excluded bytes (cairn_area_exclude, rseq, tid
	 * words).
	 */
	void (*store)(struct crn_track_env *env, uintptr_t addr, const void *old, size_t len);
	/*
	 * Copy live memory of one page, which may be unreadable by now. 0 or negative (see
	 * crn_is_bare); needed only while `closed`.
	 */
	int (*load)(struct crn_track_env *env, void *dst, uintptr_t addr, size_t len);
	bool closed; /* the program has made a part of some area unreadable */
	/* Is the page in that part? */
	bool (*closed_at)(const struct crn_track_env *env, uintptr_t page);
	/* pages may have been dropped behind a tracker's back (MADV_DONTNEED) in this interval */
	bool dropped;
	/*
	 * Memory that the kernel may be writing for calls that have not returned: sorted, disjoint,
	 * valid while areas are added and intervals end. A tracker whose protection refuses the
	 * kernel's writes leaves it open.
	 */
	const struct crn_range *in_flight;
	size_t in_flight_count;
	/*
	 * CAIRN_PROTECT: page frames are read-only while the program runs. A write-fault handler
	 * opens the frame that it fills, and closes it again; everything else it writes is in open
	 * blocks (base/arena.h). Does nothing while a call is in progress. NULL: frames are always
	 * writable, or no handler writes any. Called wherever `hold` keeps handlers out.
	 */
	void (*seal)(struct crn_track_env *env, void *frame, bool closed);
	bool *deaf; /* always writable: a feed missed events while the engine's memory was closed */
	/*
	 * Old content could not be kept: the present interval cannot be undone. Any context.
	 */
	void (*lost)(struct crn_track_env *env, uintptr_t addr, int why);
	/*
	 * The program's hooks call this when the open interval grows long; it calls interval_grows
	 * with the session's lock. Anywhere in the program.
	 */
	void (*grows_long)(struct crn_track_env *env);
};

/* Has the program made this page unreadable to itself? Looks at a list, if there are such pages. */
static inline bool crn_page_closed(const struct crn_track_env *env, uintptr_t page)
{
	return crn_unlikely(env->closed) && env->closed_at(env, page);
}

/* Page-level handles, for strategies (which pages to leave open) and for cairn_area_touch. */
struct crn_page_ops {
	/* Save [addr, addr+len) now and leave it open for writing in this interval. */
	int (*unprotect)(void *t, uintptr_t addr, size_t len);
	/*
	 * Keep pages open, whatever a strategy says, because the kernel writes them. Other open
	 * pages are protected again at the next interval_begin.
	 */
	int (*set_hot)(void *t, uintptr_t addr, size_t len, bool hot);
	/* How many pages of the range have been written since interval_begin. Ends no interval. */
	int (*collect)(void *t, uintptr_t addr, size_t len);
	/*
	 * The program has just changed the protection of the range; before that, unprotect() has
	 * saved it. NULL: the tracker does not care.
	 */
	int (*protection)(void *t, uintptr_t addr, size_t len, int prot);
	/*
	 * RLIMIT_DATA is about to change: save and leave open what would have to count as data
	 * again when it is opened. NULL: nothing does.
	 */
	int (*data_limit)(void *t);
	/*
	 * The program has just been given this private anonymous memory, which will be an area.
	 * Give its mapping the attributes of areas, so that the kernel merges it with a neighbour.
	 * Later is too late, because the kernel does not merge mappings that have been written
	 * separately. Tracks nothing; needs no lock. NULL: areas have ordinary mappings.
	 */
	void (*resemble)(void *t, uintptr_t addr, size_t len);
};

/* Since the session was opened. */
struct crn_long_figures {
	uint64_t switches; /* intervals that switched to page mode */
	uint64_t begun;    /* of these, intervals that began in it */
};

struct crn_tracker_ops {
	const char *name;
	uint32_t caps; /* enum crn_tracker_caps */

	/*
	 * Can this host run it? 0, or why not: CAIRN_ENOTRACK or -errno. Cheap; called by auto and
	 * doctor.
	 */
	int (*probe)(const struct crn_host *host);

	int (*open)(void **t, struct crn_track_env *env);
	void (*close)(void *t);

	/* Track an area from now on; its present content is its content at interval_begin. */
	int (*area_add)(void *t, struct crn_area *area);
	/* Stop tracking it. Its mapping may be gone already. */
	void (*area_drop)(void *t, struct crn_area *area);

	/*
	 * The mapping of [begin, end) vanished in the open interval: interval_end hands its content
	 * over and then forgets it. If area_add of the same range comes before that, the mapping is
	 * back, with other content. NULL: the tracker cannot do this, and such an interval cannot
	 * be undone.
	 */
	int (*area_gone)(void *t, struct crn_area *area);
	/*
	 * During a restore: a newer mapping takes the place of one that was there before, or stays
	 * although it is newer. From now on it counts as born at area->born. NULL: the tracker does
	 * not need that.
	 */
	int (*area_born)(void *t, struct crn_area *area);

	int (*interval_begin)(void *t);
	/*
	 * Fails with CAIRN_EMEMORY before anything is handed over or forgotten; the interval then
	 * simply goes on.
	 */
	int (*interval_end)(void *t, struct crn_sink *sink);
	/*
	 * Show the open interval's extents with their old content; nothing is handed over (owned ==
	 * false).
	 */
	int (*undo)(void *t, struct crn_sink *sink);
	/*
	 * From now on `content` (NULL: zeros) is the page's content at interval_begin. Opens the
	 * page for writing.
	 */
	int (*rebase)(void *t, uintptr_t page, const void *content);
	/*
	 * Many rebases follow (`on`), or are done: write-fault handlers are kept out once for all
	 * of them. NULL: nothing to gain.
	 */
	void (*hold)(void *t, bool on);
	/*
	 * The content at interval_begin of one page: *old is set, or left NULL for "as it is now"
	 * when the page has not been written. Returns 1 if *zero (page of zeros), else 0.
	 */
	int (*look)(void *t, uintptr_t page, const void **old);
	/*
	 * Are the mappings of the explicit areas in [begin, end) still those that were added? For
	 * areas whose changes nobody reports; asks the kernel. 0, CAIRN_ELAYOUT (the log says which
	 * is not) or -errno. NULL: the session finds out by itself.
	 */
	int (*whole)(void *t, uintptr_t begin, uintptr_t end);
	/*
	 * Before interval_end: has `whole` answered CAIRN_ELAYOUT, or would it, because of content
	 * that nobody can bring back? Then the checkpoints until now are lost, and the next one is
	 * good. Or NULL.
	 */
	bool (*past_gone)(void *t);
	/*
	 * CRN_TRACK_MIRROR only: the first run of pages in [*begin, *end) whose content at
	 * interval_begin is held (all others are zeros); false if there is none.
	 */
	bool (*held)(void *t, uintptr_t *begin, uintptr_t *end);

	/*
	 * CRN_TRACK_KEEPS only: the tracker keeps K whole checkpoints itself, and the journal stays
	 * empty. kept_take takes the place of interval_begin: it makes checkpoint `id` of what
	 * memory holds now, and drops the oldest beyond K. If it fails, the interval goes on.
	 */
	int (*kept_take)(void *t, uint64_t id);
	/*
	 * Would kept_restore(id) work? 0, CAIRN_EEVICTED, or CAIRN_EFAILED (what kept it is gone).
	 * Changes nothing.
	 */
	int (*kept_check)(void *t, uint64_t id);
	/*
	 * kept_restore(id) will be called; if `moved`, memory that is gone will be mapped again
	 * before that. The last chance to fail without harm: 0 or as kept_check. Or NULL.
	 */
	int (*kept_stage)(void *t, uint64_t id, bool moved);
	/* Store what differs by env->store, then drop all newer checkpoints. `id` stays. */
	int (*kept_restore)(void *t, uint64_t id);
	/* Find the first range from addr on that checkpoint `id` held: 1, or 0 at the end. */
	int (*kept_next)(void *t, uint64_t id, uintptr_t addr, uintptr_t *begin, uintptr_t *end);
	/*
	 * Find the first run of pages in [*begin, *end), a part of what kept_next has returned for
	 * `from`, that may be different at `to` (CAIRN_NOW: now): 1, 0 if there is none, or
	 * negative. The layout has been followed.
	 */
	int (*kept_differs)(
		void *t, uint64_t from, uint64_t to, uintptr_t *begin, uintptr_t *end);
	/*
	 * Copy [addr, addr+len) as it was at `id`. CAIRN_ENOTAREA if `id` did not hold all of it.
	 */
	int (*kept_peek)(void *t, uint64_t id, uintptr_t addr, void *buf, size_t len);
	/* How many pages of the range are different from what they were at `id`. */
	int (*kept_written)(void *t, uint64_t id, uintptr_t addr, size_t len);

	/*
	 * Until the next kept_take no checkpoint is kept and no store has to be noticed: give up
	 * what is kept, and stop whatever costs the program something. NULL: the tracker goes on,
	 * which costs little.
	 */
	void (*pause)(void *t);
	/*
	 * Called before the kept_take that ends the pause. 0; or negative, and the pause goes on.
	 * NULL: nothing to do.
	 */
	int (*resume)(void *t);

	/*
	 * The session itself is about to make system calls on the address space, or has made them;
	 * the tracker need not suspect unseen writes because of these. Nests. NULL: the tracker
	 * does not care.
	 */
	void (*own_calls)(void *t, bool begin);
	/*
	 * The same around the calls that open and close the engine's memory (CAIRN_PROTECT), while
	 * it can be read but not written. NULL: the tracker does not care.
	 */
	void (*own_closed)(void *t, bool begin);
	/*
	 * Called before the past is looked at, and before a checkpoint is taken: report to
	 * env->lost what cannot be undone of the open interval. 0 or negative. NULL: the tracker
	 * reports at once.
	 */
	int (*settle)(void *t);
	/* Does the tracker know that no mapping has changed since this was last asked? Or NULL. */
	bool (*maps_quiet)(void *t);
	/*
	 * What came between two calls of own_calls was not what the session thought: the tracker
	 * has to suspect unseen writes all the same. NULL: calls of the program cost it nothing.
	 */
	void (*suspect)(void *t);
	/*
	 * How it learns of writes, if there is more than one way: the name of the feed, and how
	 * often everything had to be scanned all the same. Or NULL.
	 */
	const char *(*feed)(const void *t, uint64_t *scans);

	/*
	 * CRN_TRACK_STORES only: the open interval is long; track pages instead of stores from here
	 * to its end. 0, also if pages are tracked already; CAIRN_EUNSUPPORTED; CAIRN_ENOTRACK or
	 * CAIRN_EMEMORY, and it goes on as it was.
	 */
	int (*interval_long)(void *t);
	/* The program's hooks find that it may be long: do the same, if it pays. */
	void (*interval_grows)(void *t);
	void (*intervals_long)(const void *t, struct crn_long_figures *out);

	struct crn_page_ops page;

	/* Bytes of mirror or undo pages held now. */
	uint64_t (*bytes)(const void *t);
	/* First writes served by the tracker itself since open. */
	uint64_t (*faults)(const void *t);
	/*
	 * Hot pages handed over since open. NULL: the tracker has no hot pages, and takes no
	 * strategy.
	 */
	uint64_t (*eager)(const void *t);
};

/*
 * Does this tracker's protection make the kernel's own writes fail? Then it takes only explicit
 * areas, except under the agent, which touches the buffers of system calls first.
 */
static inline bool crn_refuses_kernel(const struct crn_tracker_ops *ops)
{
	return !(ops->caps & (CRN_TRACK_SEES_KERNEL | CRN_TRACK_KEEPS));
}

extern const struct crn_tracker_ops crn_tracker_shadow;
extern const struct crn_tracker_ops crn_tracker_undolog;
extern const struct crn_tracker_ops crn_tracker_async;
extern const struct crn_tracker_ops crn_tracker_async_images; /* async, with feed bpf-images */
extern const struct crn_tracker_ops crn_tracker_mprotect;
extern const struct crn_tracker_ops crn_tracker_uffd;
extern const struct crn_tracker_ops crn_tracker_softdirty;
extern const struct crn_tracker_ops crn_tracker_fork;
extern const struct crn_tracker_ops crn_tracker_dummy; /* for a cost bound */

/* All trackers, best first ("auto" takes the first whose probe returns 0). NULL-terminated. */
extern const struct crn_tracker_ops *const crn_trackers[];

#endif
