/* SPDX-License-Identifier: MIT */
/* Files that are no plain ones, as the kernel's own, and more of them than there is room for. */
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include "rows.h"

static int fd, set;

/* What is written to such a file is done at once, and makes it no longer. */
static void body_control(bool again)
{
	char name[16] = "";
	int n = (int)CALL(open, "/proc/self/comm", O_WRONLY);

	outside->count++;
	CHECK(n >= 0 && CALL(write, n, "written", 7) == 7);
	crash_once();
	CHECK(close(n) == 0 && prctl(PR_GET_NAME, name) == 0 && !strcmp(name, "written"));
}

/*
 * What is read of the kernel's messages does not come again, whatever the file's offset. They are
 * the machine's: the lock keeps one run of this row from reading what another has written for it.
 */
static void setup_messages(void)
{
	int n = open("/dev/kmsg", O_WRONLY);

	fd = n < 0 ? -1 : open("/proc/kmsg", O_RDONLY | O_NONBLOCK);
	CHECK(fd < 0 || flock(fd, LOCK_EX) == 0);
	if (fd >= 0 && write(n, "cairn: a test\n", 14) != 14) {
		close(fd);
		fd = -1;
	}
	if (n >= 0)
		close(n);
}

static void body_messages(bool again)
{
	char b[65536];
	long got;

	outside->count++;
	got = fd < 0 ? 0 : CALL(read, fd, b, sizeof(b));
	CHECK(fd < 0 || got > 0 || errno == EAGAIN);
	if (got <= 0)
		tick(); /* not permitted here, or a log service was faster */
	crash_once();
	if (fd >= 0)
		close(fd);
}

/* A queue looks like a plain file, and can be waited for: closed, it is in no set any more. */
static void setup_queue(void)
{
	struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	struct epoll_event e = { .events = EPOLLIN };
	char name[32];

	snprintf(name, sizeof(name), "/cairn-row-%d", getpid());
	fd = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &attr);
	set = epoll_create1(0);
	CHECK(fd >= 0 && set >= 0 && mq_unlink(name) == 0 && mq_send(fd, "x", 1, 0) == 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
}

static void body_queue(bool again)
{
	struct epoll_event e;

	CHECK(CALL(epoll_wait, set, &e, 1, 0) == 1);
	outside->count++;
	CHECK(CALL(close, fd) == 0);
	CHECK(CALL(epoll_wait, set, &e, 1, 0) == 0);
	crash_once();
	close(set);
}

/* A number that was closed is free, even if no other is. */
#define LIMIT_MAX 512
#define SPACE 1024

static struct rlimit before;
static int limit;

static void setup_room(void)
{
	struct rlimit low;

	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	fd = open(letters(), O_RDONLY);
	for (limit = LIMIT_MAX; fcntl(limit - 1, F_GETFD) < 0;)
		limit--;
	limit += 40;
	low = before;
	low.rlim_cur = (rlim_t)limit;
	CHECK(fd >= 0 && limit <= LIMIT_MAX && setrlimit(RLIMIT_NOFILE, &low) == 0);
}

static void body_room(bool again)
{
	int room = 1, made[LIMIT_MAX], count = 0;

	for (int i = 0; i < limit; i++)
		room += fcntl(i, F_GETFD) < 0;
	outside->count++;
	CHECK(CALL(close, fd) == 0);
	while (count < limit && (made[count] = (int)CALL(open, letters(), O_RDONLY)) >= 0)
		count++;
	CHECK(errno == EMFILE && count == room);
	/* A recovery needs some, too. */
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
	crash_once();
	for (int i = 0; i < count; i++)
		CHECK(close(made[i]) == 0);
}

/* The space of a file that was deleted and closed is free. */
static void setup_deleted(void)
{
	char name[] = "/dev/shm/cairn-row-XXXXXX";
	static const char some[4096];

	fd = mkstemp(name);
	if (fd < 0)
		return;
	for (int i = 0; i < SPACE; i++)
		CHECK(write(fd, some, sizeof(some)) == sizeof(some));
	CHECK(unlink(name) == 0);
}

static unsigned long space_left(void)
{
	struct statfs s;

	CHECK(CALL(statfs, "/dev/shm", &s) == 0);
	return s.f_bfree;
}

static void body_deleted(bool again)
{
	unsigned long before_close;

	if (fd < 0) { /* no such folder here */
		outside->count++;
		tick();
		return crash_once();
	}
	before_close = space_left();
	outside->count++;
	CHECK(CALL(close, fd) == 0);
	CHECK(space_left() >= before_close + SPACE / 2);
	crash_once();
}

const struct row rows_file[] = {
	{ "file_deleted", setup_deleted, body_deleted, .output = true },
	{ "file_control", NULL, body_control, .output = true },
	{ "file_messages", setup_messages, body_messages, .output = true },
	{ "file_queue", setup_queue, body_queue, .output = true },
	{ "file_room", setup_room, body_room, .output = true },
	{ NULL },
};
