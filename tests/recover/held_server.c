/* SPDX-License-Identifier: MIT */
/*
 * A server that does on command what is hard to do with bytes that are held: it crashes, forks,
 * exits, waits, computes, talks to itself. One epoll loop, one thread, lines on TCP connections.
 * The port is its first line of output. `inc` answers with a counter that only memory keeps, so two
 * equal answers, to whomever, show that a restore has undone what somebody was told.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 256

static _Atomic unsigned long counter;
static int last_error, pipe_signals, listener, file;
static unsigned exclusive;
static struct connection {
	char line[256];
	size_t used;
} connections[CONNECTIONS];

static void say(int fd, const char *text)
{
	ssize_t n = write(fd, text, strlen(text));

	if (n < 0)
		last_error = errno;
}

static void sleep_ms(long ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Numbered lines, as fast as the socket takes them. */
static void send_big(int fd, unsigned long lines)
{
	char block[8 * 1024];
	size_t used = 0, done;

	for (unsigned long i = 0; i < lines; i++) {
		used += (size_t)sprintf(block + used, "%07lu\n", i);
		if (used < sizeof(block) - 16 && i + 1 < lines)
			continue;
		for (done = 0; done < used;) {
			ssize_t n = send(fd, block + done, used - done, MSG_NOSIGNAL);

			if (n < 0 && errno == EAGAIN)
				poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
			else if (n < 0)
				return;
			else
				done += (size_t)n;
		}
		used = 0;
	}
}

static void *says_nines(void *fd)
{
	say(*(int *)fd, "9999999999");
	return NULL;
}

/* By turns through two numbers of one connection, until it takes no more. */
static void do_twins(int fd)
{
	int numbers[2] = {fd, dup(fd)};
	char block[8 * 1024 + 1];
	unsigned long line = 0;
	ssize_t n = 1;

	for (unsigned turn = 0; n > 0; turn ^= 1) {
		for (size_t used = 0; used < sizeof(block) - 1; used += 8)
			sprintf(block + used, "%07lu\n", line++);
		for (size_t done = 0; n > 0 && done < sizeof(block) - 1; done += (size_t)n)
			n = send(numbers[turn], block + done, sizeof(block) - 1 - done,
				MSG_NOSIGNAL);
	}
	/* There is no more room by the one number than by the other. */
	for (int i = 0; i < 2; i++)
		n = send(numbers[i], "\n", 1, MSG_NOSIGNAL);
	close(numbers[1]);
}

/* Ten bytes each, in all the ways in which bytes can go: some are held, some are not. */
static void do_order(int fd)
{
	int on = 1, off = 0, twin = dup(fd), through[2];
	struct iovec iov[100], two[2] = {{"33333", 5}, {"33333", 5}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 100};
	pthread_t other;
	off_t at = 0;

	for (int i = 0; i < 100; i++)
		iov[i] = (struct iovec){"777777777" + i % 8, i < 10};
	if (pipe(through) || write(through[1], "8888888888", 10) != 10)
		last_error = errno;
	say(fd, "1111111111");
	send(fd, "2222222222", 10, MSG_MORE);
	setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
	writev(fd, two, 2);
	sendfile(fd, file, &at, 10);
	say(twin, "5555555555");
	setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof(off));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	send(fd, "6666666666", 10, MSG_DONTWAIT);
	sendmsg(fd, &msg, 0);
	splice(through[0], NULL, fd, NULL, 10, 0);
	if (pthread_create(&other, NULL, says_nines, &twin) == 0)
		pthread_join(other, NULL);
	say(fd, "end\n");
	close(twin);
	close(through[0]);
	close(through[1]);
}

