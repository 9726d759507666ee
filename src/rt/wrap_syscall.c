/* SPDX-License-Identifier: MIT */
/* System calls by number: what the kernel writes is in os/call_memory.def. */
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/status.h"
#include "os/call_memory.h"
#include "os/memory.h"
#include "rt/keep_readable.h"
#include "rt/wrap.h"
#include "rt/wrap_call.h"

/* They write later, or to memory that their arguments only describe. */
static bool writes_unseen(long nr)
{
	return nr > CRN_CALLS_KNOWN || nr == SYS_io_submit || nr == SYS_io_uring_enter ||
		nr == SYS_process_vm_writev;
}

static int read_here(void *dst, uintptr_t src, size_t len)
{
	memcpy(dst, (const void *)src, len);
	return 0;
}

static int read_there(void *dst, uintptr_t src, size_t len)
{
	return crn_memory_peek(dst, (const void *)src, len) == (long)len ? 0 : -EFAULT;
}

static void keep_range(void *arg, uintptr_t addr, size_t len)
{
	keep((void *)addr, len);
}

static void keep_readable(void *arg, uintptr_t addr, size_t len)
{
	crn_keep_readable(addr, len);
}

void crn_call_keep(long nr, const long args[6], bool surely)
{
	const struct crn_call_listener to = {
		surely ? keep_range : keep_readable, surely ? read_here : read_there, NULL,
	};

	if (!__cairn_rt.active)
		return;
	if (writes_unseen(nr))
		crn_rt_give_up(0, CAIRN_EUNSUPPORTED);
	if (nr == SYS_clone && args[0] & CLONE_PARENT_SETTID)
		crn_keep_readable((uintptr_t)args[2], sizeof(int));
	crn_call_memory(nr, args, &to);
}

WRAPPER(long, syscall, long nr, ...)
{
	long args[6], result;
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		args[i] = va_arg(ap, long);
	va_end(ap);
	if (!crn_call_maps(nr)) {
		crn_call_keep(nr, args, false);
		return syscall(nr, args[0], args[1], args[2], args[3], args[4], args[5]);
	}
	result = crn_call_map(nr, args);
	if ((unsigned long)result <= -4096ul)
		return result;
	errno = (int)-result;
	return -1;
}
