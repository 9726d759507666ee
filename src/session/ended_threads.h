/* SPDX-License-Identifier: MIT */
#ifndef CRN_ENDED_THREADS_H
#define CRN_ENDED_THREADS_H

#include "session/engine.h"

/* Before a restore stores anything, when c->builtin is complete. */
void crn_ended_threads_begin(cairn_t *c);
/* Is this not to be put back at all? Adds libc's data around it to c->builtin. Of one page. */
bool crn_ended_with_thread(cairn_t *c, uintptr_t addr, size_t len);

#endif
