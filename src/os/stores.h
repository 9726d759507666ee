/* SPDX-License-Identifier: MIT */
/*
 * Storing one byte by another agent than the calling thread, done when the call returns, to see
 * whether a tracker or feed notices it. Results are 0 or positive, or -errno. No signal and no
 * trace is left.
 */
#ifndef CRN_OS_STORES_H
#define CRN_OS_STORES_H

#include <stddef.h>
#include <stdint.h>

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
