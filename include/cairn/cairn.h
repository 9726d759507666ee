/* SPDX-License-Identifier: MIT */
/*
 * cairn.h - memory checkpoints of a running program, from inside it.
 *
 * A cairn is a pile of stones that marks the way you came, so that you can walk
 * back to it. This library takes a checkpoint of chosen memory (by default every
 * private writable mapping) and the caller's registers, keeps the last K of them,
 * and goes back to any one. No kernel patch, no kernel module, no root.
 *
 *	struct cairn_options o = CAIRN_OPTIONS_INIT;
 *	cairn_t *c;
 *	uint64_t id;
 *
 *	o.surface = "none";                       // only what is added by hand
 *	cairn_open(&c, &o);
 *	cairn_area_add(c, arena, arena_size);
 *	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED)
 *		try_something_else();
 *	if (!search(arena))
 *		cairn_restore(c, id);             // returns from cairn_checkpoint above
 *	cairn_close(c);
 *
 * Words. A *checkpoint* is a saved state with an increasing id; the execution
 * between two is an *interval*; an *area* is a registered address range; all areas
 * are the *surface*; a *page* is the 4 KiB OS page; the *journal* holds the last K
 * checkpoints. docs/ARCHITECTURE.md has the whole glossary.
 *
 * Results. int functions return >= 0 or a negative code: -errno, or one of the
 * CAIRN_E* codes below -4000; cairn_strerror() names both. errno is not used. A
 * failed call changes nothing, and out-parameters are then untouched. Every call
 * answers -EINVAL for a handle that is no open session.
 *
 * Descriptors. The engine's lie high, away from the program's. The program may close all that it
 * does not know (close_range, closefrom) and open files of its own under their numbers: what can be
 * is opened anew; for what cannot ("async", "uffd", "mprotect") a session has a keeper, a small
 * process that holds the same files. It is never seen by wait() without __WALL, sends no SIGCHLD,
 * and ends with the session, with the process, or at exec. Where there can be none (no process
 * left, pidfd_getfd forbidden as in a container without CAP_SYS_PTRACE) or nothing can be fetched
 * from it (it has changed its user since) calls then answer -EBADF and change nothing, until the
 * session is closed and opened anew. Under the agent there is none: nobody can close what is its.
 *
 * Threads and signals. Any thread may call; calls are serialised. Nothing here may be called from
 * a signal handler except cairn_restore(), whose purpose includes leaving one; it answers -EDEADLK
 * if the handler has interrupted a call of the same thread. A session handles SIGSEGV and SIGBUS:
 * memory that another thread unmaps while the engine copies it must not end the program, and "uffd"
 * and "mprotect" serve first stores by them. Install handlers of your own for these two before
 * cairn_open, whose handler passes on what is not its; under "uffd" and "mprotect" do not store to
 * areas while they are blocked. Those two trackers hold other signals back while they rearrange
 * pages; and SIGSEGV and SIGBUS that somebody has sent, also while they serve a store.
 */
#ifndef CAIRN_CAIRN_H
#define CAIRN_CAIRN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAIRN_VERSION_MAJOR 0
#define CAIRN_VERSION_MINOR 1
#define CAIRN_VERSION_PATCH 0
#define CAIRN_VERSION "0.1.0"

#define CRN_API        __attribute__((visibility("default")))
#define CRN_MUST_CHECK __attribute__((warn_unused_result))

/* ---- Error codes: pinned, never reused ------------------------------------- */

