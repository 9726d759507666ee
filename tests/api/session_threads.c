/* SPDX-License-Identifier: MIT */
/*
 * Many threads in one session: every call that may come from any thread, at once, for each tracker.
 * Worth most under ThreadSanitizer (`make tsan`): calls are serialised by the session's lock, and
 * nothing of the engine may be touched outside it. Tracked memory is written by its own thread
 * only.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>
#include "cairn/cairn.h"

#define THREADS   4
#define ROUNDS    200
#define AREA_SIZE (16 * 4096ul)

static cairn_t *session;

struct worker {
	pthread_t thread;
	uint8_t *area;
	const char *failed; /* cmocka's assertions are for the main thread only */
};

#define EXPECT(cond)                         \
	do {                                 \
		if (!(cond)) {               \
			w->failed = #cond;   \
			return NULL;         \
		}                            \
	} while (0)

/* What any thread may do while another takes checkpoints. */
static void *use(void *arg)
{
	struct worker *w = arg;
	struct cairn_stats stats = { .size = sizeof(stats) };
	uint64_t oldest, newest;
	uint8_t byte;

	for (int i = 0; i < ROUNDS; i++) {
		EXPECT(cairn_area_add(session, w->area, AREA_SIZE) == 0);
		EXPECT(cairn_area_touch(session, w->area, 4096) == 0);
		memset(w->area, i, 4096);
		EXPECT(cairn_range(session, &oldest, &newest) == 0 && oldest <= newest);
		EXPECT(cairn_peek(session, UINT64_MAX - 1, w->area, &byte, 1) == CAIRN_ENOCKPT);
		EXPECT(cairn_stats(session, &stats) == 0 && stats.areas >= 1);
		EXPECT(cairn_area_remove(session, w->area, AREA_SIZE) == 0);
	}
	return NULL;
}

static void *map(void)
{
	void *p = mmap(NULL, AREA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void under_tracker(const char *tracker)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct worker workers[THREADS] = { 0 };
	uint8_t *own = map();
	uint64_t id;

	o.tracker = tracker;
	o.surface = "none";
	o.keep = 8;
	if (cairn_open(&session, &o) == CAIRN_ENOTRACK)
		skip();
	assert_int_equal(cairn_area_add(session, own, AREA_SIZE), 0);
	for (int i = 0; i < THREADS; i++) {
		workers[i].area = map();
		assert_int_equal(pthread_create(&workers[i].thread, NULL, use, &workers[i]), 0);
	}
	for (int i = 0; i < ROUNDS; i++) {
		own[0] = (uint8_t)i;
		assert_int_equal(cairn_checkpoint(session, &id), CAIRN_TAKEN);
		own[0] = 255;
		assert_int_equal(cairn_rewind(session, id), 0);
		assert_int_equal(own[0], (uint8_t)i);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_string_equal(workers[i].failed ? workers[i].failed : "", "");
		munmap(workers[i].area, AREA_SIZE);
	}
	assert_int_equal(cairn_close(session), 0);
	munmap(own, AREA_SIZE);
}

static void async_threads(void **state)
{
	under_tracker("async");
}

static void uffd_threads(void **state)
{
	under_tracker("uffd");
}

static void mprotect_threads(void **state)
{
	under_tracker("mprotect");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(async_threads),
		cmocka_unit_test(uffd_threads),
		cmocka_unit_test(mprotect_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
