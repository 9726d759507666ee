/* SPDX-License-Identifier: MIT */
/*
 * keeper_process CASE TRACKER: the process that keeps a session's open files is not met, ends in
 * time, and does its work: each case is one promise of os/keeper.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define PAGES 16ul
#include "../lib/marked_area.h"
#include "../lib/refused_call.h"
#include "child_find.h"

static const char *tracker, *feed;

static void open_session(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	o.tracker = tracker;
	o.feed = feed;
	o.strategy = "none"; /* the pages shall be protected */
	o.surface = "none";
	o.keep = 4;
	open_with_area(&o);
}

static void close_all(void)
{
	if (syscall(SYS_close_range, 3, ~0u, 0) < 0)
		test_skip("close_range(2) (Linux 5.9)");
}

/* The session works. With `closing` the program closes all descriptors between any two calls. */
static void use_session(bool closing)
{
	uint64_t id;

	for (uint8_t i = 1; i < 4; i++) {
		write_all(i);
		if (closing)
			close_all();
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		if (closing)
			close_all();
		write_all(100);
		CHECK_OK(cairn_rewind(c, id));
		expect_all(i);
	}
}

/* The one keeper, or none where this host lets nobody fetch descriptors: then no case is left. */
static pid_t keeper(void)
{
	pid_t pids[CHILDREN_MAX];
	size_t count = children_find(pids);

	if (!count)
		test_skip("a keeper (pidfd_getfd is refused)");
	CHECK_U64(count, 1);
	return pids[0];
}

static void expect_none(void)
{
	pid_t pids[CHILDREN_MAX];

	CHECK_U64(children_find(pids), 0);
}

/* ---- Not met --------------------------------------------------------------------------------- */

static void case_unseen(void)
{
	pid_t pid, child;

	signal(SIGCHLD, on_sigchld);
	open_session();
	pid = keeper();
	expect_no_children();
	CHECK(getsid(pid) != getsid(0) && getpgid(pid) != getpgid(0));
	/* The limit: who asks for children without a signal as well is told of it. */
	CHECK(waitpid(-1, NULL, WNOHANG | __WALL) == 0);
	use_session(true);
	CHECK(keeper() == pid);
	child = fork(); /* what is the program's own is seen as ever */
	if (child == 0)
		_exit(7);
	while (wait(NULL) != child)
		CHECK(errno == EINTR);
	CHECK_OK(cairn_close(c));
	expect_none();
	CHECK(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD);
	CHECK_U64((uint64_t)sigchlds, 1);
}

/* No lock, pipe or directory of the program's is held. */
static void case_nothing_held(void)
{
	int fd = test_file(), other, ends[2];
	char byte, path[64], cwd[64];

	CHECK(!flock(fd, LOCK_EX | LOCK_NB) && !pipe(ends));
	open_session();
	(void)keeper();
	other = test_file_again(fd);
	close(fd);
	CHECK(!flock(other, LOCK_EX | LOCK_NB));
	close(ends[1]);
	CHECK(read(ends[0], &byte, 1) == 0);
	snprintf(path, sizeof(path), "/proc/%d/cwd", keeper());
	CHECK(readlink(path, cwd, sizeof(cwd)) == 1 && cwd[0] == '/');
	CHECK_OK(cairn_close(c));
}

/* Of our memory it has given back all but a few pages. */
static void case_small(void)
{
	char path[64], text[128];
	volatile uint8_t *big = mmap(
		NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned long size, resident = 65;
	int fd, waited = 0;

	for (size_t i = 0; i < 64 << 20; i += PAGE)
		big[i] = 1;
	open_session();
	snprintf(path, sizeof(path), "/proc/%d/statm", keeper());
	fd = open(path, O_RDONLY);
	for (; resident > 64 && waited < PATIENCE_MS; waited += 10) {
		usleep(10000);
		memset(text, 0, sizeof(text));
		CHECK(pread(fd, text, sizeof(text) - 1, 0) > 0);
		CHECK(sscanf(text, "%lu %lu", &size, &resident) == 2);
	}
	if (resident > 64)
		test_fail("%lu pages resident", resident);
	CHECK_OK(cairn_close(c));
}

/* ---- Its end --------------------------------------------------------------------------------- */

static int report_to = -1;

static void report_keeper(void)
{
	pid_t pid;

	open_session();
	pid = keeper();
	CHECK(write(report_to, &pid, sizeof(pid)) == sizeof(pid));
}

/* A process with a keeper, which then does `end`. Its pid. */
static pid_t victim_start(void (*end)(void), pid_t *kept)
{
	int ends[2], status;
	pid_t pid;

	CHECK(!pipe(ends));
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		report_to = ends[1];
		report_keeper();
		end();
		pause();
		_exit(1);
	}
	close(ends[1]);
	if (read(ends[0], kept, sizeof(*kept)) != sizeof(*kept)) {
		CHECK(waitpid(pid, &status, 0) == pid); /* it has said why */
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	close(ends[0]);
	return pid;
}

static void end_never(void)
{
}

static void end_by_exit(void)
{
	_exit(0);
}

static void end_by_exec(void)
{
	execl("/proc/self/exe", "keeper_process", "sleep", tracker, NULL);
	test_fail("execl: errno %d", errno);
}

static void *exec_in_thread(void *arg)
{
	close_all();
	end_by_exec();
	return NULL;
}

static void end_by_thread_exec(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, exec_in_thread, NULL));
}