enum cairn_error {
	CAIRN_EEVICTED = -4001, /* the checkpoint has left the journal (raise `keep`) */
	CAIRN_ENOCKPT = -4002,  /* no checkpoint ever had that id */
	CAIRN_EFAILED = -4003,  /* that checkpoint was marked failed when it was taken */
	CAIRN_ELAYOUT = -4004,  /* a mapping of that checkpoint is gone and cannot come back */
	CAIRN_ETRACKER = -4010, /* no tracker of that name */
	CAIRN_ENOTRACK = -4011, /* this host cannot run that tracker (see `cairn doctor`) */
	CAIRN_ESHARED = -4012,  /* this tracker cannot roll back a MAP_SHARED mapping */
	CAIRN_EAREAONLY = -4013, /* this tracker takes explicit areas only: surface "none" */
	CAIRN_ESTRATEGY = -4014, /* no such strategy or parameter, or not with this tracker */
	CAIRN_ENOTAREA = -4020, /* the range is not (wholly) inside a registered area */
	CAIRN_EOVERLAP = -4021, /* the range overlaps an area that is registered already */
	CAIRN_EUNMAPPED = -4022, /* the range is not mapped, or not readable and writable */
	CAIRN_ESURFACE = -4023, /* the surface expression cannot be parsed, or names nothing */
	CAIRN_ETHREADS = -4030, /* another thread has run since that checkpoint */
	CAIRN_EOPTION = -4040,  /* an option has a value out of its range */
	CAIRN_EBUSY = -4041,    /* the process has an engine already, with other options */
	CAIRN_EPAUSED = -4042,  /* the session rests: cairn_resume first */
	CAIRN_EMEMORY = -4050,  /* the engine's memory limit is reached (raise `memory_max`) */
	CAIRN_EUNSUPPORTED = -4060, /* not possible in this mode; see the function */
};

/* The name and meaning of a negative result. Static storage; never NULL. Any context. */
CRN_API const char *cairn_strerror(int code);

/* The library's version, "MAJOR.MINOR.PATCH". */
CRN_API const char *cairn_version(void);

/* ---- Opening a session ------------------------------------------------------ */

/* A session: one engine, its surface, tracker and journal. One per process. */
typedef struct cairn cairn_t;

/*
 * Who may run between a checkpoint and its restore. With CAIRN_THREADS_ONE the
 * program promises that only the calling thread writes to the surface.
 */
enum cairn_threads {
	CAIRN_THREADS_ALL = 0, /* every thread's writes are tracked (default) */
	CAIRN_THREADS_ONE = 1,
};

enum cairn_flags {
	/*
	 * The engine's memory (mirror, undo pages, journal, tables) is read-only while the program
	 * runs: by a protection key where the processor has one to spare, else at the cost of an
	 * mprotect(2) or two over it at the begin and end of each call, and of two system calls
	 * for each page frame that the call writes, if the tracker keeps a mirror.
	 */
	CAIRN_PROTECT = 1u << 0,
};

/*
 * Begin with CAIRN_OPTIONS_INIT; zero or NULL everywhere means the default.
 * The first field is the struct's size, so that fields may be added.
 */
struct cairn_options {
	size_t size;
	/*
	 * "auto" (default), "async", "uffd", "mprotect", "softdirty", "fork"; in a program that
	 * cairn-cc has built "shadow" or "undolog", the one that it was built for
	 */
	const char *tracker;
	/* Which pages to copy eagerly: "auto" (default), "none", "NAME", "NAME:param=value,..." */
	const char *strategy;
	const char *surface;  /* "all" (default), "program", "none", or a list: see below */
	uint32_t keep;        /* K, checkpoints kept: 1 (default) to 65536 */
	uint32_t threads;     /* enum cairn_threads */
	uint32_t flags;       /* enum cairn_flags */
	uint32_t reserved;    /* 0 */
	uint64_t memory_max;  /* bytes the engine may use; default: half of the machine's RAM */
	/*
	 * How "async" learns which pages were written: "auto" (default: the best that this process
	 * may have and that proves itself), "bpf", "perf", "scan"; or "bpf-images", which keeps old
	 * pages instead of a mirror, on explicit areas (cairn_open(3)). Other trackers take "auto"
	 * alone.
	 */
	const char *feed;
};
#define CAIRN_OPTIONS_INIT { .size = sizeof(struct cairn_options) }

