/* SPDX-License-Identifier: MIT */
/* Of libc_rows.c: children, and words of a command line. */
#ifndef CRN_TESTS_LIBC_ROWS_PROCESS_H
#define CRN_TESTS_LIBC_ROWS_PROCESS_H

#include <dlfcn.h>
#include <execinfo.h>
#include <getopt.h>
#include <grp.h>
#include <pty.h>
#include <pwd.h>
#include <sched.h>
#include <shadow.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "libc_rows.h"

#define SPAWN_HOW   ((posix_spawnattr_t *)at)
#define SPAWN_FILES ((posix_spawn_file_actions_t *)at)
#define WORDS       ((char **)at)

static sigset_t awaited; /* SIGUSR1, which is blocked */
static int option;
static const struct option long_options[] = { { "a", no_argument, NULL, 'a' }, { 0 } };

int __gethostname_chk(char *to, size_t n, size_t size);
int __getdomainname_chk(char *to, size_t n, size_t size);
int __getlogin_r_chk(char *to, size_t n, size_t size);
int __getgroups_chk(int n, gid_t to[], size_t size);
int __posix_getopt(int argc, char *const argv[], const char *letters);

static void block_signals(void)
{
	sigemptyset(&awaited);
	sigaddset(&awaited, SIGUSR1);
	CHECK(!sigprocmask(SIG_BLOCK, &awaited, NULL));
}

static void join_groups(void)
{
	const gid_t groups[] = { 1, 2, 3 };

	(void)setgroups(3, groups); /* who may not is in others */
}

static pid_t child(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(7);
	return pid;
}

static char stack[16384] __attribute__((aligned(16)));

static int ended_at_once(void *argument)
{
	(void)argument;
	_exit(7);
}

/* It has stopped. */
static pid_t traced_child(void)
{
	pid_t pid = fork();

	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		_exit(0);
	}
	CHECK(waitpid(pid, NULL, 0) == pid);
	return pid;
}

static void end_child(pid_t pid)
{
	CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
}

static void spawn_attributes(char *at)
{
	CHECK(!posix_spawnattr_init(SPAWN_HOW));
}

/* Words that are no options get behind those that are. getopt begins anew. */
static void words(char *at)
{
	static char *list[] = { "rows", "one", "-a", "-btwo", NULL };

	memcpy(at, list, sizeof(list));
	optind = 0;
	optopt = 0;
	optarg = NULL;
}

static long told(long n)
{
	return n * 31 + option + optind + (optarg ? *optarg : 0);
}

static long words_told(char *at)
{
	long n = *WORDS[1] + optind;

	blank(at, 5 * sizeof(*WORDS));
	return n;
}

#endif
