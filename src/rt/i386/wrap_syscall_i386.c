/* SPDX-License-Identifier: MIT */
/*
 * wrap_syscall.c for 32-bit programs: os/call_memory.def has the calls of x86-64. Of those of
 * i386 the ones below are known; after any other the interval cannot be restored.
 */
#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/bits.h"
#include "base/status.h"
#include "rt/wrap/reach.h"
#include "rt/wrap/wrap.h"

/* Bytes; or the number of the argument that has them. */
#define SIZE(n)      (-(n))
#define LENGTH_IN(a) (a)

/* args[at] points to memory that the kernel writes. */
static const struct {
	int16_t nr;
	int8_t at;
	int16_t len;
} written[] = {
	{ SYS_clock_getres, 1, SIZE(8) },
	{ SYS_clock_getres_time64, 1, SIZE(16) },
	{ SYS_clock_gettime, 1, SIZE(8) },
	{ SYS_clock_gettime64, 1, SIZE(16) },
	{ SYS_fstat64, 1, SIZE(96) },
	{ SYS_fstatat64, 2, SIZE(96) },
	{ SYS_getcpu, 0, SIZE(4) },
	{ SYS_getcpu, 1, SIZE(4) },
	{ SYS_getcwd, 0, LENGTH_IN(1) },
	{ SYS_getdents64, 1, LENGTH_IN(2) },
	{ SYS_getrandom, 0, LENGTH_IN(1) },
	{ SYS_gettimeofday, 0, SIZE(8) },
	{ SYS_gettimeofday, 1, SIZE(8) },
	{ SYS_lstat64, 1, SIZE(96) },
	{ SYS_pipe2, 0, SIZE(8) },
	{ SYS_pread64, 1, LENGTH_IN(2) },
	{ SYS_prlimit64, 3, SIZE(16) },
	{ SYS_read, 1, LENGTH_IN(2) },
	{ SYS_readlink, 1, LENGTH_IN(2) },
	{ SYS_readlinkat, 2, LENGTH_IN(3) },
	{ SYS_sched_getaffinity, 2, LENGTH_IN(1) },
	{ SYS_stat64, 1, SIZE(96) },
	{ SYS_statx, 4, SIZE(256) },
	{ SYS_sysinfo, 0, SIZE(64) },
	{ SYS_uname, 0, SIZE(390) },
};

/* They write none. */
static const int16_t harmless[] = {
	SYS_access, SYS_chdir, SYS_chmod, SYS_close, SYS_dup, SYS_dup2, SYS_dup3, SYS_epoll_create1,
	SYS_epoll_ctl, SYS_eventfd2, SYS_exit, SYS_exit_group, SYS_faccessat, SYS_fallocate,
	SYS_fchmod, SYS_fdatasync, SYS_flock, SYS_fsync, SYS_ftruncate64, SYS_getegid32,
	SYS_geteuid32, SYS_getgid32, SYS_getpgid, SYS_getpid, SYS_getppid, SYS_getpriority,
	SYS_gettid, SYS_getuid32, SYS_inotify_add_watch, SYS_inotify_init1, SYS_inotify_rm_watch,
	SYS_ioprio_get, SYS_ioprio_set, SYS_kill, SYS_link, SYS_linkat, SYS_lseek, SYS_memfd_create,
	SYS_mkdir, SYS_mkdirat, SYS_open, SYS_openat, SYS_pwrite64, SYS_rename, SYS_renameat,
	SYS_renameat2, SYS_rmdir, SYS_sched_setaffinity, SYS_sched_setscheduler, SYS_sched_yield,
	SYS_setgid32, SYS_setgroups32, SYS_setpriority, SYS_setregid32, SYS_setresgid32,
	SYS_setresuid32, SYS_setreuid32, SYS_setsid, SYS_setuid32, SYS_socket, SYS_symlink,
	SYS_sync_file_range, SYS_syncfs, SYS_tgkill, SYS_timerfd_create, SYS_tkill, SYS_truncate64,
	SYS_umask, SYS_unlink, SYS_unlinkat, SYS_write, SYS_writev,
};

static bool keep_buffers(long nr, const long args[6])
{
	bool known = false;

	for (size_t i = 0; i < CRN_ARRAY_SIZE(written); i++)
		if (written[i].nr == nr) {
			const int len = written[i].len;

			crn_reach_keep((void *)args[written[i].at],
				len < 0 ? (size_t)-len : (size_t)args[len]);
			known = true;
		}
	return known;
}

static bool writes_nothing(long nr, const long args[6])
{
	if (nr == SYS_futex)
		return (args[1] & FUTEX_CMD_MASK) <= FUTEX_WAKE;
	for (size_t i = 0; i < CRN_ARRAY_SIZE(harmless); i++)
		if (harmless[i] == nr)
			return true;
	return false;
}

static void keep_written(long nr, const long args[6])
{
	if (!keep_buffers(nr, args) && !writes_nothing(nr, args))
		crn_rt_give_up(0, CAIRN_EUNSUPPORTED);
}

WRAPPER(long, syscall, long nr, ...)
{
	long args[6];
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		args[i] = va_arg(ap, long);
	va_end(ap);
	if (__cairn_rt.active)
		keep_written(nr, args);
	return syscall(nr, args[0], args[1], args[2], args[3], args[4], args[5]);
}
