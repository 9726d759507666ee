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
#include "rt/wrap/wrap.h"
#include "rt/wrap/reach.h"

#define ROBUST   16    /* in a mutex's kind (glibc) */
#define HELD_MAX 2048u /* that Linux looks at */

#define MUTEX(m) keep_mutex(m);
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
