/* SPDX-License-Identifier: MIT */
/*
 * Children that are born with CLONE_CLEAR_SIGHAND, as posix_spawn of newer libcs makes them: none
 * of the program's handlers is theirs. What the agent does by signals goes on: calls that no patch
 * covers, and first stores to pages that a tracker has closed.
 */
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "expect.h"

#define PAGE  4096
#define PAGES 64
#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ull
#endif

enum end { END_EXIT, END_SIGNAL, END_CRASH };

static char memory[PAGES * PAGE] __attribute__((aligned(PAGE)));
static volatile int handled;

static void on_signal(int sig)
{
	(void)sig;
	handled++;
	_exit(99);
}

/* In place, so that a child that shares the stack leaves it as it is; and no stub is patched in. */
static inline __attribute__((always_inline)) long raw(long nr, long a, long b)
{
	long ret;

	__asm__ volatile("syscall" : "=a"(ret) : "0"(nr), "D"(a), "S"(b) : "rcx", "r11", "memory");
	return ret;
}

/* SAFETY: in the child, which may share all memory with its parent. */
static __attribute__((noinline, noreturn)) void child(enum end end)
{
	struct sigaction usr1, usr2, segv;

	for (int i = 0; i < PAGES; i++)
		memory[i * PAGE] = 'c';
	if (raw(SYS_getpid, 0, 0) == getppid() || sigaction(SIGUSR1, NULL, &usr1) < 0 ||
		sigaction(SIGUSR2, NULL, &usr2) < 0 || sigaction(SIGSEGV, NULL, &segv) < 0)
		_exit(1);
	if (usr1.sa_handler != SIG_DFL || usr2.sa_handler != SIG_IGN || segv.sa_handler != SIG_DFL)
		_exit(2);
	if (end == END_SIGNAL)
		raw(SYS_kill, raw(SYS_getpid, 0, 0), SIGUSR1);
	if (end == END_CRASH)
		*(volatile char *)8 = 1;
	_exit(7);
}

static void bear(uint64_t flags, enum end end)
{
	struct clone_args args = {.flags = flags | CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
	long pid;
	int status;

	memset(memory, 'p', sizeof(memory));
	EXPECT(poll(NULL, 0, 1) == 0);
	pid = raw(SYS_clone3, (long)&args, sizeof(args));
	if (!pid)
		child(end);
	EXPECT(pid > 0 && waitpid((pid_t)pid, &status, 0) == pid);
	if (end == END_EXIT)
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	else
		EXPECT(WIFSIGNALED(status) &&
			WTERMSIG(status) == (end == END_SIGNAL ? SIGUSR1 : SIGSEGV));
	EXPECT(!handled && args.flags == (flags | CLONE_CLEAR_SIGHAND));
	for (int i = 0; i < PAGES; i++)
		EXPECT(memory[i * PAGE] == (flags & CLONE_VM ? 'c' : 'p') &&
			memory[i * PAGE + 1] == 'p');
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_signal}, was;

	EXPECT(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
	EXPECT(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
	for (int round = 0; round < 3; round++) {
		for (enum end end = END_EXIT; end <= END_CRASH; end++) {
			bear(0, end);
			bear(CLONE_VM | CLONE_VFORK, end);
		}
		EXPECT(sigaction(SIGUSR1, NULL, &was) == 0 && was.sa_handler == on_signal);
	}
	puts("cleared: ok");
	return 0;
}
