/* SPDX-License-Identifier: MIT */
/*
 * cairn.h - memory checkpoints of a running program, from inside it.
 *
 * A cairn is a pile of stones that marks the way you came, so that you can walk back to it. This
 * library takes checkpoints of chosen memory (by default every private writable mapping) and of the
 * caller's registers, keeps the last K of them, and goes back to any one. It needs no kernel patch,
 * no kernel module and no root.
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
 * Words. A *checkpoint* is a saved state with an increasing id. The execution between two
 * checkpoints is an *interval*. An *area* is a registered address range, and all areas together are
 * the *surface*. A *page* is the 4 KiB OS page. The *journal* holds the last K checkpoints. A page
 * is *clean* if it has not been written since the checkpoint, and *open* if it has been, or may be
 * without being noticed. docs/ARCHITECTURE.md has the whole glossary.
 *
 * Results. int functions return >= 0 on success, or a negative code: -errno, or one of the CAIRN_E*
 * codes below -4000. cairn_strerror() names both. errno is not used. A failed call changes nothing
 * and leaves its out-parameters untouched. Every call answers -EINVAL for a handle that is no open
 * session.
 *
 * Descriptors. The engine's descriptors have high numbers, away from the program's. The program may
 * close all descriptors that it does not know (close_range, closefrom) and reuse their numbers: the
 * engine opens anew what it can. What it cannot open anew (under "async", "uffd", "mprotect") is
 * also held by the session's keeper, a small process. wait() does not return the keeper without
 * __WALL. It sends no SIGCHLD, and ends with the session, with the process, or at exec. There may
 * be no keeper (no process left, or pidfd_getfd forbidden, as in a container without
 * CAP_SYS_PTRACE), or nothing can be fetched from it, since the program has changed its user. Then
 * calls answer -EBADF after such a close, and change nothing, until the session is closed and
 * opened again. Under the agent there is no keeper: nobody can close the engine's descriptors.
 *
 * Threads and signals. Any thread may call; calls are serialised, except that nobody else may be in
 * a call while a session is opened or closed. A signal handler may call nothing but
 * cairn_restore(), whose purpose includes leaving a handler; it answers -EDEADLK if the handler has
 * interrupted a call of the same thread.
 *
 * What a signal handler or another thread stores to the surface while a checkpoint is taken may be
 * in the checkpoint in part: the store to one page, but not that to another. While memory goes
 * back, they find one part of it as it was and the rest as it is. So block the signals whose
 * handlers use the surface around such a call, and let the other threads wait.
 *
 * A session handles SIGSEGV and SIGBUS: another thread may unmap memory while the engine copies it,
 * and "uffd" and "mprotect" notice first stores by these signals. Install handlers of your own for
 * these two before cairn_open; its handler passes on what is not its own. Under "uffd" and
 * "mprotect" do not store to areas while these signals are blocked. These two trackers hold back
 * other signals while they rearrange pages. They also hold back SIGSEGV and SIGBUS that a process
 * has sent, even while they serve a store.
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
	CAIRN_EFAILED = -4003,  /* that checkpoint was marked failed, when it was taken or since */
	CAIRN_ELAYOUT = -4004,  /* a mapping of that checkpoint is gone and cannot come back */
	CAIRN_ETRACKER = -4010, /* no tracker of that name */
	CAIRN_ENOTRACK = -4011, /* this host cannot run that tracker (see `cairn doctor`) */
	CAIRN_ESHARED = -4012,  /* this tracker cannot roll back a MAP_SHARED mapping */
	CAIRN_EAREAONLY = -4013, /* this tracker takes explicit areas only: surface "none" */
	/* no such strategy or parameter, not with this tracker, or its profile is of another run */
	CAIRN_ESTRATEGY = -4014,
	CAIRN_ENOTAREA = -4020, /* the range is not (wholly) inside a registered area */
	CAIRN_EOVERLAP = -4021, /* the range, or shared memory in it, is in an area already */
	CAIRN_EUNMAPPED = -4022, /* the range is not mapped, or not readable and writable */
	CAIRN_ESURFACE = -4023, /* the surface expression cannot be parsed, or names nothing */
	CAIRN_ETHREADS = -4030, /* another thread has run since that checkpoint */
	CAIRN_EOPTION = -4040,  /* an option has a value out of its range */
	CAIRN_EBUSY = -4041,    /* the process has an engine already, with other options */
	CAIRN_EPAUSED = -4042,  /* the session is paused: cairn_resume first */
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
	 * runs. Where the processor has a spare protection key, that costs little. Elsewhere each
	 * call costs one or two mprotect(2) at its begin and at its end and, if the tracker keeps a
	 * mirror, two system calls for each page frame that the call writes.
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
	 * How writes are noticed: "auto" (default), "async", "uffd", "mprotect", "softdirty",
	 * "fork". In a program that cairn-cc has built: "shadow" or "undolog", whichever it was
	 * built for.
	 */
	const char *tracker;
	/* Which pages are hot: "auto" (default), "none", "NAME", "NAME:param=value,..." */
	const char *strategy;
	const char *surface;  /* "all" (default), "program", "none", or a list: see below */
	uint32_t keep;        /* K, checkpoints kept: 1 (default) to 65536 */
	uint32_t threads;     /* enum cairn_threads */
	uint32_t flags;       /* enum cairn_flags */
	uint32_t reserved;    /* 0 */
	uint64_t memory_max;  /* bytes the engine may use; default: half of the machine's RAM */
	/*
	 * How "async" learns which pages were written: "auto" (default: the best feed that this
	 * process may use and that passes a test), "bpf", "perf", "scan"; or "bpf-images", which
	 * keeps old pages instead of a mirror, for explicit areas only (cairn_open(3)). Other
	 * trackers take "auto" only.
	 */
	const char *feed;
};
#define CAIRN_OPTIONS_INIT { .size = sizeof(struct cairn_options) }