/*
 * Open the session and start interval 0, whose start is the implicit checkpoint 0.
 *
 * surface: "all" is every private writable mapping of the process, now and later;
 * "program" the writable segments of loaded objects, the brk heap and thread
 * stacks; "none" starts empty. A comma-separated list takes mapping names as in
 * /proc/self/maps ("[heap]", "libfoo.so.1" by its last path component) and ranges
 * ("0x7f0000000000-0x7f0000100000"). Shared mappings are rolled back only when
 * named or added. Memory of the engine is never part of the surface.
 *
 * "shadow" and "undolog" know every store of the instrumented program: the surface is "all",
 * cairn_area_add names what other code stores to, cairn_changes answers CAIRN_EUNSUPPORTED,
 * cairn_area_touch comes before the write. See cairn-cc(1) for what they do not see.
 *
 * strategy: a *hot* page is copied at the checkpoint and left writable, which costs a hundredth of
 * noticing its first store; a strategy guesses which pages that pays for. cairn_open(3) lists them
 * and their parameters; what is wrong with a name or a value is said in the log. "auto" is
 * "decay" under "async", "uffd" and "mprotect"; the others have no hot pages and take "none" alone.
 *
 * Returns 0; CAIRN_ETRACKER, CAIRN_ENOTRACK, CAIRN_ESTRATEGY, CAIRN_EAREAONLY, CAIRN_ESURFACE,
 * CAIRN_EOPTION, CAIRN_EBUSY, CAIRN_EMEMORY, -ENOMEM, -EINVAL (a feed for a tracker that has none),
 * -EBUSY ("async": a mapping of the surface belongs to a userfaultfd of the program's own),
 * CAIRN_EUNSUPPORTED ("uffd" or "mprotect" while another process uses this memory, as after
 * clone(CLONE_VM); it is seen if there is one thread), or what the kernel refused.
 * When the process runs under `cairn run`, this joins the engine that is there and returns its
 * handle; a program that is linked with libcairn.a cannot join (CAIRN_EBUSY).
 */
CRN_API CRN_MUST_CHECK int cairn_open(cairn_t **out, const struct cairn_options *options);

/*
 * Forget everything and stop tracking. Memory stays as it is. Not while another thread is in a
 * call. A session that was opened twice, or by `cairn run`, goes on until its last cairn_close.
 */
CRN_API int cairn_close(cairn_t *c);

/* ---- The surface ------------------------------------------------------------ */

/*
 * Register [addr, addr+len) as an area. addr and len are widened to whole pages. All checkpoints
 * that exist stay; a restore to one that is older than the area leaves the area as it is, whatever
 * has been mapped there since.
 *
 * The area lasts until it is removed, or until a call finds that nothing of it is mapped any more.
 * What is mapped anywhere in it meanwhile, of whatever kind, is a part of it. Parts that go, or
 * become other memory, are brought back by "async" and "fork", as private memory; a part that was
 * shared is not (CAIRN_ELAYOUT). Feed "bpf-images" keeps no past of such an interval
 * (CAIRN_EFAILED); "fork" takes no shared memory that is mapped over a part (CAIRN_EUNSUPPORTED
 * while it is there).
 *
 * Under "uffd" and "mprotect", remove it before you unmap or move it, or (under "mprotect") change
 * its protection. Else that is found out: cairn_restore, cairn_rewind, cairn_peek and cairn_changes
 * answer CAIRN_ELAYOUT until the area is removed. With surface "none" such a call of the program
 * waits until the session's keeper, a process, has noticed; while that is stopped, or (under
 * "uffd") when somebody has killed both it and its twin at once, until the next cairn_checkpoint,
 * _restore or _rewind. (Who runs out of memory loses one of them.) Remove the area first, and there
 * is nothing to wait for.
 *
 * Not found out, where there is no keeper, and (under "mprotect", and for files under "uffd") from
 * the death of keeper and twin to the next call: clean pages whose content goes while they stay
 * unwritable, by MADV_DONTNEED, MREMAP_DONTUNMAP, or read-only memory that is mapped over them,
 * also if cairn_area_touch or a strategy expects stores there and they are opened afterwards.
 * Shared areas keep their content in the first two cases; other memory over them is found out while
 * it is there, when a page of it is opened (from Linux 6.11 on), and at checkpoints that close
 * pages.
 *
 * Under "uffd" an area is made unmergeable: KSM takes the protection from pages that it merges, so
 * do not set MADV_MERGEABLE or PR_SET_MEMORY_MERGE later.
 *
 * Under "shadow" and "undolog": shared memory of one file, or of one anonymous mapping, that goes
 * back from now on, to all checkpoints, as long as it is mapped there. Private memory goes back
 * without as far as the program's own code stores to it; as an area it is watched by pages besides,
 * so that what others store goes back, too: libraries, the kernel (CAIRN_EOVERLAP: the program's
 * image, its stack; CAIRN_ENOTRACK: where "async" is not to be had). Remove it before it is
 * unmapped, moved or closed: while it is not there checkpoints and restores answer CAIRN_ELAYOUT.
 *
 * Errors: CAIRN_EOVERLAP, CAIRN_EUNMAPPED, CAIRN_ESHARED, CAIRN_EMEMORY, -EINVAL (len 0),
 * CAIRN_EUNSUPPORTED ("shadow", "undolog": shared memory of several objects, or beside private
 * memory, or private memory in a program that was built with -fcairn-hybrid; "uffd", "mprotect",
 * feed "bpf-images": huge pages of hugetlbfs).
 */
