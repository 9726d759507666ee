/* SPDX-License-Identifier: MIT */
/* Locks, semaphores and attributes, which libc keeps in memory of the program. */
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>
#define WRAPPED_thread CRN_WRAPPER
#include "rt/deferred.h"
#include "rt/born.h"
#include "rt/waits.h"
#include "rt/wrap/wrap.h"
#include "rt/wrap/reach.h"

#define ROBUST   16    /* in a mutex's kind (glibc) */
#define HELD_MAX 2048u /* that Linux looks at */

#define MUTEX(m) keep_mutex(m);
#define WAIT_IN(at, len) \
	struct crn_wait *wait __attribute__((cleanup(crn_wait_end))) = crn_wait_begin(at, len);
#define WAIT(p) WAIT_IN(p, sizeof(*(p)))
/* glibc has the value first, which goes back, and then how many wait for it to rise. */
#define WAIT_COUNT(s) WAIT_IN((uint32_t *)(s) + 1, sizeof(uint32_t))
#define WAYS(at) (uintptr_t *)(at) - 1, 2 * sizeof(uintptr_t) /* back, and on */

/*
 * A thread lists the robust mutexes that it holds, for the kernel. The list goes through the
 * mutexes, which are the program's, from a word of libc's. That is kept as a word, not as a region:
 * beside it lies what is not turned back. (If mutexes are in memory that is shared, they are not
 * turned back, and then it must not be either.)
 */
static void keep_held(bool own)
{
	struct robust_list_head *head = NULL;
	struct robust_list *at;
	size_t size;
	int err = errno;

	if (syscall(SYS_get_robust_list, 0, &head, &size) < 0 || !head) {
		errno = err;
		return;
	}
	for (unsigned i = 0; i < HELD_MAX; i++, at = at->next) {
		at = (struct robust_list *)((uintptr_t)(i ? at : head->list.next) & ~1ul);
		if (!at || at == &head->list || !crn_reach_there(WAYS(at)))
			break;
		keep(WAYS(at));
	}
	if (!own)
		return;
	(void)crn_map_changed(CRN_WORD, (uintptr_t)&head->list.next, (uintptr_t)head->list.next,
		0);
#ifdef __x86_64__
	(void)crn_map_changed(CRN_WORD, (uintptr_t)((uintptr_t *)head - 1),
		((uintptr_t *)head)[-1], 0);
#endif
}

static void keep_mutex(pthread_mutex_t *m)
{
	OBJECT(m)
	if (__cairn_rt.active && m->__data.__kind & ROBUST)
		keep_held(crn_reach_own(m, sizeof(*m)));
}

#include "rt/wrap/wrapped.def"

/* libstdc++'s condition variable is libc's, and the lock begins with where the mutex is. */
void _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(pthread_cond_t *c,
	pthread_mutex_t **m);
void _ZNSt18condition_variable10notify_oneEv(pthread_cond_t *c);
void _ZNSt18condition_variable10notify_allEv(pthread_cond_t *c);

WRAPPER(void, _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE, pthread_cond_t *c,
	pthread_mutex_t **m)
{
	WAIT(c)
	OBJECT(c)
	MUTEX(*m)
	_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(c, m);
}

WRAPPER(void, _ZNSt18condition_variable10notify_oneEv, pthread_cond_t *c)
{
	OBJECT(c)
	_ZNSt18condition_variable10notify_oneEv(c);
}

WRAPPER(void, _ZNSt18condition_variable10notify_allEv, pthread_cond_t *c)
{
	OBJECT(c)
	_ZNSt18condition_variable10notify_allEv(c);
}

/* ---- Births: in glibc both names of a thread are its descriptor ------------------------------ */

WRAPPER(int, pthread_create, pthread_t *to, const pthread_attr_t *a, void *(*f)(void *),
	void *argument)
{
	int err;

	OBJECT(to)
	err = pthread_create(to, a, f, argument);
	if (!err)
		crn_birth((uintptr_t)*to);
	return err;
}

WRAPPER(int, thrd_create, thrd_t *to, int (*f)(void *), void *argument)
{
	int err;

	OBJECT(to)
	err = thrd_create(to, f, argument);
	if (err == thrd_success)
		crn_birth((uintptr_t)*to);
	return err;
}

/* libstdc++'s thread is its name, and what it is given belongs to it from then on. */
#define START_THREAD \
	_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE
#define WRAPPER_OF(type, name, ...) WRAPPER(type, name, __VA_ARGS__)

void START_THREAD(pthread_t *to, void **state, void (*linked)(void));

WRAPPER_OF(void, START_THREAD, pthread_t *to, void **state, void (*linked)(void))
{
	OBJECT(to)
	OBJECT(state)
	START_THREAD(to, state, linked);
	crn_birth((uintptr_t)*to);
}
