/* SPDX-License-Identifier: MIT */
/*
 * threads_at_work CRASHES: crash again and again while other threads work and sleep. Under `cairn
 * run --recover` each crash is recovered from, or refused and given to the handler here. What a
 * thread has written must never go back under it, because the thread itself does not: it keeps the
 * number of its round in a register and in every page of its own. On a difference the exit status
 * is 3. The last line says how many crashes were recovered from.
 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "../lib/tcp_pair.h"

#define WORKERS 2
#define PAGES   64ul
#define PAGE    4096ul

static _Atomic int *crashes; /* shared: no part of what comes back */
static sigjmp_buf before;

/* Nothing here makes a call or uses the stack: only the stores tell that the thread runs. */
static __attribute__((noinline)) long write_all(volatile char *pages, long round)
{
	for (unsigned long at = 0; at < PAGES; at++) {
		volatile long *word = (volatile long *)(pages + at * PAGE);

		if (*word != round)
			return (long)at;
		*word = round + 1;
	}
	return -1;
}

static void *work(void *arg)
{
	unsigned seed = (unsigned)(long)arg;
	char *pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	long round = 0;

	for (;;) {
		struct timespec pause = {0, 1000 * (long)(rand_r(&seed) % 8000)};
		int rounds = rand_r(&seed) % 40;

		for (int i = 0; i < rounds; i++, round++) {
			long at = write_all(pages, round);

			if (at < 0)
				continue;
			fprintf(stderr, "FAIL page %ld has %ld, not %ld\n", at,
				*(long *)(pages + (unsigned long)at * PAGE), round);
			_exit(3);
		}
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void refused(int sig)
{
	siglongjmp(before, 1);
}

/* One crash, whose suspect is a connection of its own. True if it was recovered from. */
static bool crash(void)
{
	static volatile bool done;
	int pair[2], count = atomic_load(crashes);
	char c;

	if (tcp_pair(pair) < 0 || write(pair[1], "x", 1) != 1)
		_exit(2);
	done = true;
	if (!sigsetjmp(before, 1)) {
		for (int k = 0; k < 4; k++)
			poll(NULL, 0, k == 0); /* each is a checkpoint */
		if (atomic_load(crashes) == count) {
			atomic_fetch_add(crashes, 1);
			if (read(pair[0], &c, 1) != 1)
				_exit(2);
			*(volatile int *)8 = 0;
		}
	} else {
		done = false;
	}
	close(pair[0]);
	close(pair[1]);
	return done;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 100, recovered = 0;
	struct sigaction action = {.sa_handler = refused};
	pthread_t thread;

	crashes = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sigaction(SIGSEGV, &action, NULL);
	for (long i = 0; i < WORKERS; i++)
		if (pthread_create(&thread, NULL, work, (void *)(i + getpid())) != 0)
			return 2;
	for (int i = 0; i < count; i++)
		recovered += crash();
	printf("%d of %d crashes recovered from\n", recovered, count);
	fflush(stdout);
	_exit(recovered ? 0 : 4); /* none: nothing was tested */
}
