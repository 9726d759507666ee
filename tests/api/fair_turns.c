/* SPDX-License-Identifier: MIT */
/*
 * Threads that do nothing but take checkpoints, each of which takes a while; another one makes
 * short calls. It has its turn before the others have had very many.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define THREADS    6
#define CALLS      100
#define OTHERS_MAX 40
/* So large that a fork of it takes some milliseconds. */
#define BYTES (128ul << 20)

static cairn_t *c;
static atomic_ulong taken;
static atomic_bool over;

static void *take(void *arg)
{
	uint64_t id;

	while (!over) {
		if (cairn_checkpoint(c, &id) != CAIRN_TAKEN)
			test_fail("no checkpoint");
		taken++;
	}
	return NULL;
}

int main(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	pthread_t threads[THREADS];
	unsigned long most = 0;
	uint64_t first, last;
	volatile uint8_t *area;

	o.tracker = "fork";
	o.surface = "none";
	area = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED && !madvise((void *)area, BYTES, MADV_NOHUGEPAGE));
	for (size_t i = 0; i < BYTES; i += 4096)
		area[i] = 1;
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, (void *)area, BYTES));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, take, NULL));
	for (int i = 0; i < CALLS; i++) {
		unsigned long before;

		usleep(2000); /* somebody else has the lock by then */
		before = taken;
		CHECK_OK(cairn_range(c, &first, &last));
		if (taken - before > most)
			most = taken - before;
	}
	over = true;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("at most %lu checkpoints of others during a call, %lu in all\n", most, taken);
	if (most > OTHERS_MAX)
		test_fail("%lu checkpoints of others during a call", most);
	CHECK_OK(cairn_close(c));
	return 0;
}
