/* SPDX-License-Identifier: MIT */
/* Record locks (fcntl F_SETLK) of the calling process. */
#ifndef CRN_OS_OWN_LOCKS_H
#define CRN_OS_OWN_LOCKS_H

#include <stdint.h>

/*
 * Has the process one, of any file, of which a byte lies in [begin, last]? 1, 0, or -errno: that
 * cannot be told, -EMSGSIZE where the machine has more locks than the kernel tells at once. Some
 * microseconds for each lock of the machine's.
 */
int crn_own_locks(uint64_t begin, uint64_t last);

/*
 * A close of a file ends those that the process has of it. Calls fn(arg), and closes the
 * descriptor that it answers (or -errno), where no lock ends: if the process may have one, in a
 * child that shares its memory and not its descriptors. 0, or -errno: fn has not been called
 * (-EXDEV: a child would be in another PID namespace).
 */
int crn_beside_locks(int (*fn)(void *arg), void *arg);

#endif
