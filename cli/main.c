/* SPDX-License-Identifier: MIT */
/* The `cairn` command: finds the subcommand and hands over. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cairn/cairn.h"
#include "commands.h"
#include "output.h"

struct command {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *summary;
};

static const struct command commands[] = {
	{ "run", cmd_run, "run an unmodified program with checkpoints; recover it from crashes" },
	{ "doctor", cmd_doctor, "say what this host supports, and how to enable the rest" },
	{ "profile", cmd_profile, "find the best sites for checkpoints of a program" },
	{ "stat", cmd_stat, "show live figures of a program that runs under `cairn run`" },
	{ NULL, NULL, NULL },
};

static void help(FILE *out)
{
	fputs("Usage: cairn COMMAND [OPTION...]\n"
	      "       cairn help COMMAND\n"
	      "\n"
	      "High-frequency in-memory checkpoints of running programs.\n"
	      "\n"
	      "Commands:\n", out);
	for (const struct command *c = commands; c->name; c++)
		fprintf(out, "  %-8s %s\n", c->name, c->summary);
	fputs("\n"
	      "  -h, --help      print this help and exit\n"
	      "  -V, --version   print the version and exit\n"
	      "\n"
	      "`cairn COMMAND --help` lists a command's options; `man cairn` says more.\n", out);
}

static int usage(const char *what, const char *name)
{
	fprintf(stderr, "cairn: %s%s\nTry `cairn --help`.\n", what, name);
	return CRN_EXIT_USAGE;
}

static int dispatch(const char *name, int argc, char **argv)
{
	static char full_name[32];

	for (const struct command *c = commands; c->name; c++) {
		if (strcmp(c->name, name) != 0)
			continue;
		snprintf(full_name, sizeof(full_name), "cairn %s", name);
		argv[0] = full_name;
		return c->main(argc, argv);
	}
	return usage("unknown command: ", name);
}

static bool asks_for_help(const char *option)
{
	return !strcmp(option, "-h") || !strcmp(option, "--help");
}

/* `cairn help` and `cairn help COMMAND`. argv begins at "help". */
static int help_command(int argc, char **argv)
{
	static char option[] = "--help";
	char *fake[] = { NULL, option, NULL };

	if (argc < 2 || asks_for_help(argv[1])) {
		help(stdout);
		return 0;
	}
	return dispatch(argv[1], 2, fake);
}

int main(int argc, char **argv)
{
	argp_err_exit_status = CRN_EXIT_USAGE;
	atexit(output_end);
	if (argc < 2) {
		help(stderr);
		return CRN_EXIT_USAGE;
	}
	if (asks_for_help(argv[1])) {
		help(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "-V") || !strcmp(argv[1], "--version")) {
		puts("cairn " CAIRN_VERSION);
		return 0;
	}
	if (!strcmp(argv[1], "help"))
		return help_command(argc - 1, argv + 1);
	if (argv[1][0] == '-')
		return usage("unknown option: ", argv[1]);
	return dispatch(argv[1], argc - 1, argv + 1);
}
