/* SPDX-License-Identifier: MIT */
/* How long frozen children live: as long as the process that they are checkpoints of, no less. */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "frozen.h"

struct report {
	uint64_t count;
	pid_t pids[FROZEN_MAX];
};

static int report_to = -1;

static void victim_begin(void)
{
	struct report r = { 0 };

	open_session(3);
	for (uint8_t i = 0; i < 2; i++) { /* and checkpoint 0 */
		write_all(i);
		(void)checkpoint();
	}
	r.count = children_find(r.pids);
	if (write(report_to, &r, sizeof(r)) != sizeof(r))
		test_fail("write: errno %d", errno);
}

/* A process with three frozen children, which then does `end`. Its pid. */
static pid_t victim_start(void (*end)(void), struct report *r)
{
	int pipe_fds[2];
	pid_t pid;

	CHECK(!pipe(pipe_fds));
	pid = fork();
	if (pid == 0) {
		close(pipe_fds[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nothing behind */
		report_to = pipe_fds[1];
		victim_begin();
		end();
		pause();
		_exit(1);
	}
	CHECK(pid > 0);
	close(pipe_fds[1]);
	CHECK_U64((uint64_t)read(pipe_fds[0], r, sizeof(*r)), sizeof(*r));
	CHECK_U64(r->count, 3);
	close(pipe_fds[0]);
	return pid;
}

static void end_by_exit(void)
{
	_exit(0);
}

static void end_never(void)
{
}

static void end_by_exec(void)
{
	execl("/proc/self/exe", "frozen_children", "sleep", NULL);
	test_fail("execl: errno %d", errno);
}

static void *exec_in_thread(void *arg)
{
	end_by_exec();
	return NULL;
}

static void end_by_thread_exec(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, exec_in_thread, NULL));
}

_Noreturn void sleep_after_exec(void)
{
	pid_t unused;

	/* The program that comes after meets them as little as the one before. */
	unused = waitpid(-1, NULL, WNOHANG);
	_exit(unused == -1 && errno == ECHILD && sleep(PATIENCE_MS / 1000 * 2) == 0 ? 0 : 1);
}

void case_exit(void)
{
	struct report r;
	pid_t pid = victim_start(end_by_exit, &r);
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_U64((uint64_t)status, 0);
	expect_deaths(r.pids, r.count);
}

void case_sigkill(void)
{
	struct report r;
	pid_t pid = victim_start(end_never, &r);

	for (size_t i = 0; i < r.count; i++)
		CHECK(!is_dead(r.pids[i]));
	CHECK(!kill(pid, SIGKILL));
	CHECK(waitpid(pid, NULL, 0) == pid);
	expect_deaths(r.pids, r.count);
}

/* The pid goes on, the memory does not: then there is nothing to be restored. */
static void exec_case(void (*end)(void))
{
	struct report r;
	pid_t pid = victim_start(end, &r);

	expect_deaths(r.pids, r.count);
	CHECK(waitpid(pid, NULL, WNOHANG) == 0); /* they did not die because it did */
	CHECK(!kill(pid, SIGKILL));
	CHECK(waitpid(pid, NULL, 0) == pid);
}

void case_exec(void)
{
	exec_case(end_by_exec);
}

void case_thread_exec(void)
{
	exec_case(end_by_thread_exec);
}

static void *take_and_go(void *arg)
{
	*(uint64_t *)arg = checkpoint();
	return NULL;
}

/* The thread that the kernel calls their parent is gone, the process is not. */
void case_thread_exit(void)
{
	pid_t before[FROZEN_MAX], after[FROZEN_MAX];
	pthread_t thread;
	uint64_t id;

	open_session(4);
	write_all(1);
	CHECK(!pthread_create(&thread, NULL, take_and_go, &id));
	CHECK(!pthread_join(thread, NULL));
	CHECK_U64(children_find(before), 2); /* and that of checkpoint 0 */
	write_all(2);
	usleep(300000);
	CHECK_U64(children_find(after), 2);
	CHECK(before[0] == after[0] && before[1] == after[1]);
	CHECK_OK(cairn_rewind(c, id));
	expect_all(1);
	CHECK_OK(cairn_close(c));
}

static void *outlive_main(void *arg)
{
	pthread_t *main_thread = arg;
	pid_t pids[FROZEN_MAX];
	uint64_t id;

	CHECK(!pthread_join(*main_thread, NULL));
	usleep(300000);
	CHECK_U64(children_find(pids), 2);
	write_all(2);
	id = checkpoint();
	write_all(3);
	CHECK_OK(cairn_rewind(c, id));
	expect_all(2);
	CHECK_OK(cairn_rewind(c, id - 1));
	expect_all(1);
	CHECK_OK(cairn_close(c));
	_exit(0);
}

/* The same with the process's first thread, whose number is the process's. */
void case_main_exit(void)
{
	static pthread_t self;
	pthread_t thread;

	open_session(4);
	write_all(1);
	(void)checkpoint();
	self = pthread_self();
	CHECK(!pthread_create(&thread, NULL, outlive_main, &self));
	pthread_exit(NULL);
}
