/* SPDX-License-Identifier: MIT */
/*
 * The subcommands of `cairn`, one file each (run.c, doctor.c, stat.c, profile.c). main.c hands over
 * with argv[0] replaced by "cairn COMMAND", which is what argp prints in its messages; each command
 * has its own --help. They return the exit status: 0, 1 for a failure, 2 for a wrong command line.
 */
#ifndef CRN_COMMANDS_H
#define CRN_COMMANDS_H

/* Exit status of a command line that makes no sense; argp is told so with argp_err_exit_status. */
#define CRN_EXIT_USAGE 2

int cmd_run(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_profile(int argc, char **argv);

#endif
