/* SPDX-License-Identifier: MIT */
/*
 * System calls that the program makes by their numbers: through syscall(2), or everywhere, where
 * libc itself has hooks (-fcairn-complete). Arguments and results are the kernel's.
 */
#ifndef CRN_RT_WRAP_CALL_H
#define CRN_RT_WRAP_CALL_H

#include <stdbool.h>

/* Calls that change the program's mappings, and how they are made so that they can be undone. */
bool crn_call_maps(long nr);
long crn_call_map(long nr, const long args[6]);

/*
 * Keep what the call is about to write. `surely`: what it points to is memory for sure; else each
 * page is looked at before. Of calls that write unseen the interval cannot be restored.
 */
void crn_call_keep(long nr, const long args[6], bool surely);

#endif
