/* SPDX-License-Identifier: MIT */
#include "rt/waits.h"
#include "os/thread.h"
#include "rt/rt.h"

struct crn_wait crn_waits[CRN_WAITS] CRN_RT_LASTING;

/*
 * An entry that is free, or that this thread has left behind: a signal handler may go back to a
 * checkpoint from within a call.
 */
static bool claim(struct crn_wait *w, int tid)
{
	int owner = __atomic_load_n(&w->tid, __ATOMIC_RELAXED);

	return owner == tid ||
		(!owner && __atomic_compare_exchange_n(&w->tid, &owner, tid, false,
				   __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
}

struct crn_wait *crn_wait_begin(const volatile void *at, size_t len)
{
	int tid;

	if (!__cairn_shape.threads)
		return NULL;
	tid = crn_gettid();
	for (unsigned i = 0; i < CRN_WAITS; i++) {
		struct crn_wait *w = &crn_waits[((unsigned)tid + i) % CRN_WAITS];

		if (!claim(w, tid))
			continue;
		w->len = (uint32_t)len;
		__atomic_store_n(&w->at, (uintptr_t)at, __ATOMIC_RELEASE);
		return w;
	}
	return NULL;
}

void crn_wait_end(struct crn_wait **wait)
{
	if (!*wait)
		return;
	__atomic_store_n(&(*wait)->at, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&(*wait)->tid, 0, __ATOMIC_RELEASE);
}