CRN_API CRN_MUST_CHECK int cairn_area_add(cairn_t *c, void *addr, size_t len);

/*
 * Stop tracking an area (exactly as it was added), whatever has become of it. Memory stays as it
 * is, and restores leave it alone. Errors: CAIRN_ENOTAREA.
 */
CRN_API CRN_MUST_CHECK int cairn_area_remove(cairn_t *c, void *addr, size_t len);

/*
 * The bytes [addr, addr+len) keep their present value over restores and rewinds (counters, logs,
 * caches). Byte-exact. cairn_peek still shows their past. A mapping that has come since stays
 * mapped, all of it, if it holds any of them. So does, with what was written to it since, one of a
 * file that was closed to stores then and has been opened. Errors: -EINVAL, CAIRN_EMEMORY.
 */
CRN_API CRN_MUST_CHECK int cairn_area_exclude(cairn_t *c, void *addr, size_t len);

/*
 * "This is about to be, or was, written behind your back": DMA, another process. Under trackers
 * that keep old content from the first store ("uffd", "mprotect") call it before the write;
 * elsewhere either way.
 *
 * Under "uffd" and "mprotect" a system call that writes into a clean page fails with EFAULT: touch
 * its buffer first. There madvise(MADV_DONTNEED, _REMOVE) and mremap(MREMAP_DONTUNMAP) take clean
 * pages away, and their past with them: touch those before, too. Clean ones that go all the same
 * are found out like an area that was unmapped (under "uffd" from Linux 6.7 on), if the keeper
 * notices; MADV_GUARD_INSTALL is not, under "mprotect". More than a thousand such calls on open
 * pages between two of ours are taken for the worst.
 *
 * Under every tracker a hole that is punched into shared memory (MADV_REMOVE, fallocate) is a write
 * behind its back. So is what is done to a file under an area (write, ftruncate): it shows in
 * shared memory, and in private pages that nobody has written (under "fork" at all checkpoints).
 * Cutting a file short takes the others along, too: "async" puts them back, the other trackers
 * refuse what is past by then (CAIRN_ELAYOUT, CAIRN_EFAILED), and the next checkpoint is good
 * again.
 *
 * What MADV_FREE is given may be dropped by the kernel at any time until it is stored to, also
 * after a restore to before the advice, and nobody is told ("mprotect" with a keeper alone refuses
 * clean pages of it). Use MADV_DONTNEED on tracked memory, or touch it before the advice, and then
 * restores store to it until the next checkpoint (under "fork", and to stacks, only if it differs).
 *
 * Errors: CAIRN_ENOTAREA, CAIRN_EMEMORY.
 */
CRN_API CRN_MUST_CHECK int cairn_area_touch(cairn_t *c, void *addr, size_t len);

/* ---- Checkpoint and restore ------------------------------------------------- */

enum cairn_return {
	CAIRN_TAKEN = 0,    /* the checkpoint has just been taken */
	CAIRN_RESTORED = 1, /* a restore has come back to it */
};

/*
 * Take a checkpoint of the surface, the caller's registers and its active stack. Like setjmp it
 * returns twice, and unlike setjmp the frame that called it may have returned by the time of the
 * restore. *id is written both times. The oldest checkpoint beyond K is evicted.
 * The active stack ends where the kernel's or libc's does. One of the program's own making
 * (a coroutine's) ends with its area, if it is in one, else with its mapping.
 * CAIRN_ETHREADS under "shadow" and "undolog" if there are other threads and CAIRN_THREADS_ALL.
 * Errors, with which the id is used up and marked failed, and the program goes on: CAIRN_EMEMORY;
 * CAIRN_EUNSUPPORTED on a stack in the heap that is no area (its end is not known); -EBUSY if a
 * mapping of the surface belongs to a userfaultfd of the program's own (`async`; cairn_open too);
 * -ENOMEM if RLIMIT_DATA leaves no room to open again what `mprotect` would close.
 */
CRN_API CRN_MUST_CHECK int cairn_checkpoint(cairn_t *c, uint64_t *id)
	__attribute__((returns_twice));

