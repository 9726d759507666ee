/* SPDX-License-Identifier: MIT */
/*
 * Input that does not come twice: it is given again, in whatever portions the program asks for it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "rows.h"

static int fd, other;

static void setup_pipe(void)
{
	int pair[2];

	CHECK(pipe2(pair, O_NONBLOCK) == 0 && write(pair[1], "hello world", 11) == 11);
	fd = pair[0];
	other = pair[1];
}

static void setup_stream(void)
{
	local_pair(SOCK_STREAM | SOCK_NONBLOCK, &fd, &other);
	CHECK(write(other, "hello world", 11) == 11);
}

static void setup_packets(void)
{
	local_pair(SOCK_DGRAM | SOCK_NONBLOCK, &fd, &other);
	CHECK(send(other, "one", 3, 0) == 3 && send(other, "three", 5, 0) == 5);
}

static void end(bool again)
{
	char c[8];

	if (!again)
		return;
	CHECK(read(fd, c, sizeof(c)) == -1 && errno == EAGAIN);
	close(fd);
	close(other);
}

/* All at once the first time, in two bites and with new data behind it the second time. */
static void body_read(bool again)
{
	char b[32];

	if (!again) {
		CHECK(CALL(read, fd, b, 32) == 11 && !memcmp(b, "hello world", 11));
		return;
	}
	CHECK(CALL(read, fd, b, 3) == 3 && !memcmp(b, "hel", 3));
	CHECK(CALL(read, fd, b, 32) == 8 && !memcmp(b, "lo world", 8));
	CHECK(write(other, "more", 4) == 4);
	CHECK(CALL(read, fd, b, 32) == 4 && !memcmp(b, "more", 4));
	end(again);
}

static void body_readv(bool again)
{
	char a[4], b[32];
	struct iovec iov[2] = {{a, 4}, {b, 32}};

	CHECK(CALL(readv, fd, iov, 2) == 11 && !memcmp(a, "hell", 4) && !memcmp(b, "o world", 7));
	end(again);
}

static void body_preadv2(bool again)
{
	char a[4], b[32];
	struct iovec iov[2] = {{a, 4}, {b, 32}};
	ssize_t n = way == RAW ? syscall(SYS_preadv2, fd, iov, 2, -1l, 0l, 0)
			       : preadv2(fd, iov, 2, -1, 0);

	CHECK(n == 11 && !memcmp(a, "hell", 4) && !memcmp(b, "o world", 7));
	CHECK(iov[0].iov_base == a && iov[0].iov_len == 4 && iov[1].iov_base == b);
	end(again);
}

/* Each read of it takes one packet. */
static void setup_packet_pipe(void)
{
	int pair[2];

	CHECK(pipe2(pair, O_DIRECT | O_NONBLOCK) == 0 && write(pair[1], "one", 3) == 3 &&
		write(pair[1], "three", 5) == 5);
	fd = pair[0];
	other = pair[1];
}

static void body_packet_pipe(bool again)
{
	char b[32];

	CHECK(CALL(read, fd, b, 32) == 3 && !memcmp(b, "one", 3));
	CHECK(CALL(read, fd, b, 32) == 5 && !memcmp(b, "three", 5));
	end(again);
}

/* A terminal gives one line at a time, and its end once. */
static void setup_terminal(void)
{
	other = posix_openpt(O_RDWR | O_NOCTTY);
	CHECK(other >= 0 && grantpt(other) == 0 && unlockpt(other) == 0);
	fd = open(ptsname(other), O_RDWR | O_NOCTTY | O_NONBLOCK);
	CHECK(fd >= 0 && write(other, "one\ntwo\n\004", 9) == 9);
}

static void body_terminal(bool again)
{
	char b[32];

	CHECK(CALL(read, fd, b, 32) == 4 && !memcmp(b, "one\n", 4));
	CHECK(CALL(read, fd, b, 32) == 4 && !memcmp(b, "two\n", 4));
	CHECK(CALL(read, fd, b, 32) == 0);
	end(again);
}

