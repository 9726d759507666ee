/* SPDX-License-Identifier: MIT */
/*
 * Raw system calls. They bypass libc, so they are legal before libc is initialised, in signal
 * handlers and after fork. They never touch errno, and our own agent never intercepts them. They
 * return the kernel's result: >= 0 or -errno.
 */
#ifndef CRN_SYS_H
#define CRN_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#ifdef __i386__
#include "os/i386/sys_i386.h"
#else

static inline long crn_sys6(long nr, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}
#endif

/* Younger than the distribution's headers. */
#define NR_MSEAL 462

#define crn_sys0(nr)             crn_sys6(nr, 0, 0, 0, 0, 0, 0)
#define crn_sys1(nr, a)          crn_sys6(nr, (long)(a), 0, 0, 0, 0, 0)
#define crn_sys2(nr, a, b)       crn_sys6(nr, (long)(a), (long)(b), 0, 0, 0, 0)
#define crn_sys3(nr, a, b, c)    crn_sys6(nr, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define crn_sys4(nr, a, b, c, d) crn_sys6(nr, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)
#define crn_sys5(nr, a, b, c, d, e) \
	crn_sys6(nr, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), 0)

#endif
