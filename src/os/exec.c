/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdbool.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include "os/exec.h"
#include "os/sys.h"

/* As good as none, and no cause for the legacy layout; from where on it is one. */
#ifdef __i386__
#define STACK_LIMIT (64ul << 20)
#define STACK_LARGE (512ul << 20)
#else
#define STACK_LIMIT (64ul << 30)
#define STACK_LARGE RLIM_INFINITY
#endif

/* Its own path where that still leads there, so that the kernel shows the program's own name. */
static long exec_self(char **argv, char **envp)
{
	char path[4096];
	long len = crn_sys3(SYS_readlink, "/proc/self/exe", path, sizeof(path) - 1);

	if (len > 0) {
		path[len] = 0;
		crn_sys3(SYS_execve, path, argv, envp);
	}
	return crn_sys3(SYS_execve, "/proc/self/exe", argv, envp);
}

int crn_exec_default_layout(char **argv, char **envp)
{
	long now = crn_sys1(SYS_personality, 0xffffffff);
	long want = (now | ADDR_NO_RANDOMIZE) & ~(ADDR_COMPAT_LAYOUT | ADDR_LIMIT_3GB);
	struct rlimit stack = { 0 };
	bool endless;

	if (now < 0)
		return (int)now;
	endless = !crn_sys2(SYS_getrlimit, RLIMIT_STACK, &stack) &&
		stack.rlim_cur >= STACK_LARGE;
	if (now == want && !endless)
		return -ERANGE;
	stack.rlim_cur = STACK_LIMIT;
	if (endless)
		crn_sys2(SYS_setrlimit, RLIMIT_STACK, &stack);
	if (crn_sys1(SYS_personality, want) < 0)
		return -EPERM;
	return (int)exec_self(argv, envp);
}

_Noreturn void crn_exit_process(int status)
{
	for (;;)
		crn_sys1(SYS_exit_group, status);
}
