/* SPDX-License-Identifier: MIT */
/*
 * suspects CASE: programs that crash of a request; whose it was is to be found out, and nobody else
 * may lose anything. test_ladder.py knows what each must print and how each must end.
 */
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../lib/harness.h"
#include "../lib/tcp_pair.h"

static int pipe_ends[2];

static void wake_up(void)
{
	poll(NULL, 0, 0);
}

static void crash(void)
{
	*(volatile int *)24 = 0;
}

static volatile int *outside; /* [0] crashes so far; memory that a restore leaves alone */
static int own[2];

static void crash_once(void)
{
	if (!outside[0]++)
		crash();
}

/* Each request is there before it looks: it never waits. The second one crashes it. */
static void never_waits(void)
{
	int pairs[3][2], served = 0;
	char c;

	for (int i = 0; i < 3; i++)
		if (tcp_pair(pairs[i]) ||
			write(pairs[i][1], i == 1 ? "c" : "s", 1) != 1)
			_exit(3);
	for (int i = 0; i < 3; i++) {
		if (recv(pairs[i][0], &c, 1, MSG_DONTWAIT) != 1)
			continue;
		if (c == 'c')
			crash();
		served++;
	}
	printf("served %d\n", served);
}

/*
 * The same for a filter, whose requests come by its standard input; all but the last one crash it.
 * That it never waits does not make repetitions of them.
 */
static void filter(void)
{
	char c;

	if (pipe(pipe_ends) || dup2(pipe_ends[0], 0) || write(pipe_ends[1], "ccccs", 5) != 5 ||
		read(0, &c, 1) != 1)
		_exit(3);
	if (c == 'c')
		crash();
	printf("read %c\n", c);
}

/* A child that writes to the pipe later, when it is read again. */
static void write_later(char c)
{
	if (fork() == 0) {
		usleep(300000);
		_exit(write(pipe_ends[1], &c, 1) != 1);
	}
}

/* A wait before has said nothing of the pipe, which is read until something comes. */
static void unannounced(void)
{
	char c;

	if (pipe(pipe_ends) || write(pipe_ends[1], "c", 1) != 1)
		_exit(3);
	write_later('s');
	wake_up();
	wake_up();
	if (read(pipe_ends[0], &c, 1) != 1)
		_exit(5);
	if (c == 'c')
		crash();
	printf("read %c\n", c);
}

/* It has said that there is something, and then there is nothing: no reason to sleep. */
static void announced(void)
{
	struct pollfd p = { .events = POLLIN };
	int nothing = 0;
	char c = 0;

	if (pipe(pipe_ends) || write(pipe_ends[1], "c", 1) != 1)
		_exit(3);
	write_later('s');
	p.fd = pipe_ends[0];
	while (c != 's') {
		if (poll(&p, 1, 10000) != 1)
			_exit(4);
		if (read(p.fd, &c, 1) != 1)
			nothing++;
		else if (c == 'c')
			crash();
	}
	printf("read %c, %d times nothing\n", c, nothing);
}

static void look_at_both(int fd)
{
	char text[2];

	wake_up();
	wake_up();
	if (read(fd, text, 1) != 1 || text[0] != 'a')
		_exit(4);
	crash_once();
	if (read(fd, text + 1, 1) != 1 || text[1] != 'b')
		_exit(5);
}

/* A crash that does not come again costs nothing of a pipe or of a terminal. */
static void only_once(void)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);

	if (pipe(pipe_ends) || write(pipe_ends[1], "ab", 2) != 2)
		_exit(3);
	look_at_both(pipe_ends[0]);
	if (master < 0 || grantpt(master) || unlockpt(master) ||
		write(open(ptsname(master), O_RDWR | O_NOCTTY), "ab", 2) != 2)
		_exit(3);
	outside[0] = 0;
	look_at_both(master);
	puts("nothing was lost");
}