static void do_fork(int fd)
{
	pid_t pid;

	say(fd, "parent\n");
	pid = fork();
	if (pid == 0) {
		say(fd, "child\n");
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	say(fd, "done\n");
}

/* Two ends in one process: what is written to one must be there when the other is read at once. */
static const char *talk(int family)
{
	struct sockaddr_in v4 = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct sockaddr *a = family == AF_INET ? (void *)&v4 : (void *)&un;
	socklen_t len = family == AF_INET ? sizeof(v4) : 2 + 16;
	int l = socket(family, SOCK_STREAM, 0), one = socket(family, SOCK_STREAM, 0), two;
	char b[8];
	const char *bad = NULL;

	sprintf(un.sun_path + 1, "held%010d", gettid());
	if (bind(l, a, len) || listen(l, 1) || getsockname(l, a, &len) || connect(one, a, len))
		return "no connection";
	two = accept4(l, NULL, NULL, SOCK_NONBLOCK);
	if (two < 0)
		return "no accept";
	for (int i = 0; i < 3 && !bad; i++) {
		if (write(one, "1234", 4) != 4)
			bad = "short write";
		else if (recv(two, b, 8, MSG_PEEK) != 4 || read(two, b, 8) != 4)
			bad = "not there";
		else if (read(two, b, 8) != -1 || errno != EAGAIN)
			bad = "there twice";
	}
	close(one);
	close(two);
	close(l);
	return bad;
}

static void do_self(int fd)
{
	const char *tcp = talk(AF_INET), *local = talk(AF_UNIX);
	char text[80];

	snprintf(text, sizeof(text), "%s %s\n", tcp ? tcp : "ok", local ? local : "ok");
	say(fd, text);
}

/* About so many milliseconds of a processor, by counting: to ask a clock may be a call. */
static void compute(unsigned long ms, bool calls)
{
	unsigned long turns = ms * (calls ? 2000 : 500000);

	for (volatile unsigned long i = 0; i < turns; i++)
		if (calls)
			syscall(SYS_getppid);
}

/* So many milliseconds of a processor. */
static void grind(long ms)
{
	struct timespec now;
	long begin = 0, ns;

	do {
		compute(1, false);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
		ns = now.tv_sec * 1000000000 + now.tv_nsec;
		begin = begin ? begin : ns;
	} while (ns - begin < ms * 1000000);
}

/* A child that sets the status flags of descriptors that it is sent: of each to `flags`. */
static int helper = -1;

struct passed {
	struct cmsghdr head;
	int fd;
};

static void help(int from)
{
	int flags;
	struct passed passed;
	struct iovec iov = {&flags, sizeof(flags)};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &passed, .msg_controllen = sizeof(passed)};

	while (recvmsg(from, &msg, 0) == sizeof(flags)) {
		fcntl(passed.fd, F_SETFL, flags);
		close(passed.fd);
		if (write(from, "", 1) != 1)
			break;
		msg.msg_controllen = sizeof(passed);
	}
	_exit(0);
}

/* It keeps none of our connections: an epoll set would tell of them after they are closed here. */
static void do_helper(int fd)
{
	int ends[2];
	char b;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		last_error = errno;
	if (fork() == 0) {
		for (int other = 3; other < CONNECTIONS; other++)
			if (other != ends[1])
				close(other);
		if (write(ends[1], "", 1) == 1)
			help(ends[1]);
		_exit(0);
	}
	close(ends[1]);
	helper = ends[0];
	if (read(helper, &b, 1) != 1)
		last_error = errno;
	say(fd, "ok\n");
}

static void pass(int fd, int flags)
{
	struct passed passed = {{CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS}, fd};
	struct iovec iov = {&flags, sizeof(flags)};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = &passed, .msg_controllen = sizeof(passed)};
	char b;

	if (sendmsg(helper, &msg, 0) != sizeof(flags) || read(helper, &b, 1) != 1)
		last_error = errno;
}