/* What is thrown away does not come again either. */
static void body_flushed(bool again)
{
	char b[32];

	if (!again) {
		CHECK(CALL(read, fd, b, 32) == 4 && !memcmp(b, "one\n", 4));
		return;
	}
	CHECK(CALL(ioctl, fd, TCFLSH, 0 /* TCIFLUSH */) == 0);
	CHECK(write(other, "three\n", 6) == 6);
	CHECK(CALL(read, fd, b, 32) == 6 && !memcmp(b, "three\n", 6));
	end(again);
}

static void body_peek(bool again)
{
	char b[32];

	CHECK(CALL(recvfrom, fd, b, 5, MSG_PEEK, NULL, NULL) == 5 && !memcmp(b, "hello", 5));
	CHECK(CALL(recvfrom, fd, b, 5, 0, NULL, NULL) == 5 && !memcmp(b, "hello", 5));
	CHECK(CALL(recvfrom, fd, b, 32, MSG_PEEK, NULL, NULL) == 6 && !memcmp(b, " world", 6));
	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 6);
	end(again);
}

static void body_recvmsg(bool again)
{
	char b[32];
	struct iovec iov = {b, 32};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	CHECK(CALL(recvmsg, fd, &msg, 0) == 11 && !memcmp(b, "hello world", 11) &&
		msg.msg_controllen == 0);
	end(again);
}

/* Boundaries are kept. */
static void body_packets(bool again)
{
	char b[32];

	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 3 && !memcmp(b, "one", 3));
	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 5 && !memcmp(b, "three", 5));
	end(again);
}

static void bind_any(int s, struct sockaddr_in *a)
{
	socklen_t len = sizeof(*a);

	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	CHECK(bind(s, (struct sockaddr *)a, len) == 0 &&
		getsockname(s, (struct sockaddr *)a, &len) == 0);
}

static struct sockaddr_in sender;

static void setup_udp(void)
{
	struct sockaddr_in to;

	fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	other = socket(AF_INET, SOCK_DGRAM, 0);
	bind_any(fd, &to);
	bind_any(other, &sender);
	CHECK(sendto(other, "packet", 6, 0, (struct sockaddr *)&to, sizeof(to)) == 6);
}

/* To read no bytes takes no packet. */
static void body_no_bytes(bool again)
{
	char b[32];

	CHECK(CALL(read, fd, b, 0) == 0 && (!again || CALL(read, fd, b, 0) == 0));
	CHECK(CALL(read, fd, b, 32) == 6 && !memcmp(b, "packet", 6));
	end(again);
}

/* That messages were lost is told once. Another process that does this has another group. */
static void setup_overrun(void)
{
	struct sockaddr_nl at = {.nl_family = AF_NETLINK, .nl_groups = 1u << getpid() % 32};
	char some[1000] = "";
	int small = 1;

	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_USERSOCK);
	other = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_USERSOCK);
	CHECK(fd >= 0 && other >= 0);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0);
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0) {
		CHECK(errno == EPERM && close(fd) == 0);
		fd = -1;
		return;
	}
	for (int i = 0; i < 100; i++)
		(void)!sendto(other, some, sizeof(some), 0, (struct sockaddr *)&at, sizeof(at));
}

static void body_overrun(bool again)
{
	char b[2000];

	if (fd < 0)
		return;
	CHECK(CALL(recvfrom, fd, b, sizeof(b), 0, NULL, NULL) == -1 && errno == ENOBUFS);
	while (CALL(recvfrom, fd, b, sizeof(b), 0, NULL, NULL) > 0)
		continue;
	end(again);
}

static void body_recvfrom_name(bool again)
{
	struct sockaddr_in from = {0};
	socklen_t len = sizeof(from);
	char b[32];

	CHECK(CALL(recvfrom, fd, b, 32, 0, (struct sockaddr *)&from, &len) == 6 &&
		!memcmp(b, "packet", 6));
	CHECK(len == sizeof(from) && from.sin_port == sender.sin_port);
	end(again);
}

static void setup_eventfd(void)
{
	fd = eventfd(7, EFD_NONBLOCK);
	other = dup(fd);
	CHECK(fd >= 0);
}

