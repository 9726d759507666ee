/* SPDX-License-Identifier: MIT */
/* epoll: items as they were, edges that were consumed, readiness of what is given again. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "rows.h"

static int set, fd, other;

static void add(uint32_t events, uint64_t data)
{
	struct epoll_event e = {.events = events, .data.u64 = data};

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
}

static void setup_pair(void)
{
	set = epoll_create1(0);
	CHECK(set >= 0);
	local_pair(SOCK_STREAM | SOCK_NONBLOCK, &fd, &other);
}

static void setup_level(void)
{
	setup_pair();
	add(EPOLLIN, 42);
	CHECK(write(other, "hello", 5) == 5);
}

static void setup_edge(void)
{
	setup_pair();
	add(EPOLLIN | EPOLLET, 43);
	CHECK(write(other, "hello", 5) == 5);
}

static void setup_oneshot(void)
{
	setup_pair();
	add(EPOLLIN | EPOLLONESHOT, 44);
	CHECK(write(other, "hello", 5) == 5);
}

static void setup_exclusive(void)
{
	setup_pair();
	add(EPOLLIN | EPOLLEXCLUSIVE, 42);
	CHECK(write(other, "hello", 5) == 5);
}

static void setup_exclusive_edge(void)
{
	setup_pair();
	add(EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 43);
	CHECK(write(other, "hello", 5) == 5);
}

static int wait_for(struct epoll_event *e, int ms)
{
	return (int)CALL(epoll_wait, set, e, 4, ms);
}

static void end(bool again)
{
	if (!again)
		return;
	close(set);
	close(fd);
	close(other);
}

static void body_add(bool again)
{
	struct epoll_event e = {.events = EPOLLOUT, .data.u64 = 1};

	/* EEXIST if the first one was not undone */
	CHECK(CALL(epoll_ctl, set, EPOLL_CTL_ADD, fd, &e) == 0);
	CHECK(wait_for(&e, 0) == 1 && e.data.u64 == 1);
	end(again);
}

static void body_mod(bool again)
{
	struct epoll_event e;

	CHECK(wait_for(&e, 0) == 1 && e.data.u64 == 42 && e.events == EPOLLIN);
	e = (struct epoll_event){.events = EPOLLOUT, .data.u64 = 99};
	CHECK(CALL(epoll_ctl, set, EPOLL_CTL_MOD, fd, &e) == 0);
	CHECK(wait_for(&e, 0) == 1 && e.data.u64 == 99 && e.events == EPOLLOUT);
	end(again);
}

static void body_del(bool again)
{
	struct epoll_event e;

	CHECK(wait_for(&e, 0) == 1 && e.data.u64 == 42);
	CHECK(CALL(epoll_ctl, set, EPOLL_CTL_DEL, fd, &e) == 0);
	CHECK(wait_for(&e, 0) == 0);
	end(again);
}

/* The event and the input were both consumed; both come again, once. */
static void body_consume(bool again)
{
	struct epoll_event e;
	char b[8];

	CHECK(wait_for(&e, again ? 5000 : 0) == 1 && (e.events & EPOLLIN));
	CHECK(e.data.u64 >= 42 && e.data.u64 <= 44);
	CHECK(read(fd, b, 8) == 5);
	CHECK(read(fd, b, 8) == -1 && errno == EAGAIN);
	CHECK(wait_for(&e, 0) == 0);
	end(again);
}

/* The edge alone was consumed: the data is still in the kernel. */
static void body_edge_only(bool again)
{
	struct epoll_event e;
	char b[8];

	CHECK(wait_for(&e, again ? 5000 : 0) == 1 && e.data.u64 == 43);
	CHECK(wait_for(&e, 0) == 0);
	if (again)
		CHECK(read(fd, b, 8) == 5);
	end(again);
}

static void body_rearm(bool again)
{
	struct epoll_event e;

	CHECK(wait_for(&e, again ? 5000 : 0) == 1 && e.data.u64 == 44);
	CHECK(wait_for(&e, 0) == 0);
	e = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 45};
	CHECK(CALL(epoll_ctl, set, EPOLL_CTL_MOD, fd, &e) == 0);
	CHECK(wait_for(&e, 0) == 1 && e.data.u64 == 45);
	end(again);
}

/* Two items with the same data, of which only one has fired at the checkpoint. */
static int second, second_other;

static void setup_alike(void)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 44};

	setup_oneshot();
	local_pair(SOCK_STREAM | SOCK_NONBLOCK, &second, &second_other);
	CHECK(write(second_other, "second", 6) == 6);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, second, &e) == 0);
	CHECK(epoll_wait(set, &e, 1, 0) == 1);
}

static void body_alike(bool again)
{
	struct epoll_event e;
	char b[8];

	CHECK(wait_for(&e, again ? 5000 : 0) == 1 && e.data.u64 == 44);
	CHECK(read(second, b, 8) == 6 && wait_for(&e, 0) == 0);
	e = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 45};
	CHECK(CALL(epoll_ctl, set, EPOLL_CTL_MOD, fd, &e) == 0);
	CHECK(wait_for(&e, 0) == 1 && e.data.u64 == 45);
	if (again) {
		close(second);
		close(second_other);
	}
	end(again);
}

