/* SPDX-License-Identifier: MIT */
/*
 * -fcairn-threads: a pool of threads that wait for work, on a condition variable or a semaphore,
 * whenever a checkpoint is taken or restored. Those who wait go on waiting, whatever has happened
 * in between, and are found when there is work. argv: TRACKER.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define THREADS 4
#define ROUNDS  500
#define KEEP    3
#define MAX_S   50

enum way { PLAIN, TIMED, C11, SEMAPHORE, WAYS };

/* Survives restores. */
static struct kept {
	uint64_t random;
	unsigned round, restored;
} *kept;

static enum way way;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t idle = PTHREAD_COND_INITIALIZER;
static struct {
	pthread_cond_t plain;
	cnd_t c11;
	sem_t semaphore;
} to_do;
static unsigned queued, waiting, done;
static bool over;

/* In glibc a mutex of C11 is one of POSIX. */
static void wait_for_work(void)
{
	struct timespec late;

	if (way == PLAIN) {
		CHECK(!pthread_cond_wait(&to_do.plain, &lock));
	} else if (way == C11) {
		CHECK(cnd_wait(&to_do.c11, (mtx_t *)&lock) == thrd_success);
	} else if (way == TIMED) {
		CHECK(!clock_gettime(CLOCK_REALTIME, &late));
		late.tv_sec += MAX_S;
		CHECK(!pthread_cond_timedwait(&to_do.plain, &lock, &late));
	} else {
		CHECK(!pthread_mutex_unlock(&lock));
		CHECK(!sem_wait(&to_do.semaphore));
		CHECK(!pthread_mutex_lock(&lock));
	}
}

static void announce(unsigned jobs)
{
	for (unsigned i = 0; i < jobs; i++) {
		if (way == SEMAPHORE)
			CHECK(!sem_post(&to_do.semaphore));
		else if (way == C11)
			CHECK(cnd_signal(&to_do.c11) == thrd_success);
		else if (jobs > THREADS)
			CHECK(!pthread_cond_broadcast(&to_do.plain));
		else
			CHECK(!pthread_cond_signal(&to_do.plain));
	}
}

static void *work(void *arg)
{
	CHECK(!pthread_mutex_lock(&lock));
	for (;;) {
		waiting++;
		CHECK(!pthread_cond_signal(&idle));
		while (way == SEMAPHORE || (!queued && !over)) {
			wait_for_work();
			if (way == SEMAPHORE)
				break; /* each job has one of its own */
		}
		waiting--;
		if (over)
			break;
		queued--;
		CHECK(!pthread_mutex_unlock(&lock));
		CHECK(!pthread_mutex_lock(&lock));
		done++;
	}
	CHECK(!pthread_mutex_unlock(&lock));
	return arg;
}

static int sleepers(void)
{
	int value;

	CHECK(!sem_getvalue(&to_do.semaphore, &value));
	return value;
}

/* With the lock, which no other thread has then. */
static void until_all_wait(void)
{
	while (waiting < THREADS || queued)
		CHECK(!pthread_cond_wait(&idle, &lock));
	while (way == SEMAPHORE && sleepers())
		;
}

static void run(cairn_t *c)
{
	while (kept->round++ < ROUNDS) {
		unsigned jobs = 1 + (unsigned)test_draw(&kept->random, 2 * THREADS);
		unsigned before = done;
		uint64_t oldest, newest;
		int got = cairn_checkpoint(c, &newest);

		CHECK(got >= 0);
		kept->restored += got == CAIRN_RESTORED;
		CHECK_U64(done, before);
		queued += jobs;
		announce(jobs);
		until_all_wait();
		CHECK_U64(done, before + jobs);
		if (kept->round > KEEP && test_draw(&kept->random, 2)) {
			CHECK_OK(cairn_range(c, &oldest, &newest));
			CHECK_OK(cairn_restore(c, test_draw(&kept->random, 2) ? oldest : newest));
		}
	}
}

static void run_pool(cairn_t *c)
{
	pthread_t threads[THREADS];

	kept->round = kept->restored = 0;
	over = false;
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, work, NULL));
	CHECK(!pthread_mutex_lock(&lock));
	until_all_wait();
	run(c);
	over = true;
	announce(2 * THREADS);
	CHECK(!pthread_mutex_unlock(&lock));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	while (way == SEMAPHORE && !sem_trywait(&to_do.semaphore))
		;
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	CHECK(argc == 2);
	o.tracker = argv[1];
	o.keep = KEEP;
	CHECK_OK(cairn_open(&c, &o));
	kept = mmap(NULL, sizeof(*kept), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(kept != MAP_FAILED);
	kept->random = 88172645463325252u;
	CHECK(cnd_init(&to_do.c11) == thrd_success && !sem_init(&to_do.semaphore, 0, 0));
	alarm(MAX_S);
	for (way = PLAIN; way < WAYS; way++) {
		run_pool(c);
		CHECK(kept->restored > ROUNDS / 10);
	}
	CHECK_OK(cairn_close(c));
	return 0;
}
