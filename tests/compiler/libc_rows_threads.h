/* SPDX-License-Identifier: MIT */
/* Of libc_rows.c: locks in the state that its rows ask for. */
#ifndef CRN_TESTS_LIBC_ROWS_THREADS_H
#define CRN_TESTS_LIBC_ROWS_THREADS_H

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <threads.h>
#include "libc_rows.h"

#define MUTEX         ((pthread_mutex_t *)at)
#define RWLOCK        ((pthread_rwlock_t *)at)
#define SPIN          ((pthread_spinlock_t *)at)
#define SEMAPHORE     ((sem_t *)at)
#define CONDITION     ((pthread_cond_t *)at)
#define BARRIER       ((pthread_barrier_t *)at)
#define LOCK          ((pthread_mutex_t *)AT(1))
#define HOW           ((pthread_attr_t *)at)
#define MUTEX_HOW     ((pthread_mutexattr_t *)at)
#define RWLOCK_HOW    ((pthread_rwlockattr_t *)at)
#define CONDITION_HOW ((pthread_condattr_t *)at)
#define INT(place)    ((int *)AT(place))

static int did;

static void did_once(void)
{
	did++;
}

/* Of a mutex whose owner has ended with it: another process, for there is no other thread. */
static pthread_mutex_t orphan;

static void make_orphan(void)
{
	pthread_mutexattr_t how;
	pthread_mutex_t *m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t owner;

	CHECK(m != MAP_FAILED && !pthread_mutexattr_init(&how));
	CHECK(!pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST));
	CHECK(!pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED));
	CHECK(!pthread_mutex_init(m, &how));
	owner = fork();
	if (!owner)
		_exit(pthread_mutex_lock(m));
	CHECK(waitpid(owner, NULL, 0) == owner && pthread_mutex_lock(m) == EOWNERDEAD);
	memcpy(&orphan, m, sizeof(orphan));
}

static void condition(char *at)
{
	pthread_cond_init(CONDITION, NULL);
	pthread_mutex_init(LOCK, NULL);
	pthread_mutex_lock(LOCK);
}

/* Their threads run in the interval that is undone. */
#ifdef THREADS
static int nothing(void *argument)
{
	return (int)(intptr_t)argument;
}

static void *nothing_more(void *argument)
{
	return argument;
}

static thrd_t standard_thread(void)
{
	thrd_t thread;

	CHECK(thrd_create(&thread, nothing, (void *)77) == thrd_success);
	return thread;
}

static pthread_t thread(void)
{
	pthread_t made;

	CHECK(!pthread_create(&made, NULL, nothing_more, (void *)77));
	return made;
}

/* Of a thread that waits for a condition. */
static void idle(char *at)
{
	pthread_cond_init(CONDITION, NULL);
	pthread_mutex_init(LOCK, NULL);
	*INT(2) = 0;
}

static void *wait_once(void *at_all)
{
	char *at = at_all;

	pthread_mutex_lock(LOCK);
	*INT(2) = 1;
	while (*INT(2) == 1)
		pthread_cond_wait(CONDITION, LOCK);
	pthread_mutex_unlock(LOCK);
	return NULL;
}

static void *wait_once_standard(void *at_all)
{
	char *at = at_all;

	mtx_lock((mtx_t *)LOCK);
	*INT(2) = 1;
	while (*INT(2) == 1)
		cnd_wait((cnd_t *)at, (mtx_t *)LOCK);
	mtx_unlock((mtx_t *)LOCK);
	return NULL;
}

/* It waits, and need not any more. */
static pthread_t waiting(char *at, void *(*wait)(void *))
{
	pthread_t waiter;
	int seen = 0;

	CHECK(!pthread_create(&waiter, NULL, wait, at));
	while (!seen) {
		pthread_mutex_lock(LOCK);
		seen = *INT(2);
		*INT(2) = seen ? 2 : 0;
		pthread_mutex_unlock(LOCK);
	}
	return waiter;
}
#endif

#endif
