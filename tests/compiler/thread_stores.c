/* SPDX-License-Identifier: MIT */
/*
 * -fcairn-threads: several threads store to the same regions at once, to bytes of their own and
 * to common words by atomic instructions. Checkpoints and restores come while they wait. argv:
 * TRACKER.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define THREADS 4 /* the first is main */
#define BYTES   (128 * 1024)
#define WORDS   512
#define ROUNDS  300
#define KEEP    3

static unsigned char bytes[BYTES];
static _Atomic uint64_t words[WORDS];
static _Thread_local unsigned long rounds_seen;

/* Survives restores: it is where the threads meet. */
static struct shared {
	pthread_barrier_t begin, end;
	bool over;
	int round, restores;
	uint64_t random, ids[KEEP + 1];
	uint64_t thread_random[THREADS], seen[THREADS];
	unsigned char copies[KEEP + 1][sizeof(bytes) + sizeof(words)];
} *shared;

static uint64_t draw(uint64_t *state, uint64_t below)
{
	return test_draw(state, below);
}

/* All go through the same regions at the same time, and then each where it likes. */
static void store_some(int self)
{
	uint64_t *state = &shared->thread_random[self];
	size_t from = (size_t)shared->round * 1361 % (BYTES - 4096);

	for (size_t i = from / THREADS; i < (from + 4096) / THREADS; i++)
		bytes[i * THREADS + (size_t)self] ^= (unsigned char)(i + 1);
	for (int i = 0; i < 400; i++) {
		bytes[draw(state, BYTES / THREADS) * THREADS + (size_t)self]++;
		atomic_fetch_add(&words[draw(state, WORDS)], draw(state, 1000));
		atomic_exchange(&words[draw(state, WORDS)], (uint64_t)i);
	}
	rounds_seen++;
}

/* Their own stack and thread-local variables go on, whatever main restores. */
static void *work(void *arg)
{
	int self = (int)(intptr_t)arg;

	for (;;) {
		unsigned long before = rounds_seen;

		pthread_barrier_wait(&shared->begin);
		CHECK(rounds_seen == before && shared->seen[self] == before);
		if (shared->over)
			return NULL;
		store_some(self);
		shared->seen[self]++;
		pthread_barrier_wait(&shared->end);
	}
}

static void copy(int slot)
{
	memcpy(shared->copies[slot], bytes, sizeof(bytes));
	memcpy(shared->copies[slot] + sizeof(bytes), (void *)words, sizeof(words));
}

static void compare(int slot)
{
	const unsigned char *now = (const unsigned char *)words;

	for (size_t i = 0; i < sizeof(bytes); i++)
		if (bytes[i] != shared->copies[slot][i])
			test_fail("round %d: byte %zu", shared->round, i);
	for (size_t i = 0; i < sizeof(words); i++)
		if (now[i] != shared->copies[slot][sizeof(bytes) + i])
			test_fail("round %d: byte %zu of the words", shared->round, i);
	for (int i = 0; i <= KEEP; i++) /* what was taken later is gone */
		if (shared->ids[i] > shared->ids[slot])
			shared->ids[i] = 0;
}

static uint64_t any_kept(cairn_t *c)
{
	uint64_t oldest, newest;
	int slot;

	CHECK_OK(cairn_range(c, &oldest, &newest));
	do {
		slot = (int)draw(&shared->random, KEEP + 1);
	} while (!shared->ids[slot] || shared->ids[slot] < oldest || shared->ids[slot] > newest);
	return shared->ids[slot];
}

static void run(cairn_t *c)
{
	while (shared->round++ < ROUNDS) {
		int slot = shared->round % (KEEP + 1), got;

		copy(slot);
		got = cairn_checkpoint(c, &shared->ids[slot]);
		CHECK(got >= 0);
		if (got == CAIRN_RESTORED)
			compare(slot);
		pthread_barrier_wait(&shared->begin);
		store_some(0);
		pthread_barrier_wait(&shared->end);
		if (draw(&shared->random, 2)) {
			shared->restores++;
			CHECK_OK(cairn_restore(c, any_kept(c))); /* does not return */
		}
	}
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	pthread_barrierattr_t attr;
	pthread_t threads[THREADS];
	cairn_t *c;

	(void)argc;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);
	CHECK(shared != MAP_FAILED);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->begin, &attr, THREADS);
	pthread_barrier_init(&shared->end, &attr, THREADS);
	shared->random = 88172645463325252u;
	for (int i = 0; i < THREADS; i++)
		shared->thread_random[i] = 2654435761u * (uint64_t)(i + 1);
	o.tracker = argv[1];
	o.keep = KEEP;
	CHECK_OK(cairn_open(&c, &o));
	CHECK_OK(cairn_area_exclude(c, shared, sizeof(*shared)));
	for (intptr_t i = 1; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, work, (void *)i));
	run(c);
	shared->over = true;
	pthread_barrier_wait(&shared->begin);
	for (int i = 1; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	printf("%d restores\n", shared->restores);
	CHECK(shared->restores > ROUNDS / 4);
	CHECK_OK(cairn_close(c));
	return 0;
}
