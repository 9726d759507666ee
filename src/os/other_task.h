/* SPDX-License-Identifier: MIT */
/*
 * Another task that shares our memory, a thread or a child like vfork's, does one thing and is gone
 * when the call returns. Events of perf are opened so, and whatever else must not be tied to the
 * calling thread. Or it stores one byte, to see whether a tracker or feed notices it. Results are 0
 * or positive, or -errno. No signal and no trace is left.
 */
#ifndef CRN_OS_OTHER_TASK_H
#define CRN_OS_OTHER_TASK_H

#include <stddef.h>
#include <stdint.h>

#define CRN_CLONE_CHILD 0x00004100u /* VM | VFORK; no signal at its end */

int crn_store_by_kernel(volatile uint8_t *at); /* in a system call, like read(2) */
int crn_store_by_thread(volatile uint8_t *at);
int crn_store_by_child(volatile uint8_t *at); /* like vfork's */

/*
 * A system call that another thread makes, and is gone: what the kernel ties to a thread is tied to
 * nobody. 0 or -errno (there was no thread to be had).
 */
struct crn_call {
	long nr, args[5];
	long result;
	int tid; /* out: who it was */
};
int crn_call_by_thread(struct crn_call *call);
/*
 * Such a thread takes the lock of our address space to read, once more than it does as it ends. Its
 * id or -errno.
 */
int crn_lock_by_thread(void *page);

#endif
