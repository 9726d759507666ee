/* SPDX-License-Identifier: MIT */
/* System calls by number. */
#include <unistd.h>
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrap_call.h"

static long passed_on(long nr, const long args[6])
{
	struct crn_call c;
	long got;

	crn_call_begin(&c, nr, args);
	got = syscall(nr, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5]);
	return crn_call_end(&c, nr, args, got == -1 ? -errno : got);
}

WRAPPER(long, syscall, long nr, ...)
{
	long args[6], result;
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		args[i] = va_arg(ap, long);
	va_end(ap);
	result = crn_call_maps(nr) ? crn_call_map(nr, args) : passed_on(nr, args);
	if ((unsigned long)result <= -4096ul)
		return result;
	errno = (int)-result;
	return -1;
}
