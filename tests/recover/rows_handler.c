/* SPDX-License-Identifier: MIT */
/*
 * Handlers. One that tells others something has interrupted a call: the checkpoint lies in the
 * handler, and after a restore the kernel makes the call anew. What the call had taken comes again
 * all the same.
 */
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include "rows.h"

static int ends[2], listener, client;
static struct sockaddr_in at;

/* In 30 ms, while the call is being made. */
static void interrupt_with(void (*handler)(int sig))
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = SA_RESTART };
	struct itimerval soon = { { 0, 0 }, { 0, 30000 } };

	CHECK(sigaction(SIGALRM, &act, NULL) == 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static void setup_pipe(void)
{
	CHECK(pipe(ends) == 0);
}

static void write_two(int sig)
{
	outside->count++;
	CHECK(write(ends[1], "ab", 2) == 2);
	tick();
}

static void done(void)
{
	close(ends[0]);
	close(ends[1]);
}

static void body_read(bool again)
{
	char c;

	interrupt_with(write_two);
	CHECK(CALL(read, ends[0], &c, 1) == 1);
	crash_once();
	CHECK(c == 'a' && CALL(read, ends[0], &c, 1) == 1 && c == 'b');
	done();
}

static void body_wait(bool again)
{
	int status = 0, child = fork();
	char c;

	CHECK(child >= 0);
	if (!child)
		_exit(read(ends[0], &c, 1) == 1 ? 7 : 1);
	interrupt_with(write_two);
	CHECK(CALL(wait4, child, &status, 0, NULL) == child);
	crash_once();
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	done();
}

static void setup_listener(void)
{
	socklen_t len = sizeof(at);

	listener = socket(AF_INET, SOCK_STREAM, 0);
	client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(listen(listener, 1) == 0 && getsockname(listener, (void *)&at, &len) == 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

static void connect_to_it(int sig)
{
	outside->count++;
	CHECK(connect(client, (void *)&at, sizeof(at)) == 0 && write(client, "a", 1) == 1);
	tick();
}

static void body_accept(bool again)
{
	int fd;
	char c;

	interrupt_with(connect_to_it);
	fd = (int)CALL(accept, listener, NULL, NULL);
	CHECK(fd >= 0);
	crash_once();
	CHECK(CALL(read, fd, &c, 1) == 1 && c == 'a');
	close(fd);
	close(client);
	close(listener);
}

/* ---- A crash in the kernel's delivery of a signal ------------------------------------------- */

static char room[65536] __attribute__((aligned(4096)));
static volatile int handled;

static void handle(int sig)
{
	handled++;
}

static void setup_room(void)
{
	stack_t stack = { .ss_sp = room, .ss_size = sizeof(room) };

	handled = 0;
	CHECK(sigaltstack(&stack, NULL) == 0);
}

/* There is no room for its frame. */
static void body_no_room(bool again)
{
	struct sigaction act = { .sa_handler = handle, .sa_flags = SA_ONSTACK };
	struct itimerval soon = { { 0, 0 }, { 0, 5000 } };
	stack_t none = { .ss_flags = SS_DISABLE };

	if (!again)
		CHECK(mprotect(room, sizeof(room), PROT_READ) == 0);
	CHECK(sigaction(SIGALRM, &act, NULL) == 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
	while (!handled)
		;
	CHECK(again && handled == 1 && sigaltstack(&none, NULL) == 0);
}

const struct row rows_handler[] = {
	{ "handler_amid_read", setup_pipe, body_read, .output = true },
	{ "handler_amid_wait", setup_pipe, body_wait, .output = true },
	{ "handler_amid_accept", setup_listener, body_accept, .output = true },
	{ "handler_without_room", setup_room, body_no_room },
	{ NULL },
};
