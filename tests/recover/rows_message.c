/* SPDX-License-Identifier: MIT */
/*
 * Input in its rarer shapes: control data, many messages or buffers at once, looking ahead, waiting
 * for all, urgent data, records that come whole, and bytes that never pass through the program.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "rows.h"

static int fd, other;

static void setup_pair(int type)
{
	local_pair(type, &fd, &other);
}

static void setup_stream(void)
{
	setup_pair(SOCK_STREAM | SOCK_NONBLOCK);
	CHECK(write(other, "hello world", 11) == 11);
}

static void setup_blocking(void)
{
	setup_pair(SOCK_STREAM);
	CHECK(write(other, "hello world", 11) == 11);
}

/* A TCP connection: fd is the accepting side's. */
static void setup_tcp(void)
{
	struct sockaddr_in at = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
	socklen_t len = sizeof(at);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	other = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(l, (struct sockaddr *)&at, len) == 0 && listen(l, 1) == 0 &&
		getsockname(l, (struct sockaddr *)&at, &len) == 0 &&
		connect(other, (struct sockaddr *)&at, len) == 0);
	fd = accept(l, NULL, NULL);
	CHECK(fd >= 0 && close(l) == 0 && write(other, "hello world", 11) == 11);
}

static void end(bool again)
{
	char c[8];

	if (!again)
		return;
	CHECK(recv(fd, c, sizeof(c), MSG_DONTWAIT) == -1 && errno == EAGAIN);
	close(fd);
	close(other);
}

/* Who waits until so much is there must see what came after the crash. */
static void body_peek_more(bool again)
{
	char b[32];

	if (!again) {
		CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 11);
		return;
	}
	CHECK(write(other, " again", 6) == 6);
	CHECK(CALL(recvfrom, fd, b, 17, MSG_PEEK, NULL, NULL) == 17 &&
		!memcmp(b, "hello world again", 17));
	CHECK(CALL(recvfrom, fd, b, 5, 0, NULL, NULL) == 5 && !memcmp(b, "hello", 5));
	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 12 && !memcmp(b, " world again", 12));
	end(again);
}

/* Half of it came before the crash, the rest comes later. */
static void body_wait_all(bool again)
{
	char b[32];
	pid_t pid;

	if (!again) {
		CHECK(CALL(recvfrom, fd, b, 11, MSG_WAITALL, NULL, NULL) == 11);
		return;
	}
	pid = fork();
	if (pid == 0) {
		usleep(50000);
		_exit(write(other, " again", 6) != 6);
	}
	CHECK(CALL(recvfrom, fd, b, 17, MSG_WAITALL, NULL, NULL) == 17 &&
		!memcmp(b, "hello world again", 17));
	CHECK(waitpid(pid, NULL, 0) == pid);
	end(again);
}

/* The urgent byte is no part of the stream, nor the stream's first byte the urgent one. */
static void setup_urgent(void)
{
	setup_tcp();
	CHECK(send(other, "!", 1, MSG_OOB) == 1);
}

static void body_urgent(bool again)
{
	struct pollfd p = {.fd = fd, .events = POLLPRI};
	char b[32];

	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 11 && !memcmp(b, "hello world", 11));
	if (!again)
		return;
	CHECK(poll(&p, 1, 60000) == 1);
	CHECK(CALL(recvfrom, fd, b, 1, MSG_OOB, NULL, NULL) == 1 && b[0] == '!');
	end(again);
}

/* Before what is to be given again has been read. */
static void body_urgent_first(bool again)
{
	struct pollfd p = {.fd = fd, .events = POLLPRI};
	char b[32];

	if (again) {
		CHECK(poll(&p, 1, 60000) == 1);
		CHECK(CALL(recvfrom, fd, b, 1, MSG_OOB, NULL, NULL) == 1 && b[0] == '!');
	}
	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 11 && !memcmp(b, "hello world", 11));
	end(again);
}

/* Bytes thrown away unseen. */
static void body_discard(bool again)
{
	char b[8];

	if (!again) {
		CHECK(CALL(recvfrom, fd, b, 6, 0, NULL, NULL) == 6);
		return;
	}
	CHECK(CALL(recvfrom, fd, NULL, 4, MSG_TRUNC, NULL, NULL) == 4);
	CHECK(CALL(recvfrom, fd, b, 8, 0, NULL, NULL) == 2 && !memcmp(b, "o ", 2));
	CHECK(CALL(recvfrom, fd, b, 8, 0, NULL, NULL) == 5 && !memcmp(b, "world", 5));
	end(again);
}

/* More buffers than fit into any small table, a byte in each. */
static void many(struct iovec *iov, char *b, size_t count)
{
	for (size_t i = 0; i < count; i++)
		iov[i] = (struct iovec){b + i, 1};
}

