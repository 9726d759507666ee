/* SPDX-License-Identifier: MIT */
/*
 * System calls of 32-bit programs, for os/sys.h. Names that the rest of the engine uses mean the
 * calls with the structures that it has: of 64-bit times, and of offsets that are pages.
 */
#ifndef CRN_SYS_I386_H
#define CRN_SYS_I386_H

#include <sys/syscall.h>

long crn_sys6(long nr, long a, long b, long c, long d, long e, long f);

#undef SYS_mmap
#undef SYS_clock_gettime
#undef SYS_fstat
#undef SYS_futex
#undef SYS_getrlimit
#undef SYS_rt_sigtimedwait
#define SYS_mmap           SYS_mmap2 /* the offset is in pages */
#define SYS_clock_gettime  SYS_clock_gettime64
#define SYS_fstat          SYS_fstat64
#define SYS_futex          SYS_futex_time64
#define SYS_getrlimit      SYS_ugetrlimit
#define SYS_rt_sigtimedwait SYS_rt_sigtimedwait_time64

#endif
