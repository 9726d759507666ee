/* SPDX-License-Identifier: MIT */
/*
 * A signal handler stores between any two instructions of a hook, of cairn_checkpoint and of
 * cairn_rewind: nothing of that is lost. The processor's trap flag brings a SIGTRAP after each
 * instruction; in run n the handler stores at the n-th. argv: TRACKER, and "thread": then another
 * thread stores while the handler waits for it.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"
#include "../lib/single_step.h"

#define BYTES     8192
#ifndef STEP
#define STEP      47 /* of the instructions of a checkpoint each so-many-th */
#endif
#ifndef WIDE_STEP
#define WIDE_STEP 13
#endif

static unsigned char bytes[BYTES] __attribute__((aligned(4096)));

/* Survives restores. */
static struct shared {
	cairn_t *session;
	volatile long n, steps; /* the handler stores at step n */
	volatile int fired, runs, refused;
	volatile int turn; /* of the other thread: 0 there is none, 1 it waits, 2 it stores */
	volatile int sends; /* the handler sends a signal, whose handler stores */
	uint64_t ids[2];
} *shared;

/* What the interrupted store is about to save, its neighbours, and what nobody else stores to. */
static __attribute__((noinline)) void handler_stores(void)
{
	bytes[1000] = 0xa0;
	bytes[1001] = 0xa1;
	bytes[1127] = 0xa2;
	bytes[5000] = 0xa3;
}

UNHOOKED static void trapped(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	if (!stepped_to(&shared->steps, shared->n, context))
		return;
	shared->fired = 1;
	if (shared->sends) {
		syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1);
		return;
	}
	if (!shared->turn) {
		handler_stores();
		return;
	}
	shared->turn = 2;
	while (shared->turn == 2)
		sched_yield();
}

static void sent(int sig)
{
	(void)sig;
	handler_stores();
}

static void *other_thread(void *arg)
{
	for (shared->turn = 1; shared->turn; sched_yield()) {
		if (shared->turn == 2) {
			handler_stores();
			shared->turn = 1;
		}
	}
	return arg;
}

static unsigned char pattern(size_t i)
{
	return (unsigned char)(i * 7 + 3);
}

static void fill(void)
{
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = pattern(i);
}

static void check_all(void)
{
	for (size_t i = 0; i < BYTES; i++)
		if (bytes[i] != pattern(i))
			test_fail("step %ld: byte %zu is %02x", shared->n, i, bytes[i]);
}

static void *(*volatile set_bytes)(void *, int, size_t) = memset;

/* One store, by a hook in line; one by a wrapper, over several regions. */
static __attribute__((noinline)) void store(volatile unsigned char *at, bool wide)
{
	single_step(true);
	if (wide)
		set_bytes((void *)at, 0x55, 300);
	else
		*at = 0x55;
	single_step(false);
}

/* Until the handler's turn comes later than the last instruction. */
static void in_hooks(cairn_t *c, bool wide)
{
	uint64_t id;

	for (shared->n = 0, shared->fired = 1; shared->fired; shared->n += wide ? WIDE_STEP : 1) {
		shared->fired = 0;
		shared->steps = 0;
		if (cairn_checkpoint(c, &id) == CAIRN_TAKEN) {
			store(bytes + 1004, wide);
			CHECK(bytes[1004] == 0x55);
			CHECK_OK(cairn_restore(c, id)); /* does not return */
		}
		check_all();
		shared->runs++;
	}
}

static bool stored(void)
{
	return bytes[1000] == 0xa0 && bytes[1127] == 0xa2 && bytes[5000] == 0xa3;
}

/*
 * What the handler stored belongs to the checkpoint, or was undone; all of it. Older checkpoints
 * come back exactly, or not at all.
 */
static void in_checkpoint(cairn_t *c)
{
	volatile int turn = 0;

	shared->fired = 1;
	for (shared->n = 0; shared->fired; shared->n += STEP) {
		shared->fired = 0;
		shared->steps = 0;
		shared->runs++;
		fill();
		turn = 0;
		if (cairn_checkpoint(c, &shared->ids[0]) == CAIRN_RESTORED) {
			check_all();
			continue;
		}
		bytes[1002] = 1;
		single_step(true);
		turn = cairn_checkpoint(c, &shared->ids[1]);
		single_step(false);
		CHECK(turn >= 0);
		CHECK(stored() || (bytes[1000] == pattern(1000) && bytes[5000] == pattern(5000)));
		if (turn == CAIRN_TAKEN) {
			bytes[1000] = 9;
			bytes[3000] = 9;
			turn = cairn_restore(c, shared->ids[1]);
			CHECK(turn == CAIRN_EFAILED);
		}
		CHECK(bytes[1002] == 1 || turn < 0);
		turn = cairn_restore(c, shared->ids[0]);
		CHECK(turn == CAIRN_EFAILED || turn == CAIRN_EEVICTED);
		shared->refused++;
	}
}

/* What the handler stored is undone, if not by this rewind, then by the next. */
static void in_rewind(cairn_t *c)
{
	uint64_t id;
	int err;

	shared->sends = shared->fired = 1;
	for (shared->n = 0; shared->fired; shared->n += 5 * STEP) {
		shared->fired = 0;
		shared->steps = 0;
		shared->runs++;
		fill();
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		bytes[1000] = bytes[1127] = bytes[3000] = bytes[5000] = 9;
		single_step(true);
		err = cairn_rewind(c, id);
		single_step(false);
		CHECK_OK(err);
		CHECK(bytes[3000] == pattern(3000));
		CHECK_OK(cairn_rewind(c, id));
		check_all();
	}
	shared->sends = 0;
}

int main(int argc, char **argv)
{
	struct sigaction trap = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO };
	struct sigaction user = { .sa_handler = sent };
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	pthread_t thread;
	cairn_t *c;

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED && !sigaction(SIGTRAP, &trap, NULL));
	CHECK(!sigaction(SIGUSR1, &user, NULL));
	o.tracker = argv[1];
	o.keep = 2;
	fill();
	CHECK_OK(cairn_open(&c, &o));
	CHECK_OK(cairn_area_exclude(c, shared, 4096));
	if (argc > 2) {
		CHECK(!pthread_create(&thread, NULL, other_thread, NULL));
		while (!shared->turn)
			sched_yield();
	}
	in_hooks(c, false);
	CHECK(shared->runs > 10);
	in_hooks(c, true);
	dprintf(1, "%d instructions of hooks", shared->runs);
	if (argc > 2) {
		shared->turn = 0;
		CHECK(!pthread_join(thread, NULL));
		CHECK_OK(cairn_close(c));
		return 0;
	}
	shared->runs = 0;
	in_checkpoint(c);
	dprintf(1, ", %d of checkpoints, %d refused", shared->runs, shared->refused);
	CHECK(shared->runs > 10 && shared->refused < shared->runs);
	shared->runs = 0;
	in_rewind(c);
	dprintf(1, ", %d of rewinds\n", shared->runs);
	CHECK(shared->runs > 10);
	CHECK_OK(cairn_close(c));
	return 0;
}
