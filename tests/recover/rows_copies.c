/* SPDX-License-Identifier: MIT */
/*
 * Timers, signals and file events that several numbers mean: what one of them has read is there
 * again for each.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include "rows.h"

static int fd, other;

/* Read by the first number, and after the recovery by the other one. */
static void take_all(bool again, void *buffer, size_t size, long expected)
{
	struct pollfd both[2] = {{fd, POLLIN, 0}, {other, POLLIN, 0}};

	CHECK(!again || poll(both, 2, 0) == 2);
	CHECK(CALL(read, again ? other : fd, buffer, size) == expected);
	CHECK(poll(both, 2, 0) == 0);
	if (again) {
		close(fd);
		close(other);
	}
}

static void setup_signals(void)
{
	two_signals(&fd, &other);
}

static void body_signals(bool again)
{
	struct signalfd_siginfo info[3];

	take_all(again, info, sizeof(info), 2 * sizeof(info[0]));
}

static void setup_files(void)
{
	two_file_events(&fd, &other);
}

static void body_files(bool again)
{
	struct inotify_event event[8];

	take_all(again, event, sizeof(event), 2 * sizeof(event[0]));
}

static void setup_timer(void)
{
	const struct itimerspec soon = {.it_value.tv_nsec = 1};

	fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	other = dup(fd);
	CHECK(other >= 0 && timerfd_settime(fd, 0, &soon, NULL) == 0);
	usleep(1000);
}

static void body_timer(bool again)
{
	uint64_t count = 0;

	take_all(again, &count, sizeof(count), sizeof(count));
	CHECK(count == 1);
}

/* The number by which it was known is another timer's by now. */
static void setup_renamed(void)
{
	int first;

	setup_timer();
	first = fd;
	close(fd);
	fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	CHECK(fd == first);
}

static void body_renamed(bool again)
{
	struct pollfd both[2] = {{fd, POLLIN, 0}, {other, POLLIN, 0}};
	uint64_t count = 0;

	CHECK(poll(both, 2, 0) == 1 && both[1].revents == POLLIN);
	CHECK(CALL(read, fd, &count, sizeof(count)) == -1 && errno == EAGAIN);
	CHECK(CALL(read, other, &count, sizeof(count)) == sizeof(count) && count == 1);
	if (again) {
		close(fd);
		close(other);
	}
}

const struct row rows_copies[] = {
	{"signalfd_copy", setup_signals, body_signals},
	{"inotify_copy", setup_files, body_files},
	{"timerfd_copy", setup_timer, body_timer},
	{"timerfd_renamed", setup_renamed, body_renamed},
	{0},
};