/*
 * Open the session and start interval 0, whose start is the implicit checkpoint 0.
 *
 * surface: "all" is every private writable mapping of the process, now and later. "program" is the
 * writable segments of loaded objects, the brk heap and thread stacks. "none" starts empty. A
 * comma-separated list names mappings as in /proc/self/maps ("[heap]", "libfoo.so.1" by its last
 * path component) and ranges ("0x7f0000000000-0x7f0000100000"). Shared mappings are rolled back
 * only when named or added. Memory of the engine is never part of the surface.
 *
 * "shadow" and "undolog" know every store of the instrumented program. Under them the surface is
 * "all", cairn_area_add names memory that other code stores to, cairn_changes answers
 * CAIRN_EUNSUPPORTED, and cairn_area_touch must come before the write. cairn-cc(1) says what they
 * do not see.
 *
 * strategy: a *hot* page is copied at the checkpoint and left writable, which costs a hundredth of
 * noticing its first store. A strategy guesses for which pages that pays. "auto" is "decay" under
 * "async", "uffd" and "mprotect"; the other trackers have no hot pages and take "none" only.
 * cairn_open(3) lists all strategies and their parameters. If a name or a value is wrong, the log
 * says what.
 *
 * If the process runs under `cairn run`, the call joins the engine that is already there and
 * returns its handle. A program that is linked with libcairn.a cannot join (CAIRN_EBUSY).
 *
 * Returns 0; or CAIRN_ETRACKER, CAIRN_ENOTRACK, CAIRN_ESTRATEGY, CAIRN_EAREAONLY, CAIRN_ESURFACE,
 * CAIRN_EOPTION, CAIRN_EBUSY, CAIRN_EMEMORY, -ENOMEM; -EINVAL (a feed for a tracker that has none);
 * -EBUSY ("async": a mapping of the surface belongs to a userfaultfd of the program's own);
 * CAIRN_EUNSUPPORTED ("uffd" or "mprotect" while another process uses this memory, as after
 * clone(CLONE_VM); this is detected if there is one thread); or what the kernel refused.
 */
