/* SPDX-License-Identifier: MIT */
/*
 * One byte stored by somebody else than the calling thread, and done when the call returns: for
 * seeing whether that is noticed. 0 or positive, or -errno. No signal and no trace is left.
 */
#ifndef CRN_OS_STORES_H
#define CRN_OS_STORES_H

#include <stdint.h>

int crn_store_by_kernel(volatile uint8_t *at); /* in a system call, like read(2) */
int crn_store_by_thread(volatile uint8_t *at);
int crn_store_by_child(volatile uint8_t *at); /* like vfork's */

#endif