static void body_readv_many(bool again)
{
	char b[400] = "";
	struct iovec iov[400];

	many(iov, b, 400);
	if (!again) {
		CHECK(CALL(readv, fd, iov, 400) == 11);
		return;
	}
	CHECK(write(other, " again", 6) == 6);
	CHECK(CALL(readv, fd, iov, 400) == 11 && !memcmp(b, "hello world", 11));
	CHECK(CALL(readv, fd, iov, 400) == 6 && !memcmp(b, " again", 6));
	end(again);
}

static void body_recvmsg_many(bool again)
{
	char b[400] = "";
	struct iovec iov[400];
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 400};

	many(iov, b, 400);
	CHECK(CALL(recvmsg, fd, &msg, 0) == 11 && !memcmp(b, "hello world", 11));
	end(again);
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct sockaddr_in sender;

static void setup_udp(void)
{
	struct sockaddr_in at = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
	socklen_t len = sizeof(at);
	int on = 1;

	fd = socket(AF_INET, SOCK_DGRAM, 0);
	other = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(bind(fd, (struct sockaddr *)&at, len) == 0 && bind(other, (struct sockaddr *)&sender,
		      (sender = at, len)) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0 &&
		getsockname(other, (struct sockaddr *)&sender, &len) == 0);
	CHECK(setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) == 0 &&
		setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on)) == 0);
	CHECK(connect(other, (struct sockaddr *)&at, len) == 0);
	CHECK(send(other, "one", 3, 0) == 3 && send(other, "three", 5, 0) == 5 &&
		send(other, "", 0, 0) == 0);
}

static const void *control_of(struct msghdr *msg, int level, int type)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
		if (c->cmsg_level == level && c->cmsg_type == type)
			return CMSG_DATA(c);
	return NULL;
}

/* The time at which it came does not change because it is given again. */
static void check_control(struct msghdr *msg, bool again)
{
	const struct in_pktinfo *to = control_of(msg, IPPROTO_IP, IP_PKTINFO);
	const void *when = control_of(msg, SOL_SOCKET, SCM_TIMESTAMP);
	struct timeval t;

	CHECK(to && to->ipi_addr.s_addr == htonl(INADDR_LOOPBACK) && when);
	memcpy(&t, when, sizeof(t));
	CHECK(!again ||
		(t.tv_sec == outside->value[0] && (long)t.tv_usec == outside->value[1]));
	outside->value[0] = t.tv_sec;
	outside->value[1] = t.tv_usec;
}

static void body_control(bool again)
{
	char b[32], control[256];
	struct sockaddr_in from = {0};
	struct iovec iov = {b, 32};
	struct msghdr msg = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov,
		.msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};

	CHECK(CALL(recvmsg, fd, &msg, 0) == 3 && !memcmp(b, "one", 3) && !msg.msg_flags);
	CHECK(from.sin_port == sender.sin_port);
	check_control(&msg, again);
	CHECK(recv(fd, b, 32, 0) == 5 && recv(fd, b, 32, 0) == 0);
	end(again);
}

static void body_recvmmsg(bool again)
{
	char b[4][32], control[256];
	struct sockaddr_in from = {0};
	struct mmsghdr m[4];
	struct iovec iov[4];

	memset(m, 0, sizeof(m));
	for (int i = 0; i < 4; i++) {
		iov[i] = (struct iovec){b[i], 32};
		m[i].msg_hdr = (struct msghdr){.msg_iov = &iov[i], .msg_iovlen = 1};
	}
	m[0].msg_hdr.msg_control = control;
	m[0].msg_hdr.msg_controllen = sizeof(control);
	m[1].msg_hdr.msg_name = &from;
	m[1].msg_hdr.msg_namelen = sizeof(from);
	CHECK(CALL(recvmmsg, fd, m, 4, MSG_DONTWAIT, NULL) == 3);
	CHECK(m[0].msg_len == 3 && !memcmp(b[0], "one", 3));
	CHECK(m[1].msg_len == 5 && !memcmp(b[1], "three", 5) && m[2].msg_len == 0);
	CHECK(from.sin_port == sender.sin_port);
	check_control(&m[0].msg_hdr, again);
	end(again);
}

/* What was cut off is told, and so is the length of the whole. */
static void body_truncated(bool again)
{
	char b[32];
	struct iovec iov = {b, 2};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	CHECK(CALL(recvfrom, fd, b, 2, MSG_TRUNC | MSG_PEEK, NULL, NULL) == 3);
	CHECK(CALL(recvfrom, fd, b, 2, MSG_TRUNC, NULL, NULL) == 3 && !memcmp(b, "on", 2));
	CHECK(CALL(recvmsg, fd, &msg, 0) == 2 && (msg.msg_flags & MSG_TRUNC));
	CHECK(recv(fd, b, 32, 0) == 0);
	end(again);
}

