/* SPDX-License-Identifier: MIT */
/*
 * The engine's descriptors. They have high numbers, near the soft RLIMIT_NOFILE, and are
 * close-on-exec, so a program that counts on low numbers does not meet them. Results are >= 0 or
 * -errno; EINTR is retried.
 */
#ifndef CRN_OS_DESCRIPTOR_H
#define CRN_OS_DESCRIPTOR_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * No higher than this even when the limit is: the kernel's table grows to the highest number and is
 * copied at every fork.
 */
#define CRN_FD_CEILING 16384

/*
 * Told of each descriptor that the engine takes at a high number or gives back. The agent has it,
 * to hide them from the program; in the library there is none.
 */
extern void crn_fd_watch(int fd, bool open) __attribute__((weak, visibility("hidden")));

/*
 * Which file a descriptor leads to. The program may close descriptors that it does not know
 * (close_range), and then get their numbers for files of its own.
 */
struct crn_fd_identity {
	uint64_t dev, ino;
};
/* 0 or -errno. */
int crn_fd_identify(int fd, struct crn_fd_identity *out);
/* Does fd (still) lead to that file? Under the agent nobody can have closed it: no system call. */
bool crn_fd_is(int fd, const struct crn_fd_identity *id);

/* Duplicate fd to a high number. The original stays open. */
int crn_fd_dup_high(int fd);
/*
 * Move fd to a high number: the original is closed, also when this fails. A negative fd is handed
 * through.
 */
int crn_fd_raise(int fd);

/* Open at a high number, always O_CLOEXEC. */
int crn_fd_open(const char *path, int flags);

/*
 * The same for a file of /proc/self. They belong to root in a process that has changed its user
 * and is no longer dumpable (memcached -u): it is made dumpable while the file is opened. -EACCES
 * where that could not be taken back (fs.suid_dumpable is 2).
 */
int crn_fd_open_own(const char *path, int flags);
/* The same, for a moment: at the lowest number. */
long crn_path_open_own(const char *path, int flags);
void crn_fd_close(int fd);

/* A memfd of `size` bytes at a high number. */
int crn_fd_memory(const char *name, uint64_t size);

long crn_fd_read(int fd, void *buf, size_t len);
/* Until all is written or an error comes. */
int crn_fd_write(int fd, const void *buf, size_t len);
/*
 * Around a write of the engine's: SIGPIPE or SIGXFSZ is taken back if `result` says that it was
 * raised.
 */
struct crn_hushed {
	uint64_t mask, pending;
};
void crn_write_signals_hush(struct crn_hushed *h);
void crn_write_signals_restore(const struct crn_hushed *h, long result);
/*
 * The same for lines to somebody who may be gone, or beyond RLIMIT_FSIZE: raises neither SIGPIPE
 * nor SIGXFSZ, which the program would die of.
 */
int crn_fd_write_line(int fd, const void *buf, size_t len);

/*
 * A small file (of /proc, /sys) as a string: its length without the NUL, or -errno. Cut at size -
 * 1.
 */
long crn_file_read(const char *path, char *buf, size_t size);
/* The decimal or 0x number that a file begins with. 0 or -errno. */
int crn_file_number(const char *path, int64_t *out);

/*
 * A variable of the environment that the process started with, read from /proc (the engine has no
 * libc). The value's length, or -ENOENT, or another -errno. Cut at size - 1.
 */
long crn_environment(const char *name, char *buf, size_t size);

#endif
