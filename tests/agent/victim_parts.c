/* SPDX-License-Identifier: MIT */
/*
 * Calls that our timer cuts short when they have moved a part, where what is made after that is not
 * simply a call for the rest.
 *
 *	victim_parts look|address|handler|messages|terminal|timeout
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include "expect.h"

static void connected(int end[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(at);
	int door = socket(AF_INET, SOCK_STREAM, 0);

	EXPECT(door >= 0 && bind(door, (struct sockaddr *)&at, len) == 0 && listen(door, 1) == 0);
	EXPECT(getsockname(door, (struct sockaddr *)&at, &len) == 0);
	end[0] = socket(AF_INET, SOCK_STREAM, 0);
	EXPECT(connect(end[0], (struct sockaddr *)&at, len) == 0);
	end[1] = accept(door, NULL, NULL);
	EXPECT(end[1] >= 0 && close(door) == 0);
}

/* A look that waits for all takes nothing: what is made after a cut must not see bytes twice. */
static void a_look_sees_all(bool moves)
{
	static const char text[] = "0123456789abcdefghijABCDEFGHIJ";
	const ssize_t first = 10, size = sizeof(text) - 1;
	char seen[sizeof(text)];
	int end[2], status, none = 0;

	connected(end);
	/* Linux 6.9: each look begins behind the one before, and taking takes off from that. */
	if (moves && setsockopt(end[1], SOL_SOCKET, SO_PEEK_OFF, &none, sizeof(none)) < 0)
		return;
	for (int i = 0; i < 5; i++) {
		ssize_t n;
		pid_t child;

		EXPECT(send(end[0], text, (size_t)first, 0) == first);
		child = fork();
		EXPECT(child >= 0);
		if (!child) {
			usleep(60000);
			n = size - first;
			_exit(send(end[0], text + first, (size_t)n, 0) != n);
		}
		memset(seen, 0, sizeof(seen));
		n = recv(end[1], seen, (size_t)size, MSG_PEEK | MSG_WAITALL);
		if (n != size || memcmp(seen, text, sizeof(text)))
			dprintf(2, "a look: %zd bytes, %s\n", n, seen);
		EXPECT(n == size && memcmp(seen, text, sizeof(text)) == 0);
		EXPECT(recv(end[1], seen, (size_t)size, MSG_WAITALL) == size);
		EXPECT(waitpid(child, &status, 0) == child && status == 0);
	}
	close(end[0]);
	close(end[1]);
}

/* The kernel says how long the address is, be it more than there was room for: no second time. */
static void an_address_comes_once(void)
{
	static const char after[32];
	struct sockaddr_un at = {.sun_family = AF_UNIX}, from = at;
	int door = socket(AF_UNIX, SOCK_STREAM, 0), end = socket(AF_UNIX, SOCK_STREAM, 0), fd;
	struct {
		char address[4], after[32];
	} room = {0};
	socklen_t len = sizeof(room.address);
	char bytes[20];
	int status;
	pid_t child;

	snprintf(at.sun_path + 1, 32, "crn_victim_parts_to_%d", getpid());
	snprintf(from.sun_path + 1, 32, "crn_victim_parts_from_%d", getpid());
	EXPECT(bind(door, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(door, 1) == 0);
	EXPECT(bind(end, (struct sockaddr *)&from, sizeof(from)) == 0);
	EXPECT(connect(end, (struct sockaddr *)&at, sizeof(at)) == 0);
	fd = accept(door, NULL, NULL);
	EXPECT(fd >= 0 && send(end, bytes, 10, 0) == 10);
	child = fork();
	EXPECT(child >= 0);
	if (!child) {
		usleep(60000);
		_exit(send(end, bytes, 10, 0) != 10);
	}
	EXPECT(recvfrom(fd, bytes, 20, MSG_WAITALL, (struct sockaddr *)room.address, &len) == 20);
	EXPECT(len == sizeof(from) && memcmp(room.after, after, sizeof(after)) == 0);
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	close(door);
	close(end);
	close(fd);
}

#define ALARMS_MAX 20

static volatile sig_atomic_t alarms;
static int reader;

/* Nobody reads: after so many alarms the call is ended by that. */
static void on_alarm_until(int sig)
{
	(void)sig;
	alarms = alarms + 1;
	if (alarms == ALARMS_MAX)
		close(reader);
}

#define BULK (2 << 20)

static char bulk[BULK];

/* A handler ends a call that has moved a part, though it asks for restarts. */
static void a_handler_ends_a_part(void)
{
	const struct itimerval every = {{0, 100000}, {0, 100000}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = on_alarm_until, .sa_flags = SA_RESTART};
	int end[2], count;
	long n;

	EXPECT(pipe(end) == 0 && signal(SIGPIPE, SIG_IGN) != SIG_ERR);
	reader = end[0];
	alarms = 0;
	EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
	EXPECT(setitimer(ITIMER_REAL, &every, NULL) == 0);
	n = write(end[1], bulk, BULK);
	count = alarms;
	EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0);
	EXPECT(n > 0 && n < BULK);
	EXPECT(count > 0 && count < ALARMS_MAX);
	close(end[0]);
	close(end[1]);
}

