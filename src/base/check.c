/* SPDX-License-Identifier: MIT */
#include "base/check.h"
#include "base/log.h"

_Noreturn void crn_check_failed(const char *cond, const char *file, int line)
{
	crn_error("internal check failed: %s (%s:%d)", cond, file, line);
	/* Not abort(): that needs libc, takes locks and runs the program's handlers. */
	__builtin_trap();
}