CRN_API CRN_MUST_CHECK int cairn_open(cairn_t **out, const struct cairn_options *options);

/*
 * Forget all checkpoints and stop tracking. Memory stays as it is. No other thread may be in a call
 * of the library. A session that was opened twice, or by `cairn run`, lives until its last
 * cairn_close.
 */
CRN_API int cairn_close(cairn_t *c);

/* ---- The surface ------------------------------------------------------------ */

/*
 * Register [addr, addr+len) as an area, widened to whole pages. All existing checkpoints stay. A
 * restore to a checkpoint that is older than the area leaves the area as it is, whatever has been
 * mapped there since.
 *
 * The area lasts until it is removed, or until a call finds that nothing of it is mapped any more.
 * Anything that is mapped inside it meanwhile becomes part of it. "async" and "fork" bring back
 * parts that were unmapped or replaced by other memory, as private memory; a part that was shared
 * is not brought back (CAIRN_ELAYOUT). Feed "bpf-images" loses the past of such an interval
 * (CAIRN_EFAILED). "fork" answers CAIRN_EUNSUPPORTED while shared memory is mapped over a part.
 *
 * Shared memory that is mapped at several places can be an area at one of them (CAIRN_EOVERLAP); if
 * another one comes into an area later, restores answer CAIRN_EUNSUPPORTED while it is there. What
 * is stored by way of another place nobody sees: see cairn_area_touch.
 *
 * Under "uffd" and "mprotect", remove the area before you unmap or move it, or (under "mprotect",
 * and for files and shared memory under "uffd") change its protection. If you do not, the change is
 * detected, and cairn_restore, cairn_rewind, cairn_peek and cairn_changes answer CAIRN_ELAYOUT
 * until the area is removed. With surface "none" the unmapping call itself waits until the
 * session's keeper, a process, has noticed it. While the keeper is stopped, or (under "uffd") if
 * somebody has killed both it and its twin at once, it waits until the next cairn_checkpoint,
 * cairn_restore or cairn_rewind. (The kernel, when short of memory, kills only one of them.) If the
 * area is removed first, there is nothing to wait for.
 *
 * One loss is not detected if there is no keeper, nor (under "mprotect", and for files under
 * "uffd") from the death of keeper and twin to the next call: clean pages that lose their content
 * but stay unwritable. MADV_DONTNEED, MREMAP_DONTUNMAP, and read-only memory mapped over them do
 * that. It stays undetected if the pages are opened afterwards because cairn_area_touch or a
 * strategy expects stores there. Shared areas keep their content under the first two. Other memory
 * mapped over a shared area is detected while it is there, when one of its pages is opened (from
 * Linux 6.11 on), and at checkpoints that close pages.
 *
 * Under "uffd" the area is made unmergeable, because KSM removes the protection from pages that it
 * merges. Do not set MADV_MERGEABLE or PR_SET_MEMORY_MERGE later.
 *
 * Under "shadow" and "undolog" an area names one of two things. Shared memory of one file, or of
 * one anonymous mapping, is restored from now on, to all checkpoints, while it is mapped there.
 * Private memory needs no area for stores of the program's own code; as an area it is tracked by
 * pages as well, so that stores by libraries and the kernel are undone, too. (CAIRN_EOVERLAP: the
 * program's image, its stack. CAIRN_ENOTRACK: "async" is not available.) Remove the area before it
 * is unmapped, moved or made inaccessible: while it is not there, checkpoints and restores answer
 * CAIRN_ELAYOUT.
 *
 * Errors: CAIRN_EOVERLAP, CAIRN_EUNMAPPED, CAIRN_ESHARED, CAIRN_EMEMORY, -EINVAL (len 0),
 * CAIRN_EUNSUPPORTED ("shadow", "undolog": shared memory of several objects, or beside private
 * memory, or private memory in a program built with -fcairn-hybrid; "uffd", "mprotect", feed
 * "bpf-images": huge pages of hugetlbfs; "async": memory that a userfaultfd cannot protect, as of
 * MAP_DROPPABLE or a BPF map; all trackers: memory of memfd_secret).
 */
