/* SPDX-License-Identifier: MIT */
/*
 * All four ways share one table of watches, indexed by descriptor. What a wait found is a list of
 * descriptors, not of watches: a handler may remove others, and looking the descriptor up again at
 * dispatch is what keeps a removed watch from being called.
 */
#include "event_loop.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

#define WATCH_MAX 1024 /* descriptors: FD_SETSIZE, so that select can do all of them */
#define BATCH_MAX 64   /* events fetched by one epoll_wait */

struct found {
	int fd;
	bool readable, writable;
	const struct watch *watch; /* only compared, never followed */
};

struct event_loop {
	enum { KIND_EPOLL, KIND_EDGE, KIND_POLL, KIND_SELECT } kind;
	int epoll_fd;
	bool stopped;
	int fd_end; /* one past the highest watched descriptor */
	struct watch *watches[WATCH_MAX];
	struct found found[WATCH_MAX];
};

struct event_loop *event_loop_new(const char *kind)
{
	static const char *const kinds[] = { "epoll", "edge", "poll", "select" };
	struct event_loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return NULL;
	loop->epoll_fd = -1;
	for (int i = 0; i < 4; i++) {
		if (strcmp(kinds[i], kind) != 0)
			continue;
		loop->kind = i;
		if (i > KIND_EDGE)
			return loop;
		loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
		if (loop->epoll_fd >= 0)
			return loop;
	}
	free(loop);
	return NULL;
}

bool event_loop_is_edge(const struct event_loop *loop)
{
	return loop->kind == KIND_EDGE;
}

static int epoll_change(struct event_loop *loop, int op, const struct watch *watch)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = watch->fd };

	if (loop->epoll_fd < 0)
		return 0;
	if (loop->kind == KIND_EDGE)
		event.events |= EPOLLET | EPOLLOUT;
	else if (watch->want_write)
		event.events |= EPOLLOUT;
	return epoll_ctl(loop->epoll_fd, op, watch->fd, &event) < 0 ? -errno : 0;
}

int event_loop_add(struct event_loop *loop, struct watch *watch)
{
	int ret;

	if (watch->fd >= WATCH_MAX)
		return -EMFILE;
	ret = epoll_change(loop, EPOLL_CTL_ADD, watch);
	if (ret < 0)
		return ret;
	loop->watches[watch->fd] = watch;
	if (watch->fd >= loop->fd_end)
		loop->fd_end = watch->fd + 1;
	return 0;
}

int event_loop_change(struct event_loop *loop, struct watch *watch)
{
	/* An edge-triggered watch always asks for everything. */
	return loop->kind == KIND_EDGE ? 0 : epoll_change(loop, EPOLL_CTL_MOD, watch);
}

void event_loop_remove(struct event_loop *loop, struct watch *watch)
{
	epoll_change(loop, EPOLL_CTL_DEL, watch);
	loop->watches[watch->fd] = NULL;
	while (loop->fd_end > 0 && !loop->watches[loop->fd_end - 1])
		loop->fd_end--;
}

static void note(struct event_loop *loop, int count, int fd, bool readable, bool writable)
{
	loop->found[count] = (struct found){ fd, readable, writable, loop->watches[fd] };
}

static int wait_epoll(struct event_loop *loop)
{
	struct epoll_event events[BATCH_MAX];
	int count = epoll_wait(loop->epoll_fd, events, BATCH_MAX, -1);

	for (int i = 0; i < count; i++)
		note(loop, i, events[i].data.fd, events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR),
			events[i].events & EPOLLOUT);
	return count < 0 ? -errno : count;
}

static int wait_poll(struct event_loop *loop)
{
	struct pollfd fds[WATCH_MAX];
	int fd_count = 0, count = 0;

	for (int fd = 0; fd < loop->fd_end; fd++) {
		const struct watch *watch = loop->watches[fd];

		if (watch)
			fds[fd_count++] = (struct pollfd){ fd,
				watch->want_write ? POLLIN | POLLOUT : POLLIN, 0 };
	}
	if (poll(fds, fd_count, -1) < 0)
		return -errno;
	for (int i = 0; i < fd_count; i++) {
		if (fds[i].revents)
			note(loop, count++, fds[i].fd, fds[i].revents & ~POLLOUT,
				fds[i].revents & POLLOUT);
	}
	return count;
}

static int wait_select(struct event_loop *loop)
{
	fd_set readable, writable;
	int count = 0;

	FD_ZERO(&readable);
	FD_ZERO(&writable);
	for (int fd = 0; fd < loop->fd_end; fd++) {
		if (!loop->watches[fd])
			continue;
		FD_SET(fd, &readable);
		if (loop->watches[fd]->want_write)
			FD_SET(fd, &writable);
	}
	if (select(loop->fd_end, &readable, &writable, NULL, NULL) < 0)
		return -errno;
	for (int fd = 0; fd < loop->fd_end; fd++) {
		if (FD_ISSET(fd, &readable) || FD_ISSET(fd, &writable))
			note(loop, count++, fd, FD_ISSET(fd, &readable), FD_ISSET(fd, &writable));
	}
	return count;
}

int event_loop_run(struct event_loop *loop)
{
	while (!loop->stopped) {
		int count = loop->kind == KIND_POLL ? wait_poll(loop)
			: loop->kind == KIND_SELECT ? wait_select(loop)
						    : wait_epoll(loop);

		if (count == -EINTR)
			continue;
		if (count < 0)
			return count;
		for (int i = 0; i < count && !loop->stopped; i++) {
			const struct found *found = &loop->found[i];
			struct watch *watch = loop->watches[found->fd];

			if (watch && watch == found->watch)
				watch->ready(loop, watch, found->readable, found->writable);
		}
	}
	return 0;
}

void event_loop_stop(struct event_loop *loop)
{
	loop->stopped = true;
}
