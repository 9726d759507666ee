/* SPDX-License-Identifier: MIT */
#ifndef CRN_ENDED_THREADS_H
#define CRN_ENDED_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cairn/cairn.h"

/* While a restore runs. */
struct crn_ended_threads {
	uintptr_t begin, end;     /* the mapping that was asked for last */
	uintptr_t robust_list_at; /* where descriptors have their robust list; 0: they have none */
};

/* Before a restore stores anything, when c->builtin is complete. 0 or CAIRN_EMEMORY. */
int crn_ended_threads_begin(cairn_t *c);
/*
 * [addr, + len), of one page: true if its mapping is gone, so that nothing is to be put back. Else
 * c->builtin has libc's data around it from now on.
 */
bool crn_ended_with_thread(cairn_t *c, uintptr_t addr, size_t len);

#endif
