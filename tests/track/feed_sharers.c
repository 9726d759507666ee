/* SPDX-License-Identifier: MIT */
/*
 * Processes that have our memory for good, and are born where no ring of perf's records it: who
 * begot them is gone before anybody looks. feed_writers FEED CASE.
 */
#include "feed_area.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK (16 * PAGE)

#define STACKS 4

static struct {
	uint8_t *stacks;
	int ask[2], done[2];
	pid_t pid; /* of the last one */
} sharer;

static void *stack_of(long generation)
{
	return sharer.stacks + (size_t)(generation + 1) * STACK;
}

/* Stores where it is told to. NULL: that was all. */
static int store_asked(void *unused)
{
	uint8_t *at;

	close(sharer.ask[1]); /* where the files are its own: it ends with us */
	CHECK(write(sharer.done[1], "x", 1) == 1);
	while (read(sharer.ask[0], &at, sizeof(at)) == sizeof(at) && at) {
		store(at);
		CHECK(write(sharer.done[1], "x", 1) == 1);
	}
	_exit(0);
}

static void await_answer(void)
{
	char done;

	CHECK(read(sharer.done[0], &done, 1) == 1);
}

/* Each begets the next one, and ends. */
static int beget(void *left)
{
	long generation = (long)left;

	sharer.pid = clone(generation ? beget : store_asked, stack_of(generation),
		CLONE_VM | SIGCHLD, (void *)(generation - 1));
	CHECK(sharer.pid > 0);
	return 0;
}

static void by_chain(void)
{
	pid_t pid = clone(beget, stack_of(STACKS - 1), CLONE_VM | SIGCHLD, (void *)(STACKS - 2L));

	CHECK(pid > 0);
	await_answer();
	CHECK(waitpid(pid, NULL, __WALL) == pid);
}

static void *beget_in_thread(void *unused)
{
	beget(NULL);
	return NULL;
}

/* A thread that is gone before it has a ring. */
static void by_thread(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, beget_in_thread, NULL));
	CHECK(!pthread_join(thread, NULL));
	await_answer();
}

static int end_alone(void *unused)
{
	CHECK(clone(store_asked, stack_of(0), CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
		      CLONE_THREAD | CLONE_SYSVSEM, NULL) > 0);
	syscall(SYS_exit, 0);
	return 0;
}

/* The child's first thread has ended, and its second has not. */
static void by_leaderless(void)
{
	const int kcmp_vm = 1;

	sharer.pid = clone(end_alone, stack_of(1), CLONE_VM | SIGCHLD, NULL);
	CHECK(sharer.pid > 0);
	await_answer();
	while (!syscall(SYS_kcmp, getpid(), sharer.pid, kcmp_vm, 0, 0))
		sched_yield();
}

static void make_sharer(void (*make)(void))
{
	sharer.stacks = mmap(NULL, STACKS * STACK, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(sharer.stacks != MAP_FAILED && !pipe(sharer.ask) && !pipe(sharer.done));
	CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1)); /* its end can be waited for */
	make();
}

static void end_sharer(void)
{
	uint8_t *end = NULL;
	int status;

	CHECK(write(sharer.ask[1], &end, sizeof(end)) == sizeof(end));
	CHECK(waitpid(sharer.pid, &status, __WALL) == sharer.pid && status == 0);
}

/* While it lives nothing is lost; after its end the feed is trusted again. */
static void run_with(void (*make)(void))
{
	uint64_t start;

	open_area();
	make_sharer(make);
	for (volatile int i = 0; i < 10; i++)
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	for (volatile size_t p = 0; p < ROUNDS; p += 4) {
		uint8_t *at = area + p * PAGE;

		CHECK(write(sharer.ask[1], &at, sizeof(at)) == sizeof(at));
		await_answer();
		check_page(p);
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	}
	end_sharer();
	for (volatile int i = 0; i < 4; i++)
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	start = scans();
	for (volatile size_t p = 0; p < ROUNDS; p++) {
		store(area + p * PAGE);
		check_page(p);
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	}
	if (scans() - start > ROUNDS / 4)
		test_fail("%llu scans: the feed was not trusted again",
			(unsigned long long)(scans() - start));
	check_feed(feed_name);
}

void run_begotten(void)
{
	run_with(by_chain);
}

void run_begotten_by_thread(void)
{
	run_with(by_thread);
}

void run_leaderless(void)
{
	run_with(by_leaderless);
}

/* It was there before: what it does is recorded nowhere, so the feed is refused while it lives. */
void run_older(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	open_area(); /* without it, it can be had */
	CHECK_OK(cairn_close(c));
	make_sharer(by_chain);
	o.tracker = "async";
	o.feed = feed_name;
	o.surface = "none";
	CHECK_RC(cairn_open(&c, &o), CAIRN_ENOTRACK);
	end_sharer();
	could_open = true;
	open_area();
}