CRN_API CRN_MUST_CHECK int cairn_area_add(cairn_t *c, void *addr, size_t len);

/*
 * Stop tracking an area, given exactly as it was added, whatever has become of it. Memory stays as
 * it is, and restores leave it alone. Errors: CAIRN_ENOTAREA.
 */
CRN_API CRN_MUST_CHECK int cairn_area_remove(cairn_t *c, void *addr, size_t len);

/*
 * Exclude the bytes [addr, addr+len): they keep their present value over restores and rewinds
 * (counters, logs, caches). Exact to the byte. cairn_peek still shows their past. If a mapping that
 * is newer than the checkpoint holds any of them, all of it stays mapped. If a file's mapping that
 * was not writable at the checkpoint has been made writable since, and holds any of them, it stays
 * so, with what was written to it. Errors: -EINVAL, CAIRN_EMEMORY.
 */
CRN_API CRN_MUST_CHECK int cairn_area_exclude(cairn_t *c, void *addr, size_t len);

/*
 * Announce that [addr, addr+len) is about to be written, or was written, in a way that the tracker
 * cannot see: by DMA, by another process, or by way of another mapping of the same shared memory.
 * Under trackers that keep old content from the first store ("uffd", "mprotect") call it before the
 * write; elsewhere before or after. A read with O_DIRECT (by aio, io_uring, another thread) is DMA
 * if a checkpoint is taken meanwhile: take none, or, under "async", touch the buffer afterwards.
 *
 * Under "uffd" and "mprotect" a system call that writes into a clean page fails with EFAULT: touch
 * its buffer first. There madvise(MADV_DONTNEED, MADV_REMOVE) and mremap(MREMAP_DONTUNMAP) drop
 * clean pages and their past: touch those first, too. If clean pages are dropped all the same, that
 * is detected like the unmapping of an area, if the keeper notices (under "uffd" from Linux 6.7
 * on). MADV_GUARD_INSTALL is not detected. If there are more than a thousand such calls on open
 * pages between two calls of the library, loss is assumed.
 *
 * Under every tracker, a hole punched into shared memory (MADV_REMOVE, fallocate) is such an unseen
 * write. So are changes to a file under an area (write, ftruncate, stores by a shared mapping of
 * it). They show in shared memory, and in private pages that nobody has written (under "fork" at
 * all checkpoints). Cutting a file short also removes the private pages that have been written.
 * "async" puts these back. The other trackers refuse checkpoints from before the cut
 * (CAIRN_ELAYOUT, CAIRN_EFAILED); the next one is good again.
 *
 * The kernel may drop memory given to MADV_FREE at any time until it is stored to, even after a
 * restore to before the advice, and nobody is told (only "mprotect" with a keeper refuses clean
 * pages of it). Use MADV_DONTNEED on tracked memory, or touch the memory before the advice. Then
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
 * Take a checkpoint of the surface, the caller's registers and its active stack. It returns twice,
 * like setjmp; unlike setjmp, the function that called it may have returned before the restore. *id
 * is written both times. If there are more than K checkpoints, the oldest is evicted.
 *
 * The active stack ends where the kernel's or libc's stack ends. A stack of the program's own
 * making (a coroutine's) ends with its area, if it is in one, else with its mapping.
 *
 * Returns CAIRN_TAKEN or CAIRN_RESTORED; or CAIRN_ETHREADS under "shadow" and "undolog" if there
 * are other threads and CAIRN_THREADS_ALL is set. After these errors the id is used up and marked
 * failed, and the program goes on: CAIRN_EMEMORY; CAIRN_EUNSUPPORTED on a stack in the heap that is
 * no area (its end is not known); -EBUSY if a mapping of the surface belongs to a userfaultfd of
 * the program's own ("async"; cairn_open too); -ENOMEM if the hard RLIMIT_DATA leaves no room to
 * open again what "mprotect" would close.
 */