#define MESSAGES 40

static struct mmsghdr *messages(char (*bytes)[MESSAGES], struct iovec *parts)
{
	static struct mmsghdr m[MESSAGES];

	memset(m, 0, sizeof(m));
	for (int i = 0; i < MESSAGES; i++) {
		parts[i] = (struct iovec){bytes[i], (size_t)i + 1};
		m[i].msg_hdr.msg_iov = &parts[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
	return m;
}

/* The other end takes its time; it sends, or receives, one at a time. */
static pid_t one_by_one(int fd, bool sends)
{
	char bytes[MESSAGES] = {0};
	pid_t child = fork();

	EXPECT(child >= 0);
	if (child)
		return child;
	for (int i = 0; i < MESSAGES; i++) {
		usleep(3000);
		if (sends ? send(fd, bytes, (size_t)i + 1, 0) != i + 1
			  : recv(fd, bytes, sizeof(bytes), 0) != i + 1)
			_exit(1);
	}
	_exit(0);
}

/* All are awaited, also where what ended the kernel's call is told to the next one. */
static void messages_come_all(void)
{
	static char bytes[MESSAGES][MESSAGES];
	static struct iovec parts[MESSAGES];
	struct mmsghdr *all;
	char byte;
	int end[2], status;
	pid_t child;

	EXPECT(socketpair(AF_UNIX, SOCK_DGRAM, 0, end) == 0);
	child = one_by_one(end[1], true);
	all = messages(bytes, parts);
	EXPECT(recvmmsg(end[0], all, MESSAGES, 0, NULL) == MESSAGES);
	for (int i = 0; i < MESSAGES; i++)
		EXPECT(all[i].msg_len == (unsigned)i + 1);
	EXPECT(recv(end[0], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	child = one_by_one(end[1], false);
	EXPECT(sendmmsg(end[0], messages(bytes, parts), MESSAGES, 0) == MESSAGES);
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	close(end[0]);
	close(end[1]);
}

/* With a timeout, which only a message that comes makes it look at, there may be fewer. */
static void fewer_messages_leave_no_error(void)
{
	static char bytes[MESSAGES][MESSAGES];
	static struct iovec parts[MESSAGES];
	struct timespec minute = {60, 0};
	int end[2], status, n = 0;
	pid_t child;

	EXPECT(socketpair(AF_UNIX, SOCK_DGRAM, 0, end) == 0);
	child = one_by_one(end[1], true);
	while (n < MESSAGES) {
		int more = recvmmsg(end[0], messages(bytes, parts) + n, (unsigned)(MESSAGES - n), 0,
			&minute);

		if (more <= 0)
			dprintf(2, "after %d: %d, errno %d\n", n, more, errno);
		EXPECT(more > 0);
		n += more;
	}
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	close(end[0]);
	close(end[1]);
}

#define KEYS 8

/* A terminal that gives so many bytes at least. */
static void bytes_come_together(void)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY), slave, status;
	char keys[] = "abcdefgh", got[2 * KEYS];
	struct termios raw;
	pid_t child;

	EXPECT(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
	slave = open(ptsname(master), O_RDWR | O_NOCTTY);
	EXPECT(slave >= 0 && tcgetattr(slave, &raw) == 0);
	cfmakeraw(&raw);
	raw.c_cc[VMIN] = KEYS;
	raw.c_cc[VTIME] = 0;
	EXPECT(tcsetattr(slave, TCSANOW, &raw) == 0);
	for (int round = 0; round < 3; round++) {
		EXPECT(write(master, keys, 1) == 1);
		child = fork();
		EXPECT(child >= 0);
		if (!child) {
			for (int i = 1; i < KEYS; i++) {
				usleep(15000);
				if (write(master, &keys[i], 1) != 1)
					_exit(1);
			}
			_exit(0);
		}
		memset(got, 0, sizeof(got));
		EXPECT(read(slave, got, sizeof(got)) == KEYS && !memcmp(got, keys, KEYS));
		EXPECT(waitpid(child, &status, 0) == child && status == 0);
		/* The other side has no such number, though it shows the same settings. */
		EXPECT(write(slave, keys, 1) == 1 && read(master, got, sizeof(got)) == 1);
	}
	close(slave);
	close(master);
}

static struct {
	_Atomic pid_t tid;
	atomic_bool spins, stopped, over;
} *both;

static void *spin(void *unused)
{
	usleep(30000); /* whoever spins has the timer now */
	both->tid = (pid_t)syscall(SYS_gettid);
	both->spins = true;
	while (!both->over)
		;
	return unused;
}

static void hold_thread(void)
{
	int status;

	while (!both->spins)
		usleep(1000);
	both->stopped = ptrace(PTRACE_SEIZE, both->tid, NULL, NULL) == 0 &&
		ptrace(PTRACE_INTERRUPT, both->tid, NULL, NULL) == 0 &&
		waitpid(both->tid, &status, __WALL) == both->tid;
	if (!both->stopped)
		both->over = both->stopped = true; /* not allowed: nothing is proven */
	while (!both->over)
		usleep(1000);
	_exit(0);
}

/*
 * A thread that runs as far as can be seen from outside, but does not: the timer goes on to find
 * the one that waits, which must all the same come to an end.
 */
static void a_timeout_ends(void)
{
	const struct timeval limit = {0, 200000};
	pthread_t thread;
	char byte;
	int end[2];
	pid_t child;

	both = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(both != MAP_FAILED && socketpair(AF_UNIX, SOCK_STREAM, 0, end) == 0);
	EXPECT(setsockopt(end[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
	child = fork();
	EXPECT(child >= 0);
	if (!child)
		hold_thread();
	prctl(PR_SET_PTRACER, child);
	EXPECT(pthread_create(&thread, NULL, spin, NULL) == 0);
	while (!both->stopped)
		;
	EXPECT(recv(end[0], &byte, 1, 0) == -1 && errno == EAGAIN);
	both->over = true;
	EXPECT(waitpid(child, NULL, 0) == child && pthread_join(thread, NULL) == 0);
	close(end[0]);
	close(end[1]);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "look";

	if (!strcmp(what, "handler")) {
		a_handler_ends_a_part();
	} else if (!strcmp(what, "messages")) {
		messages_come_all();
		fewer_messages_leave_no_error();
	} else if (!strcmp(what, "terminal")) {
		bytes_come_together();
	} else if (!strcmp(what, "timeout")) {
		for (int i = 0; i < 3; i++)
			a_timeout_ends();
	} else if (!strcmp(what, "address")) {
		for (int i = 0; i < 3; i++)
			an_address_comes_once();
	} else {
		a_look_sees_all(false);
		a_look_sees_all(true);
	}
	printf("parts: ok\n");
	return 0;
}
