/* SPDX-License-Identifier: MIT */
/*
 * Memory of the program that the kernel writes for a system call (call_memory.def). Arguments are
 * the program's and may be anything, so what they point to is read only by the caller's function.
 * Legal in any context.
 */
#ifndef CRN_OS_CALL_MEMORY_H
#define CRN_OS_CALL_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CRN_CALLS_KNOWN 471 /* of greater numbers nothing is known */

/* CRN_CALL_<name>: numbers of x86-64, by which the table is asked in programs for i386, too. */
enum {
#define CRN_WRITES(nr, name, ...) CRN_CALL_##name = nr,
#include "os/call_memory.def"
#undef CRN_WRITES
};

struct crn_call_listener {
	void (*fn)(void *arg, uintptr_t addr, size_t len); /* never 0 */
	int (*read)(void *dst, uintptr_t src, size_t len); /* 0 or -errno */
	void *arg;
};

/*
 * Tell of each range that the call may write; lengths as the program gave them. Calls that make
 * threads and processes are not told of: what is written for those is their maker's business.
 */
void crn_call_memory(long nr, const long args[6], const struct crn_call_listener *to);

/* Does it write any? */
bool crn_call_writes(long nr);

#endif
