/* SPDX-License-Identifier: MIT */
/* Descriptors that come along with bytes, to whoever only looks at those, or wants more of them. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include "rows.h"

static int fd, other;

static void setup_pair(void)
{
	local_pair(SOCK_STREAM | SOCK_NONBLOCK, &fd, &other);
}

static void end(void)
{
	char c[8];

	CHECK(recv(fd, c, sizeof(c), 0) == -1 && errno == EAGAIN);
	close(fd);
	close(other);
}

static void pass(int what)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec iov = {"d", 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control)};

	memcpy(CMSG_DATA(&control.head), &what, sizeof(int));
	CHECK(sendmsg(other, &msg, 0) == 1);
}

static int look_for_passed(int flags)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control;
	char c;
	struct iovec iov = {&c, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control)};
	int n;

	CHECK(CALL(recvmsg, fd, &msg, flags) == 1);
	CHECK(msg.msg_controllen && control.head.cmsg_type == SCM_RIGHTS);
	memcpy(&n, CMSG_DATA(&control.head), sizeof(int));
	return n;
}

static void setup_passed(void)
{
	setup_pair();
	pass(fd);
}

static void body_passed(bool again)
{
	int n;

	outside->count++;
	n = look_for_passed(MSG_PEEK);
	crash_once();
	CHECK(fcntl(n, F_GETFD) >= 0 && close(n) == 0);
	close(fd);
	close(other);
}

/* Who wants more bytes than were read before must not lose what comes along with the next ones. */
static void setup_passed_later(void)
{
	setup_pair();
	CHECK(write(other, "hello world", 11) == 11);
	pass(fd);
}

static void body_passed_later(bool again)
{
	char b[32];

	if (!again) {
		CHECK(CALL(recvfrom, fd, b, 11, 0, NULL, NULL) == 11);
		return;
	}
	CHECK(CALL(recvfrom, fd, b, 32, MSG_PEEK, NULL, NULL) >= 11);
	CHECK(CALL(recvfrom, fd, b, 11, 0, NULL, NULL) == 11);
	close(look_for_passed(0));
	end();
}

const struct row rows_passing[] = {
	{ "passed_and_looked_at", setup_passed, body_passed, .output = true },
	{ "passed_later", setup_passed_later, body_passed_later },
	{ NULL },
};
