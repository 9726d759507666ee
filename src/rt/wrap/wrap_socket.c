/* SPDX-License-Identifier: MIT */
/* Sockets, names of the network, and waiting for descriptors. */
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/ether.h>
#include <poll.h>
#include <resolv.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>
#define WRAPPED_socket CRN_WRAPPER
#define WRAPPERS_KEEP crn_reach_keep
#include "rt/wrap/wrap.h"
#include "rt/wrap/reach.h"
#include "rt/wrap/landing_messages.h"

#define ADDRESS(to, len)                                 \
	crn_reach_keep(to.__sockaddr__, length_at(len)); \
	OBJECT(len)
#define FDS(n, set) crn_reach_keep(set, n > 0 ? ((size_t)n + 63) / 64 * 8 : 0);

int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
	size_t size);
_Noreturn void __chk_fail(void);

static size_t length_at(const socklen_t *len)
{
	return len && crn_reach_there(len, sizeof(*len)) ? *len : 0;
}

/* Of the resolver, as long as it may be. */
#define ANSWER SPAN(to, n > 0 ? (size_t)n : 0)

#include "rt/wrap/wrapped.def"

static const void *const *const called __attribute__((used)) = crn_called;

/* ---- Receiving ------------------------------------------------------------------------------- */

/* With MSG_TRUNC a stream writes nothing and says how much it threw away. */
WRAPPER(ssize_t, recv, int fd, void *to, size_t n, int flags)
{
	char bounce[BOUNCE_MAX(n)];
	struct landing l;
	struct msghdr m = { .msg_iov = l.part, .msg_iovlen = 2 };

	if (flags & MSG_TRUNC || !land(&l, bounce, sizeof(bounce), to, n)) {
		crn_reach_keep(to, n);
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

	crn_reach_keep(from, length_at(len));
	OBJECT(len)
	if (flags & MSG_TRUNC || n > BERTH_SIZE || !land(&l, bounce, sizeof(bounce), to, n)) {
		crn_reach_keep(to, n);
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
	OBJECT(m)
	crn_reach_keep(m->msg_name, m->msg_namelen);
	crn_reach_keep(m->msg_control, m->msg_controllen);
}

static ssize_t receive(int fd, struct msghdr *m, int flags)
{
	const struct iovec *to = m->msg_iov;
	size_t count = m->msg_iovlen;
	char bounce[BOUNCE_MAX(parts_length(to, count))];
	struct landing l;
	struct msghdr copy = *m;
	ssize_t got;

	keep_header(m);
	if (flags & MSG_TRUNC || !crn_reach_open(m, sizeof(*m))) {
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

WRAPPER(ssize_t, recvmsg, int fd, struct msghdr *m, int flags)
{
	return crn_reach_there(m, sizeof(*m)) ? receive(fd, m, flags) : recvmsg(fd, m, flags);
}

/* Without a place to land. */
static void keep_messages(struct mmsghdr *messages, size_t n)
{
	n = CRN_MIN(n, IOV_MAX); /* the kernel takes no more */
	ARRAY(messages, n)
	for (size_t i = 0; i < n && crn_reach_there(&messages[i], sizeof(*messages)); i++) {
		keep_header(&messages[i].msg_hdr);
		keep_parts(messages[i].msg_hdr.msg_iov, messages[i].msg_hdr.msg_iovlen);
	}
}

WRAPPER(int, recvmmsg, int fd, struct mmsghdr *messages, unsigned n, int flags,
	struct timespec *timeout)
{
	struct message_landing l;
	ssize_t got;

	OBJECT(timeout)
	if (!land_messages(&l, messages, n, flags)) {
		keep_messages(messages, n);
		return recvmmsg(fd, messages, n, flags, timeout);
	}
	got = landed_messages(&l, messages, recvmmsg(fd, l.messages, n, flags, timeout));
	if (got < -1) {
		errno = (int)-got;
		return -1;
	}
	return (int)got;
}

/* ---- Waiting: few events come, most of the time ---------------------------------------------- */

#define EVENTS_MAX  512
#define EVENTS_HERE 32 /* on the caller's stack; for more there is a berth */

/*
 * Where the kernel puts them: `here`, a berth, or where the program wants them, if they might not
 * get there.
 */
struct room {
	struct epoll_event here[EVENTS_HERE], *at;
	struct berth *berth;
};

/* *n is how many there is room for. */
static void make_room(struct room *r, struct epoll_event *to, int *n)
{
	size_t size = *n > 0 ? (size_t)*n * sizeof(*to) : 0;

	r->berth = NULL;
	r->at = to;
	if (size > INT_MAX || !crn_reach_open(to, size) ||
		(*n > EVENTS_HERE && !crn_berth_take(&r->berth))) {
		crn_reach_keep(to, size);
		return;
	}
	*n = CRN_MIN(*n, EVENTS_MAX);
	r->at = r->berth ? (struct epoll_event *)crn_berth_memory(r->berth) : r->here;
}

static int placed(const struct room *r, struct epoll_event *to, int n)
{
	if (n > 0 && r->at != to)
		place(to, r->at, (size_t)n * sizeof(*to));
	if (r->berth)
		crn_berth_leave(r->berth);
	return n;
}

WRAPPER(int, epoll_wait, int fd, struct epoll_event *to, int n, int timeout)
{
	struct room room;

	make_room(&room, to, &n);
	return placed(&room, to, epoll_wait(fd, room.at, n, timeout));
}

WRAPPER(int, epoll_pwait, int fd, struct epoll_event *to, int n, int timeout, const sigset_t *mask)
{
	struct room room;

	make_room(&room, to, &n);
	return placed(&room, to, epoll_pwait(fd, room.at, n, timeout, mask));
}

WRAPPER(int, epoll_pwait2, int fd, struct epoll_event *to, int n, const struct timespec *timeout,
	const sigset_t *mask)
{
	struct room room;

	make_room(&room, to, &n);
	return placed(&room, to, epoll_pwait2(fd, room.at, n, timeout, mask));
}
