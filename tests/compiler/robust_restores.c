/* SPDX-License-Identifier: MIT */
/*
 * A thread lists the robust mutexes that it holds, for the kernel: in a word of libc's, and in the
 * mutexes. A restore turns back both, or the next lock would write to what is free by then, and
 * a lock could have no end. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "../lib/harness.h"

#define FAR  4096 /* bytes between two mutexes: no region has both */
#define SIZE (3 * FAR)

static struct robust_list_head *head;
static struct outside {
	long round;
	char copy[SIZE];
} *outside; /* not turned back */
static char mutexes[SIZE] __attribute__((aligned(FAR)));

static pthread_mutex_t *mutex(int i)
{
	return (pthread_mutex_t *)(mutexes + (long)i * FAR);
}

static void make(pthread_mutex_t *m)
{
	pthread_mutexattr_t how;

	CHECK(!pthread_mutexattr_init(&how));
	CHECK(!pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST));
	CHECK(!pthread_mutex_init(m, &how));
}

static int held(void)
{
	struct robust_list *at = &head->list;
	int n = 0;

	while ((at = (struct robust_list *)((uintptr_t)at->next & ~1ul)) != &head->list) {
		n++;
		CHECK(at && n < 100);
	}
	return n;
}

/* Lock, unlock and wait with so many that are held at the checkpoint, the oldest first. */
static void use(int have)
{
	pthread_mutex_t *block = malloc(sizeof(*block));
	pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	struct timespec past = { 0, 0 };

	make(block);
	CHECK(!pthread_mutex_lock(block) && held() == have + 1);
	for (int i = have; i < 3; i++)
		CHECK(!pthread_mutex_trylock(mutex(i)));
	CHECK(pthread_cond_timedwait(&c, mutex(0), &past) != 0);
	for (int i = 0; i < have; i++)
		CHECK(!pthread_mutex_unlock(mutex(i)));
	CHECK(held() == 4 - have);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id;
	size_t size;
	cairn_t *c;

	(void)argc;
	outside = mmap(NULL, sizeof(*outside), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);
	CHECK(outside != MAP_FAILED && !syscall(SYS_get_robust_list, 0, &head, &size));
	for (int i = 0; i < 3; i++)
		make(mutex(i));
	o.tracker = argv[1];
	CHECK_OK(cairn_open(&c, &o));
	for (int have = 0; have < 3; have++) {
		outside->round = 0;
		if (cairn_checkpoint(c, &id) != CAIRN_RESTORED)
			memcpy(outside->copy, mutexes, SIZE);
		CHECK(held() == have && !memcmp(outside->copy, mutexes, SIZE));
		if (outside->round++ < 2) {
			use(have);
			CHECK_OK(cairn_restore(c, id));
		}
		CHECK(!pthread_mutex_lock(mutex(have)) && held() == have + 1);
	}
	for (int i = 3; i--;)
		CHECK(!pthread_mutex_unlock(mutex(i)) && held() == i);
	CHECK_OK(cairn_close(c));
	return 0;
}
