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
#include "rt/landing_messages.h"

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
	char bounce[BOUNCE_MAX(n)];
	struct landing l;
	struct msghdr m = { .msg_iov = l.part, .msg_iovlen = 2 };

	if (flags & MSG_TRUNC || !land(&l, bounce, sizeof(bounce), to, n)) {
		keep(to, n);
		return recv(fd, to, n, flags);
	}
	return landed(&l, l.parts == 1 ? recv(fd, l.part[0].iov_base, n, flags)
				       : recvmsg(fd, &m, flags));
}

WRAPPER(ssize_t, recvfrom, int fd, void *to, size_t n, int flags, struct sockaddr *from,
	socklen_t *len)
{
	char bounce[BOUNCE_MAX(n)];
	struct landing l;

	keep(from, from && len ? *len : 0);
	keep(len, sizeof(*len));
	if (flags & MSG_TRUNC || n > BERTH_SIZE || !land(&l, bounce, sizeof(bounce), to, n)) {
		keep(to, n);
		return recvfrom(fd, to, n, flags, from, len);
	}
	return landed(&l, recvfrom(fd, l.part[0].iov_base, n, flags, from, len));
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
	const struct iovec *to = m->msg_iov;
	size_t count = m->msg_iovlen;
	char bounce[BOUNCE_MAX(parts_length(to, count))];
	struct landing l;
	struct msghdr copy = *m;
	ssize_t got;

	keep_header(m);
	if (flags & MSG_TRUNC) {
		keep_parts(to, count);
		return recvmsg(fd, m, flags);
	}
	if (!land_parts(&l, bounce, sizeof(bounce), to, count))
		return recvmsg(fd, m, flags);
	copy.msg_iov = l.part;
	copy.msg_iovlen = 1;
	got = landed_parts(&l, to, count, recvmsg(fd, &copy, flags));
	copy.msg_iov = m->msg_iov;
	copy.msg_iovlen = count;
	if (got >= 0)
		*m = copy;
	return got;
}

WRAPPER(int, recvmmsg, int fd, struct mmsghdr *messages, unsigned n, int flags,
	struct timespec *timeout)
{
	struct message_landing l;

	keep(timeout, sizeof(*timeout));
	if (!land_messages(&l, messages, n, flags, &crn_reach_surely)) {
		keep(messages, n * sizeof(*messages));
		for (unsigned i = 0; i < n; i++) {
			keep_header(&messages[i].msg_hdr);
			keep_parts(messages[i].msg_hdr.msg_iov, messages[i].msg_hdr.msg_iovlen);
		}
		return recvmmsg(fd, messages, n, flags, timeout);
	}
	return (int)landed_messages(&l, messages, recvmmsg(fd, l.messages, n, flags, timeout));
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
