/* SPDX-License-Identifier: MIT */
/* Stands in for commands whose own file is not in this build yet. */
#include <stdio.h>
#include "commands.h"

static int pending(char **argv)
{
	fprintf(stderr, "%s: not in this build\n", argv[0]);
	return 1;
}

__attribute__((weak)) int cmd_run(int argc, char **argv)
{
	return pending(argv);
}

__attribute__((weak)) int cmd_doctor(int argc, char **argv)
{
	return pending(argv);
}

__attribute__((weak)) int cmd_stat(int argc, char **argv)
{
	return pending(argv);
}
