/* SPDX-License-Identifier: MIT */
/*
 * -fcairn-threads: threads that end between a checkpoint and a restore. Libc unmaps their stacks,
 * where hooks have saved what they stored; a restore, to any kept checkpoint, leaves that alone,
 * and brings back what they stored elsewhere. argv: TRACKER.
 */
#include <pthread.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define THREADS 12 /* of 8 MiB: more stacks than libc keeps */
#define ROUNDS  6
#define KEEP    3

static _Thread_local volatile char own[256];
static unsigned stored[THREADS];
static pthread_barrier_t all; /* so that no two have the same stack */

static void *work(void *arg)
{
	unsigned self = (unsigned)(intptr_t)arg;

	for (size_t i = 0; i < sizeof(own); i++)
		own[i] = (char)self;
	stored[self]++;
	pthread_barrier_wait(&all);
	return arg;
}

static void run_threads(void)
{
	pthread_t threads[THREADS];
	pthread_attr_t attr;

	CHECK(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, 8 << 20));
	CHECK(!pthread_barrier_init(&all, NULL, THREADS));
	for (intptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], &attr, work, (void *)i));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
}

static void check_stored(unsigned times)
{
	for (int i = 0; i < THREADS; i++)
		CHECK_U64(stored[i], times);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t ids[KEEP];
	cairn_t *c;

	(void)argc;
	o.tracker = argv[1];
	o.keep = KEEP;
	CHECK_OK(cairn_open(&c, &o));
	for (int round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < KEEP; i++) {
			CHECK_RC(cairn_checkpoint(c, &ids[i]), CAIRN_TAKEN);
			run_threads();
			check_stored(i + 1);
		}
		for (unsigned i = KEEP; i-- > 0;) {
			CHECK_OK(cairn_rewind(c, ids[i]));
			check_stored(i);
		}
	}
	CHECK_OK(cairn_close(c));
	return 0;
}
