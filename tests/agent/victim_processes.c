/* SPDX-License-Identifier: MIT */
/*
 * fork, vfork, posix_spawn, clone and exec, and descriptors being closed wholesale around them.
 * argv[1] is the depth.
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "expect.h"

extern char **environ;
static char self[4096];

static void expect_status(pid_t pid, int status_expected)
{
	int status;

	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	EXPECT(WEXITSTATUS(status) == status_expected);
}

static void test_fork(void)
{
	for (int i = 0; i < 30; i++) {
		pid_t pid = fork();

		if (!pid) {
			EXPECT(getpid() == syscall(SYS_getpid) && getppid() > 0);
			pid = fork();
			if (!pid)
				_exit(3);
			expect_status(pid, 3);
			_exit(i);
		}
		expect_status(pid, i);
	}
}

static void test_vfork(void)
{
	volatile int shared = 0;

	for (volatile int i = 0; i < 30; i++) {
		pid_t pid = vfork();

		if (!pid) {
			shared++;
			execl("/bin/sh", "sh", "-c", "exit 5", NULL);
			_exit(1);
		}
		expect_status(pid, 5);
		pid = vfork();
		if (!pid) {
			signal(SIGUSR1, SIG_IGN); /* the child's own table */
			_exit(6);
		}
		expect_status(pid, 6);
	}
	EXPECT(shared == 30);
	EXPECT(signal(SIGUSR1, SIG_DFL) == SIG_DFL);
}

static void test_spawn(void)
{
	char *argv[] = { self, "0", NULL }, *bad[] = { "none", NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t all;
	pid_t pid;

	sigfillset(&all);
	EXPECT(!posix_spawn_file_actions_init(&actions) && !posix_spawnattr_init(&attr));
	EXPECT(!posix_spawn_file_actions_addclosefrom_np(&actions, 3));
	EXPECT(!posix_spawnattr_setsigdefault(&attr, &all) &&
		!posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF));
	for (int i = 0; i < 10; i++) {
		EXPECT(!posix_spawn(&pid, self, &actions, &attr, argv, environ));
		expect_status(pid, 42);
		EXPECT(posix_spawn(&pid, "/nonexistent", NULL, NULL, bad, environ) == ENOENT);
	}
	EXPECT(system("exit 7") == 7 << 8);
}

static int clone_main(void *arg)
{
	*(volatile int *)arg = getpid();
	return 9;
}

/* A process that shares memory but is not a thread. */
static void test_clone_vm(void)
{
	size_t size = 65536;
	char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	volatile int word;
	pid_t pid;

	EXPECT(stack != MAP_FAILED);
	for (int i = 0; i < 20; i++) {
		word = 0;
		pid = clone(clone_main, stack + size, CLONE_VM | SIGCHLD, (void *)&word);
		expect_status(pid, 9);
		EXPECT(word == pid);
	}
}

static int descriptors_above(int low)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;

	EXPECT(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.' && atoi(e->d_name) >= low && atoi(e->d_name) != dirfd(d);
	closedir(d);
	return n;
}

/* Close all that can be closed, in every way there is, and go on being what we were. */
static void test_descriptors(void)
{
	pid_t pid = fork();
	int ours;

	if (!pid) {
		EXPECT(!close_range(3, ~0u, 0));
		ours = descriptors_above(3); /* none, or the agent's */
		for (int fd = 3; fd < 70000; fd++)
			EXPECT(close(fd) < 0 && errno == EBADF);
		closefrom(3);
		EXPECT(descriptors_above(3) == ours);
		EXPECT(dup2(1, 20) == 20 && !close(20));
		EXPECT(open("/dev/null", O_RDONLY) == 3);
		execl(self, self, "0", NULL);
		_exit(1);
	}
	expect_status(pid, 42);
}

static void *forker(void *arg)
{
	(void)arg;
	for (int i = 0; i < 40; i++) {
		pid_t pid = fork();

		if (!pid)
			_exit(getpid() == gettid() ? 11 : 12);
		expect_status(pid, 11);
	}
	return NULL;
}

static void test_fork_in_threads(void)
{
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		EXPECT(!pthread_create(&t[i], NULL, forker, NULL));
	for (int i = 0; i < 4; i++)
		EXPECT(!pthread_join(t[i], NULL));
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return 42;
	(void)argv;
	EXPECT(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	test_fork();
	test_vfork();
	test_spawn();
	test_clone_vm();
	test_descriptors();
	test_fork_in_threads();
	puts("processes: ok");
	return 0;
}