/* Two pipes take turns: each time another one was read last. It ends all the same. */
static void in_turn(void)
{
	int other[2];
	char c = 0;

	if (pipe(pipe_ends) || pipe(other) || write(pipe_ends[1], "c", 1) != 1 ||
		write(other[1], "c", 1) != 1)
		_exit(3);
	fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
	fcntl(other[0], F_SETFL, O_NONBLOCK);
	wake_up();
	wake_up();
	for (int i = 0; i < 2; i++)
		if (read(outside[0]++ % 2 ? pipe_ends[0] : other[0], &c, 1) == 1)
			crash();
	puts("both are read");
}

/* Datagrams that crash it, and one that does not, are all there when it wakes up. */
static void datagrams(void)
{
	int pair[2];
	char c;

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair))
		_exit(3);
	for (const char *p = "ccccs"; *p; p++)
		if (write(pair[1], p, 1) != 1)
			_exit(3);
	wake_up();
	wake_up();
	if (recv(pair[0], &c, 1, MSG_DONTWAIT) == 1 && c == 'c')
		crash();
	printf("read %c\n", c);
}

/* One end of a local pair; each byte of `text` is in it, as a message. */
static int datagrams_of(const char *text)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair))
		_exit(3);
	for (; *text; text++)
		if (write(pair[1], text, 1) != 1)
			_exit(3);
	wake_up();
	wake_up();
	return pair[0];
}

static char answers[8];

static void answer(char c)
{
	if (c == 'c')
		crash();
	strncat(answers, &c, 1);
}

/* The last one of those that were read is to blame, and the others are read again. */
static void one_of_many(void)
{
	int fd = datagrams_of("acb");
	char c;

	while (recv(fd, &c, 1, MSG_DONTWAIT) == 1)
		answer(c);
	printf("answered %s\n", answers);
}

/* One call has read them all: any of them may be to blame. */
static void at_once(void)
{
	int fd = datagrams_of("accb"), n;
	struct mmsghdr messages[4];
	struct iovec iov[4];
	char text[4];

	do {
		memset(messages, 0, sizeof(messages));
		for (int i = 0; i < 4; i++) {
			iov[i] = (struct iovec){ &text[i], 1 };
			messages[i].msg_hdr.msg_iov = &iov[i];
			messages[i].msg_hdr.msg_iovlen = 1;
		}
		n = recvmmsg(fd, messages, 4, MSG_DONTWAIT, NULL);
		for (int i = 0; i < n; i++)
			answer(text[i]);
	} while (n > 0);
	printf("answered %s\n", answers);
}

/* It is not the one that was read last: then all are dropped. */
static void answered_later(void)
{
	int fd = datagrams_of("acb"), n = 0;
	char text[4];

	while (recv(fd, &text[n], 1, MSG_DONTWAIT) == 1)
		n++;
	for (int i = 0; i < n; i++)
		answer(text[i]);
	printf("answered %s.\n", answers);
}

/* Nothing is read before the crash: the program looks at the request where it lies. */
static void looked_at(void)
{
	int pairs[2][2], served = 0;
	char c;

	for (int i = 0; i < 2; i++)
		if (tcp_pair(pairs[i]) ||
			write(pairs[i][1], i ? "s" : "c", 1) != 1)
			_exit(3);
	wake_up();
	wake_up();
	for (int i = 0; i < 2; i++) {
		if (recv(pairs[i][0], &c, 1, MSG_DONTWAIT | MSG_PEEK) != 1)
			continue;
		if (c == 'c')
			crash();
		served += recv(pairs[i][0], &c, 1, MSG_DONTWAIT) == 1;
	}
	printf("served %d\n", served);
}

static void looked_at_datagrams(void)
{
	int fd = datagrams_of("accb");
	char c;

	while (recv(fd, &c, 1, MSG_DONTWAIT | MSG_PEEK) == 1) {
		answer(c);
		if (recv(fd, &c, 1, MSG_DONTWAIT) != 1)
			_exit(4);
	}
	printf("answered %s\n", answers);
}