static void case_exit(void)
{
	pid_t kept, pid = victim_start(end_by_exit, &kept);

	CHECK(waitpid(pid, NULL, 0) == pid);
	expect_deaths(&kept, 1);
}

static void case_sigkill(void)
{
	pid_t kept, pid = victim_start(end_never, &kept);

	CHECK(!is_dead(kept) && !kill(pid, SIGKILL));
	CHECK(waitpid(pid, NULL, 0) == pid);
	expect_deaths(&kept, 1);
}

static void exec_case(void (*end)(void))
{
	pid_t kept, pid = victim_start(end, &kept);

	expect_deaths(&kept, 1);
	CHECK(waitpid(pid, NULL, WNOHANG) == 0); /* it did not die because we did */
	CHECK(!kill(pid, SIGKILL));
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static void case_exec(void)
{
	exec_case(end_by_exec);
}

static void case_thread_exec(void)
{
	exec_case(end_by_thread_exec);
}

/* The program's own children do not make it live longer. */
static void case_children(void)
{
	pid_t kept, child;

	open_session();
	kept = keeper();
	child = fork();
	if (child == 0) {
		pause();
		_exit(0);
	}
	CHECK_OK(cairn_close(c));
	expect_deaths(&kept, 1);
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
}

static void *open_in_thread(void *arg)
{
	open_session();
	return NULL;
}

/* The thread that the kernel calls its parent is gone, the process is not. */
static void case_thread_exit(void)
{
	pthread_t thread;
	pid_t pid;

	CHECK(!pthread_create(&thread, NULL, open_in_thread, NULL) && !pthread_join(thread, NULL));
	pid = keeper();
	usleep(300000);
	CHECK(keeper() == pid);
	use_session(true);
	CHECK_OK(cairn_close(c));
}

/* ---- When it is not there -------------------------------------------------------------------- */

static void kill_keeper(void)
{
	pid_t pid = keeper();

	CHECK(!kill(pid, SIGKILL));
	expect_deaths(&pid, 1);
}

/* There is one only where events are read. */
static void kill_twin(void)
{
	pid_t pids[CHILDREN_MAX];
	size_t count;

	child_name = "cairn-twin";
	count = children_find(pids);
	for (size_t i = 0; i < count; i++)
		CHECK(!kill(pids[i], SIGKILL));
	expect_deaths(pids, count);
	child_name = "cairn-keeper";
}

/* Nothing has gone with it, and there is soon another one. */
static void case_killed(void)
{
	pid_t pids[CHILDREN_MAX];

	open_session();
	kill_keeper();
	use_session(false);
	if (strcmp(tracker, "async")) { /* that looks for its descriptors, not for its keeper */
		CHECK_U64(children_find(pids), 1);
		use_session(true);
	}
	CHECK_OK(cairn_close(c));
	expect_none();
}

/* A session with a checkpoint, at which all pages hold 1. */
static uint64_t open_with_checkpoint(void)
{
	uint64_t id;

	open_session();
	write_all(1);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	return id;
}

/* All references are gone: that is said, never passed over. */
static void expect_lost(uint64_t id)
{
	uint64_t none;

	close_all();
	write_all(2);
	CHECK_RC(cairn_rewind(c, id), -EBADF);
	expect_all(2);
	CHECK_RC(cairn_checkpoint(c, &none), -EBADF);
	CHECK_RC(cairn_rewind(c, id), -EBADF);
	expect_all(2);
	CHECK_OK(cairn_close(c));
	open_session();
	use_session(false);
	CHECK_OK(cairn_close(c));
}

static void case_killed_and_closed(void)
{
	uint64_t id = open_with_checkpoint();

	kill_twin();
	kill_keeper();
	expect_lost(id);
}

/* What has been unmapped cannot be tracked again: that is found out before anything is mapped. */
static void case_killed_and_unmapped(void)
{
	uint64_t id = open_with_checkpoint();

	kill_keeper();
	close_all();
	write_all(2);
	CHECK(!munmap((void *)(area + PAGE), PAGE));
	CHECK_RC(cairn_rewind(c, id), -EBADF);
	CHECK_U64(area[0], 2);
	CHECK(mmap((void *)(area + PAGE), PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS |
		      MAP_FIXED_NOREPLACE, -1, 0) == area + PAGE);
	CHECK_OK(cairn_close(c));
}

/* The twin has the files as well. */
static void case_twin_left(void)
{
	uint64_t id = open_with_checkpoint();

	kill_keeper();
	close_all();
	write_all(2);
	CHECK_OK(cairn_rewind(c, id));
	expect_all(1);
	use_session(true);
	CHECK_OK(cairn_close(c));
	expect_none();
}

static void refused_case(unsigned nr, unsigned err)
{
	uint64_t id;

	refuse_call(nr, err);
	open_session();
	expect_none();
	CHECK(waitpid(-1, NULL, WNOHANG | __WALL) == -1 && errno == ECHILD);
	use_session(false);
	write_all(1);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	expect_lost(id);
}

/* RLIMIT_NPROC, or the limit of a control group. */
static void case_no_process(void)
{
	refused_case(SYS_clone, EAGAIN);
}

/* As Docker's filter does. */
static void case_no_getfd(void)
{
	refused_case(438, EPERM);
}

static void case_no_lifeline(void)
{
	refused_case(SYS_memfd_create, EPERM);
}

/* A program that nobody may look into, from the start or later, still gets what is its. */
static void case_not_dumpable(void)
{
	CHECK(!prctl(PR_SET_DUMPABLE, 0));
	open_session();
	(void)keeper();
	use_session(true);
	CHECK_OK(cairn_close(c));
	CHECK(!prctl(PR_SET_DUMPABLE, 1));
	open_session();
	CHECK(!prctl(PR_SET_DUMPABLE, 0));
	use_session(true);
	CHECK_OK(cairn_close(c));
}

/* A program that gives up its user's rights may not fetch: it goes on, and is told. */
static void case_other_user(void)
{
	pid_t kept, pids[CHILDREN_MAX];
	uint64_t id;

	if (getuid())
		test_skip("root (to become somebody else)");
	if (!strcmp(tracker, "async"))
		feed = "scan"; /* a better one goes on without descriptors of ours, and is right */
	open_session();
	kept = keeper();
	CHECK(!setgid(65534) && !setuid(65534));
	use_session(false);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	close_all();
	write_all(9); /* the pages are protected, and nobody can open them */
	CHECK_RC(cairn_rewind(c, id), -EBADF);
	expect_all(9);
	CHECK_RC(cairn_checkpoint(c, &id), -EBADF);
	expect_all(9);
	CHECK_OK(cairn_close(c));
	expect_deaths(&kept, 1);
	CHECK_U64(children_find(pids), 0);
}

/* The same program closes the session: what is protected then must be open at once. */
static void case_other_user_closes(void)
{
	uint64_t id;

	if (getuid())
		test_skip("root (to become somebody else)");
	open_session();
	(void)keeper();
	write_all(1);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK(!setgid(65534) && !setuid(65534));
	close_all();
	CHECK_OK(cairn_close(c));
	expect_none();
	write_all(2);
	expect_all(2);
}

/* Its numbers may be the program's by then. */
static void case_reused(void)
{
	int file = test_file(), limit = 0, count = 0;
	struct rlimit r;
	char byte;

	open_session();
	(void)keeper();
	CHECK(!getrlimit(RLIMIT_NOFILE, &r));
	limit = r.rlim_cur > 16384 ? 16384 : (int)r.rlim_cur;
	for (int fd = file + 1; fd < limit; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			count += dup3(file, fd, O_CLOEXEC) == fd;
	CHECK(count > 0);
	use_session(false);
	CHECK_OK(cairn_close(c));
	for (int fd = file + 1; fd < limit; fd++)
		count -= fcntl(fd, F_GETFD) >= 0;
	CHECK(count == 0); /* all of them are still open */
	CHECK(read(file, &byte, 1) == 0 && lseek(file, 0, SEEK_CUR) == 0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "unseen", case_unseen },
		{ "nothing_held", case_nothing_held },
		{ "small", case_small },
		{ "exit", case_exit },
		{ "sigkill", case_sigkill },
		{ "exec", case_exec },
		{ "thread_exec", case_thread_exec },
		{ "children", case_children },
		{ "thread_exit", case_thread_exit },
		{ "killed", case_killed },
		{ "killed_and_closed", case_killed_and_closed },
		{ "killed_and_unmapped", case_killed_and_unmapped },
		{ "twin_left", case_twin_left },
		{ "no_process", case_no_process },
		{ "no_getfd", case_no_getfd },
		{ "no_lifeline", case_no_lifeline },
		{ "not_dumpable", case_not_dumpable },
		{ "other_user", case_other_user },
		{ "other_user_closes", case_other_user_closes },
		{ "reused", case_reused },
		{ 0 },
	};

	child_name = "cairn-keeper";
	if (argc != 3)
		test_fail("usage: keeper_process CASE TRACKER");
	tracker = argv[2];
	if (!strcmp(argv[1], "sleep")) /* what the cases that execute become */
		_exit(waitpid(-1, NULL, WNOHANG) == -1 && sleep(PATIENCE_MS / 500) ? 1 : 0);
	return test_run_case(cases, argv[1]);
}
