/* SPDX-License-Identifier: MIT */
/*
 * unready_children CASE TRACKER: a process that the engine has made does not get ready, or does
 * not end: it is killed or stopped before that, or may not be killed. Nobody waits for it for ever.
 * An alarm ends the test else: none of these waits should take a third of that.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#define PAGES 16ul
#include "../lib/marked_area.h"
#include "../lib/refused_call.h"
#include "child_find.h"

#define LIMIT 45 /* seconds */

extern const char crn_keeper_sleep[] __attribute__((visibility("hidden"))); /* os/keeper.S */
bool crn_host_softdirty_proven(void) __attribute__((visibility("hidden"))); /* os/host.h */

static const char *tracker;

static void open_session(uint32_t keep)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	o.tracker = tracker;
	o.strategy = "none";
	o.surface = "none";
	o.keep = keep;
	open_with_area(&o);
}

/* Interrupts every wait of this thread, more often than the engine looks. */
static void begin_signals(void)
{
	const struct itimerspec every = { { 0, 3000000 }, { 0, 3000000 } };
	struct sigevent to = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct sigaction action = { .sa_handler = on_sigchld };
	timer_t timer;

	CHECK(!sigaction(SIGUSR1, &action, NULL));
	CHECK(!timer_create(CLOCK_MONOTONIC, &to, &timer));
	CHECK(!timer_settime(timer, 0, &every, NULL));
}

static uint64_t checkpoint(uint8_t value)
{
	uint64_t id;

	area[5] = value;
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	return id;
}

static void expect_rewind(uint64_t id, uint8_t value)
{
	area[5] = 99;
	CHECK_OK(cairn_rewind(c, id));
	CHECK_U64(area[5], value);
	CHECK_OK(cairn_close(c));
}

/* While `begin` is in force no process of the engine gets ready. */
static void without_children(void (*begin)(void))
{
	uint64_t id, none;

	begin_signals();
	if (strcmp(tracker, "fork")) { /* then it is a keeper: the session goes on without */
		begin();
		open_session(2);
		expect_rewind(checkpoint(1), 1);
		return;
	}
	open_session(2);
	id = checkpoint(1);
	begin();
	area[5] = 2;
	CHECK_RC(cairn_checkpoint(c, &none), -ECHILD);
	expect_rewind(id, 1);
}

/* Its first call is its last. */
static void kill_newborns(void)
{
	filter_call(SYS_setsid, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
}

static void case_killed(void)
{
	without_children(kill_newborns);
}

static void hold_newborns(void)
{
	hold_callers(SYS_setsid);
}

static void case_silent(void)
{
	without_children(hold_newborns);
}

/* The keeper waits for its twin, which is killed at its first call, in keeper.S. */
static void case_twin_killed(void)
{
	const uint64_t at = (uint64_t)(uintptr_t)crn_keeper_sleep;
	const uint32_t ip = offsetof(struct seccomp_data, instruction_pointer);
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 6),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ip + 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(at >> 32), 0, 4),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ip),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)at, 0, 2),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, (uint32_t)at + 1024, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	filter_install(code, sizeof(code) / sizeof(code[0]), 0);
	alarm(LIMIT / 3); /* it is not even two seconds */
	open_session(2);
	expect_rewind(checkpoint(1), 1);
}

/* Frozen children of root cannot be killed by who has become somebody else. */
static void case_other_user(void)
{
	pid_t pids[CHILDREN_MAX];
	uint64_t id = 0;
	size_t count;

	if (getuid())
		test_skip("root (to become somebody else)");
	child_name = "cairn-frozen";
	open_session(2);
	(void)checkpoint(1);
	count = children_find(pids);
	CHECK_U64(count, 2);
	CHECK(!setgid(65534) && !setuid(65534));
	for (uint8_t i = 0; i < 100; i++)
		id = checkpoint(i);
	expect_rewind(id - 1, 98);
	expect_deaths(pids, count);
	CHECK_U64(children_find(pids), 0);
}

static volatile pid_t *handled_by;

static void note_process(int sig)
{
	*handled_by = getpid();
}

/* The first child of `parent` but for this one gets a signal, and is killed a while later. */
static _Noreturn void signal_child(pid_t parent)
{
	char path[64], text[64] = { 0 };
	pid_t first = 0, second = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", parent, parent);
	while (!second) {
		int fd = open(path, O_RDONLY);

		CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0);
		close(fd);
		(void)sscanf(text, "%d %d", &first, &second);
	}
	CHECK(first == getpid());
	usleep(50000); /* by then it hangs */
	CHECK(!kill(second, SIGUSR1));
	usleep(200000);
	CHECK(!kill(second, SIGKILL));
	_exit(0);
}

/* The child that tries soft-dirty bits is no second process of the program. */
static void case_probe_signalled(void)
{
	struct sigaction action = { .sa_handler = note_process };
	pid_t parent = getpid();

	handled_by = mmap(
		NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(handled_by != MAP_FAILED && !sigaction(SIGUSR1, &action, NULL));
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal_child(parent);
	}
	hold_callers(SYS_pread64);
	CHECK(!crn_host_softdirty_proven());
	CHECK_U64((uint64_t)*handled_by, 0);
}

/* It is stopped before it has said anything. */
static void case_probe_silent(void)
{
	begin_signals();
	hold_callers(SYS_pread64);
	CHECK(!crn_host_softdirty_proven());
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "killed", case_killed },
		{ "silent", case_silent },
		{ "twin_killed", case_twin_killed },
		{ "other_user", case_other_user },
		{ "probe_signalled", case_probe_signalled },
		{ "probe_silent", case_probe_silent },
		{ NULL, NULL },
	};

	if (argc != 3)
		test_fail("usage: unready_children CASE TRACKER");
	tracker = argv[2];
	alarm(LIMIT);
	return test_run_case(cases, argv[1]);
}