/*
 * From the next checkpoint on the program does work of this kind: a strategy keeps one working set
 * for each key (a request type, a phase; any number), of which there are 64 at most. Programs
 * whose intervals alternate between unlike kinds of work are predicted better so. Before the first
 * call the key is 0. Returns 0; no effect under strategy "none".
 */
CRN_API CRN_MUST_CHECK int cairn_context(cairn_t *c, uint64_t key);

/*
 * Attach up to 4096 bytes to a kept checkpoint (a request number, device state): copied; replaces
 * what was there. cairn_checkpoint_tag_get returns the length and copies at most `len` bytes.
 * Errors: CAIRN_EEVICTED, CAIRN_ENOCKPT, CAIRN_EFAILED, -E2BIG, -EINVAL (blob NULL), CAIRN_EMEMORY.
 */
CRN_API CRN_MUST_CHECK int cairn_checkpoint_tag(cairn_t *c, uint64_t id, const void *blob,
	size_t len);
CRN_API CRN_MUST_CHECK int cairn_checkpoint_tag_get(cairn_t *c, uint64_t id, void *blob,
	size_t len);

/*
 * Go back to checkpoint `id` and run on from there: does not return on success. Everything newer is
 * gone (a mapping that the program has sealed, by mseal, stays as it is); `id` is again the open
 * checkpoint and may be restored again. The signal mask comes back too, except under "uffd",
 * "mprotect" and any strategy but "none", where a checkpoint need make no system call: there
 * SIGSEGV and the other faults are unblocked and the rest is left. Must be
 * called by the thread that took it.
 * Errors, before a byte changes: CAIRN_EEVICTED, CAIRN_ENOCKPT, CAIRN_EFAILED, CAIRN_ELAYOUT,
 * CAIRN_ETHREADS, CAIRN_EUNSUPPORTED (the implicit checkpoints of cairn_open and cairn_resume have
 * no registers; strategy "oracle-count"; a mapping of the surface that the tracker cannot take, as
 * the log has said).
 */
CRN_API CRN_MUST_CHECK int cairn_restore(cairn_t *c, uint64_t id);

/*
 * The same for memory alone, to implicit checkpoints too, and return to the caller (libsmc's
 * restore). The caller's own stack is left as it is. For a search over an arena: cost is
 * that of copying the pages back. Returns 0. Errors: as cairn_restore; CAIRN_EUNSUPPORTED also on a
 * stack in the heap, whose end is not known.
 */
CRN_API CRN_MUST_CHECK int cairn_rewind(cairn_t *c, uint64_t id);

/*
 * The oldest and the newest checkpoint that can be named now. Either pointer may be NULL. Returns 0
 * or CAIRN_EPAUSED.
 */
CRN_API CRN_MUST_CHECK int cairn_range(cairn_t *c, uint64_t *oldest, uint64_t *newest);

/*
 * From here to cairn_resume no checkpoint is kept and none can be taken: those that were are gone
 * (CAIRN_EEVICTED), cairn_checkpoint and cairn_range answer CAIRN_EPAUSED. For a time in which the
 * program needs no way back. "shadow" and "undolog" save nothing meanwhile, and with -fcairn-clone
 * the program runs without hooks; under "fork" there is no frozen process; other trackers notice
 * the first store to each page, once, and keep it. Options, areas and exclusions stay. No effect in
 * a session that rests already. Errors: CAIRN_EBUSY (the session was opened twice, or by
 * `cairn run`).
 */
CRN_API CRN_MUST_CHECK int cairn_pause(cairn_t *c);

/*
 * Begin anew, like cairn_open: memory as it is now is a new checkpoint, with a new id, to which
 * cairn_rewind can go. No effect in a session that does not rest. Errors, with which it goes on to
 * rest: those of cairn_checkpoint.
 */
CRN_API CRN_MUST_CHECK int cairn_resume(cairn_t *c);

/*
 * The interval that the newest checkpoint has begun will be long: from here to its end pages are
 * tracked, and in a program that was built with -fcairn-hybrid code without hooks runs, so that
 * only the first store to each page costs anything. Without this call that is found out by the
 * hooks that have run. Nothing else changes: any kept checkpoint is restored as ever. No effect if
 * pages are tracked anyway. Errors: CAIRN_EUNSUPPORTED (not built with -fcairn-hybrid);
 * CAIRN_ENOTRACK (no tracker of pages here; the log says why), with which hooks go on;
 * CAIRN_EPAUSED.
 */
