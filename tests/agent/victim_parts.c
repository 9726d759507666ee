/* SPDX-License-Identifier: MIT */
/*
 * Calls that our timer cuts short when they have moved a part, where what is made after that is not
 * simply a call for the rest.
 *
 *	victim_parts look|address|handler
 */
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
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

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "look";

	if (!strcmp(what, "handler")) {
		a_handler_ends_a_part();
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
