/* SPDX-License-Identifier: MIT */
/* Ends and new beginnings of the process, for what runs before the program's first instruction. */
#ifndef CRN_OS_EXEC_H
#define CRN_OS_EXEC_H

/*
 * Begin the program anew without randomised addresses. Returns only if that is no help: -ERANGE
 * (they are not randomised), or what the kernel refused.
 */
int crn_exec_unrandomised(char **argv, char **envp);

_Noreturn void crn_exit_process(int status);

#endif
