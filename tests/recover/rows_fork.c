/* SPDX-License-Identifier: MIT */
/*
 * A fork while input is still to be given again: whoever reads first gets what was read before the
 * crash, and the other nothing.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "rows.h"

static int fd, other;

static void setup_stream(void)
{
	local_pair(SOCK_STREAM | SOCK_NONBLOCK, &fd, &other);
	CHECK(write(other, "hello world", 11) == 11);
}

static void end(void)
{
	close(fd);
	close(other);
}

static bool reads_all(int from)
{
	char b[32];

	return recv(from, b, 32, MSG_DONTWAIT) == 11 && !memcmp(b, "hello world", 11);
}

static bool reads_nothing(int from)
{
	char b[32];
	struct pollfd p = {.fd = from, .events = POLLIN};

	return poll(&p, 1, 0) == 0 && recv(from, b, 32, MSG_DONTWAIT) == -1 && errno == EAGAIN;
}

static pid_t born(void)
{
	return way == RAW ? (pid_t)syscall(SYS_fork) : fork();
}

static void expect_zero(pid_t pid)
{
	int status = -1;

	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

static void body_child_reads(bool again)
{
	pid_t pid;

	if (!again) {
		CHECK(reads_all(fd));
		return;
	}
	pid = born();
	if (pid == 0)
		_exit(!reads_all(fd) || !reads_nothing(fd));
	expect_zero(pid);
	CHECK(reads_nothing(fd));
	end();
}

static void body_parent_reads(bool again)
{
	int done[2];
	pid_t pid;
	char c;

	if (!again) {
		CHECK(reads_all(fd));
		return;
	}
	CHECK(pipe(done) == 0);
	pid = born();
	if (pid == 0)
		_exit(read(done[0], &c, 1) != 1 || !reads_nothing(fd));
	CHECK(reads_all(fd) && write(done[1], "x", 1) == 1);
	expect_zero(pid);
	close(done[0]);
	close(done[1]);
	end();
}

/* A grandchild, by way of a child that does nothing. */
static void body_grandchild_reads(bool again)
{
	pid_t pid;
	int status;

	if (!again) {
		CHECK(reads_all(fd));
		return;
	}
	pid = born();
	if (pid == 0) {
		pid = born();
		if (pid == 0)
			_exit(!reads_all(fd));
		_exit(waitpid(pid, &status, 0) != pid || status || !reads_nothing(fd));
	}
	expect_zero(pid);
	CHECK(reads_nothing(fd));
	end();
}

/* A connection that was accepted before the crash is accepted by the child, and closed by it. */
static int client;

static void setup_listener(void)
{
	struct sockaddr_in at = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
	socklen_t len = sizeof(at);

	fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 5) == 0 &&
		getsockname(fd, (struct sockaddr *)&at, &len) == 0 &&
		connect(client, (struct sockaddr *)&at, len) == 0);
	CHECK(write(client, "hello world", 11) == 11);
}

static void body_child_accepts(bool again)
{
	char b[8];
	pid_t pid;
	int n;

	if (!again) {
		n = accept(fd, NULL, NULL);
		CHECK(n >= 0 && reads_all(n));
		return;
	}
	pid = born();
	if (pid == 0) {
		n = accept(fd, NULL, NULL);
		_exit(n < 0 || !reads_all(n) || write(n, "yes", 3) != 3);
	}
	expect_zero(pid);
	CHECK(accept(fd, NULL, NULL) == -1 && errno == EAGAIN);
	tick(); /* what it still held of the child's connection goes with a checkpoint */
	CHECK(recv(client, b, 8, 0) == 3 && recv(client, b, 8, 0) == 0);
	close(fd);
	close(client);
}

const struct row rows_fork[] = {
	{"fork_child_reads", setup_stream, body_child_reads},
	{"fork_parent_reads", setup_stream, body_parent_reads},
	{"fork_grandchild_reads", setup_stream, body_grandchild_reads},
	{"fork_child_accepts", setup_listener, body_child_accepts},
	{0},
};
