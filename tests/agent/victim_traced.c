/* SPDX-License-Identifier: MIT */
/*
 * Children that ask to be traced, as those of a debugger do, stop at their exec and nowhere before:
 * a child of vfork that stopped earlier would never be continued, for its tracer waits for that
 * exec. Another child asks in the middle of its own checkpoints, with nobody expecting it to stop.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "expect.h"

#define PAGE  4096
#define PAGES 64
#define SITES 10

static char *memory, *self;
static atomic_int over, turns;

static void come_to_sites(void)
{
	for (int i = 0; i < SITES; i++)
		EXPECT(poll(NULL, 0, 1) == 0);
}

/* No patch covers it. */
static __attribute__((noinline)) long own_call(long nr)
{
	long ret = nr;

	__asm__ volatile("syscall" : "+a"(ret) : : "rcx", "r11", "memory");
	return ret;
}

static __attribute__((noinline)) void work(void)
{
	for (int i = 0; i < PAGES; i++)
		memory[i * PAGE]++;
	for (int i = 0; i < PAGES; i++)
		own_call(SYS_getppid);
}

/* SAFETY: also in a vfork child. `beside`: while another thread takes checkpoints. */
static __attribute__((noinline, noreturn)) void child(bool beside)
{
	char *const argv[] = {self, "executed", NULL};

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(77);
	work();
	for (int i = 0; beside && i < PAGES; i++) {
		int now = turns;

		while (turns < now + 2)
			sched_yield();
		memory[i * PAGE + 1]++;
	}
	execv("/nonexistent", argv);
	memory[2]++;
	execv(self, argv);
	_exit(1);
}

/* The first stop is that of the exec. */
static void expect_exec(pid_t pid)
{
	int status;

	EXPECT(pid > 0 && waitpid(pid, &status, __WALL) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
		puts("SKIP: ptrace");
		exit(77);
	}
	EXPECT(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	while (WIFSTOPPED(status)) {
		int sig = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);

		EXPECT(!ptrace(PTRACE_CONT, pid, NULL, (long)sig));
		EXPECT(waitpid(pid, &status, __WALL) == pid);
	}
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

static void expect_memory(int first, int second, int third)
{
	for (int i = 0; i < PAGES; i++)
		EXPECT(memory[i * PAGE] == first);
	EXPECT(memory[1] == second && memory[2] == third);
	memset(memory, 0, PAGES * PAGE);
	come_to_sites();
}

static void *sites(void *arg)
{
	(void)arg;
	for (; !over; turns++)
		EXPECT(poll(NULL, 0, 1) == 0);
	return NULL;
}

static void vforks(bool beside)
{
	pid_t pid = vfork();

	if (!pid)
		child(beside);
	expect_exec(pid);
}

/* It has checkpoints of its own when it asks. Nothing stops it then. */
static void asks_later(void)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		come_to_sites();
		work();
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(77);
		work();
		come_to_sites();
		work();
		_exit(memory[0] == 3 ? 8 : 1);
	}
	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 8);
}

int main(int argc, char **argv)
{
	pthread_t t;
	pid_t pid;

	if (argc > 1)
		return 9;
	self = argv[0];
	/* A hole on each side: memory that touches a thread's stack is treated as one. */
	memory = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT(memory != MAP_FAILED);
	memory += PAGE;
	EXPECT(mprotect(memory, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
	memset(memory, 0, PAGES * PAGE);
	come_to_sites();
	vforks(false);
	expect_memory(1, 0, 1);
	pid = fork();
	if (!pid)
		child(false);
	expect_exec(pid);
	expect_memory(0, 0, 0);
	asks_later();
	EXPECT(!pthread_create(&t, NULL, sites, NULL));
	vforks(true);
	over = 1;
	pthread_join(t, NULL);
	expect_memory(1, 1, 1);
	puts("traced: ok");
	return 0;
}
