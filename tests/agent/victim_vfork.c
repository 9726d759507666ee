/* SPDX-License-Identifier: MIT */
/*
 * A vfork child lives while other threads come to the first sites of the process. It has a
 * descriptor table of its own, and stores to memory that it shares with them.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "expect.h"

#define PAGE  4096
#define PAGES 64
#define SITES 30

static atomic_int child_runs, child_may_end;
static char *shared;

/* SAFETY: in the vfork child; nothing of the parent's but these pages and the stack below it. */
static __attribute__((noinline, noreturn)) void child(void)
{
	child_runs = 1;
	while (!child_may_end)
		sched_yield();
	for (int i = 0; i < PAGES; i++)
		shared[i * PAGE] = 'c';
	_exit(7);
}

static void *vforks(void *arg)
{
	pid_t pid = vfork();
	int status;

	(void)arg;
	if (!pid)
		child();
	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	return NULL;
}

static void come_to_sites(void)
{
	for (int i = 0; i < SITES; i++)
		EXPECT(poll(NULL, 0, 1) == 0);
}

int main(void)
{
	pthread_t t;

	/* A hole on each side: memory that touches a thread's stack is treated as one. */
	shared = mmap(NULL, (PAGES + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT(shared != MAP_FAILED);
	shared += PAGE;
	EXPECT(mprotect(shared, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
	memset(shared, 'p', PAGES * PAGE);
	/* Twice: before there is a session, and with it. */
	for (int round = 0; round < 2; round++) {
		child_runs = child_may_end = 0;
		EXPECT(!pthread_create(&t, NULL, vforks, NULL));
		while (!child_runs)
			sched_yield();
		come_to_sites();
		child_may_end = 1;
		pthread_join(t, NULL);
		for (int i = 0; i < PAGES; i++)
			EXPECT(shared[i * PAGE] == 'c' && shared[i * PAGE + 1] == 'p');
		come_to_sites();
		memset(shared, 'p', PAGES * PAGE);
	}
	puts("vfork: ok");
	return 0;
}
