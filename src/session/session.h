/* SPDX-License-Identifier: MIT */
/*
 * The session as the agent and the command line see it: what cairn.h offers, minus registers. The
 * agent captures contexts itself (a whole thread at a system call, not a C caller) and keeps them
 * by id.
 *
 * Legal in any context that holds no session lock and whose stack is not tracked, or is the stack
 * of a thread that `skip` names. Nothing here allocates from libc or touches errno.
 */
#ifndef CRN_SESSION_H
#define CRN_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"
#include "cairn/cairn.h"

/*
 * Take a checkpoint of memory alone. *id is the new id. On CAIRN_EMEMORY the id is used up and
 * marked failed and the open interval goes on.
 */
int crn_memory_checkpoint(cairn_t *c, uint64_t *id);

struct crn_restored {
	uint64_t pages; /* put back */
};

/*
 * Put memory back to checkpoint `id`, leaving [skip->begin, skip->end) as it is (NULL: nothing
 * skipped). Checks everything first; on an error no byte has changed. Newer checkpoints are gone,
 * `id` is open.
 */
int crn_memory_restore(
	cairn_t *c, uint64_t id, const struct crn_range *skip, struct crn_restored *out);

/*
 * Would crn_memory_restore(id) be accepted now? 0 or its error; CAIRN_EMEMORY in place of
 * CAIRN_EFAILED where the memory limit was behind that.
 */
int crn_memory_restorable(cairn_t *c, uint64_t id);

/*
 * From now on the caller reports every change of the process's mappings with crn_maps_changed; a
 * checkpoint then reads the map only after such a report. Without this it looks each time.
 * Dropping pages (madvise DONTNEED, FREE, REMOVE) counts as a change.
 */
void crn_maps_watch(cairn_t *c);
void crn_maps_changed(cairn_t *c);
/*
 * The same for a new mapping, whose place and arguments of mmap are known: the map is read again
 * only there. A mapping that cannot belong to the surface (of a file, and not writable or shared)
 * is no change; servers map the files that they send.
 */
void crn_maps_added(cairn_t *c, int prot, int flags, uintptr_t addr, size_t len);
/*
 * The program is about to drop [begin, end) (MADV_DONTNEED). In private file mappings that removes
 * the program's own copies of pages, which the kernel's tables do not show to trackers.
 */
void crn_maps_drops(cairn_t *c, uintptr_t begin, uintptr_t end);
/*
 * Make a call of the program that takes mappings or permissions away, while no checkpoint is taken
 * and no memory is read. Returns the call's result. The tracker is told of an mprotect (address,
 * length, protection). An munmap of memory outside the surface, or an mmap of a file that cannot
 * become part of it (below), is no change and no reason for a feed to doubt. Nor is the commonest
 * of what allocators do: memory mapped where nothing was (below), unmapped, or emptied. `ends`: the
 * ranges that the call unmaps, moves, replaces, extends or empties; empty ranges are allowed.
 */
enum crn_maps_kind {
	CRN_MAPS_OTHER,
	CRN_MAPS_PROTECTS,
	CRN_MAPS_UNMAPS,
	CRN_MAPS_MAPS,
	CRN_MAPS_MOVES,
	CRN_MAPS_BREAK, /* ends[0].end is the break before the call, also if it rises */
	CRN_MAPS_DROPS, /* MADV_DONTNEED: crn_maps_drops need not be called */
};
long crn_maps_call(cairn_t *c, long nr, const long args[6], enum crn_maps_kind kind,
	const struct crn_range ends[2]);

/*
 * Is this an mmap of a file, at a place where nothing was, that the program shares with others or
 * cannot write to? The caller may let crn_maps_call make it; it waits for nobody.
 */
bool crn_maps_of_file(int prot, int flags);
/* Is it an mmap of private memory of no file, wherever there is room? Likewise. */
bool crn_maps_of_memory(int flags);
/* Is it of use that crn_maps_call makes calls that it need not make? */
bool crn_maps_minds(const cairn_t *c);

/*
 * The kernel writes [addr, addr + len) at any time, for a thread that is being born or has just
 * registered it: its rseq area, its tid words. Under a tracker that refuses the kernel's writes
 * these pages stay open from now on, and a mapping that contains them is treated as a thread's
 * stack.
 */
void crn_thread_memory(cairn_t *c, uintptr_t addr, size_t len);
/*
 * Supplied by the agent (absent in the library): the thread pointers of all threads whose birth it
 * has seen. At most max; returns their number.
 */
size_t crn_agent_descriptors(uintptr_t *out, size_t max)
	__attribute__((weak, visibility("hidden")));
/*
 * Likewise: where `cairn run` takes checkpoints, as on its command line; for traces, which must
 * fit the run. Cut at size - 1.
 */
