/* SPDX-License-Identifier: MIT */
/* Of libc_rows.c: what its rows of the network wait for, and whom they call. */
#ifndef CRN_TESTS_LIBC_ROWS_NETWORK_H
#define CRN_TESTS_LIBC_ROWS_NETWORK_H

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <grp.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ether.h>
#include <poll.h>
#include <pwd.h>
#include <resolv.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include "libc_rows.h"

#define ADDRESS_AT(place) ((struct sockaddr *)AT(place))
#define LENGTH(place)     ((socklen_t *)AT(place))
#define MESSAGES          ((struct mmsghdr *)at)
#define EVENTS            ((struct epoll_event *)at)
#define WANTED            ((struct pollfd *)at)
#define SET(place)        ((fd_set *)AT(place))

static int listener = -1, caller = -1, ready = -1;

ssize_t __recv_chk(int fd, void *to, size_t n, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *to, size_t n, size_t room, int flags, struct sockaddr *from,
	socklen_t *len);
int __poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t size);
int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
	size_t size);

/* a.b, of class IN and type A, with the address 1.2.3.4. */
static const unsigned char answer[] = "\0\1\x81\x80\0\1\0\1\0\0\0\0" "\1a\1b\0" "\0\1\0\1"
	"\xc0\x0c" "\0\1\0\1" "\0\0\0\1" "\0\4" "\1\2\3\4";
#define ANSWERED (int)(sizeof(answer) - 1)

/* The server of names is a child. It answers anything. */
static void serve_names(int fd)
{
	unsigned char query[512], reply[sizeof(answer)];
	struct sockaddr_in who;
	socklen_t len = sizeof(who);

	memcpy(reply, answer, sizeof(reply));
	while (recvfrom(fd, query, sizeof(query), 0, (struct sockaddr *)&who, &len) > 2) {
		memcpy(reply, query, 2);
		sendto(fd, reply, ANSWERED, 0, (struct sockaddr *)&who, len);
	}
	_exit(0);
}

static void open_resolver(void)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001) };
	socklen_t len = sizeof(here);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	CHECK(!bind(fd, (struct sockaddr *)&here, len));
	CHECK(!getsockname(fd, (struct sockaddr *)&here, &len));
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve_names(fd);
	}
	close(fd);
	CHECK(!res_init());
	_res.nscount = 1;
	_res.nsaddr_list[0] = here;
}

/* With the server, too. */
static void resolver(char *at)
{
	struct sockaddr_in server = _res.nsaddr_list[0];
	res_state r = (void *)at;

	memset(at, 0, sizeof(*r));
	CHECK(!res_ninit(r));
	r->nscount = 1;
	r->nsaddr_list[0] = server;
}

static void open_sockets(void)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001) };
	struct epoll_event want = { .events = EPOLLOUT, .data.u32 = 7 };

	listener = socket(AF_INET, SOCK_STREAM, 0);
	ready = epoll_create1(0);
	CHECK(!bind(listener, (struct sockaddr *)&here, sizeof(here)) && !listen(listener, 5));
	CHECK(ready >= 0 && !epoll_ctl(ready, EPOLL_CTL_ADD, ends[0], &want));
}

static void call_listener(void)
{
	struct sockaddr_in to;
	socklen_t len = sizeof(to);

	caller = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!getsockname(listener, (struct sockaddr *)&to, &len));
	CHECK(!connect(caller, (struct sockaddr *)&to, len));
}

static long accepted(int fd)
{
	return close(caller) + (fd < 0 ? -1 : close(fd));
}

static void messages(char *at)
{
	static struct iovec parts[2];

	parts[0] = (struct iovec){ (void *)text, 20 };
	parts[1] = (struct iovec){ (void *)text, 30 };
	/* By members: padding of a whole struct may have any content. */
	memset(at, 0, 2 * sizeof(*MESSAGES));
	for (int i = 0; i < 2; i++) {
		MESSAGES[i].msg_hdr.msg_iov = &parts[i];
		MESSAGES[i].msg_hdr.msg_iovlen = 1;
	}
}

/* The same for what comes, to places in `out`. */
static void incoming(char *at)
{
	static struct iovec parts[2];

	messages(at);
	for (int i = 0; i < 2; i++) {
		parts[i] = (struct iovec){ AT(1 + i), 20 };
		MESSAGES[i].msg_hdr.msg_iov = &parts[i];
	}
}

static void no_parts(char *at)
{
	for (int i = 0; i < 2; i++)
		MESSAGES[i].msg_hdr.msg_iov = NULL;
}

static long received(char *at)
{
	char bytes[100];

	no_parts(at);
	return recv(ends[1], bytes, sizeof(bytes), 0);
}

static void wanted(char *at)
{
	WANTED[0] = (struct pollfd){ .fd = ends[1], .events = POLLIN, .revents = 0x55 };
	WANTED[1] = (struct pollfd){ .fd = ends[0], .events = POLLOUT };
}

static void sets(char *at)
{
	for (int i = 0; i < 3; i++) {
		FD_ZERO(SET(i));
		FD_SET(ends[1], SET(i));
	}
}

#endif
