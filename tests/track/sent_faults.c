/* SPDX-License-Identifier: MIT */
/*
 * sent_faults TRACKER: somebody sends the signals by which a tracker works, at any instant, and the
 * program's handler goes back to a checkpoint. It never waits for what it has interrupted: a
 * watcher ends the test else.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include "../lib/harness.h"
#include "watcher.h"

#define PAGE    4096ul
#define PAGES   256ul
#define SIGNALS 3000
#define LIMIT   60 /* seconds; it takes three */

static cairn_t *c;

/* Not turned back. */
static struct shared {
	uint64_t id; /* 0: not to be gone back to */
	atomic_ulong rounds, sent, refused, over;
} *shared;

static void on_sent(int sig, siginfo_t *info, void *uc)
{
	(void)uc;
	if (info->si_code > 0)
		test_fail("signal %d, code %d, at %p given to the program", sig, info->si_code,
			info->si_addr);
	shared->sent++;
	if (shared->id && cairn_restore(c, shared->id) < 0)
		shared->refused++; /* it has interrupted a call */
}

static _Noreturn void send_signals(pid_t to)
{
	const struct timespec pause = { 0, 400000 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; i < SIGNALS; i++) {
		nanosleep(&pause, NULL);
		if (kill(to, i % 2 ? SIGSEGV : SIGBUS))
			_exit(1);
	}
	shared->over = 1;
	_exit(0);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = on_sent, .sa_flags = SA_SIGINFO | SA_NODEFER };
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	volatile uint8_t *area;
	uint64_t id;
	pid_t sender;

	if (argc != 2)
		test_fail("usage: sent_faults TRACKER");
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED && area != MAP_FAILED);
	CHECK(!sigaction(SIGSEGV, &action, NULL) && !sigaction(SIGBUS, &action, NULL));
	o.tracker = argv[1];
	o.strategy = "none"; /* the pages shall be closed */
	o.surface = "none";
	o.keep = 2;
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, (void *)area, PAGES * PAGE));
	watcher_begin(LIMIT);
	sender = fork();
	CHECK(sender >= 0);
	if (!sender)
		send_signals(getppid());
	while (!shared->over) {
		for (size_t i = 0; i < PAGES; i++)
			area[i * PAGE]++;
		if (cairn_checkpoint(c, &id) == CAIRN_TAKEN)
			shared->id = id;
		shared->rounds++;
	}
	shared->id = 0;
	while (waitpid(sender, NULL, 0) != sender)
		;
	CHECK(shared->sent > SIGNALS / 20 && shared->refused < shared->sent);
	CHECK_OK(cairn_close(c));
	return 0;
}
