/* SPDX-License-Identifier: MIT */
/*
 * System calls that the program makes by their numbers: through syscall(2), or everywhere, where
 * libc itself has hooks (-fcairn-complete). Arguments and results are the kernel's.
 */
#ifndef CRN_RT_WRAP_CALL_H
#define CRN_RT_WRAP_CALL_H

#include <stdbool.h>
#include "rt/wrap/landing_messages.h"

/* Calls that change the program's mappings, and how they are made so that they can be undone. */
bool crn_call_maps(long nr);
long crn_call_map(long nr, const long args[6]);

/*
 * Any other call is made between these two, with `args` as they are here. Its result, or -errno,
 * goes through the second, which gets the program's arguments. Of calls that write unseen the
 * interval cannot be restored.
 */
struct crn_call {
	long args[6];
	bool lands;
	struct message_landing landing;
};
void crn_call_begin(struct crn_call *c, long nr, const long args[6]);
long crn_call_end(struct crn_call *c, long nr, const long args[6], long got);

#endif
