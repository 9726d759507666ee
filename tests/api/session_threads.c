/* SPDX-License-Identifier: MIT */
/*
 * session_threads TRACKER: many threads in one session make every call that may come from any
 * thread, at once. Worth most under ThreadSanitizer (`make tsan`): calls are serialised by the
 * session's lock, and nothing of the engine may be touched outside it. Tracked memory is written by
 * its own thread only.
 */
#include <pthread.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define THREADS   4
#define ROUNDS    200
#define AREA_SIZE (16 * 4096ul)

static cairn_t *session;

struct worker {
	pthread_t thread;
	uint8_t *area;
};

/* What any thread may do while another takes checkpoints. */
static void *use(void *arg)
{
	struct worker *w = arg;
	struct cairn_stats stats = { .size = sizeof(stats) };
	uint64_t oldest, newest;
	uint8_t byte;

	for (int i = 0; i < ROUNDS; i++) {
		CHECK_OK(cairn_area_add(session, w->area, AREA_SIZE));
		CHECK_OK(cairn_area_touch(session, w->area, 4096));
		memset(w->area, i, 4096);
		CHECK_OK(cairn_range(session, &oldest, &newest));
		CHECK(oldest <= newest);
		CHECK_RC(cairn_peek(session, UINT64_MAX - 1, w->area, &byte, 1), CAIRN_ENOCKPT);
		CHECK_OK(cairn_stats(session, &stats));
		CHECK(stats.areas >= 1);
		CHECK_OK(cairn_area_remove(session, w->area, AREA_SIZE));
	}
	return NULL;
}

static void *map(void)
{
	void *p = mmap(NULL, AREA_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct worker workers[THREADS];
	uint8_t *own = map();
	uint64_t id;

	o.tracker = argc > 1 ? argv[1] : "async";
	o.surface = "none";
	o.keep = 8;
	session = test_open(&o);
	CHECK_OK(cairn_area_add(session, own, AREA_SIZE));
	for (int i = 0; i < THREADS; i++) {
		workers[i].area = map();
		CHECK(!pthread_create(&workers[i].thread, NULL, use, &workers[i]));
	}
	for (int i = 0; i < ROUNDS; i++) {
		own[0] = (uint8_t)i;
		CHECK_RC(cairn_checkpoint(session, &id), CAIRN_TAKEN);
		own[0] = 255;
		CHECK_OK(cairn_rewind(session, id));
		CHECK_U64(own[0], (uint8_t)i);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(workers[i].thread, NULL));
	CHECK_OK(cairn_close(session));
	return 0;
}
