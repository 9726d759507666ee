/* SPDX-License-Identifier: MIT */
/*
 * A lock of the run-time's that knows whose it is: a signal handler may leave by a restore, and
 * what it has interrupted never lets go. It lies in a page that is not turned back. Where there is
 * one thread, it is not taken.
 */
#ifndef CRN_RT_OWNED_LOCK_H
#define CRN_RT_OWNED_LOCK_H

#include <stdbool.h>
#include <stdint.h>
#include "os/thread.h"
#include "rt/rt.h"

struct crn_owned_lock {
	uintptr_t owner; /* its thread pointer; 0: nobody */
};

/* Does this thread have it? */
static inline bool crn_owned(const struct crn_owned_lock *l)
{
	return l->owner == (uintptr_t)__builtin_thread_pointer();
}

/* False: somebody has it. */
static inline bool crn_owned_try(struct crn_owned_lock *l)
{
	uintptr_t nobody = 0;

	return crn_rt_one_thread() ||
		__atomic_compare_exchange_n(&l->owner, &nobody,
			(uintptr_t)__builtin_thread_pointer(), false, __ATOMIC_ACQUIRE,
			__ATOMIC_RELAXED);
}

static inline void crn_owned_lock(struct crn_owned_lock *l)
{
	while (!crn_owned_try(l))
		crn_yield();
}

/* The only thread of a forked child lets go what another one of its parent's had. */
static inline void crn_owned_unlock(struct crn_owned_lock *l)
{
	if (crn_owned(l) || crn_rt_one_thread())
		__atomic_store_n(&l->owner, 0, __ATOMIC_RELEASE);
}

#endif
