/* SPDX-License-Identifier: MIT */
/* Somebody debugs the keeper, and stops it where it has begun to read an event. */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include "../track/child_find.h"
#include "remapped.h"

static enum { COMING, HELD, FORBIDDEN } _Atomic tracing;

/* The thread that reads, or 0. */
static pid_t reader_of(pid_t keeper)
{
	char path[64];
	struct dirent *e;
	pid_t found = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", keeper);
	dir = opendir(path);
	while (dir && (e = readdir(dir)))
		if (atoi(e->d_name) > 0 && atoi(e->d_name) != keeper)
			found = atoi(e->d_name);
	if (dir)
		closedir(dir);
	return found;
}

static bool is_reading(pid_t tid)
{
	struct user_regs_struct regs;

	CHECK(ptrace(PTRACE_GETREGS, tid, NULL, &regs) == 0);
	return regs.orig_rax == SYS_read;
}

/* Until it dies: who traces is in its way no longer than that. */
static void *hold_reader(void *arg)
{
	pid_t tid = *(pid_t *)arg;
	int status;

	if (ptrace(PTRACE_SEIZE, tid, NULL, (void *)PTRACE_O_TRACESYSGOOD) < 0 ||
		ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) < 0) {
		tracing = FORBIDDEN;
		return NULL;
	}
	while (waitpid(tid, &status, __WALL) == tid && WIFSTOPPED(status)) {
		if (WSTOPSIG(status) == (SIGTRAP | 0x80) && is_reading(tid))
			tracing = HELD;
		else
			CHECK(ptrace(PTRACE_SYSCALL, tid, NULL, NULL) == 0);
	}
	return NULL;
}

void keeper_stalled(void)
{
	pid_t pids[CHILDREN_MAX], tid;
	pthread_t tracer;
	int rc;

	begin(map_area(), "none");
	if (!events_are_read())
		test_skip("userfaultfd with events");
	child_name = "cairn-keeper";
	CHECK_U64(children_find(pids), 1);
	tid = reader_of(pids[0]);
	CHECK(tid);
	CHECK(pthread_create(&tracer, NULL, hold_reader, &tid) == 0);
	while (tracing == COMING)
		drop_open();
	if (tracing == FORBIDDEN)
		test_skip("ptrace(2) of a child");
	rc = cairn_rewind(c, id);
	CHECK(rc == 0 ? is_restored() : rc == CAIRN_ELAYOUT);
	pthread_join(tracer, NULL);
	CHECK_OK(cairn_close(c));

	/* And the next ones tell as ever. */
	begin(map_area(), "none");
	drop_clean();
	CHECK_RC(cairn_rewind(c, id), CAIRN_ELAYOUT);
	CHECK_OK(cairn_close(c));
}
