/* SPDX-License-Identifier: MIT */
/*
 * A file that several processes map and write in place, so what a process has written stays when it
 * is killed. Raw system calls, legal after fork. Results are >= 0 or -errno.
 */
#ifndef CRN_OS_SHARED_FILE_H
#define CRN_OS_SHARED_FILE_H

#include <stddef.h>
#include <stdint.h>

#define CRN_PATH_MAX 1024

/* The path from the root on: its length, or -errno (-ENAMETOOLONG). */
long crn_path_absolute(const char *path, char *out, size_t size);
/* The file that this process executes. Its length, or -errno; cut at size - 1. */
long crn_path_executed(char *out, size_t size);

/* Make that file, of `size` bytes of zeros, and map its first `len`. -EEXIST if there is one. */
int crn_shared_create(const char *path, uint64_t size, void **out, size_t len);
/* Map the first `len` bytes of a file, which may end before. Its size, or -errno. */
int64_t crn_shared_open(const char *path, void **out, size_t len);
/* Make the file that fd leads to at least so big; never smaller. Its last byte becomes 0. */
int crn_shared_extend(int fd, uint64_t size);
/* The file `from` is `to` from now on: in place of another, or -EEXIST. `from` is gone. */
int crn_shared_rename(const char *from, const char *to, int replace);

#endif
