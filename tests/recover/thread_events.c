/* SPDX-License-Identifier: MIT */
/*
 * thread_events CRASHES: a thread sleeps in epoll_wait, another one adds an item that is ready, and
 * crashes at once. Under `cairn run --recover` most crashes are recovered from; one is refused,
 * and given to the handler here, if the sleeper was faster. Where the item has been taken back,
 * nobody may be told of it: its data may name memory that was never there. Status 3 if somebody is.
 * Another thread sleeps for a futex, and is moved to another one: that is done once.
 */
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "../lib/harness.h"

enum { NEW = 1, LAST };

/* Shared: no part of what comes back. */
static volatile struct {
	int crashes, told, refused, moved, stopped;
} *outside;
static sigjmp_buf before;
static int set, ready;

static void *sleep_in_wait(void *arg)
{
	struct epoll_event e;

	while (epoll_wait(set, &e, 1, -1) == 1 && e.data.u64 != LAST)
		outside->told++;
	return arg;
}

static uint32_t words[2];

static long futex(uint32_t *word, int op, long count, long moved, uint32_t *to)
{
	return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, count, moved, to, 0);
}

static void *sleep_in_futex(void *arg)
{
	while (futex(&words[0], FUTEX_WAIT, 0, 0, NULL) < 0)
		continue;
	return arg;
}

/* Woken where it was moved to; FUTEX_WAIT says 0 then. */
static void move(void)
{
	pthread_t t;

	CHECK(pthread_create(&t, NULL, sleep_in_futex, NULL) == 0);
	for (int n = 0; n < 20; n++)
		CHECK(poll(NULL, 0, 4) == 0);
	outside->moved++;
	CHECK(futex(&words[0], FUTEX_REQUEUE, 0, 1, &words[1]) == 1);
	if (!outside->stopped++)
		*(volatile int *)24 = 0;
	CHECK(outside->moved == 1 && futex(&words[1], FUTEX_WAKE, 1, 0, NULL) == 1);
	CHECK(pthread_join(t, NULL) == 0);
}

static void refused(int sig)
{
	outside->refused++;
	siglongjmp(before, sig);
}

static void add(int fd, uint64_t data)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET, .data.u64 = data };

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
}

static void round_of(int i)
{
	if (sigsetjmp(before, 1))
		return (void)epoll_ctl(set, EPOLL_CTL_DEL, ready, NULL);
	for (int n = 0; n < 3; n++)
		CHECK(poll(NULL, 0, 4) == 0);
	if (outside->crashes != i)
		return;
	outside->crashes++;
	add(ready, NEW);
	*(volatile int *)24 = 0;
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = refused, .sa_flags = SA_NODEFER };
	int crashes = argc > 1 ? atoi(argv[1]) : 50;
	pthread_t t;

	outside = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	set = epoll_create1(0);
	ready = eventfd(1, 0);
	CHECK(outside != MAP_FAILED && set >= 0 && ready >= 0);
	move();
	CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
	CHECK(pthread_create(&t, NULL, sleep_in_wait, NULL) == 0);
	for (int i = 0; i < crashes; i++)
		round_of(i);
	add(ready, LAST);
	CHECK(pthread_join(t, NULL) == 0);
	printf("%d crashes, %d refused, told %d times\n", outside->crashes, outside->refused,
		outside->told);
	return outside->told > outside->refused ? 3 : 0;
}