static void body_eventfd(bool again)
{
	uint64_t value = 0;

	CHECK(CALL(read, fd, &value, 8) == 8 && value == 7);
	end(again);
}

/* Even if it was the very last input: a lost wake-up is never made good by anybody. */
static void body_eventfd_last(bool again)
{
	uint64_t value = 0;

	CHECK(CALL(read, fd, &value, 8) == 8 && value == 7);
	if (!again)
		*(volatile int *)8 = 0;
	end(again);
}

static void setup_semaphore(void)
{
	fd = eventfd(3, EFD_NONBLOCK | EFD_SEMAPHORE);
	other = dup(fd);
	CHECK(fd >= 0 && other >= 0);
}

static bool takes_one(int from)
{
	uint64_t value = 0;

	return CALL(read, from, &value, 8) == 8 && value == 1;
}

/* What was taken by one number comes again by each. */
static void body_eventfd_copy(bool again)
{
	struct pollfd both[2] = {{fd, POLLIN, 0}, {other, POLLIN, 0}};

	if (again)
		CHECK(takes_one(fd) && takes_one(other));
	else
		CHECK(takes_one(other) && takes_one(other));
	CHECK(poll(both, 2, 0) == 2);
	CHECK(takes_one(other) && poll(both, 2, 0) == 0);
	end(again);
}

/* A pipe has one inode and two ends. */
static void body_writing_end(bool again)
{
	struct pollfd end_of = {other, POLLIN, 0};
	char b[32];

	if (again)
		CHECK(poll(&end_of, 1, 0) == 0 && CALL(read, other, b, 32) == -1 && errno == EBADF);
	CHECK(CALL(read, fd, b, 32) == 11 && !memcmp(b, "hello world", 11));
	end(again);
}

/* A peer that went with bytes unread. */
static void setup_reset(void)
{
	setup_stream();
	CHECK(write(fd, "unread", 6) == 6 && close(other) == 0);
	other = dup(fd);
}

/* An error comes once, also to whoever only looks. */
static void body_peek_error(bool again)
{
	char b[32];

	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 11 && !memcmp(b, "hello world", 11));
	CHECK(CALL(recvfrom, fd, b, 32, MSG_PEEK, NULL, NULL) == -1 && errno == ECONNRESET);
	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 0);
	if (again) {
		close(fd);
		close(other);
	}
}

static void body_no_socket(bool again)
{
	char b[32];

	if (again)
		CHECK(recv(fd, b, 32, 0) == -1 && errno == ENOTSOCK);
	CHECK(CALL(read, fd, b, 32) == 11 && !memcmp(b, "hello world", 11));
	end(again);
}

/* ---- readiness of what is to be given again -------------------------------------------------- */

static void take_all(void)
{
	char b[32];

	CHECK(read(fd, b, 32) == 11);
}

static void body_poll(bool again)
{
	struct pollfd p[2] = {{fd, POLLIN, 0}, {-1, POLLIN, 0}};

	if (!again) {
		take_all();
		return;
	}
	CHECK(CALL(poll, p, 2, 60000) == 1 && p[0].revents == POLLIN);
	take_all();
	CHECK(CALL(poll, p, 2, 0) == 0);
	end(again);
}

static void body_ppoll(bool again)
{
	struct timespec minute = {60, 0};
	struct pollfd p = {fd, POLLIN | POLLOUT, 0};

	if (!again) {
		take_all();
		return;
	}
	if (way == RAW)
		CHECK(syscall(SYS_ppoll, &p, 1, &minute, NULL, 8) == 1);
	else
		CHECK(ppoll(&p, 1, &minute, NULL) == 1);
	CHECK(p.revents & POLLIN);
	take_all();
	end(again);
}

static void body_select(bool again)
{
	struct timeval minute = {60, 0};
	fd_set set;

	if (!again) {
		take_all();
		return;
	}
	FD_ZERO(&set);
	FD_SET(fd, &set);
	CHECK(CALL(select, fd + 1, &set, NULL, NULL, &minute) == 1 && FD_ISSET(fd, &set));
	take_all();
	end(again);
}

