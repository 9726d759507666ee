/* SPDX-License-Identifier: MIT */
/* ELF objects as they lie in memory. */
#ifndef CRN_OS_OBJECT_H
#define CRN_OS_OBJECT_H

#include <stdint.h>

/*
 * Where the memory of the object ends whose header is mapped at `header`: the end of its .bss, in
 * whole pages. 0 if no object begins there, UINTPTR_MAX if that cannot be read. Never raises a
 * signal; no locks.
 */
uintptr_t crn_object_end(uintptr_t header);

#endif
