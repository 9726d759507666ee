/* SPDX-License-Identifier: MIT */
/*
 * A file that the program has closed is kept open until the next checkpoint. Whoever watches it is
 * told that it was closed in time all the same: before the program goes to sleep, before it reads
 * what it has been told itself, and not after it has begun to watch.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "rows.h"

static int fd, watch, ends[2];
static pid_t child;

/* Opened before the checkpoint: else there would be nothing to be kept. */
static void setup_file(void)
{
	fd = open(letters(), O_WRONLY);
	watch = inotify_init1(IN_NONBLOCK);
	CHECK(fd >= 0 && watch >= 0);
}

static void setup_watched(void)
{
	setup_file();
	CHECK(inotify_add_watch(watch, letters(), IN_CLOSE) > 0);
}

static bool is_told(void)
{
	struct inotify_event event;
	ssize_t n = read(watch, &event, sizeof(event));

	CHECK(n == (ssize_t)sizeof(event) || (n == -1 && errno == EAGAIN));
	return n > 0 && (event.mask & IN_CLOSE_WRITE);
}

static void body_watch(bool again)
{
	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(CALL(inotify_add_watch, watch, letters(), IN_CLOSE) > 0);
	crash_once();
	CHECK(!is_told());
	close(watch);
}

static void body_poll(bool again)
{
	struct pollfd p = { .fd = watch, .events = POLLIN };

	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(CALL(poll, &p, 1, 10000) == 1);
	crash_once();
	CHECK(is_told() && !is_told());
	close(watch);
}

static void body_sleep(bool again)
{
	const struct timespec time = { 0, 1000000 };
	struct pollfd p = { .fd = watch, .events = POLLIN };

	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(CALL(nanosleep, &time, NULL) == 0 && CALL(poll, &p, 1, 0) == 1);
	crash_once();
	CHECK(is_told() && !is_told());
	close(watch);
}

/* Told of it behind a call that may have slept? */
static void check_told(void)
{
	struct pollfd p = { .fd = watch, .events = POLLIN };

	CHECK(CALL(poll, &p, 1, 0) == 1);
	crash_once();
	CHECK(is_told() && !is_told());
	close(watch);
}

static void body_futex(bool again)
{
	const struct timespec time = { 0, 1000000 };
	int word = 0;

	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0) == -1);
	check_told();
}

static void setup_child(void)
{
	setup_watched();
	child = fork();
	if (!child)
		_exit(0);
	CHECK(child > 0);
}

static void body_child(bool again)
{
	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(CALL(wait4, child, NULL, 0, NULL) == child);
	check_told();
}

static void setup_pipe(void)
{
	setup_watched();
	CHECK(pipe(ends) == 0 && close(ends[1]) == 0);
}

static void body_pipe(bool again)
{
	char c;

	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(CALL(read, ends[0], &c, 1) == 0);
	check_told();
}

static void body_read(bool again)
{
	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(is_told());
	crash_once();
	CHECK(!is_told());
	close(watch);
}

/* Nobody may read it by a lease while somebody writes it. */
static void body_lease(bool again)
{
	int n;

	CHECK(CALL(close, fd) == 0);
	n = (int)CALL(open, letters(), O_RDONLY);
	outside->count++;
	CHECK(n >= 0 && CALL(fcntl, n, F_SETLEASE, F_RDLCK) == 0);
	crash_once();
	CHECK(CALL(fcntl, n, F_GETLEASE) == F_RDLCK && close(n) == 0);
	close(watch);
}

const struct row rows_watched[] = {
	{ "close_then_watch", setup_file, body_watch, false, false, true },
	{ "close_then_poll", setup_watched, body_poll, false, false, true },
	{ "close_then_sleep", setup_watched, body_sleep, false, false, true },
	{ "close_then_futex", setup_watched, body_futex, false, false, true },
	{ "close_then_wait", setup_child, body_child, false, false, true },
	{ "close_then_pipe", setup_pipe, body_pipe, false, false, true },
	{ "close_then_read", setup_watched, body_read, false, false, true },
	{ "close_then_lease", setup_file, body_lease, false, false, true },
	{ NULL },
};
