/* SPDX-License-Identifier: MIT */
/*
 * A program that locks itself in: after the filter, any call that it does not make itself is its
 * death. It has passed sites before, and passes more of them after. If it crashes, that is what it
 * dies of.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "expect.h"

#define ALLOW(call)                                                         \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),              \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static char pages[64][4096];

static void work(int *ends)
{
	struct pollfd p = { .fd = ends[0], .events = POLLIN };
	char c = 'c';

	for (int i = 0; i < 64; i++) {
		EXPECT(write(ends[1], &c, 1) == 1);
		EXPECT(poll(&p, 1, 1000) == 1);
		EXPECT(read(ends[0], &pages[i][i], 1) == 1 && pages[i][i] == c);
		pages[63 - i][4095]++;
	}
}

static void lock_in(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(read),
		ALLOW(write),
		ALLOW(poll),
		ALLOW(exit_group),
		ALLOW(rt_sigreturn),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	EXPECT(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	EXPECT(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void crash(int *ends)
{
	pid_t child = fork();
	int status;

	EXPECT(child >= 0);
	if (child == 0) {
		work(ends);
		lock_in();
		work(ends);
		*(volatile int *)8 = 1;
	}
	EXPECT(waitpid(child, &status, 0) == child);
	EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

int main(void)
{
	const struct rlimit none = { 0, 0 };
	int ends[2];

	EXPECT(!pipe(ends) && !setrlimit(RLIMIT_CORE, &none));
	crash(ends);
	work(ends);
	lock_in();
	work(ends);
	EXPECT(write(1, "seccomp: ok\n", 12) == 12);
	_exit(0);
}
