/* SPDX-License-Identifier: MIT */
/* without_call NUMBER PROGRAM...: executes it where this system call is refused, with EPERM. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "../lib/refused_call.h"

int main(int argc, char **argv)
{
	if (argc < 3)
		return 1;
	refuse_call((unsigned)atoi(argv[1]), EPERM);
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 1;
}