CRN_API CRN_MUST_CHECK int cairn_checkpoint(cairn_t *c, uint64_t *id)
	__attribute__((returns_twice));

/*
 * Say which kind of work the program does from the next checkpoint on. The key is any number (a
 * request type, a phase). A strategy keeps one working set for each key, 64 at most. This improves
 * its predictions for programs whose intervals alternate between unlike kinds of work. Before the
 * first call the key is 0. Returns 0; no effect under strategy "none".
 */
CRN_API CRN_MUST_CHECK int cairn_context(cairn_t *c, uint64_t key);

/*
 * Attach up to 4096 bytes to a kept checkpoint (a request number, device state). They are copied,
 * and replace what was there. cairn_checkpoint_tag_get copies at most `len` bytes and returns the
 * full length.
 * Errors: CAIRN_EEVICTED, CAIRN_ENOCKPT, CAIRN_EFAILED, -E2BIG, -EINVAL (blob NULL), CAIRN_EMEMORY.
 */
CRN_API CRN_MUST_CHECK int cairn_checkpoint_tag(cairn_t *c, uint64_t id, const void *blob,
	size_t len);
CRN_API CRN_MUST_CHECK int cairn_checkpoint_tag_get(cairn_t *c, uint64_t id, void *blob,
	size_t len);

/*
 * Go back to checkpoint `id` and run on from there; does not return on success. Everything newer is
 * gone, checkpoints and mappings of the surface alike (but a mapping that the program has sealed,
 * by mseal, stays as it is). `id` is again the open checkpoint and may be restored again. Must be
 * called by the thread that took it.
 *
 * The signal mask comes back too, except under "uffd", "mprotect", "shadow", "undolog" and any
 * strategy but "none", whose checkpoints need make no system call. There SIGSEGV and the other
 * faults are unblocked, and the rest of the mask stays.
 *
 * Errors, before a byte changes: CAIRN_EEVICTED, CAIRN_ENOCKPT, CAIRN_EFAILED, CAIRN_ELAYOUT,
 * CAIRN_ETHREADS, -ENOMEM (RLIMIT_AS or RLIMIT_DATA leaves no room for mappings that have to come
 * back, and may not be raised), CAIRN_EUNSUPPORTED (the implicit checkpoints of cairn_open and
 * cairn_resume have no registers; strategy "oracle-count"; a mapping of the surface that the
 * tracker cannot take, as the log has said).
 *
 * That another thread has run since (CAIRN_ETHREADS) is seen by libc's stack of that thread, if the
 * surface holds it. A thread that has ended since is not missed: go to no checkpoint from before
 * its end, for libc's data would say that it still runs.
 */
CRN_API CRN_MUST_CHECK int cairn_restore(cairn_t *c, uint64_t id);

/*
 * Restore memory only, and return to the caller, as libsmc's restore does. Implicit checkpoints can
 * be rewound to as well. The caller's own stack is left as it is; but for glibc's, libc's stack of
 * a thread includes its thread-local variables. A stack of the program's own making is its area, or
 * else all of its mapping: the kernel joins it with what is mapped beside it, unless there is an
 * inaccessible page between. It is meant for a search over an arena: it costs what copying the
 * pages back costs. Returns 0. Errors: as cairn_restore; also CAIRN_EUNSUPPORTED on a stack in the
 * heap, whose end is not known.
 */
CRN_API CRN_MUST_CHECK int cairn_rewind(cairn_t *c, uint64_t id);

/*
 * The oldest and the newest checkpoint that can be named now. Either pointer may be NULL. Returns 0
 * or CAIRN_EPAUSED.
 */
CRN_API CRN_MUST_CHECK int cairn_range(cairn_t *c, uint64_t *oldest, uint64_t *newest);

