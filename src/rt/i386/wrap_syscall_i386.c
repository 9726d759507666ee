/* SPDX-License-Identifier: MIT */
/*
 * wrap_syscall.c for 32-bit programs: os/call_memory.def has the calls of x86-64. Of those of
 * i386 only a few are known to write no memory, or what their arguments say; after any other the
 * interval cannot be restored.
 */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/status.h"
#include "rt/wrap/reach.h"
#include "rt/wrap/wrap.h"

static void keep_written(long nr, const long args[6])
{
	switch (nr) {
	case SYS_read:
	case SYS_getdents64:
		crn_reach_keep((void *)args[1], (size_t)args[2]);
		return;
	case SYS_getrandom:
		crn_reach_keep((void *)args[0], (size_t)args[1]);
		return;
	case SYS_futex:
		if ((args[1] & FUTEX_CMD_MASK) > FUTEX_WAKE)
			crn_rt_give_up(0, CAIRN_EUNSUPPORTED);
		return;
	case SYS_close:
	case SYS_getpid:
	case SYS_gettid:
	case SYS_kill:
	case SYS_tgkill:
	case SYS_write:
		return;
	default:
		crn_rt_give_up(0, CAIRN_EUNSUPPORTED);
	}
}

WRAPPER(long, syscall, long nr, ...)
{
	long args[6];
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		args[i] = va_arg(ap, long);
	va_end(ap);
	if (__cairn_rt.active)
		keep_written(nr, args);
	return syscall(nr, args[0], args[1], args[2], args[3], args[4], args[5]);
}
