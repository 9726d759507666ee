/* SPDX-License-Identifier: MIT */
/*
 * rows WAY [ROW]: run every row (or one) by one way of calling. Under `cairn run --at wait/1000000
 * --recover` (so that the waits inside a row are no checkpoints) each crashes once and is
 * recovered; run bare it dies of its first crash.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include "rows.h"
#include "../lib/tcp_pair.h"

enum way way;
struct outside *outside;
static const char *current = "?";
static int decoy[2];

_Noreturn void fail(const char *file, int line, const char *what)
{
	fprintf(stderr, "FAIL %s: %s:%d: %s\n", current, file, line, what);
	_exit(1);
}

const char *letters(void)
{
	static char path[] = "/tmp/cairn-rows-XXXXXX";
	static bool made;

	if (!made) {
		int fd = mkstemp(path);

		CHECK(fd >= 0 && write(fd, "abcdefghijklmnopqrstuvwxyz", 26) == 26 &&
			close(fd) == 0);
		made = true;
	}
	return path;
}

void local_pair(int type, int *fd, int *other)
{
	int pair[2];

	CHECK(socketpair(AF_UNIX, type, 0, pair) == 0);
	*fd = pair[0];
	*other = pair[1];
}

bool is_all(const char *p, size_t len, char c)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != c)
			return false;
	return true;
}

void two_signals(int *fd, int *other)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGUSR2);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	*fd = signalfd(-1, &set, SFD_NONBLOCK);
	*other = dup(*fd);
	CHECK(*other >= 0 && raise(SIGUSR1) == 0 && raise(SIGUSR2) == 0);
}

void two_file_events(int *fd, int *other)
{
	*fd = inotify_init1(IN_NONBLOCK);
	*other = dup(*fd);
	CHECK(*other >= 0 && inotify_add_watch(*fd, letters(), IN_OPEN | IN_CLOSE) > 0);
	close(open(letters(), O_RDONLY));
}

/*
 * The suspect loses its input, so that every crash is preceded by a read from a connection that is
 * there to be it.
 */
static void crash(void)
{
	char c;

	/* One that might wait would be preceded by a checkpoint if anything is held. */
	CHECK(recv(decoy[0], &c, 1, MSG_DONTWAIT) == 1);
	*(volatile int *)8 = 0;
}

void tick(void)
{
	CHECK(kill(getpid(), 0) == 0);
}

void crash_once(void)
{
	if (outside->pass++ == 0)
		crash();
}

static void run(const struct row *row)
{
	current = row->name;
	usleep(15000); /* more than 100 recoveries within a second are refused */
	CHECK(tcp_pair(decoy) == 0 && write(decoy[1], "x", 1) == 1);
	if (row->setup)
		row->setup();
	outside->pass = 0;
	outside->count = 0;
	memset(outside->value, 0, sizeof(outside->value));
	/* A wake-up completed, then an output: the checkpoint that the row goes back to. */
	CHECK(poll(NULL, 0, 0) == 0);
	tick();
	if (row->output) {
		row->body(false);
		if (outside->count != 1)
			fail(__FILE__, __LINE__, "the output was done once");
	} else {
		if (outside->pass++ == 0) {
			row->body(false);
			crash();
		}
		row->body(true);
		outside->pass += outside->pass == 1;
	}
	if (outside->pass != 2)
		fail(__FILE__, __LINE__, "it was recovered once");
	close(decoy[0]);
	close(decoy[1]);
	printf("ok %s\n", row->name);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const struct row *const tables[] = {
		rows_descriptor, rows_input, rows_memory, rows_process, rows_epoll, rows_output,
		rows_message, rows_fork, rows_copies, rows_locks, rows_handler, rows_watched,
		rows_option, rows_file, rows_passing, rows_break, rows_remap,
		rows_drop,
	};
	const char *only = argc > 2 ? argv[2] : NULL;
	int count = 0;

	if (argc < 2)
		return 2;
	way = !strcmp(argv[1], "raw") ? RAW : !strcmp(argv[1], "stdio") ? STDIO : LIBC;
	outside = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(outside != MAP_FAILED);
	letters();
	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
		for (const struct row *row = tables[t]; row->name; row++) {
			if (only ? strcmp(only, row->name) != 0 : row->stdio != (way == STDIO))
				continue;
			if (row->libc_only && way == RAW)
				continue;
			run(row);
			count++;
		}
	}
	unlink(letters());
	printf("%d rows\n", count);
	return count ? 0 : 1;
}