/*
 * Pause the session until cairn_resume, for a time in which the program needs no way back. All kept
 * checkpoints are gone (CAIRN_EEVICTED); cairn_checkpoint and cairn_range answer CAIRN_EPAUSED.
 * Options, areas and exclusions stay. Meanwhile "shadow" and "undolog" save nothing, and with
 * -fcairn-clone the program runs without hooks; "fork" keeps no frozen process; the other trackers
 * notice the first store to each page, once, and keep the page. No effect in a session that is
 * paused already. Errors: CAIRN_EBUSY (the session was opened twice, or by `cairn run`).
 */
CRN_API CRN_MUST_CHECK int cairn_pause(cairn_t *c);

/*
 * Continue a paused session, like a new cairn_open: memory as it is now becomes a new checkpoint
 * with a new id, to which cairn_rewind can go. No effect in a session that is not paused. Errors,
 * after which it stays paused: those of cairn_checkpoint.
 */
CRN_API CRN_MUST_CHECK int cairn_resume(cairn_t *c);

/*
 * Announce that the open interval will be long. From here to its end pages are tracked, and a
 * program built with -fcairn-hybrid runs code without hooks, so that only the first store to each
 * page costs anything. Without this call, the hooks find out by counting how many have run. Nothing
 * else changes: any kept checkpoint can be restored as before. No effect if pages are tracked
 * anyway. Errors: CAIRN_EUNSUPPORTED (not built with -fcairn-hybrid); CAIRN_ENOTRACK (no page
 * tracker here, the log says why; hooks go on); CAIRN_EPAUSED.
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
 * Called once per changed extent, in address order. `before` and `after` are `len` bytes each, and
 * valid during the call. Return non-zero to stop; cairn_changes then returns that value if it is
 * positive. The callback runs inside cairn_changes: its own calls of the library answer -EDEADLK.
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
	uint64_t checkpoint_ns;  /* from every seventh, where they take less than 2 us */
	uint64_t restore_ns;
	uint64_t areas;          /* registered now */
	uint64_t surface_bytes;
	uint64_t mirror_bytes;   /* copies of the present checkpoint */
	uint64_t journal_bytes;  /* what undoes the older ones */
	uint64_t engine_bytes;   /* everything the engine occupies */
	uint64_t engine_bytes_max;
	char strategy[32];       /* in use: what "auto" took, or as given; cut to fit */
	uint64_t hot_pages;      /* at present */
	/* Pages hot, or opened beside a fault, and not written by an interval; over intervals. */
	uint64_t overcopied;
	uint64_t undercopied;    /* pages written while cold, likewise */
	uint64_t promotions, evictions; /* cold pages made hot, and the reverse */
	uint64_t contexts;       /* working sets at present: see cairn_context */
	char feed[16];           /* of "async": the feed in use; empty under other trackers */
	uint64_t scans;          /* of "async": times that the whole surface was scanned */
	char strategy_why[48];   /* "named", "given up", or why "auto" took it */
	uint64_t long_intervals; /* that switched to page mode: cairn_interval_long */
	uint64_t long_at_once;   /* of those, begun in it because the ones before were long */
	char feed_why[48];       /* a better feed that "auto" did not take, and why; or empty */
	/*
	 * What the strategy reckons with, in cycles per page, as measured so far: a first store to
	 * a cold page, a hot page that is not written, a protection, and making a protected page
	 * hot. 0: `none`.
	 */
	uint64_t price_fault, price_copy, price_protect, price_open;
};

/*
 * cairn_stats fills as much of *out as its `size` says; its cost grows with the number of areas.
 * Both return 0; CAIRN_EOPTION if `size` is not set.
 */
CRN_API CRN_MUST_CHECK int cairn_stats(cairn_t *c, struct cairn_stats *out);
CRN_API CRN_MUST_CHECK int cairn_stats_reset(cairn_t *c);

#ifdef __cplusplus
}
#endif
#endif