/* Who sent it is told with each part of the bytes, and not with the bytes of others. */
static void setup_credentials(void)
{
	int on = 1;

	setup_pair(SOCK_STREAM | SOCK_NONBLOCK);
	CHECK(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0);
	CHECK(write(other, "hello", 5) == 5);
}

static void body_credentials(bool again)
{
	char b[32], control[64];
	struct iovec iov = {b, 3};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control)};
	const struct ucred *who;

	CHECK(CALL(recvmsg, fd, &msg, 0) == 3 && !memcmp(b, "hel", 3));
	who = control_of(&msg, SOL_SOCKET, SCM_CREDENTIALS);
	CHECK(who && who->pid == getpid());
	msg.msg_controllen = sizeof(control);
	CHECK(CALL(recvmsg, fd, &msg, 0) == 2 && !memcmp(b, "lo", 2));
	CHECK(control_of(&msg, SOL_SOCKET, SCM_CREDENTIALS));
	end(again);
}

/* A descriptor comes once: a checkpoint follows, and nothing is left open or lost. */
static void setup_passing(void)
{
	char control[CMSG_SPACE(sizeof(int))] = "";
	struct iovec iov = {"d", 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int passed = open(letters(), O_RDONLY);

	setup_pair(SOCK_STREAM | SOCK_NONBLOCK);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &passed, sizeof(int));
	CHECK(passed >= 0 && sendmsg(other, &msg, 0) == 1 && close(passed) == 0);
}

static void body_passing(bool again)
{
	char b[8], control[64];
	struct iovec iov = {b, 8};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control)};
	int passed, next;

	outside->count++;
	CHECK(CALL(recvmsg, fd, &msg, MSG_CMSG_CLOEXEC) == 1 && b[0] == 'd');
	memcpy(&passed, control_of(&msg, SOL_SOCKET, SCM_RIGHTS), sizeof(int));
	outside->value[0] = passed;
	crash_once();
	CHECK(pread(passed, b, 3, 3) == 3 && !memcmp(b, "def", 3));
	CHECK((fcntl(passed, F_GETFD) & FD_CLOEXEC) && passed == outside->value[0]);
	CHECK(close(passed) == 0 && (next = dup(0)) == passed && close(next) == 0);
	end(true);
}

/*
 * The last one was announced, and is dropped, for it is the suspect: a read that waits must not
 * hang. Those before it are there again.
 */
static void setup_announced(void)
{
	struct pollfd p = { .events = POLLIN };

	setup_udp();
	p.fd = fd;
	CHECK(poll(&p, 1, 10000) == 1);
}

static void body_datagram_dropped(bool again)
{
	char b[32];

	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 3);
	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 5);
	if (!again) {
		CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 0);
		*(volatile int *)8 = 0;
	}
	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == -1 && errno == EAGAIN);
	CHECK(send(other, "four", 4, 0) == 4);
	CHECK(CALL(recvfrom, fd, b, 32, 0, NULL, NULL) == 4);
	end(again);
}

/* ---- records --------------------------------------------------------------------------------- */

static void setup_signalfd(void)
{
	two_signals(&fd, &other);
}

/* Both at once, and then one by one. */
static void body_signalfd(bool again)
{
	struct signalfd_siginfo info[2];

	if (!again) {
		CHECK(CALL(read, fd, info, sizeof(info)) == sizeof(info));
		return;
	}
	CHECK(CALL(read, fd, info, 100) == -1 && errno == EINVAL);
	CHECK(CALL(read, fd, info, sizeof(info[0]) + 1) == sizeof(info[0]) &&
		info[0].ssi_signo == SIGUSR1);
	CHECK(CALL(read, fd, info, sizeof(info)) == sizeof(info[0]) &&
		info[0].ssi_signo == SIGUSR2);
	CHECK(CALL(read, fd, info, sizeof(info)) == -1 && errno == EAGAIN);
	close(fd);
	close(other);
}

static void setup_inotify(void)
{
	two_file_events(&fd, &other);
}

