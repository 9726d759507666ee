/* SPDX-License-Identifier: MIT */
/*
 * -fcairn-threads: another thread comes for locks at any moment, also while a checkpoint is taken,
 * and the checkpoints before can be restored all the same. The locks are left out: they survive
 * restores. argv: TRACKER.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define LOCKS  4096
#define VALUES 64
#define ROUNDS 200

static struct {
	_Alignas(128) pthread_mutex_t lock; /* each in a region of its own */
} *locks;

static struct {
	unsigned round, restored;
} *kept; /* survives restores as well */

static unsigned values[VALUES];
static _Atomic bool over;

static void *work(void *arg)
{
	for (unsigned i = 0; !atomic_load(&over); i++) {
		pthread_mutex_lock(&locks[i % LOCKS].lock);
		pthread_mutex_unlock(&locks[i % LOCKS].lock);
	}
	return arg;
}

static void set_all(unsigned value)
{
	for (size_t i = 0; i < VALUES; i++)
		values[i] = value;
}

static void *map_excluded(cairn_t *c, size_t len)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	CHECK_OK(cairn_area_exclude(c, at, len));
	return at;
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t older, newer;
	pthread_t thread;
	cairn_t *c;
	int got;

	CHECK(argc == 2);
	o.tracker = argv[1];
	o.keep = 3;
	CHECK_OK(cairn_open(&c, &o));
	locks = map_excluded(c, LOCKS * sizeof(*locks));
	kept = map_excluded(c, sizeof(*kept));
	for (size_t i = 0; i < LOCKS; i++)
		CHECK(!pthread_mutex_init(&locks[i].lock, NULL));
	CHECK(!pthread_create(&thread, NULL, work, NULL));
	while (kept->round < ROUNDS) {
		set_all(++kept->round);
		got = cairn_checkpoint(c, &older);
		CHECK(got >= 0);
		if (got == CAIRN_RESTORED) {
			for (size_t i = 0; i < VALUES; i++)
				CHECK_U64(values[i], kept->round);
			kept->restored++;
			continue;
		}
		set_all(0);
		CHECK_RC(cairn_checkpoint(c, &newer), CAIRN_TAKEN);
		CHECK_OK(cairn_restore(c, older)); /* does not return */
	}
	CHECK_U64(kept->restored, ROUNDS);
	over = true;
	CHECK(!pthread_join(thread, NULL));
	CHECK_OK(cairn_close(c));
	return 0;
}
