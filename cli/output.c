/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <unistd.h>
#include "output.h"

void output_end(void)
{
	bool lost = ferror(stdout), pending = __fpending(stdout) > 0;

	errno = 0;
	/* Who starts us without standard output may do so, as long as there is nothing to say. */
	if (fclose(stdout) != 0 && (pending || errno != EBADF))
		lost = true;
	if (!lost)
		return;
	fprintf(stderr, "%s: cannot write to standard output%s%s\n", program_invocation_short_name,
		errno ? ": " : "", errno ? strerror(errno) : "");
	_exit(1);
}
