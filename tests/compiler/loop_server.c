/* SPDX-License-Identifier: MIT */
/*
 * A master and two workers, for profiles of loops: loop_server TURNS (kill | quit) [HELPERS].
 * The master asks each worker TURNS times and prints all answers, and forks a helper in each of its
 * first HELPERS turns. Then its workers end: by signals, of which one cannot be caught, or by exit.
 * Nothing here depends on time: a loop that shall never end does not.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned served, sum;

/* Calls nothing: counted in place. */
static void add_up(const char *text, long len)
{
	for (long i = 0; i < len; i++)
		sum = sum * 31 + (unsigned char)text[i];
}

static int answer(int fd)
{
	char text[64];
	ssize_t n = recv(fd, text, sizeof(text), 0);

	if (n <= 0)
		return 0;
	add_up(text, n);
	n = snprintf(text, sizeof(text), "%u %u\n", ++served, sum);
	return write(fd, text, (size_t)n) == n;
}

/* Called like any function: its caller's loop is not left. */
static void end(int sig)
{
	kill(getpid(), sig);
	exit(0);
}

static void work(int fd, int sig)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;)
		if (poll(&p, 1, -1) == 1 && !answer(fd))
			end(sig);
}

static void help(void)
{
	for (int i = 0; i < 3; i++)
		if (write(1, "", 0) < 0)
			_exit(1);
	_exit(0);
}

static void ask(int fd, unsigned turn)
{
	char text[64];
	ssize_t n = snprintf(text, sizeof(text), "turn %u", turn);

	if (write(fd, text, (size_t)n) != n)
		exit(3);
	n = read(fd, text, sizeof(text));
	if (n < 0 || write(1, text, (size_t)n) != n)
		exit(3);
}

static void finish(int fds[2])
{
	close(fds[0]);
	close(fds[1]);
	while (wait(NULL) > 0)
		continue;
	exit(0);
}

static void serve(int fds[2], unsigned turns, unsigned helpers)
{
	for (unsigned turn = 0;; turn++) {
		if (turn == turns)
			finish(fds);
		ask(fds[0], turn);
		ask(fds[1], turn);
		if (turn < helpers && !fork())
			help();
	}
}

int main(int argc, char **argv)
{
	int sigs[2] = { 0 }, fds[2], pair[2];

	if (!strcmp(argv[2], "kill")) {
		sigs[0] = SIGKILL;
		sigs[1] = SIGTERM;
	}
	for (int i = 0; i < 2; i++) {
		pid_t pid;

		if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
			return 2;
		pid = fork();
		if (pid < 0)
			return 2;
		if (!pid) {
			close(pair[0]);
			if (i)
				close(fds[0]);
			work(pair[1], sigs[i]);
		}
		close(pair[1]);
		fds[i] = pair[0];
	}
	serve(fds, (unsigned)atoi(argv[1]), argc > 3 ? (unsigned)atoi(argv[3]) : 0);
}
