/* SPDX-License-Identifier: MIT */
/*
 * Files: queries about them, and their content. A program reads into buffers that are larger than
 * what arrives. So the kernel writes to the stack, and what has arrived is copied from there to its
 * place. Of buffers that are too large for that, the rest is kept before the call.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <mqueue.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/random.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>
#define WRAPPED_file CRN_WRAPPER
#define WRAPPERS_KEEP crn_reach_keep
#include "rt/wrap/wrap.h"
#include "rt/wrap/reach.h"
#include "rt/wrap/given.h"
#include "rt/wrap/landing_messages.h"

char *dirname(char *path);
char *__xpg_basename(char *path);
void arc4random_buf(void *to, size_t n);
int __ttyname_r_chk(int fd, char *to, size_t n, size_t size);
int __ptsname_r_chk(int fd, char *to, size_t n, size_t size);
_Noreturn void __chk_fail(void);

static size_t handle_size(const struct file_handle *h)
{
	return crn_reach_there(h, sizeof(*h)) ? CRN_MIN(h->handle_bytes, MAX_HANDLE_SZ) : 0;
}

#include "rt/wrap/wrapped.def"

static const void *const *const called __attribute__((used)) = crn_called;

/* ---- Semaphores of System V ------------------------------------------------------------------ */

union semaphore_argument {
	int value;
	struct semid_ds *set;
	unsigned short *values;
	struct seminfo *limits;
};

static void keep_values(int id, unsigned short *to)
{
	struct semid_ds set;

	if (!semctl(id, 0, IPC_STAT, (union semaphore_argument){ .set = &set }))
		ARRAY(to, set.sem_nsems)
}

WRAPPER(int, semctl, int id, int which, int command, ...)
{
	union semaphore_argument a;
	va_list ap;

	va_start(ap, command);
	a = va_arg(ap, union semaphore_argument);
	va_end(ap);
	if (command == GETALL)
		keep_values(id, a.values);
	else if (command == IPC_INFO || command == SEM_INFO)
		OBJECT(a.limits)
	else if (command == IPC_STAT || command == SEM_STAT || command == SEM_STAT_ANY)
		OBJECT(a.set)
	return semctl(id, which, command, a);
}

/* ---- Reading --------------------------------------------------------------------------------- */

WRAPPER(ssize_t, read, int fd, void *to, size_t n)
{
	char bounce[BOUNCE_MAX(n)];
	struct landing l;

	if (!land(&l, bounce, sizeof(bounce), to, n))
		return read(fd, to, n);
	return landed(&l, l.parts == 1 ? read(fd, l.part[0].iov_base, n) : readv(fd, l.part, 2));
}

WRAPPER(ssize_t, pread64, int fd, void *to, size_t n, off64_t at)
{
	char bounce[BOUNCE_MAX(n)];
	struct landing l;

	if (!land(&l, bounce, sizeof(bounce), to, n))
		return pread64(fd, to, n, at);
	return landed(&l, l.parts == 1 ? pread64(fd, l.part[0].iov_base, n, at)
				       : preadv64(fd, l.part, 2, at));
}

WRAPPER(ssize_t, pread, int fd, void *to, size_t n, off_t at)
{
	return __cairn_wrap_pread64(fd, to, n, at);
}

static void check_room(size_t n, size_t room)
{
	if (n > room)
		__chk_fail();
}

WRAPPER(ssize_t, __read_chk, int fd, void *to, size_t n, size_t room)
{
	check_room(n, room);
	return __cairn_wrap_read(fd, to, n);
}

WRAPPER(ssize_t, __pread_chk, int fd, void *to, size_t n, off_t at, size_t room)
{
	check_room(n, room);
	return __cairn_wrap_pread64(fd, to, n, at);
}

WRAPPER(ssize_t, __pread64_chk, int fd, void *to, size_t n, off64_t at, size_t room)
{
	check_room(n, room);
	return __cairn_wrap_pread64(fd, to, n, at);
}

WRAPPER(ssize_t, readv, int fd, const struct iovec *to, int count)
{
	char bounce[BOUNCE_MAX(parts_length(to, count))];
	struct landing l;

	if (!land_parts(&l, bounce, sizeof(bounce), to, count))
		return readv(fd, to, count);
	return landed_parts(&l, to, count, readv(fd, l.part, 1));
}

WRAPPER(ssize_t, preadv64, int fd, const struct iovec *to, int count, off64_t at)
{
	char bounce[BOUNCE_MAX(parts_length(to, count))];
	struct landing l;

	if (!land_parts(&l, bounce, sizeof(bounce), to, count))
		return preadv64(fd, to, count, at);
	return landed_parts(&l, to, count, preadv64(fd, l.part, 1, at));
}

WRAPPER(ssize_t, preadv, int fd, const struct iovec *to, int count, off_t at)
{
	return __cairn_wrap_preadv64(fd, to, count, at);
}

WRAPPER(ssize_t, preadv2, int fd, const struct iovec *to, int count, off_t at, int flags)
{
	char bounce[BOUNCE_MAX(parts_length(to, count))];
	struct landing l;

	if (!land_parts(&l, bounce, sizeof(bounce), to, count))
		return preadv2(fd, to, count, at, flags);
	return landed_parts(&l, to, count, preadv2(fd, l.part, 1, at, flags));
}