static void body_inotify(bool again)
{
	struct inotify_event event[8];

	if (!again) {
		CHECK(CALL(read, fd, event, sizeof(event)) == 2 * sizeof(event[0]));
		return;
	}
	CHECK(CALL(read, fd, event, 8) == -1 && errno == EINVAL);
	CHECK(CALL(read, fd, event, sizeof(event[0]) + 7) == sizeof(event[0]) &&
		event[0].mask == IN_OPEN);
	CHECK(CALL(read, fd, event, sizeof(event)) == sizeof(event[0]) &&
		event[0].mask == IN_CLOSE_NOWRITE);
	CHECK(CALL(read, fd, event, sizeof(event)) == -1 && errno == EAGAIN);
	close(fd);
	close(other);
}

/* ---- bytes that the program does not see ----------------------------------------------------- */

static int through[2];

static void setup_splice(void)
{
	setup_stream();
	CHECK(pipe2(through, O_NONBLOCK) == 0);
}

static void setup_pipe(void)
{
	int pair[2];

	setup_pair(SOCK_STREAM | SOCK_NONBLOCK);
	CHECK(pipe2(pair, O_NONBLOCK) == 0 && write(pair[1], "hello world", 11) == 11);
	through[0] = fd;
	through[1] = other;
	fd = pair[0];
	other = pair[1];
}

/* What was read before the crash goes before what comes after it. */
static void expect_in_order(void)
{
	char b[32];

	CHECK(read(through[0], b, 32) == 11 && !memcmp(b, "hello world", 11));
	close(through[0]);
	close(through[1]);
	CHECK(read(fd, b, 32) == 5 && !memcmp(b, "again", 5));
	CHECK(read(fd, b, 32) == -1 && errno == EAGAIN);
	close(fd);
	close(other);
}

static bool take(bool again)
{
	char b[32];

	if (again)
		CHECK(write(other, "again", 5) == 5);
	else
		CHECK(read(fd, b, 32) == 11);
	return !again;
}

static void body_splice(bool again)
{
	if (take(again))
		return;
	CHECK(CALL(splice, fd, NULL, through[1], NULL, 5, SPLICE_F_NONBLOCK) == 5);
	CHECK(CALL(splice, fd, NULL, through[1], NULL, 100, SPLICE_F_NONBLOCK) == 6);
	expect_in_order();
}

static void body_sendfile(bool again)
{
	if (take(again))
		return;
	CHECK(CALL(sendfile, through[1], fd, NULL, 100) == 11);
	expect_in_order();
}

static void setup_tee(void)
{
	setup_pipe();
	close(through[0]);
	close(through[1]);
	CHECK(pipe2(through, O_NONBLOCK) == 0);
}

static void body_tee(bool again)
{
	char b[32];

	if (take(again))
		return;
	CHECK(CALL(tee, fd, through[1], 100, SPLICE_F_NONBLOCK) == 11);
	CHECK(read(fd, b, 32) == 11 && !memcmp(b, "hello world", 11));
	expect_in_order();
}

static void body_vmsplice(bool again)
{
	char b[32];
	struct iovec iov = {b, 32};

	if (take(again))
		return;
	CHECK(CALL(vmsplice, fd, &iov, 1, SPLICE_F_NONBLOCK) == 11 &&
		!memcmp(b, "hello world", 11));
	CHECK(write(through[1], b, 11) == 11);
	expect_in_order();
}

/* The splice itself took it: it was an output, and has happened once. */
static void body_splice_once(bool again)
{
	char b[32];

	outside->count++;
	CHECK(CALL(splice, fd, NULL, through[1], NULL, 100, SPLICE_F_NONBLOCK) == 11);
	crash_once();
	CHECK(read(through[0], b, 32) == 11 && read(through[0], b, 32) == -1);
	close(through[0]);
	close(through[1]);
	end(true);
}

const struct row rows_message[] = {
	{"peek_more", setup_stream, body_peek_more},
	{"wait_all", setup_blocking, body_wait_all},
	{"urgent", setup_urgent, body_urgent},
	{"urgent_first", setup_urgent, body_urgent_first},
	{"discard", setup_tcp, body_discard},
	{"readv_many", setup_stream, body_readv_many},
	{"recvmsg_many", setup_stream, body_recvmsg_many},
	{"control", setup_udp, body_control},
	{"recvmmsg", setup_udp, body_recvmmsg},
	{"truncated", setup_udp, body_truncated},
	{"credentials", setup_credentials, body_credentials},
	{"passing", setup_passing, body_passing, .output = true},
	{"datagram_dropped", setup_announced, body_datagram_dropped},
	{"signalfd", setup_signalfd, body_signalfd},
	{"inotify", setup_inotify, body_inotify},
	{"splice", setup_splice, body_splice},
	{"sendfile_pipe", setup_pipe, body_sendfile},
	{"tee", setup_tee, body_tee},
	{"vmsplice", setup_pipe, body_vmsplice},
	{"splice_once", setup_splice, body_splice_once, .output = true},
	{0},
};