static void body_create(bool again)
{
	int n;

	if (again)
		CHECK(fcntl((int)outside->value[0], F_GETFD) < 0);
	n = (int)CALL(epoll_create1, 0);
	CHECK(n >= 0);
	outside->value[0] = n;
	if (again)
		close(n);
}

/* ---- a set in a set -------------------------------------------------------------------------- */

static int outer;

static void nest(uint32_t outer_events, uint32_t inner_events)
{
	struct epoll_event e = {.events = outer_events, .data.u64 = 7};

	setup_pair();
	add(inner_events, 8);
	outer = epoll_create1(0);
	CHECK(outer >= 0 && epoll_ctl(outer, EPOLL_CTL_ADD, set, &e) == 0);
	CHECK(write(other, "hello", 5) == 5);
}

static void setup_nested(void)
{
	nest(EPOLLIN, EPOLLIN);
}

static void setup_nested_edge(void)
{
	nest(EPOLLIN | EPOLLET, EPOLLIN | EPOLLET);
}

static void setup_nested_oneshot(void)
{
	nest(EPOLLIN | EPOLLONESHOT, EPOLLIN);
}

static void setup_nested_exclusive(void)
{
	nest(EPOLLIN, EPOLLIN | EPOLLEXCLUSIVE);
}

/* The event goes through both sets, the input is read: it all comes again, once. */
static void body_nested(bool again)
{
	struct epoll_event e;
	char b[8];

	CHECK(CALL(epoll_wait, outer, &e, 1, again ? 5000 : 0) == 1 && e.data.u64 == 7);
	CHECK(wait_for(&e, 0) == 1 && e.data.u64 == 8 && (e.events & EPOLLIN));
	CHECK(read(fd, b, 8) == 5);
	CHECK(read(fd, b, 8) == -1 && errno == EAGAIN);
	CHECK(wait_for(&e, 0) == 0);
	CHECK(CALL(epoll_wait, outer, &e, 1, 0) == 0);
	if (again)
		close(outer);
	end(again);
}

/* The same by poll on the set, and with nothing consumed but the events. */
static void body_nested_poll(bool again)
{
	struct epoll_event e;
	struct pollfd p = {.fd = outer, .events = POLLIN};
	char b[8];

	CHECK(CALL(poll, &p, 1, again ? 5000 : 0) == 1 && p.revents == POLLIN);
	CHECK(CALL(epoll_wait, outer, &e, 1, 0) == 1 && e.data.u64 == 7);
	CHECK(wait_for(&e, 0) == 1 && e.data.u64 == 8);
	CHECK(read(fd, b, 8) == 5);
	CHECK(CALL(poll, &p, 1, 0) == 0);
	if (again)
		close(outer);
	end(again);
}

/* One number of a set adds, another one waits, as in programs that use mio. */
static void body_copy(bool again)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u64 = 45}, got[4];
	char b[32];
	int copy;

	CHECK(wait_for(got, 0) == 0);
	copy = fcntl(set, F_DUPFD_CLOEXEC, 3);
	CHECK(copy >= 0 && CALL(epoll_ctl, copy, EPOLL_CTL_ADD, fd, &e) == 0);
	CHECK(wait_for(got, 0) == 1 && got[0].events == EPOLLIN && got[0].data.u64 == 45);
	CHECK(read(fd, b, 32) == 5 && wait_for(got, 0) == 0);
	if (again)
		close(copy);
	end(again);
}

static void setup_copy(void)
{
	setup_pair();
	CHECK(write(other, "hello", 5) == 5);
}

const struct row rows_epoll[] = {
	{"epoll_create", NULL, body_create},
	{"epoll_add", setup_pair, body_add},
	{"epoll_mod", setup_level, body_mod},
	{"epoll_del", setup_level, body_del},
	{"epoll_level", setup_level, body_consume},
	{"epoll_edge", setup_edge, body_consume},
	{"epoll_oneshot", setup_oneshot, body_consume},
	{"epoll_edge_only", setup_edge, body_edge_only},
	{"epoll_rearm", setup_oneshot, body_rearm},
	{"epoll_alike", setup_alike, body_alike},
	{"epoll_exclusive", setup_exclusive, body_consume},
	{"epoll_exclusive_edge", setup_exclusive_edge, body_consume},
	{"epoll_copy", setup_copy, body_copy},
	{"epoll_nested", setup_nested, body_nested},
	{"epoll_nested_edge", setup_nested_edge, body_nested},
	{"epoll_nested_oneshot", setup_nested_oneshot, body_nested},
	{"epoll_nested_exclusive", setup_nested_exclusive, body_nested},
	{"epoll_nested_poll", setup_nested, body_nested_poll},
	{0},
};
