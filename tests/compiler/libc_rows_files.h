/* SPDX-License-Identifier: MIT */
/* Of libc_rows.c: what its rows of files, terminals and clocks ask about. */
#ifndef CRN_TESTS_LIBC_ROWS_FILES_H
#define CRN_TESTS_LIBC_ROWS_FILES_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <termios.h>
#include "libc_rows.h"

#define DATE            ((struct tm *)at)
#define TIMESPEC(place) ((struct timespec *)AT(place))

/* "named": a line of a table of mounts, with an attribute. A link leads to it. */
static int named_file = -1, target = -1, folder = -1, event = -1, timer_file = -1;
static int terminal = -1, terminal_master = -1;
static mqd_t queue;
static timer_t timer;
static FILE *mounts;

char *dirname(char *path);
char *__xpg_basename(char *path);
int __ttyname_r_chk(int fd, char *to, size_t n, size_t size);
int __ptsname_r_chk(int fd, char *to, size_t n, size_t size);
ssize_t __read_chk(int fd, void *to, size_t n, size_t room);
ssize_t __pread_chk(int fd, void *to, size_t n, off_t at, size_t room);
ssize_t __pread64_chk(int fd, void *to, size_t n, off64_t at, size_t room);
ssize_t __readlink_chk(const char *path, char *to, size_t n, size_t room);
ssize_t __readlinkat_chk(int at, const char *path, char *to, size_t n, size_t room);
char *__getcwd_chk(char *to, size_t n, size_t room);
char *__realpath_chk(const char *path, char *to, size_t room);

static void on_signal(int n)
{
	(void)n;
}

static long splice_from_pipe(char *to)
{
	struct iovec part = { to, 100 };
	int ends[2];
	long n;

	CHECK(!pipe(ends) && write(ends[1], text, 100) == 100);
	n = vmsplice(ends[0], &part, 1, 0);
	close(ends[0]);
	close(ends[1]);
	return n;
}

static void open_terminal(void)
{
	char name[64];

	terminal_master = posix_openpt(O_RDWR | O_NOCTTY);
	if (terminal_master >= 0 && !grantpt(terminal_master) && !unlockpt(terminal_master) &&
		!ptsname_r(terminal_master, name, sizeof(name)))
		terminal = open(name, O_RDWR | O_NOCTTY);
}

static void open_files(void)
{
	struct mq_attr how = { .mq_maxmsg = 2, .mq_msgsize = 64 };
	char name[40];

	named_file = open("named", O_CREAT | O_TRUNC | O_RDWR, 0600);
	CHECK(named_file >= 0 && dprintf(named_file, "from to type options 1 2\n") > 0);
	(void)fsetxattr(named_file, "user.row", "value", 5, 0); /* not every file system has them */
	(void)unlink("link");
	CHECK(!symlink("named", "link"));
	target = memfd_create("target", 0);
	folder = open(".", O_RDONLY | O_DIRECTORY);
	event = eventfd(0, 0);
	timer_file = timerfd_create(CLOCK_MONOTONIC, 0);
	sprintf(name, "/cairn-rows-%d", getpid());
	queue = mq_open(name, O_CREAT | O_RDWR, 0600, &how);
	CHECK(target >= 0 && folder >= 0 && event >= 0 && timer_file >= 0 && !mq_unlink(name));
	CHECK(!timer_create(CLOCK_MONOTONIC, &(struct sigevent){ .sigev_notify = SIGEV_NONE },
		&timer));
	CHECK(!sigaction(SIGALRM, &(struct sigaction){ .sa_handler = on_signal }, NULL));
	open_terminal();
}

static long made(int fd, const char *name)
{
	return fd < 0 ? -1 : close(fd) + unlink(name);
}

/* SIGALRM ends a wait: the next one, or one that comes later. */
static void interrupt_soon(void)
{
	const struct itimerval soon = { { 0, 2000 }, { 0, 2000 } };

	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
}

static void interrupt_no_more(void)
{
	CHECK(!setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL));
}

/* Nor is the same in each program what mktime leaves between a date's numbers. */
static void unzoned(char *at)
{
	DATE->tm_zone = NULL;
	blank(at + 9 * sizeof(int), offsetof(struct tm, tm_gmtoff) - 9 * sizeof(int));
}

#endif
