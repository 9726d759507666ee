/* SPDX-License-Identifier: MIT */
/*
 * Objects that the program has ended, and that libc has in its own heap, in the list of what is put
 * off (deferred.h): by an odd address. The object, or its head, follows in the same block.
 */
#ifndef CRN_RT_WRAP_ENDED_H
#define CRN_RT_WRAP_ENDED_H

#include <stdint.h>

struct crn_ended {
	void (*end)(struct crn_ended *e); /* and frees `e` */
};

#define CRN_ENDED(e) ((void *)((uintptr_t)(e) | 1))

/* Is it one? */
static inline struct crn_ended *crn_ended(void *what)
{
	return (uintptr_t)what & 1 ? (struct crn_ended *)((uintptr_t)what - 1) : NULL;
}

#endif
