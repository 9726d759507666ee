/* SPDX-License-Identifier: MIT */
/*
 * Waits for children of every kind, between checkpoints: the program meets its own and no others,
 * whatever the tracker keeps.
 */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include "expect.h"

static volatile sig_atomic_t told;

static void count(int sig)
{
	told += sig == SIGCHLD;
}

static void come_to_sites(void)
{
	for (int i = 0; i < 5; i++)
		(void)!poll(NULL, 0, 1); /* a child's end may cut it short */
}

static void expect_nobody(void)
{
	static const int options[] = { 0, __WALL, __WCLONE, __WALL | __WCLONE };
	siginfo_t info;

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		EXPECT(waitpid(-1, NULL, options[i]) == -1 && errno == ECHILD);
		EXPECT(waitpid(0, NULL, options[i] | WNOHANG) == -1 && errno == ECHILD);
		EXPECT(waitid(P_ALL, 0, &info, WEXITED | options[i]) == -1 && errno == ECHILD);
		EXPECT(waitid(P_PGID, 0, &info, WEXITED | options[i]) == -1 && errno == ECHILD);
	}
	EXPECT(told == 0);
}

/* One that ends while checkpoints come and go. */
static void expect_own(int options)
{
	pid_t pid = fork();
	int status;

	EXPECT(pid >= 0);
	if (!pid) {
		come_to_sites();
		expect_nobody();
		_exit(9);
	}
	come_to_sites();
	EXPECT(waitpid(-1, &status, options) == pid);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 9);
	EXPECT(told == 1);
	told = 0;
}

static int quiet(void *arg)
{
	return (int)(intptr_t)arg;
}

/* Of our own there may be some that only these waits find. */
static void expect_quiet(int options)
{
	static char stack[1 << 16] __attribute__((aligned(16)));
	pid_t pid = clone(quiet, stack + sizeof(stack), 0, (void *)5);
	int status;

	EXPECT(pid > 0);
	come_to_sites();
	EXPECT(waitpid(pid, &status, options) == pid);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 5);
}

int main(void)
{
	signal(SIGCHLD, count);
	come_to_sites();
	expect_nobody();
	expect_own(0);
	expect_own(__WALL);
	expect_nobody();
	expect_quiet(__WALL);
	expect_quiet(__WCLONE);
	puts("waits: ok");
	return 0;
}
