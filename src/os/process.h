/* SPDX-License-Identifier: MIT */
/*
 * Frozen children: processes that hold a copy of our memory and do nothing (LMC section VI-A calls
 * fork the natural checkpoint). They are invisible to the program: no SIGCHLD, not returned by
 * wait() without __WALL, and without any descriptor, terminal or process group of the program's.
 * They end when the program ends.
 */
#ifndef CRN_OS_PROCESS_H
#define CRN_OS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "os/lifeline.h"

#define CRN_FROZEN_LINES 256

/* One page of shared memory, which a frozen child may write to. */
struct crn_frozen_control {
	uint32_t state; /* futex: 0, 1 (frozen), or a negated errno */
	uint32_t reserved;
	struct {
		int32_t fd;
		int16_t events, revents;
	} poll;
	int32_t line_fd; /* or negative: frozen.S */
	uint32_t line_count;
	struct crn_lifeline line;      /* what children wait for from now on */
	void *lines[CRN_FROZEN_LINES]; /* mappings: of this line, and of those before */
};

/*
 * Map the control page (shared, anonymous) and make the lifeline that frozen children wait for.
 * Where there is none (no descriptor left, no /proc) they wait for the death of the process, and an
 * exec leaves them behind. 0 or -errno.
 */
int crn_frozen_open(struct crn_frozen_control **out);
/* Lets go of all children. */
void crn_frozen_close(struct crn_frozen_control *control);

/*
 * Freeze a copy of this process; returns when it sleeps and holds no descriptor of ours. Its pid,
 * or -errno (-EAGAIN: RLIMIT_NPROC; -ENOMEM; -ENOSYS: no close_range or pidfd; -EXDEV: children are
 * in another PID namespace, which one of ours would be the init of). A lifeline whose descriptor
 * the program has closed is replaced; the children before wait for theirs. Ranges that are
 * MADV_DONTFORK or MADV_WIPEONFORK are missing or zero in it. One caller at a time.
 */
int crn_frozen_take(struct crn_frozen_control *control);

/*
 * Kill a child; does not wait for its memory to be torn down, which takes as long as the fork took.
 * 0 or -errno.
 */
int crn_process_kill(int pid);
/*
 * Collect a killed one. True if it is gone; with `wait` it is. The program's own children are never
 * touched: those have an exit signal.
 */
bool crn_process_reap(int pid, bool wait);
/*
 * Kill and collect. `dying`: it ends already, and its number may soon be another's. Where we may
 * not kill it (the program has changed its user) it gets two seconds to end by itself.
 */
void crn_process_end(int pid, bool dying);

/*
 * Until a child has said something in *state, which is in shared memory: what it said, or -ECHILD
 * if it died (and was collected) before that. One that says nothing for ten seconds (somebody has
 * stopped it) is killed.
 */
int crn_process_await(uint32_t *state, int pid);
/* The child's side. */
void crn_process_wake(uint32_t *state);

/*
 * Copy [addr, addr+len) of the child's memory, mappings without read permission included. Bytes
 * copied before the first one that cannot be read (0: none), or -errno (-ESRCH: it is gone).
 */
long crn_frozen_read(int pid, void *dst, uintptr_t addr, size_t len);

/*
 * Has it been killed? It may be readable for a while yet, but for what the kernel has taken away
 * already. False where nobody can tell.
 */
bool crn_frozen_dies(int pid);

/* Its pagemap, for crn_pagemap_entries. A descriptor or -errno. */
int crn_frozen_pagemap(int pid);

#endif