/* By whom: 0 this number, 1 a copy, 2 a request, 3 a child, 4 who is sent the descriptor. */
static void set_flags(int fd, unsigned long whose, int flags)
{
	int copy = whose == 1 ? dup(fd) : fd, on = flags != 0;
	pid_t pid;

	if (whose == 2) {
		ioctl(fd, FIONBIO, &on);
	} else if (whose == 3) {
		pid = fork();
		if (pid == 0) {
			fcntl(fd, F_SETFL, flags);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	} else if (whose == 4) {
		pass(fd, flags);
	} else {
		fcntl(copy, F_SETFL, flags);
	}
	if (copy != fd)
		close(copy);
}

/* The answer is written, the next line awaited with a read that waits. */
static void do_block(int fd, unsigned long whose)
{
	char b[16];

	say(fd, "now\n");
	if (read(fd, b, sizeof(b)) >= 0 || errno != EAGAIN)
		last_error = EBUSY;
	set_flags(fd, whose, 0);
	for (int i = 0; i < 3; i++) {
		say(fd, "next\n");
		if (read(fd, b, sizeof(b)) <= 0)
			last_error = errno;
	}
	fcntl(fd, F_SETFL, O_NONBLOCK);
	say(fd, "end\n");
}

/* The end of the process, or of the connection. */
static void obey_end(int fd, const char *line)
{
	char text[64];

	if (!strncmp(line, "exit", 4)) {
		say(fd, "bye\n");
		_exit(0);
	} else if (!strncmp(line, "abort", 5)) {
		say(fd, "bye\n");
		abort();
	} else if (!strncmp(line, "refused", 7)) { /* more signals than can be raised again */
		say(fd, "bye\n");
		for (int i = 0; i < 100; i++)
			raise(SIGURG);
		*(volatile int *)NULL = 1;
	} else if (!strncmp(line, "close", 5)) {
		sprintf(text, "%lu\n", ++counter);
		say(fd, text);
		close(fd);
		if (line[5])
			*(volatile int *)NULL = 1;
		/* Whoever gets the number next must not get those bytes. */
		if (fcntl(listener, F_DUPFD, fd) != fd)
			last_error = EBUSY;
		close(fd);
	} else if (!strcmp(line, "leave")) {
		sprintf(text, "%lu\n", ++counter);
		say(fd, text);
		close(fd);
	} else if (!strncmp(line, "shut", 4)) {
		sprintf(text, "%lu\n", ++counter);
		say(fd, text);
		if (shutdown(fd, SHUT_WR) || (send(fd, "x", 1, MSG_NOSIGNAL), errno != EPIPE))
			last_error = EBUSY;
	} else if (!strncmp(line, "half", 4)) {
		sprintf(text, "%lu\n", ++counter);
		say(fd, text);
		shutdown(fd, SHUT_WR);
	}
}

static void obey(int fd, const char *line)
{
	unsigned long n = strtoul(line + strcspn(line, " "), NULL, 10);
	char text[64];

	if (!strncmp(line, "inc", 3)) {
		sprintf(text, "%lu\n", ++counter);
		say(fd, text);
	} else if (!strncmp(line, "pause", 5)) {
		sleep_ms((long)n);
	} else if (!strncmp(line, "crash", 5)) {
		*(volatile int *)NULL = 1;
	} else if (!strncmp(line, "grind", 5)) {
		grind((long)n);
		*(volatile int *)NULL = 1;
	} else if (!strncmp(line, "pipe", 4)) {
		say(fd, "x\n");
		say(1, "y\n");
		compute(3, false); /* time to be seen, if one went out before the other */
	} else if (!strncmp(line, "big", 3)) {
		send_big(fd, n);
	} else if (!strncmp(line, "room", 4)) {
		/* The kernel's own size grows while bytes wait. */
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ (int)n }, sizeof(int));
		say(fd, "ok\n");
	} else if (!strcmp(line, "twin")) {
		say(fd, dup(fd) < 0 ? "none\n" : "ok\n");
	} else if (!strncmp(line, "order", 5)) {
		do_order(fd);
	} else if (!strncmp(line, "twins", 5)) {
		do_twins(fd);
	} else if (!strncmp(line, "fork", 4)) {
		do_fork(fd);
	} else if (!strncmp(line, "calls", 5)) {
		say(fd, "s\n");
		compute(n, true);
		say(fd, "e\n");
	} else if (!strncmp(line, "burn", 4)) {
		say(fd, "s\n");
		compute(n, false);
		say(fd, "e\n");
	} else if (!strncmp(line, "file", 4)) {
		off_t at = 4;

		lseek(file, 1, SEEK_SET);
		sendfile(fd, file, NULL, 3);
		sendfile(fd, file, &at, 3);
		sprintf(text, " %ld %ld\n", (long)lseek(file, 0, SEEK_CUR), (long)at);
		say(fd, text);
	} else if (!strncmp(line, "self", 4)) {
		do_self(fd);
	} else if (!strncmp(line, "block", 5)) {
		do_block(fd, n);
	} else if (!strncmp(line, "helper", 6)) {
		do_helper(fd);
	} else if (!strncmp(line, "errors", 6)) {
		snprintf(text, sizeof(text), "%s %d\n",
			last_error ? strerrorname_np(last_error) : "none", pipe_signals);
		say(fd, text);
	} else {
		obey_end(fd, line);
	}
}

