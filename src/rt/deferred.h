/* SPDX-License-Identifier: MIT */
/*
 * What the program gives back and a restore would have to bring again: it is given back when the
 * last kept checkpoint that may need it is gone, or, if its interval is undone, not at all.
 * Intervals are named by the checkpoint that begins them.
 */
#ifndef CRN_RT_DEFERRED_H
#define CRN_RT_DEFERRED_H

#include <stdbool.h>

/* Put off; false: no session is open, so it can be done now. Beyond a million some are lost. */
bool crn_deferred_add(void *what);

/* The next one that nobody needs any more, or NULL. In the program's context. */
void *crn_deferred_next(void);

#endif
