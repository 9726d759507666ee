/* SPDX-License-Identifier: MIT */
/*
 * Makes every call of effects.def, each in a child of its own, with -1 for all arguments: no
 * descriptor, no address, no process, no flag. Prints what each answered. test_every_call.py
 * compares that with and without the agent, whose hooks must not trip over such arguments.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Calls that do something even so: they end, stop or double the caller, or leave a queue behind. */
static const char *const effective[] = {"clone", "exit", "exit_group", "fork", "msgget", "pause",
	"restart_syscall", "rt_sigreturn", "uretprobe", "vfork", "vhangup"};

static bool is_effective(const char *name)
{
	for (size_t i = 0; i < sizeof(effective) / sizeof(*effective); i++)
		if (strcmp(name, effective[i]) == 0)
			return true;
	return false;
}

static void try_call(long number, const char *name, const char *effect)
{
	int status;
	pid_t child;

	if (is_effective(name))
		return;
	fflush(stdout);
	child = fork();
	if (child == 0) {
		alarm(60);
		_exit(syscall(number, -1, -1, -1, -1, -1, -1) < 0 ? errno : 0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child) {
		perror(name);
		return;
	}
	printf("%s %s %s %d\n", name, effect, WIFSIGNALED(status) ? "signal" : "errno",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

int main(void)
{
#define CRN_CALL(number, name, effect, site, hook) try_call(number, #name, #effect);
#include "effects.def"
	return 0;
}
