/* SPDX-License-Identifier: MIT */
/*
 * Which processes share this process's memory without being its threads: those that clone has made
 * with CLONE_VM alone, and those that they have created in turn, as far as they are alive.
 */
#ifndef CRN_OS_SHARERS_H
#define CRN_OS_SHARERS_H

/*
 * Has that task our memory? 1, 0, -ESRCH: it is gone; or another -errno: not to be told (kcmp is
 * forbidden). 0 also for a leader that has ended before its threads.
 */
int crn_shares_memory(int tid);

/*
 * Call fn for each of them, and for whoever cannot be told from one. 0: there is nobody else. A
 * negative errno: that cannot be known, for /proc is not there, hides processes, or more are born
 * than can be looked at (-EAGAIN). Costs some calls for each process of the host: a millisecond for
 * a hundred. Ask crn_memory_alone() first.
 */
int crn_sharers_each(void (*fn)(void *ctx, int tid), void *ctx);

#endif
