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
#endif

#endif
