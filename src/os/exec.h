/* SPDX-License-Identifier: MIT */
/* Ending and executing the process, for code that runs before the program's first instruction. */
#ifndef CRN_OS_EXEC_H
#define CRN_OS_EXEC_H

/*
 * Begin the program anew with the layout of addresses that most programs have, and not randomised.
 * A stack without a limit makes the kernel take another layout: it gets one of 64 GiB. Returns only
 * if that is no help: -ERANGE (it was so already), or what the kernel refused.
 */
int crn_exec_default_layout(char **argv, char **envp);

_Noreturn void crn_exit_process(int status);

#endif