/* Whose connection has been reset is accepted again under its name. */
static void accepted(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET }, from, is;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int clients[2], fd, served = 0;
	socklen_t len = sizeof(at), is_len = sizeof(is);
	char c;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&at, len) || listen(listener, 2) ||
		getsockname(listener, (struct sockaddr *)&at, &len))
		_exit(3);
	for (int i = 0; i < 2; i++) {
		clients[i] = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(clients[i], (struct sockaddr *)&at, len) ||
			write(clients[i], i ? "s" : "c", 1) != 1)
			_exit(3);
	}
	wake_up();
	wake_up();
	for (int i = 0; i < 2; i++) {
		memset(&from, 0, sizeof(from));
		len = sizeof(from);
		fd = accept(listener, (struct sockaddr *)&from, &len);
		if (fd < 0 || len != sizeof(from) ||
			getsockname(clients[i], (struct sockaddr *)&is, &is_len) ||
			from.sin_port != is.sin_port)
			_exit(5);
		if (recv(fd, &c, 1, 0) != 1)
			continue;
		if (c == 'c')
			crash();
		served++;
	}
	printf("served %d\n", served);
}

/* The kernel answers a question once: who has crashed over it finds the answer again. */
static void asks_kernel(void)
{
	struct {
		struct nlmsghdr head;
		struct rtgenmsg what;
	} question = { { .nlmsg_len = sizeof(question), .nlmsg_type = RTM_GETLINK,
			       .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		{ .rtgen_family = AF_UNSPEC } };
	union {
		struct nlmsghdr head;
		char bytes[16384];
	} answer = { .head = { .nlmsg_type = 0 } };
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), links = 0;

	wake_up();
	wake_up();
	if (fd < 0 || send(fd, &question, sizeof(question), 0) != sizeof(question))
		_exit(3);
	while (answer.head.nlmsg_type != NLMSG_DONE) {
		if (recv(fd, NULL, 0, MSG_PEEK | MSG_TRUNC) < (ssize_t)sizeof(answer.head))
			_exit(5);
		crash_once();
		if (recv(fd, &answer, sizeof(answer), 0) < (ssize_t)sizeof(answer.head))
			_exit(6);
		if (!outside[1]++)
			crash();
		links += answer.head.nlmsg_type == RTM_NEWLINK;
	}
	if (!links)
		_exit(7);
	puts("the whole answer");
}

/* What a byte of its own has woken it of comes again, and the pair goes on. */
static void check_own_pair(void)
{
	char c;

	if (write(own[1], "z", 1) != 1 || recv(own[0], &c, 1, MSG_DONTWAIT) != 1 || c != 'z')
		_exit(6);
}

static void own_pair(void)
{
	char c;

	for (int look = 0; look < 2; look++) {
		outside[0] = 0;
		if (socketpair(AF_UNIX, look ? SOCK_SEQPACKET : SOCK_STREAM, 0, own) ||
			write(own[1], "w", 1) != 1)
			_exit(3);
		wake_up();
		wake_up();
		if (look && recv(own[0], &c, 1, MSG_DONTWAIT | MSG_PEEK) == 1)
			crash_once();
		if (recv(own[0], &c, 1, MSG_DONTWAIT) != 1 || c != 'w')
			_exit(5);
		crash_once();
		check_own_pair();
	}
	puts("both go on");
}

/* The same for a pair whose other end a child has; the child has both of one of its parent's. */
static void own_pair_of_two(void)
{
	int up[2], status;
	pid_t child;
	char c;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, own) || socketpair(AF_UNIX, SOCK_STREAM, 0, up))
		_exit(3);
	child = fork();
	if (child == 0) {
		close(up[0]);
		if (write(own[1], "w", 1) != 1)
			_exit(3);
		wake_up();
		wake_up();
		if (recv(own[0], &c, 1, MSG_DONTWAIT) != 1 || c != 'w')
			_exit(5);
		crash_once();
		check_own_pair();
		_exit(write(up[1], "uv", 2) != 2);
	}
	close(up[1]);
	if (waitpid(child, &status, 0) != child || status)
		_exit(7);
	outside[0] = 0;
	wake_up();
	wake_up();
	if (recv(up[0], &c, 1, MSG_DONTWAIT) != 1 || c != 'u')
		_exit(8);
	crash_once();
	if (recv(up[0], &c, 1, MSG_DONTWAIT) != 1 || c != 'v')
		_exit(9);
	puts("parent and child");
}

