/* SPDX-License-Identifier: MIT */
/*
 * silent_hot TRACKER FEED [shared | user]: a checkpoint of hot pages alone makes no system call,
 * neither after a rewind, which leaves them hot. The first one comes when a page that rests is
 * evicted. Feed perf asks for the number of the calling thread, and makes no other call either.
 * The memory is private, or shared without a file. `user`: the process has given up its rights, so
 * files of its own in /proc are closed to it.
 */
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../lib/harness.h"
#include "../lib/refused_call.h"

#define PAGE   4096ul
#define PAGES  64
#define HOT    15
#define WARM   400
#define ROUNDS 20000
#define TRIES  5 /* a feed scans if another process is at the mappings just then */

static uint8_t *area;
static int sharing = MAP_PRIVATE;
static bool gives_up_rights;

/* Every fourth page, all of them or all but the first. */
static void store(size_t round, size_t from)
{
	for (size_t i = from; i < HOT; i++)
		area[i * 4 * PAGE + round % PAGE] += 1 + (uint8_t)i;
}

static void allow_only_end_and(unsigned nr)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	filter_install(code, sizeof(code) / sizeof(code[0]), 0);
}

static void take(cairn_t *c, uint64_t *id)
{
	if (cairn_checkpoint(c, id) != CAIRN_TAKEN)
		syscall(SYS_exit_group, 1);
}

static void be_hot(cairn_t *c)
{
	struct cairn_stats s = { .size = sizeof(s) };
	uint64_t id, faults;

	for (size_t round = 0; round < WARM; round++) {
		store(round, 0);
		take(c, &id);
	}
	CHECK_OK(cairn_stats(c, &s));
	CHECK_U64(s.hot_pages, HOT);
	faults = s.faults;
	for (size_t round = 0; round < WARM; round++) {
		store(round, 0);
		CHECK_OK(cairn_rewind(c, id));
		store(round, 0);
		take(c, &id);
	}
	CHECK_OK(cairn_stats(c, &s));
	CHECK_U64(s.hot_pages, HOT);
	CHECK_U64(s.faults, faults);
}

/* Ends with status 0 if no call was made, by SIGSYS at the first one. */
static void child(const char *tracker, const char *feed, size_t from)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id;
	cairn_t *c;

	if (gives_up_rights)
		CHECK((geteuid() || !setuid(65534)) && !prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
	o.tracker = tracker;
	o.feed = feed;
	o.surface = "none";
	o.strategy = "decay";
	c = test_open(&o);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	be_hot(c);
	allow_only_end_and(feed && !strcmp(feed, "perf") ? SYS_gettid : SYS_exit_group);
	for (size_t round = 0; round < ROUNDS; round++) {
		store(round, from);
		take(c, &id);
	}
	syscall(SYS_exit_group, 0);
}

static int end_of(const char *tracker, const char *feed, size_t from)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		child(tracker, feed, from);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP)
		_exit(TEST_SKIP);
	return status;
}

int main(int argc, char **argv)
{
	const char *feed = argc > 2 ? argv[2] : NULL;
	int status = 1;

	CHECK(argc > 1);
	if (argc > 3 && !strcmp(argv[3], "shared"))
		sharing = MAP_SHARED;
	gives_up_rights = argc > 3 && !strcmp(argv[3], "user");
	for (int i = 0; i < TRIES && status; i++)
		status = end_of(argv[1], feed, 0);
	if (status)
		test_fail("hot pages alone: wait status %#x", (unsigned)status);
	status = end_of(argv[1], feed, 1);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
		test_fail("an eviction: wait status %#x, not SIGSYS", (unsigned)status);
	return 0;
}
