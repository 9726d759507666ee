/* SPDX-License-Identifier: MIT */
/* Sockets, names of the network, and waiting for descriptors. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>
#define WRAPPED_socket CRN_WRAPPER
#include "rt/wrap.h"
#include "rt/landing.h"

#define ADDRESS(to, len)                                             \
	keep(to.__sockaddr__, to.__sockaddr__ && len ? *len : 0);    \
	OBJECT(len)
#define FDS(n, set) keep(set, n > 0 ? ((size_t)n + 63) / 64 * 8 : 0);

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size);
_Noreturn void __chk_fail(void);

#include "rt/wrapped.def"

/* ---- Receiving ------------------------------------------------------------------------------- */

/* With MSG_TRUNC a stream writes nothing and says how much it threw away. */
WRAPPER(ssize_t, recv, int fd, void *to, size_t n, int flags)
{
	char bounce[BOUNCE_MAX(to, n)];
	struct landing l;
	struct msghdr m = { 0 };

	if (flags & MSG_TRUNC || !land(&l, bounce, sizeof(bounce), to, n)) {
		keep(to, n);
		return recv(fd, to, n, flags);
	}
	if (l.parts == 1)
		return landed(&l, recv(fd, bounce, n, flags));
	m.msg_iov = l.part;
	m.msg_iovlen = 2;
	return landed(&l, recvmsg(fd, &m, flags));
}

WRAPPER(ssize_t, recvfrom, int fd, void *to, size_t n, int flags, struct sockaddr *from,
	socklen_t *len)
{
	char bounce[BOUNCE_MAX(to, n)];

	keep(from, from && len ? *len : 0);
	keep(len, sizeof(*len));
	if (!to || flags & MSG_TRUNC || n > sizeof(bounce)) {
		keep(to, n);
		return recvfrom(fd, to, n, flags, from, len);
	}
	n = (size_t)recvfrom(fd, bounce, n, flags, from, len);
	if ((ssize_t)n > 0)
		place(to, bounce, n);
	return (ssize_t)n;
}

static void check_room(size_t n, size_t room)
{
	if (n > room)
		__chk_fail();
}

WRAPPER(ssize_t, __recv_chk, int fd, void *to, size_t n, size_t room, int flags)
{
	check_room(n, room);
	return __cairn_wrap_recv(fd, to, n, flags);
}

WRAPPER(ssize_t, __recvfrom_chk, int fd, void *to, size_t n, size_t room, int flags,
	struct sockaddr *from, socklen_t *len)
{
	check_room(n, room);
	return __cairn_wrap_recvfrom(fd, to, n, flags, from, len);
}

static void keep_header(struct msghdr *m)
{
	keep(m, sizeof(*m));
	keep(m->msg_name, m->msg_namelen);
	keep(m->msg_control, m->msg_controllen);
}

WRAPPER(ssize_t, recvmsg, int fd, struct msghdr *m, int flags)
{
	size_t n = parts_length(m->msg_iov, m->msg_iovlen);
	char bounce[BOUNCE_MAX(NULL, n)];
	struct iovec one = { bounce, n };
	struct msghdr copy = *m;
	ssize_t got;

	keep_header(m);
	if (flags & MSG_TRUNC || n > sizeof(bounce)) {
		keep_parts(m->msg_iov, m->msg_iovlen);
		return recvmsg(fd, m, flags);
	}
	copy.msg_iov = &one;
	copy.msg_iovlen = 1;
	got = landed_parts(m->msg_iov, m->msg_iovlen, bounce, recvmsg(fd, &copy, flags));
	if (got >= 0) {
		copy.msg_iov = m->msg_iov;
		copy.msg_iovlen = m->msg_iovlen;
		*m = copy;
	}
	return got;
}

WRAPPER(int, recvmmsg, int fd, struct mmsghdr *messages, unsigned n, int flags,
	struct timespec *timeout)
{
	keep(messages, n * sizeof(*messages));
	keep(timeout, sizeof(*timeout));
	for (unsigned i = 0; i < n; i++) {
		keep_header(&messages[i].msg_hdr);
		keep_parts(messages[i].msg_hdr.msg_iov, messages[i].msg_hdr.msg_iovlen);
	}
	return recvmmsg(fd, messages, n, flags, timeout);
}

/* ---- Waiting: few events come, most of the time ---------------------------------------------- */

#define EVENTS_MAX 512

static int placed(struct epoll_event *to, const struct epoll_event *events, int n)
{
	if (n > 0)
		place(to, events, (size_t)n * sizeof(*to));
	return n;
}

WRAPPER(int, epoll_wait, int fd, struct epoll_event *to, int n, int timeout)
{
	struct epoll_event events[EVENTS_MAX];

	return placed(to, events, epoll_wait(fd, events, CRN_MIN(n, EVENTS_MAX), timeout));
}

WRAPPER(int, epoll_pwait, int fd, struct epoll_event *to, int n, int timeout, const sigset_t *mask)
{
	struct epoll_event events[EVENTS_MAX];

	n = epoll_pwait(fd, events, CRN_MIN(n, EVENTS_MAX), timeout, mask);
	return placed(to, events, n);
}

WRAPPER(int, epoll_pwait2, int fd, struct epoll_event *to, int n, const struct timespec *timeout,
	const sigset_t *mask)
{
	struct epoll_event events[EVENTS_MAX];

	n = epoll_pwait2(fd, events, CRN_MIN(n, EVENTS_MAX), timeout, mask);
	return placed(to, events, n);
}
