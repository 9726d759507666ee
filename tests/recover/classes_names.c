/* SPDX-License-Identifier: MIT */
/* Calls on files by name and by descriptor that no other row has. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include "classes.h"

static char one[64], two[64];

static void try_entries(void)
{
	TRY(SEEN, "link", syscall(SYS_link, path, one));
	TRY(SEEN, "rename", syscall(SYS_rename, one, two));
	TRY(SEEN, "renameat", syscall(SYS_renameat, AT_FDCWD, two, AT_FDCWD, one));
	TRY(SEEN, "renameat2", syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, two, 0));
	TRY(SEEN, "unlink", syscall(SYS_unlink, two));
	TRY(SEEN, "symlink", syscall(SYS_symlink, path, one));
	TRY(QUIET, "lstat", syscall(SYS_lstat, one, P(0)));
	TRY(QUIET, "readlinkat", syscall(SYS_readlinkat, AT_FDCWD, one, P(0), 4096));
	TRY(SEEN, "lchown", syscall(SYS_lchown, one, -1, -1));
	TRY(SEEN, "unlinkat", syscall(SYS_unlinkat, AT_FDCWD, one, 0));
	TRY(SEEN, "linkat", syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, one, 0));
	unlink(one);
	TRY(SEEN, "symlinkat", syscall(SYS_symlinkat, path, AT_FDCWD, one));
	unlink(one);
	TRY(SEEN, "mknod", syscall(SYS_mknod, one, S_IFIFO | 0600, 0));
	unlink(one);
	TRY(SEEN, "mknodat", syscall(SYS_mknodat, AT_FDCWD, one, S_IFIFO | 0600, 0));
	unlink(one);
	TRY(SEEN, "mkdirat", syscall(SYS_mkdirat, AT_FDCWD, one, 0700));
	rmdir(one);
	TRY(SEEN, "chmod", syscall(SYS_chmod, path, 0600));
	TRY(SEEN, "fchmodat", syscall(SYS_fchmodat, AT_FDCWD, path, 0600));
	TRY(SEEN, "chown", syscall(SYS_chown, path, -1, -1));
	TRY(SEEN, "fchown", syscall(SYS_fchown, file, -1, -1));
	TRY(SEEN, "fchownat", syscall(SYS_fchownat, AT_FDCWD, path, -1, -1, 0));
	TRY(QUIET, "faccessat", syscall(SYS_faccessat, AT_FDCWD, path, R_OK));
	TRY(SEEN, "utime", syscall(SYS_utime, path, NULL));
	TRY(SEEN, "utimes", syscall(SYS_utimes, path, NULL));
	TRY(SEEN, "futimesat", syscall(SYS_futimesat, AT_FDCWD, path, NULL));
	TRY(SEEN, "truncate", syscall(SYS_truncate, path, 4096));
}

static void try_content(void)
{
	struct iovec iov = { (char *)"content", 7 };
	struct open_how how = { .flags = O_RDONLY };
	int copy = open(one, O_RDWR | O_CREAT | O_TRUNC, 0600);
	void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	TRY(SEEN, "pwritev", syscall(SYS_pwritev, file, &iov, 1, 0, 0));
	TRY(SEEN, "pwritev2", syscall(SYS_pwritev2, file, &iov, 1, 0, 0, 0));
	TRY_UNLESS(EOPNOTSUPP, SEEN, "fallocate", syscall(SYS_fallocate, file, 0, 0, 8192));
	TRY(SEEN, "fdatasync", syscall(SYS_fdatasync, file));
	TRY(SEEN, "sync_file_range", syscall(SYS_sync_file_range, file, 0, 4096, 2));
	TRY(SEEN, "syncfs", syscall(SYS_syncfs, file));
	TRY(SEEN, "msync", syscall(SYS_msync, shared, 4096, MS_ASYNC));
	TRY(QUIET, "fadvise64", syscall(SYS_fadvise64, file, 0, 4096, POSIX_FADV_NORMAL));
	TRY_UNLESS(EXDEV, SEEN, "copy_file_range",
		syscall(SYS_copy_file_range, file, NULL, copy, NULL, 7, 0));
	lseek(file, 0, SEEK_SET);
	TRY(SEEN, "sendfile", syscall(SYS_sendfile, copy, file, NULL, 7));
	TRY(QUIET, "openat2", close((int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how))));
	how = (struct open_how){ .flags = O_RDWR | O_CREAT, .mode = 0600 };
	TRY(SEEN, "openat2 O_CREAT", syscall(SYS_openat2, AT_FDCWD, two, &how, sizeof(how)));
	unlink(two);
	TRY(SEEN, "creat", syscall(SYS_creat, two, 0600));
	unlink(two);
	munmap(shared, 4096);
	close(copy);
	unlink(one);
}

static void try_waits(void)
{
	struct timespec soon = { 0, 1000 };
	int set = epoll_create1(0), notes = inotify_init1(0), watch;
	uint64_t mask = 1;

	TRY(QUIET, "epoll_pwait", syscall(SYS_epoll_pwait, set, P(0), 16, 0, NULL, 8));
	TRY(QUIET, "epoll_pwait2", syscall(SYS_epoll_pwait2, set, P(0), 16, &soon, NULL, 8));
	TRY(QUIET, "ppoll", syscall(SYS_ppoll, NULL, 0, &soon, NULL, 8));
	memset(P(0), 0, 128);
	TRY(QUIET, "select", syscall(SYS_select, 1, P(0), NULL, NULL, P(1)));
	TRY(QUIET, "pselect6", syscall(SYS_pselect6, 0, NULL, NULL, NULL, &soon, NULL));
	TRY(SEEN, "signalfd4", syscall(SYS_signalfd4, -1, &mask, 8, 0));
	TRY(SEEN, "inotify_add_watch",
		watch = (int)syscall(SYS_inotify_add_watch, notes, path, IN_MOVE_SELF));
	TRY(SEEN, "inotify_rm_watch", syscall(SYS_inotify_rm_watch, notes, watch));
	TRY(SEEN, "close_range", syscall(SYS_close_range, 900, 910, 0));
	TRY(QUIET, "sched_yield", syscall(SYS_sched_yield));
	TRY(QUIET, "clock_nanosleep",
		syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &soon, P(0)));
	TRY(QUIET, "nanosleep", syscall(SYS_nanosleep, &soon, P(0)));
}

void try_names(void)
{
	snprintf(one, sizeof(one), "%s.one", path);
	snprintf(two, sizeof(two), "%s.two", path);
	try_entries();
	try_content();
	try_waits();
}
