/* SPDX-License-Identifier: MIT */
/*
 * The session as the agent and the command line see it: what cairn.h offers, minus registers. The
 * agent captures contexts itself (a whole thread at a system call, not a C caller) and keeps them
 * by id.
 *
 * Legal in any context that holds no session lock and whose stack is not tracked, or is the stack
 * of a thread that `skip` names. None of these allocate from libc or touch errno.
 */
#ifndef CRN_SESSION_H
#define CRN_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cairn/cairn.h"

/* Bytes [begin, end) of memory. */
struct crn_range {
	uintptr_t begin, end;
};

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

/* Would crn_memory_restore(id) be accepted now? 0 or its error. */
int crn_memory_restorable(cairn_t *c, uint64_t id);

/* How many pages of the range have been written since the newest checkpoint (granule: page). */
int crn_interval_dirty(cairn_t *c, uintptr_t addr, size_t len);

/*
 * From now on the caller reports every change of the process's mappings with crn_maps_changed; a
 * checkpoint then reads the map only after such a report. Without this it looks each time.
 * Dropping pages (madvise DONTNEED, FREE, REMOVE) counts as a change.
 */
void crn_maps_watch(cairn_t *c);
void crn_maps_changed(cairn_t *c);

/*
 * The kernel writes [addr, addr + len) whenever it likes, for a thread that is being born or has
 * just said so: its rseq area, its tid words. Under a tracker that refuses the kernel's writes
 * these pages stay open from now on, and a mapping that is found to hold them is treated as a
 * thread's stack.
 */
void crn_thread_memory(cairn_t *c, uintptr_t addr, size_t len);
/*
 * Supplied by the agent (absent in the library): the thread pointers of all threads that it has
 * seen being born. At most max; their number.
 */
size_t crn_agent_descriptors(uintptr_t *out, size_t max)
	__attribute__((weak, visibility("hidden")));

/*
 * Around the program's own mprotect of a range, for trackers that use protections themselves. NULL
 * is allowed.
 */
void crn_protection_changing(cairn_t *c, uintptr_t addr, size_t len);
void crn_protection_changed(cairn_t *c, uintptr_t addr, size_t len, int prot);

/*
 * After fork, in the child: the engine's memory is zeros there. Forget it; the process may open
 * anew.
 */
void crn_after_fork_child(void);

/*
 * The engine's reserved memory; ranges of the agent's own image are added by the agent itself with
 * cairn_area_exclude-like force: they are never part of any surface.
 */
int crn_surface_omit(uintptr_t begin, uintptr_t end);

/* The process's engine, or NULL. */
cairn_t *crn_session_current(void);

/*
 * cairn_open for the agent: every tracker may have every surface, and the program's own cairn_open
 * joins. omit names the agent's own memory, which is left out from the start, because a tracker
 * may protect what it finds. NULL: the library's cairn_open.
 */
int crn_session_open(cairn_t **out, const struct cairn_options *options,
	const struct crn_range *omit, size_t omit_count);

/* What a host may do with the i-th tracker, best first. False beyond the last. */
struct crn_host;
struct crn_tracker_info {
	const char *name;
	int error;       /* 0: it works; else CAIRN_ENOTRACK or -errno */
	bool areas_only; /* explicit areas only, unless the agent is there */
};
bool crn_tracker_info(size_t i, const struct crn_host *host, struct crn_tracker_info *out);

/* The engine's block allocator for the agent's tables: zeroed, never tracked, wiped on fork. */
void *crn_session_alloc(cairn_t *c, size_t size);

#endif
