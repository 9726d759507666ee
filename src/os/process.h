/* SPDX-License-Identifier: MIT */
/*
 * Frozen children: processes that hold a copy of our memory and do nothing (LMC section VI-A calls
 * fork the natural checkpoint). The program never meets them: no SIGCHLD, not seen by wait()
 * (without __WALL), no descriptor, terminal or process group of the program's, gone when the
 * program is.
 */
#ifndef CRN_OS_PROCESS_H
#define CRN_OS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One page of shared memory, which a frozen child may write to. */
struct crn_frozen_control {
	uint32_t state; /* futex: 0, 1 (frozen), or a negated errno */
	uint32_t reserved;
	struct {
		int32_t fd;
		int16_t events, revents;
	} poll;
	int32_t lock_fd; /* or negative */
	int32_t reserved2;
	struct {
		int16_t type, whence;
		int32_t pad;
		int64_t start, len;
		int32_t pid, pad2;
	} lock; /* struct flock */
};

/*
 * Map the control page (shared, anonymous) and lock a file that nobody else knows. A POSIX lock
 * belongs to this process's table of files: not to its children, and it ends with the process or,
 * being close-on-exec, when that executes another program. Frozen children wait for it. Where there
 * is no such lock (no descriptor left, a sandbox) they wait for the death of the process, and an
 * exec leaves them behind. 0 or -errno.
 */
int crn_frozen_open(struct crn_frozen_control **out);
void crn_frozen_close(struct crn_frozen_control *control);

/*
 * Freeze a copy of this process; returns when it sleeps and holds no descriptor of ours. Its pid,
 * or -errno (-EAGAIN: RLIMIT_NPROC; -ENOMEM; -ENOSYS: no close_range or pidfd; -EBADF: the program
 * has closed our lock, which has ended all children). Ranges that are
 * MADV_DONTFORK or MADV_WIPEONFORK are missing or zero in it. One caller at a time.
 */
int crn_frozen_take(struct crn_frozen_control *control);
/* Has nobody closed the lock? Without it all children are gone, or will be in a moment. */
bool crn_frozen_alive(const struct crn_frozen_control *control);

/* Kill it; does not wait for its memory to be torn down, which takes as long as the fork took. */
void crn_frozen_kill(int pid);
/* Collect a killed one. True if it is gone; with `wait` it is. */
bool crn_frozen_reap(int pid, bool wait);

/*
 * Copy [addr, addr+len) of the child's memory, mappings without read permission included. Bytes
 * copied before the first one that cannot be read (0: none), or -errno (-ESRCH: it is gone).
 */
long crn_frozen_read(int pid, void *dst, uintptr_t addr, size_t len);

/* Its pagemap, for crn_pagemap_entries. A descriptor or -errno. */
int crn_frozen_pagemap(int pid);

#endif
