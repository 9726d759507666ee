/* SPDX-License-Identifier: MIT */
/*
 * -fcairn-threads: a thread's stack lies in memory of the program's own, or has no guard, so that
 * the kernel joins it with what lies beside. A rewind leaves the stack as it is, and brings back
 * what lies beside it, whoever rewinds. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define STACK  (128ul << 10)
#define BESIDE (64ul << 10)

enum place { STATIC, HEAP, MAPPING, UNGUARDED, PLACES };

static struct {
	char below[BESIDE];
	_Alignas(4096) char stack[STACK];
	char above[BESIDE];
} given;

static cairn_t *session;
static char *below, *above;
static bool rewinds; /* the thread itself */
static pthread_barrier_t *turn; /* survives rewinds */

static void change_and_rewind(uint64_t id)
{
	memset(below, 2, BESIDE);
	memset(above, 2, BESIDE);
	CHECK_OK(cairn_rewind(session, id));
	for (size_t i = 0; i < BESIDE; i++)
		CHECK(below[i] == 1 && above[i] == 1);
}

static void checkpoint_and_rewind(void)
{
	uint64_t id;

	memset(below, 1, BESIDE);
	memset(above, 1, BESIDE);
	CHECK_RC(cairn_checkpoint(session, &id), CAIRN_TAKEN);
	change_and_rewind(id);
}

static void *work(void *arg)
{
	volatile char local[1000];

	for (size_t i = 0; i < sizeof(local); i++)
		local[i] = 3;
	pthread_barrier_wait(turn);
	if (rewinds)
		checkpoint_and_rewind();
	pthread_barrier_wait(turn);
	for (size_t i = 0; i < sizeof(local); i++)
		CHECK(local[i] == 3);
	return arg;
}

static char *map(size_t len, int flags)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static void give(pthread_attr_t *attr, enum place place)
{
	char *stack = given.stack;

	below = given.below;
	above = given.above;
	if (place == HEAP) {
		below = malloc(2 * BESIDE + STACK + 3072);
		CHECK(below);
		below += 3072; /* the page of a descriptor ends above the stack */
		stack = below + BESIDE;
		above = stack + STACK;
	} else if (place == MAPPING) {
		below = map(2 * BESIDE + STACK, MAP_PRIVATE);
		stack = below + BESIDE;
		above = stack + STACK;
	} else if (place == UNGUARDED) {
		CHECK(!pthread_attr_setguardsize(attr, 0));
		above = map(BESIDE, MAP_PRIVATE);
		return;
	}
	CHECK(!pthread_attr_setstack(attr, stack, STACK));
}

/*
 * The thread's id, if that can be chosen, is one that an address could be, too: descriptors have it
 * beside pointers.
 */
static void choose_id(void)
{
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!write(fd, "5000", 4);
	close(fd);
}

static void run_on(enum place place)
{
	pthread_attr_t attr;
	pthread_t thread;

	CHECK(!pthread_attr_init(&attr));
	give(&attr, place);
	choose_id();
	CHECK(!pthread_create(&thread, &attr, work, NULL));
	if (place == UNGUARDED) /* below the stack, as a rule */
		below = map(BESIDE, MAP_PRIVATE);
	pthread_barrier_wait(turn);
	if (!rewinds)
		checkpoint_and_rewind();
	pthread_barrier_wait(turn);
	CHECK(!pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	pthread_barrierattr_t attr;

	CHECK(argc == 2);
	o.tracker = argv[1];
	turn = (pthread_barrier_t *)map(sizeof(*turn), MAP_SHARED);
	CHECK(!pthread_barrierattr_init(&attr));
	CHECK(!pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
	CHECK(!pthread_barrier_init(turn, &attr, 2));
	CHECK_OK(cairn_open(&session, &o));
	for (int i = 0; i < 2 * PLACES; i++) {
		rewinds = i >= PLACES;
		run_on((enum place)(i % PLACES));
	}
	CHECK_OK(cairn_close(session));
	return 0;
}