static void serve(int fd)
{
	struct connection *c = &connections[fd % CONNECTIONS];
	ssize_t n = read(fd, c->line + c->used, sizeof(c->line) - c->used - 1);
	char *end;

	if (n <= 0) {
		if (n < 0)
			last_error = errno;
		c->used = 0;
		close(fd);
		return;
	}
	c->used += (size_t)n;
	c->line[c->used] = '\0';
	while ((end = memchr(c->line, '\n', c->used))) {
		char line[sizeof(c->line)];
		size_t len = (size_t)(end + 1 - c->line);

		memcpy(line, c->line, len);
		line[len - 1] = '\0';
		c->used -= len;
		memmove(c->line, end + 1, c->used + 1);
		if (!strncmp(line, "close", 5) || !strcmp(line, "leave"))
			c->used = 0;
		obey(fd, line);
		if (!strcmp(line, "leave"))
			return; /* the number may be another thread's by now, and *c with it */
	}
}

static void on_signal(int sig)
{
	pipe_signals += sig == SIGPIPE;
}

static void *loop(void *unused)
{
	struct epoll_event e = {.events = EPOLLIN | exclusive, .data.fd = listener}, events[64];
	int l = listener, set = epoll_create1(0), n;

	epoll_ctl(set, EPOLL_CTL_ADD, l, &e);
	for (;;) {
		n = epoll_wait(set, events, 64, -1);
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;

			if (fd != l) {
				serve(fd);
				continue;
			}
			while ((fd = accept4(l, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
				e = (struct epoll_event){.events = EPOLLIN, .data.fd = fd};
				epoll_ctl(set, EPOLL_CTL_ADD, fd, &e);
			}
		}
	}
	return NULL;
}

/* Its name, for clients, is the first line of output: a port, or a name. */
static bool begin(int family)
{
	struct sockaddr_in v4 = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	struct sockaddr *a = family == AF_INET ? (void *)&v4 : (void *)&un;
	socklen_t len = family == AF_INET ? sizeof(v4) : 2 + 16;

	sprintf(un.sun_path + 1, "serve%010d", getpid());
	listener = socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (bind(listener, a, len) || listen(listener, 64) || getsockname(listener, a, &len))
		return false;
	if (family == AF_INET)
		printf("%d\n", ntohs(v4.sin_port));
	else
		printf("%s\n", un.sun_path + 1);
	fflush(stdout);
	return true;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	pthread_t other;

	signal(SIGPIPE, on_signal);
	signal(SIGURG, on_signal);
	file = memfd_create("letters", 0);
	if (write(file, "abcdefghij", 10) != 10)
		return 1;
	if (!strcmp(mode, "edge"))
		exclusive = EPOLLET | EPOLLEXCLUSIVE;
	if (!begin(strcmp(mode, "local") ? AF_INET : AF_UNIX))
		return 1;
	for (int i = 0; i < 3 && !strcmp(mode, "threads"); i++)
		if (pthread_create(&other, NULL, loop, NULL))
			return 1;
	loop(NULL);
}