CRN_API CRN_MUST_CHECK int cairn_interval_long(cairn_t *c);

/* ---- Looking into the past -------------------------------------------------- */

/*
 * Read [addr, addr+len) as it was at checkpoint `id` into buf; nothing changes. The range must lie
 * inside areas. Returns 0. Errors: as cairn_restore, CAIRN_ENOTAREA.
 */
CRN_API CRN_MUST_CHECK int cairn_peek(cairn_t *c, uint64_t id, const void *addr, void *buf,
	size_t len);

/* The same for many ranges: remote[i] is read into local[i], whose lengths must agree (-EINVAL). */
CRN_API CRN_MUST_CHECK int cairn_peekv(cairn_t *c, uint64_t id, const struct iovec *local,
	const struct iovec *remote, size_t count);

/*
 * Called once per changed extent in address order; before and after are `len` bytes each, valid
 * during the call. Return non-zero to stop; cairn_changes then returns that value if it is
 * positive. It runs within the call: what it asks of the library itself answers -EDEADLK.
 */
typedef int (*cairn_change_fn)(void *ctx, void *addr, size_t len, const void *before,
	const void *after);

/*
 * What changed between two checkpoints, from < to; `to` may be CAIRN_NOW. Extents are maximal
 * runs of differing 8-byte words inside one page. Returns 0 or a positive value from the callback.
 * Errors: as cairn_peek, -EINVAL (fn NULL), CAIRN_EUNSUPPORTED ("shadow", "undolog").
 */
#define CAIRN_NOW UINT64_MAX
CRN_API CRN_MUST_CHECK int cairn_changes(cairn_t *c, uint64_t from, uint64_t to,
	cairn_change_fn fn, void *ctx);

/* ---- Figures ---------------------------------------------------------------- */

/* Totals since cairn_open or cairn_stats_reset; *_ns are sums; *_bytes are present values. */
struct cairn_stats {
	size_t size;             /* set by the caller to sizeof(struct cairn_stats) */
	char tracker[16];        /* the tracker in use, e.g. what "auto" took */
	uint64_t checkpoints;    /* taken */
	uint64_t failed;         /* of those, marked failed */
	uint64_t restores;       /* restores and rewinds */
	uint64_t pages_saved;    /* old pages handed to the journal, eager and lazy */
	uint64_t pages_eager;    /* of those, copied at the checkpoint because they were hot */
	uint64_t pages_restored;
	uint64_t faults;         /* first writes that the tracker served itself (signal trackers) */
	uint64_t checkpoint_ns;
	uint64_t restore_ns;
	uint64_t areas;          /* registered now */
	uint64_t surface_bytes;
	uint64_t mirror_bytes;   /* copies of the present checkpoint */
	uint64_t journal_bytes;  /* what undoes the older ones */
	uint64_t engine_bytes;   /* everything the engine occupies */
	uint64_t engine_bytes_max;
	char strategy[32];       /* in use: what "auto" took, or as given; cut to fit */
	uint64_t hot_pages;      /* now */
	uint64_t overcopied;     /* hot pages that an interval did not write, summed over all */
	uint64_t undercopied;    /* pages written while cold, likewise */
	uint64_t promotions, evictions; /* to hot, and back */
	uint64_t contexts;       /* working sets now: see cairn_context */
	char feed[16];           /* of "async": the feed in use; empty under other trackers */
	uint64_t scans;          /* of "async": times that the whole surface was looked at */
	char strategy_why[48];   /* "named", or why "auto" took it */
	uint64_t long_intervals; /* that went on in page mode: cairn_interval_long */
	uint64_t long_at_once;   /* of these: that began in it, as those before them were long */
	char feed_why[48];       /* a better feed that "auto" did not take, and why; or empty */
};

/*
 * cairn_stats fills as much of *out as its size says; its cost grows with the number of areas. Both
 * return 0; CAIRN_EOPTION without a size.
 */
CRN_API CRN_MUST_CHECK int cairn_stats(cairn_t *c, struct cairn_stats *out);
CRN_API CRN_MUST_CHECK int cairn_stats_reset(cairn_t *c);

#ifdef __cplusplus
}
#endif
#endif