void crn_agent_sites(char *out, size_t size) __attribute__((weak, visibility("hidden")));
/*
 * Likewise: call fn for all memory that the kernel may be writing at this moment for a call of some
 * thread (`others`: except the calling one). Called with the session's lock held.
 */
typedef void (*crn_output_fn)(void *arg, uintptr_t addr, size_t len);
void crn_agent_in_flight(bool others, crn_output_fn fn, void *arg)
	__attribute__((weak, visibility("hidden")));

/*
 * Open all memory that is tracked, as cairn_area_touch does: its old content is saved now. 0,
 * CAIRN_EMEMORY, or what the tracker answers.
 */
int crn_touch_all(cairn_t *c);
/* The same before RLIMIT_DATA changes, of what could not be opened later. */
int crn_data_limit_changing(cairn_t *c);

/*
 * Around the program's own mprotect of a range, for trackers that use protections themselves. NULL
 * is allowed.
 */
void crn_protection_changing(cairn_t *c, uintptr_t addr, size_t len);
void crn_protection_changed(cairn_t *c, uintptr_t addr, size_t len, int prot);

/* Address space that the engine has reserved; 0: there is none. */
size_t crn_session_reserved(void);

/*
 * After fork, in the child: the engine's memory is zeros there. Forget it; the process may open
 * anew.
 */
void crn_after_fork_child(void);

/*
 * cairn_open for the agent: every tracker may have every surface, and the program's own cairn_open
 * joins it. omit names the agent's own memory, which is left out from the start, because a tracker
 * may protect what it finds. omit NULL: as the library's cairn_open.
 *
 * With CRN_FEED_SHARED in options->flags feed "auto" is the one that all sessions of the host
 * share. If that cannot be had the answer is CAIRN_ENOTRACK.
 */
#define CRN_FEED_SHARED 0x80000000u
int crn_session_open(cairn_t **out, const struct cairn_options *options,
	const struct crn_range *omit, size_t omit_count);

/*
 * Record which pages each interval writes (speculate/trace.h) into a new file, until finish writes
 * its trailer. A session that ends without finish leaves a trace that is cut short. 0, -EBUSY if a
 * trace is being recorded, CAIRN_ENOTRACK if the tracker cannot tell, or -errno of the file.
 */
int crn_trace_start(cairn_t *c, const char *path);
int crn_trace_finish(cairn_t *c);

/*
 * The program is about to end: if the session's oracle had a profile that goes on, that is logged,
 * and stands in cairn_stats.
 */
void crn_profile_finish(cairn_t *c);

/*
 * Under strategy `meta`: how the i-th of its rivals fared, as sums over all intervals. False beyond
 * the last, and under any other strategy.
 */
struct crn_rival {
	const char *name;
	uint64_t intervals, written, overcopied, undercopied;
	uint64_t weighted_smc, weighted_host; /* mispredictions, see crn_speculation_weighted */
	uint64_t host_cycles;	  /* what tracking and copying would have cost here */
	uint64_t own_cycles;	  /* its own run time */
};
bool crn_session_rival(cairn_t *c, size_t i, struct crn_rival *out);

/* What a host may do with the i-th tracker, best first. False beyond the last. */
struct crn_host;
struct crn_tracker_info {
	const char *name;
	int error;       /* 0: it works; else CAIRN_ENOTRACK or -errno */
	bool areas_only; /* explicit areas only, unless the agent is there */
	const char *strategy; /* that "auto" takes under it */
};
bool crn_tracker_info(size_t i, const struct crn_host *host, struct crn_tracker_info *out);

/* Can this surface (all, program, none, a list) be parsed? 0, or CAIRN_ESURFACE. */
int crn_surface_check(const char *expr);

/* The smallest value of cairn_options.memory_max. */
#define CRN_MEMORY_MIN (1ul << 20)

/*
 * Does this strategy ("auto", NAME:param=value,...) exist? 0, or CAIRN_ESTRATEGY and `why`.
 * `tracker` is the tracker that it is for, or "auto".
 */
#define CRN_STRATEGY_WHY 160
int crn_strategy_check(const char *spec, const char *tracker, char why[CRN_STRATEGY_WHY]);

/*
 * Are these bytes a whole trace, as an oracle's profile must be? With a surface (else NULL), was it
 * recorded of a run with this surface and these sites? 0, or -EINVAL and `why` says what is wrong
 * at which byte. Allocates nothing.
 */
#define CRN_PROFILE_WHY 768
int crn_profile_check(const void *bytes, size_t size, const char *surface, const char *sites,
	char why[CRN_PROFILE_WHY]);

/* The engine's block allocator for the agent's tables: zeroed, never tracked, wiped on fork. */
void *crn_session_alloc(cairn_t *c, size_t size);

#endif