static void body_fionread(bool again)
{
	char b[32];
	int n = 0;

	CHECK(CALL(ioctl, fd, FIONREAD, &n) == 0 && n == 11);
	CHECK(read(fd, b, 4) == 4);
	CHECK(CALL(ioctl, fd, FIONREAD, &n) == 0 && n == 7);
	CHECK(read(fd, b, 32) == 7);
	end(again);
}

/* ---- accept ---------------------------------------------------------------------------------- */

static int client;

static void setup_listener(void)
{
	struct sockaddr_in at;

	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	bind_any(fd, &at);
	CHECK(listen(fd, 5) == 0);
	client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(client, (struct sockaddr *)&at, sizeof(at)) == 0 &&
		send(client, "hi", 2, 0) == 2);
	other = dup(0);
}

/*
 * The same connection is accepted again, under the same number, with its input, and the peer
 * notices nothing.
 */
static void body_accept(bool again)
{
	struct sockaddr_in from = {0}, is = {0};
	socklen_t len = sizeof(from), is_len = sizeof(is);
	struct pollfd p = {fd, POLLIN, 0};
	char b[8];
	int n;

	if (again)
		CHECK(fcntl((int)outside->value[0], F_GETFD) < 0);
	CHECK(!again || poll(&p, 1, 60000) == 1);
	n = (int)CALL(accept4, fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK);
	CHECK(n >= 0 && (!again || n == outside->value[0]));
	CHECK(getsockname(client, (struct sockaddr *)&is, &is_len) == 0 &&
		is.sin_port == from.sin_port);
	CHECK(fcntl(n, F_GETFL) & O_NONBLOCK);
	outside->value[0] = n;
	CHECK(CALL(read, n, b, 8) == 2 && !memcmp(b, "hi", 2));
	if (!again)
		return;
	CHECK(send(n, "yes", 3, 0) == 3 && recv(client, b, 8, 0) == 3);
	close(n);
	close(client);
	close(fd);
	close(other);
}

static FILE *stream;

static void setup_stdio(void)
{
	setup_pipe();
	CHECK(write(other, "\nnext\n", 6) == 6);
	stream = fdopen(fd, "r");
}

static void body_fgets(bool again)
{
	char b[32];

	CHECK(fgets(b, sizeof(b), stream) && !strcmp(b, "hello world\n"));
	CHECK(fgets(b, sizeof(b), stream) && !strcmp(b, "next\n"));
	if (again) {
		fclose(stream);
		close(other);
	}
}

const struct row rows_input[] = {
	{"read_pipe", setup_pipe, body_read},
	{"read_socket", setup_stream, body_read},
	{"readv", setup_pipe, body_readv},
	{"preadv2", setup_pipe, body_preadv2},
	{"read_packet_pipe", setup_packet_pipe, body_packet_pipe},
	{"read_terminal", setup_terminal, body_terminal},
	{"read_terminal_flushed", setup_terminal, body_flushed},
	{"read_no_bytes", setup_udp, body_no_bytes},
	{"recv_overrun", setup_overrun, body_overrun},
	{"recv_peek", setup_stream, body_peek},
	{"recvmsg", setup_stream, body_recvmsg},
	{"recv_packets", setup_packets, body_packets},
	{"recvfrom_name", setup_udp, body_recvfrom_name},
	{"read_eventfd", setup_eventfd, body_eventfd},
	{"read_eventfd_last", setup_eventfd, body_eventfd_last},
	{"read_eventfd_copy", setup_semaphore, body_eventfd_copy},
	{"read_writing_end", setup_pipe, body_writing_end},
	{"recv_peek_error", setup_reset, body_peek_error},
	{"recv_no_socket", setup_pipe, body_no_socket},
	{"poll", setup_stream, body_poll},
	{"ppoll", setup_stream, body_ppoll},
	{"select", setup_stream, body_select, .libc_only = true},
	{"fionread", setup_stream, body_fionread},
	{"accept", setup_listener, body_accept},
	{"fgets", setup_stdio, body_fgets, .stdio = true},
	{0},
};
