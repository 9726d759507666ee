/* SPDX-License-Identifier: MIT */
/* Who changes mappings was born where nobody could know of it, or among very many. */
#include "remapped.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <sys/wait.h>
#include "../lib/refused_call.h"

#define STACK_PAGES 16

static pid_t grandchild, adopter;

static int grandchild_main(void *parent)
{
	while (getppid() != *(pid_t *)parent)
		sched_yield();
	CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
	make_change(NULL);
	_exit(0);
}

static int beget_and_end(void *stack)
{
	grandchild = clone(grandchild_main, stack, CLONE_VM | SIGCHLD, &adopter);
	return 0;
}

static void grandchild_begins(void)
{
	uint8_t *stacks = map_at(NULL, 2 * STACK_PAGES, 0) + STACK_PAGES * PAGE;
	pid_t pid;

	CHECK_OK(cairn_rewind(c, id)); /* whoever was there before has been asked */
	for (size_t k = 4; k < 8; k++)
		area[k * PAGE] ^= 0xff;
	adopter = getpid();
	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	pid = clone(beget_and_end, stacks, CLONE_VM | SIGCHLD, stacks + STACK_PAGES * PAGE);
	CHECK(pid > 0);
	CHECK(waitpid(pid, NULL, __WALL) == pid && grandchild > 0);
}

static void grandchild_ends(void)
{
	int status;

	wanted_of_thread = no_more;
	CHECK(waitpid(grandchild, &status, __WALL) == grandchild && status == 0);
	wanted_of_thread = NULL;
}

static void its_grandchild(void (*make)(void))
{
	its_thread(make);
}

/* It has the same memory for good; who has begotten it is gone. */
void by_grandchild(void)
{
	maker = its_grandchild;
	maker_begins = grandchild_begins;
	maker_ends = grandchild_ends;
	rewinds();
}

/* ---- Too many ---- */

static void *sleep_on(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* More threads than rings. */
void by_one_of_many(void)
{
	pthread_t sleeper;

	for (int i = 0; i < 70; i++)
		CHECK(pthread_create(&sleeper, NULL, sleep_on, NULL) == 0);
	maker = its_thread;
	all_between(2);
}

/* More are born between two rewinds than a ring of births holds. */
static void after_births(void (*make)(void))
{
	for (int i = 0; i < 250; i++)
		its_child(no_more);
	make();
}

void after_many_births(void)
{
	maker = after_births;
	all_between(2);
}

/* ---- Born while somebody looks ---- */

static void make_thread(int sig, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;

	if (!thread)
		CHECK(pthread_create(&thread, NULL, make_change, NULL) == 0);
	interrupted->uc_mcontext.gregs[REG_RAX] = 1; /* other memory */
}

/* Whoever looks compares memory with children: in the midst of that a thread is born. */
static void trap_looks(void)
{
	struct sigaction on_trap = { .sa_sigaction = make_thread, .sa_flags = SA_SIGINFO };

	CHECK(sigaction(SIGSYS, &on_trap, NULL) == 0);
	filter_call(SYS_kcmp, SECCOMP_RET_TRAP, SECCOMP_RET_ALLOW);
}

void born_within(void)
{
	int status;
	pid_t pid;

	begin(map_at(NULL, PAGES, 0), "none");
	for (int i = 0; i < 3; i++)
		CHECK_OK(cairn_rewind(c, id));
	trap_looks();
	pid = fork();
	if (pid == 0)
		_exit(0);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	if (!thread)
		test_skip("perf_event_open");
	maker = its_thread;
	maker(open_one);
	area[9 * PAGE] = 1;
	CHECK_RC(cairn_rewind(c, id), CAIRN_ELAYOUT);
	thread_ends();
	CHECK_OK(cairn_close(c));
}
