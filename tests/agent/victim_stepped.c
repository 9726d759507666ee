/* SPDX-License-Identifier: MIT */
/*
 * victim_stepped WHAT: waits, and does WHAT, turn by turn, while stepped.c stops it at instructions
 * of the agent and sends it signals. Whatever is done about these, it runs on with no signal
 * blocked. WHAT:
 *
 *	calm     the handler crashes when it is told to     crash   each turn crashes
 *	fork     each turn has a child
 */
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "expect.h"
#include "stepped.h"

static struct stepped *shared;
static pid_t self;

static void crash(void)
{
	volatile int *nowhere = (volatile int *)16;

	*nowhere = 0;
}

static void on_signal(int sig)
{
	EXPECT(getpid() == self);
	atomic_fetch_add(&shared->handled, 1);
	if (sig == SIGALRM && atomic_exchange(&shared->crash, false))
		crash();
}

static void one_turn(const char *what)
{
	/* two crashes of one turn would be too many */
	bool odd = atomic_fetch_add(&shared->turns, 1) % 2;
	int status;
	pid_t pid;

	if (!strcmp(what, "crash") && odd)
		crash();
	if (!strcmp(what, "fork")) {
		pid = fork();
		if (!pid)
			_exit(0);
		EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	}
}

int main(int argc, char **argv)
{
	const char *fd = getenv(STEPPED_FD), *what = argc > 1 ? argv[1] : "";
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	uint64_t mask[16];

	if (!fd)
		return 2;
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(fd), 0);
	EXPECT(shared != MAP_FAILED);
	self = getpid();
	EXPECT(!sigaction(SIGALRM, &act, NULL) && !sigaction(SIGBUS, &act, NULL));
	raise(SIGSTOP); /* whoever traces it is here now */
	while (!shared->over) {
		poll(NULL, 0, 0);
		memset(mask, 0, sizeof(mask));
		EXPECT(!sigprocmask(SIG_BLOCK, NULL, (sigset_t *)mask) && mask[0] == 0);
		one_turn(what);
	}
	return 0;
}
