/* SPDX-License-Identifier: MIT */
/*
 * Is the memory that a program passes to a system call there? A wrapper that touched it would raise
 * SIGSEGV where the kernel answers EFAULT, or writes only as far as there is memory. So the wrapper
 * checks first. The kernel is not asked about memory that is there as a rule: the program's heap,
 * its variables, its stack. Legal in any context.
 */
#ifndef CRN_RT_REACH_H
#define CRN_RT_REACH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#define CRN_CALL_MAX ((size_t)0x7ffff000) /* bytes: the kernel writes no more for one buffer */

/* Does it lie in the program's heap, its variables, or its stack? Not all of these do. */
bool crn_reach_own(const volatile void *at, size_t n);

/* Can all of it be read? */
bool crn_reach_there(const volatile void *at, size_t n);

/*
 * Can all of it be written? Asked by writing what is there to a byte of each page: of memory that
 * the kernel may overwrite anyway.
 */
bool crn_reach_open(void *at, size_t n);
bool crn_reach_all_open(const struct iovec *parts, size_t count);

/* Keep it, as far as there is memory: the kernel stops there, too. */
void crn_reach_keep(const volatile void *at, size_t n);

/*
 * The program has called mprotect, munmap or mmap for [at, at+n): from now on the kernel is asked
 * of all memory if that is a part of what it was not asked of.
 */
void crn_reach_doubt(const void *at, size_t n);

#endif