WRAPPER(ssize_t, readlinkat, int at, const char *path, char *to, size_t n)
{
	char bounce[BOUNCE_MAX(n)];
	ssize_t got;

	if (n > sizeof(bounce) || !crn_reach_open(to, n)) {
		crn_reach_keep(to, n);
		return readlinkat(at, path, to, n);
	}
	got = readlinkat(at, path, bounce, n);
	if (got > 0)
		place(to, bounce, (size_t)got);
	return got;
}

WRAPPER(ssize_t, readlink, const char *path, char *to, size_t n)
{
	return __cairn_wrap_readlinkat(AT_FDCWD, path, to, n);
}

WRAPPER(ssize_t, __readlink_chk, const char *path, char *to, size_t n, size_t room)
{
	check_room(n, room);
	return __cairn_wrap_readlink(path, to, n);
}

WRAPPER(ssize_t, __readlinkat_chk, int at, const char *path, char *to, size_t n, size_t room)
{
	check_room(n, room);
	return __cairn_wrap_readlinkat(at, path, to, n);
}

/* Without a buffer they allocate one. */
WRAPPER(char *, getcwd, char *to, size_t n)
{
	char bounce[BOUNCE_MAX(n)];

	if (!to) {
		to = getcwd(NULL, n);
		return to ? crn_given(to, strlen(to) + 1, CRN_MAX(n, strlen(to) + 1)) : NULL;
	}
	if (n > sizeof(bounce) || !crn_reach_open(to, n)) {
		crn_reach_keep(to, n);
		return getcwd(to, n);
	}
	if (!getcwd(bounce, n))
		return NULL;
	place(to, bounce, strlen(bounce) + 1);
	return to;
}

WRAPPER(char *, __getcwd_chk, char *to, size_t n, size_t room)
{
	check_room(n, room);
	return __cairn_wrap_getcwd(to, n);
}

WRAPPER(char *, realpath, const char *path, char *to)
{
	char bounce[PATH_MAX] = "", *done;

	if (!to) {
		to = realpath(path, NULL);
		return to ? crn_given(to, strlen(to) + 1, strlen(to) + 1) : NULL;
	}
	done = realpath(path, bounce);
	if (done || *bounce) /* of a path that it cannot follow: as far as it came */
		place(to, bounce, strnlen(bounce, sizeof(bounce) - 1) + 1);
	return done ? to : NULL;
}

WRAPPER(char *, __realpath_chk, const char *path, char *to, size_t room)
{
	check_room(PATH_MAX, room);
	return __cairn_wrap_realpath(path, to);
}

/* ---- By request ------------------------------------------------------------------------------ */

/*
 * Bytes that the kernel may write for requests that are older than the encoding of their size, and
 * that programs make often. False: os/call_memory.def says more than these do.
 */
static bool old_request_size(unsigned long request, size_t *size)
{
	switch (request) {
	case FIONREAD:
	case TIOCOUTQ:
	case TIOCGPGRP:
	case TIOCGSID:
	case TIOCMGET:
	case TIOCGETD:
	case TIOCGSOFTCAR:
	case SIOCATMARK:
	case SIOCGPGRP:
		*size = sizeof(int);
		return true;
	case TIOCGWINSZ:
		*size = sizeof(struct winsize);
		return true;
	case TCGETS:
		*size = 36; /* the kernel's struct termios */
		return true;
	case FIONBIO:
	case FIOASYNC:
	case FIOCLEX:
	case FIONCLEX:
		*size = 0;
		return true;
	default:
		return false;
	}
}

WRAPPER(int, ioctl, int fd, unsigned long request, ...)
{
	va_list ap;
	void *argument;
	size_t n;

	va_start(ap, request);
	argument = va_arg(ap, void *);
	va_end(ap);
	if (old_request_size(request, &n))
		crn_reach_keep(argument, n);
	else if (__cairn_rt.active)
		crn_call_memory(CRN_CALL_ioctl,
			(const long[6]){ fd, (long)request, (long)argument }, &crn_call_keeps);
	return ioctl(fd, request, argument);
}

/* `lock`: the size of what these two calls of a 32-bit program take for a lock. */
static size_t control_size(int command, size_t lock)
{
	switch (command) {
	case F_GETLK:
	case F_OFD_GETLK:
		return lock;
#if F_GETLK64 != F_GETLK
	case F_GETLK64:
		return sizeof(struct flock64);
#endif
	case F_GETOWN_EX:
		return sizeof(struct f_owner_ex);
	case 17: /* F_GETOWNER_UIDS */
		return 2 * sizeof(uid_t);
	case 1035: /* F_GET_RW_HINT */
	case 1037: /* F_GET_FILE_RW_HINT */
		return sizeof(uint64_t);
	default:
		return 0;
	}
}

#define CONTROL(name, lock)                                             \
	WRAPPER(int, name, int fd, int command, ...)                    \
	{                                                               \
		va_list ap;                                             \
		void *argument;                                         \
                                                                        \
		va_start(ap, command);                                  \
		argument = va_arg(ap, void *);                          \
		va_end(ap);                                             \
		crn_reach_keep(argument, control_size(command, lock));  \
		return name(fd, command, argument);                     \
	}

CONTROL(fcntl, sizeof(struct flock))
CONTROL(fcntl64, sizeof(struct flock64))