/* It was somebody else: all others are disconnected when it crashes again. */
static void own_pair_last(void)
{
	int client[2], n;
	char c, w;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, own) || write(own[1], "w", 1) != 1 ||
		tcp_pair(client) || write(client[1], "c", 1) != 1)
		_exit(3);
	wake_up();
	wake_up();
	n = (int)recv(client[0], &c, 1, MSG_DONTWAIT);
	if (recv(own[0], &w, 1, MSG_DONTWAIT) != 1 || w != 'w')
		_exit(5);
	if (n == 1)
		crash();
	check_own_pair();
	puts("without the client");
}

/* What was read of a descriptor that was made since is nobody's any more. */
static void made_since(void)
{
	uint64_t count;
	int fd;

	wake_up();
	wake_up();
	if (!outside[0]) {
		fd = eventfd(1, 0);
		if (fd < 0 || read(fd, &count, sizeof(count)) != sizeof(count))
			_exit(5);
		crash_once();
	}
	/* A child is born in it, which is told of what is still to be given. */
	if (system("true"))
		_exit(6);
	puts("forgotten");
}

/* It crashes again without a new read: what came by pipes goes, too, and that is said. */
static void all_of_them(void)
{
	int client[2];
	char c;

	if (pipe(pipe_ends) || write(pipe_ends[1], "p", 1) != 1 || tcp_pair(client) ||
		write(client[1], "c", 1) != 1)
		_exit(3);
	fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
	wake_up();
	wake_up();
	if (read(pipe_ends[0], &c, 1) == 1) {
		(void)!recv(client[0], &c, 1, MSG_DONTWAIT);
		crash();
	}
	puts("nothing is left");
}

/* Input is still to be given again when somebody else gets the descriptor: that is said. */
static int with_pending(void)
{
	int bad[2];
	char c;

	if (pipe(pipe_ends) || write(pipe_ends[1], "s", 1) != 1 || tcp_pair(bad) ||
		write(bad[1], "c", 1) != 1)
		_exit(3);
	wake_up();
	wake_up();
	if (outside[0])
		return pipe_ends[0];
	if (read(pipe_ends[0], &c, 1) != 1 || recv(bad[0], &c, 1, MSG_DONTWAIT) != 1)
		_exit(5);
	crash_once();
	_exit(6);
}

static void executed(void)
{
	with_pending();
	execl("/bin/echo", "echo", "executed", NULL);
	_exit(4);
}

static void passed_on(void)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { .head = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec iov = { "d", 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control) };
	int fd = with_pending();

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(int));
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, own) || sendmsg(own[0], &msg, 0) != 1)
		_exit(4);
	puts("passed on");
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "never", never_waits },
		{ "filter", filter },
		{ "unannounced", unannounced },
		{ "announced", announced },
		{ "only_once", only_once },
		{ "in_turn", in_turn },
		{ "datagrams", datagrams },
		{ "one_of_many", one_of_many },
		{ "at_once", at_once },
		{ "later", answered_later },
		{ "looked_at", looked_at },
		{ "looked_at_datagrams", looked_at_datagrams },
		{ "accepted", accepted },
		{ "all_of_them", all_of_them },
		{ "made_since", made_since },
		{ "executed", executed },
		{ "passed_on", passed_on },
		{ "asks_kernel", asks_kernel },
		{ "own_pair", own_pair },
		{ "own_pair_of_two", own_pair_of_two },
		{ "own_pair_last", own_pair_last },
		{ NULL, NULL },
	};

	outside = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (outside == MAP_FAILED)
		return 3;
	setvbuf(stdout, NULL, _IOLBF, 0);
	return test_run_case(cases, argv[1]);
}
