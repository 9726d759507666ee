/* SPDX-License-Identifier: MIT */
/*
 * refused CALL: a program with a filter that refuses a call which it does not make itself, and goes
 * on. A timer's handler comes in the midst of many calls, under an agent in the midst of its hooks.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include "expect.h"

#define SIGNALS 200

static volatile sig_atomic_t signals;

static void on_alarm(int sig)
{
	(void)sig;
	signals++;
}

static void refuse(unsigned nr, unsigned answer)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | answer),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	EXPECT(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	EXPECT(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

int main(int argc, char **argv)
{
	const struct itimerval every = { { 0, 300 }, { 0, 300 } };
	const char *call = argc > 1 ? argv[1] : "";
	struct sigaction action = { .sa_handler = on_alarm };

	for (int i = 0; i < 5; i++)
		EXPECT(poll(NULL, 0, 1) == 0); /* sites */
	EXPECT(!sigaction(SIGALRM, &action, NULL));
	if (!strcmp(call, "tgkill"))
		refuse(SYS_tgkill, EPERM);
	else if (!strcmp(call, "gettid"))
		refuse(SYS_gettid, EPERM);
	else if (!strcmp(call, "getpid"))
		refuse(SYS_getpid, ENOSYS);
	else
		refuse(SYS_tgkill, 0); /* as if it had been made */
	EXPECT(!setitimer(ITIMER_REAL, &every, NULL));
	while (signals < SIGNALS) {
		(void)getppid();
		EXPECT(read(-1, argv, 1) < 0 && errno == EBADF);
		EXPECT(poll(NULL, 0, 0) == 0 || errno == EINTR);
	}
	printf("refused: ok\n");
	return 0;
}
