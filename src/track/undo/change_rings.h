/* SPDX-License-Identifier: MIT */
/*
 * Has the program changed the protection of a mapping, or mapped something, since the last look?
 * Asking the kernel costs more than a rewind of a few pages. But perf records each mmap and
 * mprotect of a thread in a ring that we map (os/perf.h), before the call returns. If the heads of
 * all rings have not moved, there was none; that is one load per thread. A second ring records
 * births, because a thread without a ring is a doubt, and so is a child process that shares our
 * memory.
 *
 * The engine's own calls are recorded like all others.
 *
 * munmap, mremap and madvise are not recorded; a userfaultfd reports them (undo_told.c).
 */
#ifndef CRN_CHANGE_RINGS_H
#define CRN_CHANGE_RINGS_H

#include <stdbool.h>

struct crn_arena;
struct crn_change_rings;
struct crn_keeper;

/*
 * For the threads that there are; the keeper is a child that is no doubt. 0, CAIRN_EMEMORY, or
 * -errno: not permitted.
 */
int crn_change_rings_open(struct crn_change_rings **out, struct crn_arena *arena,
	const struct crn_keeper *keeper);
/* NULL is fine. */
void crn_change_rings_close(struct crn_change_rings *r);

/* Nothing since the look that was noted last. NULL: that is not known. No system call. */
bool crn_change_rings_quiet(const struct crn_change_rings *r);
/* A look begins: what is recorded from here on was not seen by it. NULL is fine. */
void crn_change_rings_look(struct crn_change_rings *r);
/* It has found all as it should be. */
void crn_change_rings_note(struct crn_change_rings *r);

#endif
