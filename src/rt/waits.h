/* SPDX-License-Identifier: MIT */
/*
 * Where threads wait for each other: condition variables, semaphores, barriers. libc keeps in them
 * who waits. A restore leaves other threads as they are, so it must leave that as it is, too.
 */
#ifndef CRN_RT_WAITS_H
#define CRN_RT_WAITS_H

#include <stddef.h>
#include <stdint.h>

struct crn_wait {
	uintptr_t at; /* bytes from here on that say so; 0: nobody waits by this entry */
	uint32_t len;
	int tid;
};

/* The calling thread is about to wait. NULL: there are too many, or programs have one thread. */
struct crn_wait *crn_wait_begin(const volatile void *at, size_t len);
/* For the attribute `cleanup`: it has waited, or was cancelled. */
void crn_wait_end(struct crn_wait **wait);

#define CRN_WAITS 1024u
extern struct crn_wait crn_waits[CRN_WAITS];

#endif
