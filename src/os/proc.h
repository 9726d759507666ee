/* SPDX-License-Identifier: MIT */
/*
 * Files of /proc, also in a process that has changed its root to a folder without it (chroot, as
 * haproxy, unbound and vsftpd do). Then they are opened in a mount of /proc of our own, which is in
 * no tree of mounts. Its root has no "..", so whoever gets hold of the descriptor gets no further
 * than with a /proc of the new root.
 */
#ifndef CRN_OS_PROC_H
#define CRN_OS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The program is about to change its root. Takes a mount of /proc, with CAP_SYS_ADMIN (Linux 5.2),
 * and keeps it at a high number, in forked children, too; else nothing changes, and /proc is what
 * the new root has. Once is enough. True if it is kept.
 */
bool crn_proc_keep(void);

/* openat and readlinkat of an absolute path: >= 0 or -errno. Async-signal-safe. */
long crn_path_open(const char *path, int flags);
long crn_path_readlink(const char *path, char *target, size_t size);

/* What a name in /proc that is a number says; -1: it is none. */
int crn_proc_number(const char *name);
/* What the digits at *at say, which moves behind them. No digits: 0. */
uint64_t crn_proc_digits(const char **at, unsigned base);
/*
 * Call fn for the entries of a folder of /proc whose names are numbers, until it answers other than
 * 0: that, or -errno. `dir` is the folder, open.
 */
int crn_proc_numbers(
	const char *path, int (*fn)(void *ctx, int dir, int number), void *ctx);

/*
 * What the first line of /proc/self/fdinfo/FD that begins with `field` says behind it, cut at size
 * - 1: 0, or -errno, -ENOENT if there is none.
 */
int crn_fdinfo(int fd, const char *field, char *out, size_t size);

/*
 * In a PID namespace that has no /proc of its own, /proc names tasks as the outer namespace does.
 * Does it?
 */
bool crn_proc_is_foreign(void);
/*
 * Has this thread unshared the PID namespace of its children? The first child is the init of the
 * new one, which ends with it: that place is the program's to give away. False without /proc.
 */
bool crn_proc_children_elsewhere(void);
/*
 * The id that we know the task of such a folder by (/proc/NUMBER, or one below task/). -ENOENT: it
 * is gone, or in no namespace of ours; another -errno: that cannot be told.
 */
int crn_proc_own_id(const char *folder);

#endif
