/* SPDX-License-Identifier: MIT */
/*
 * -fcairn-threads: other threads come for a lock after a checkpoint, which is restored while they
 * wait for it. What they have noted in the lock goes back, and they are woken all the same.
 * argv: TRACKER.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define THREADS 3
#define ROUNDS  200
#define TURNS   5
#define MAX_S   100

/* Survives restores. */
static struct kept {
	_Atomic bool over;
	_Atomic unsigned long turns[THREADS];
	unsigned rounds, restored;
	uint64_t id;
} *kept;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long values[THREADS], total;

static void *work(void *arg)
{
	intptr_t self = (intptr_t)arg;

	while (!atomic_load(&kept->over)) {
		CHECK(!pthread_mutex_lock(&lock));
		values[self]++;
		total++;
		kept->turns[self]++;
		CHECK(!pthread_mutex_unlock(&lock));
	}
	return arg;
}

/* All have the lock now and then: nobody sleeps for ever. */
static void let_all_run(void)
{
	struct timespec moment = { .tv_nsec = 50000 };

	for (int i = 0; i < THREADS; i++) {
		unsigned long until = kept->turns[i] + TURNS;

		while (kept->turns[i] < until)
			nanosleep(&moment, NULL);
	}
}

static void round_trip(cairn_t *c)
{
	unsigned long sum = 0, before;
	int got;

	CHECK(!pthread_mutex_lock(&lock));
	before = total;
	got = cairn_checkpoint(c, &kept->id);
	CHECK(got >= 0);
	CHECK_U64(total, before);
	for (int i = 0; i < THREADS; i++)
		sum += values[i];
	CHECK_U64(sum, total);
	CHECK(!pthread_mutex_unlock(&lock));
	let_all_run();
	if (got == CAIRN_RESTORED) {
		kept->restored++;
		return;
	}
	CHECK(!pthread_mutex_lock(&lock));
	CHECK_OK(cairn_restore(c, kept->id)); /* does not return */
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	pthread_t threads[THREADS];
	cairn_t *c;

	CHECK(argc == 2);
	o.tracker = argv[1];
	CHECK_OK(cairn_open(&c, &o));
	kept = mmap(NULL, sizeof(*kept), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(kept != MAP_FAILED);
	alarm(MAX_S);
	for (intptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, work, (void *)i));
	while (kept->rounds++ < ROUNDS)
		round_trip(c);
	atomic_store(&kept->over, true);
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK_U64(kept->restored, ROUNDS);
	CHECK_OK(cairn_close(c));
	return 0;
}
