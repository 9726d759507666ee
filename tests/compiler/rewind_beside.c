/* SPDX-License-Identifier: MIT */
/*
 * -fcairn-threads: while a rewind puts memory back another thread stores to what has been put back
 * already. The checkpoint stays what it was: a second rewind shows it. Linked with
 * --wrap=crn_store, which says when. argv: TRACKER [kept].
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define VALUES 4096
#define ROUNDS 20
#define WAIT   20 /* ms: long enough for a store that nothing holds up */

/* Hooks of the thread that rewinds would make of its stores a part of the checkpoint. */
#define NO_HOOKS __attribute__((noinline, disable_sanitizer_instrumentation))

struct crn_track_env;
void __real_crn_store(struct crn_track_env *env, uintptr_t addr, const void *old, size_t len);
NO_HOOKS void __wrap_crn_store(struct crn_track_env *env, uintptr_t addr, const void *old,
	size_t len);

static unsigned values[VALUES];
static volatile unsigned *const victim = &values[VALUES / 2];

static struct {
	_Atomic bool armed, go, done, over;
	unsigned stored_within; /* times that the store came before the rewind had ended */
} *shared; /* survives restores */

static __attribute__((noinline)) void program_stores(void)
{
	*victim = 0xbad;
}

static NO_HOOKS void *work(void *arg)
{
	while (!atomic_load(&shared->over)) {
		if (!atomic_exchange(&shared->go, false))
			continue;
		program_stores();
		atomic_store(&shared->done, true);
	}
	return arg;
}

static NO_HOOKS void wait_for_store(void)
{
	struct timespec ms = { .tv_nsec = 1000000 };

	for (int i = 0; i < WAIT && !atomic_load(&shared->done); i++)
		nanosleep(&ms, NULL);
	shared->stored_within += atomic_load(&shared->done);
}

NO_HOOKS void __wrap_crn_store(struct crn_track_env *env, uintptr_t addr, const void *old,
	size_t len)
{
	__real_crn_store(env, addr, old, len);
	if ((uintptr_t)victim - addr >= len || !atomic_exchange(&shared->armed, false))
		return;
	atomic_store(&shared->go, true);
	wait_for_store();
}

static void check_values(unsigned round)
{
	for (size_t i = 0; i < VALUES; i++)
		CHECK_U64(values[i], round + i);
}

static void set_all(unsigned value, size_t step)
{
	for (size_t i = 0; i < VALUES; i += step)
		values[i] = value + (unsigned)i;
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id, newer;
	pthread_t thread;
	cairn_t *c;

	o.tracker = argv[1];
	o.keep = 3;
	CHECK_OK(cairn_open(&c, &o));
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	CHECK_OK(cairn_area_exclude(c, shared, 4096));
	CHECK(!pthread_create(&thread, NULL, work, NULL));
	for (unsigned round = 0; round < ROUNDS; round++) {
		set_all(round, 1);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		set_all(round + 1000000, 1);
		if (argc > 2) { /* and once more in an interval that is packed away */
			CHECK_RC(cairn_checkpoint(c, &newer), CAIRN_TAKEN);
			set_all(round + 2000000, round % 2 ? 1 : VALUES);
		}
		atomic_store(&shared->done, false);
		atomic_store(&shared->armed, true);
		CHECK_OK(cairn_rewind(c, id));
		while (!atomic_load(&shared->done))
			;
		CHECK_U64(*victim, 0xbad);
		CHECK_OK(cairn_rewind(c, id));
		check_values(round);
	}
	atomic_store(&shared->over, true);
	CHECK(!pthread_join(thread, NULL));
	CHECK_U64(shared->stored_within, 0);
	CHECK_OK(cairn_close(c));
	return 0;
}
