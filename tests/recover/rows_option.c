/* SPDX-License-Identifier: MIT */
/* Options of sockets that are more than a value to be put back. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include "rows.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
#define LENGTH 100

static int fd, other;
static struct sock_filter code[LENGTH];

static void attach(int length)
{
	struct sock_fprog program = { .len = (unsigned short)length, .filter = code };

	CHECK(CALL(setsockopt, fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0);
}

/* A filter is asked for by the same number, which then means its length in instructions. */
static void setup_filter(void)
{
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(fd >= 0);
	for (int i = 0; i < LENGTH; i++)
		code[i] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0xffff);
	attach(LENGTH);
}

static void body_filter(bool again)
{
	struct sock_filter old[LENGTH];
	socklen_t count = LENGTH;

	outside->count++;
	attach(LENGTH / 2);
	crash_once();
	CHECK(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, old, &count) == 0 && count == LENGTH / 2);
	close(fd);
}

static void setup_pair(void)
{
	local_pair(SOCK_STREAM, &fd, &other);
}

/* An offset that moves with each look would not come back: there is none. */
static void setup_offset(void)
{
	int at = 0;

	setup_pair();
	CHECK(write(other, "hello world", 11) == 11);
	(void)!setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &at, sizeof(at));
}

static void body_offset(bool again)
{
	char b[8];

	CHECK(CALL(recvfrom, fd, b, 5, MSG_PEEK, NULL, NULL) == 5 && b[0] == 'h');
	if (again) {
		close(fd);
		close(other);
	}
}

/* What a connection began with is told once. */
static void setup_begun(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	socklen_t len = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	other = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(setsockopt(listener, IPPROTO_TCP, TCP_SAVE_SYN, &on, sizeof(on)) == 0);
	CHECK(bind(listener, (struct sockaddr *)&at, len) == 0 && listen(listener, 1) == 0 &&
		getsockname(listener, (struct sockaddr *)&at, &len) == 0 &&
		connect(other, (struct sockaddr *)&at, len) == 0);
	fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0 && close(listener) == 0);
}

static void body_begun(bool again)
{
	char syn[256];
	socklen_t len = sizeof(syn);

	outside->count++;
	CHECK(CALL(getsockopt, fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &len) == 0 && len > 0);
	crash_once();
	close(fd);
	close(other);
}

/* The answer is a new descriptor. */
static void body_peer(bool again)
{
	socklen_t len = sizeof(int);
	int n;

	if (again)
		CHECK(fcntl((int)outside->value[0], F_GETFD) < 0);
	if (CALL(getsockopt, fd, SOL_SOCKET, SO_PEERPIDFD, &n, &len) < 0) {
		CHECK(errno == ENOPROTOOPT);
		n = dup(fd);
	}
	CHECK(!again || n == outside->value[0]);
	outside->value[0] = n;
	if (again) {
		close(n);
		close(fd);
		close(other);
	}
}

const struct row rows_option[] = {
	{ "option_filter", setup_filter, body_filter, .output = true },
	{ "option_offset", setup_offset, body_offset },
	{ "option_begun", setup_begun, body_begun, .output = true },
	{ "option_peer", setup_pair, body_peer },
	{ NULL },
};
