/* SPDX-License-Identifier: MIT */
/* Ends a test that waits for ever, perhaps with all signals blocked, so that no alarm would. */
#ifndef TEST_WATCHER_H
#define TEST_WATCHER_H

#include <signal.h>
#include <sys/prctl.h>
#include "../lib/harness.h"

static inline void watcher_begin(unsigned seconds)
{
	pid_t parent = getpid(), pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sleep(seconds);
	dprintf(2, "FAIL: it waits for ever\n");
	kill(parent, SIGKILL);
	_exit(0);
}

#endif
