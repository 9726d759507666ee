/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sys/personality.h>
#include "os/exec.h"
#include "os/sys.h"

int crn_exec_unrandomised(char **argv, char **envp)
{
	long now = crn_sys1(SYS_personality, 0xffffffff), err;

	if (now < 0)
		return (int)now;
	if (now & ADDR_NO_RANDOMIZE)
		return -ERANGE;
	err = crn_sys1(SYS_personality, now | ADDR_NO_RANDOMIZE);
	if (err < 0)
		return (int)err;
	return (int)crn_sys3(SYS_execve, "/proc/self/exe", argv, envp);
}

_Noreturn void crn_exit_process(int status)
{
	for (;;)
		crn_sys1(SYS_exit_group, status);
}
