// SPDX-License-Identifier: MIT
//
// Libc knows that there are several threads, also in programs that ask it (std::shared_ptr does, and
// names __libc_single_threaded): what several threads own is counted by atomic instructions, their
// allocations are made one at a time, and a rewind leaves their thread-local variables as they are.
#include <memory>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/single_threaded.h>
#define _Noreturn [[noreturn]]
#include "cairn/cairn.h"
#include "../lib/harness.h"

enum { THREADS = 3, ROUNDS = 20, COPIES = 2000 };

static thread_local volatile unsigned rounds_seen;
static std::shared_ptr<int> owned;
static volatile unsigned *seen_by[THREADS];
static struct shared {
	pthread_barrier_t turn;
} *shared;

static void *work(void *arg)
{
	seen_by[(intptr_t)arg] = &rounds_seen;
	for (int i = 0; i < ROUNDS; i++) {
		for (int j = 0; j < COPIES; j++)
			std::make_unique<std::shared_ptr<int>>(owned);
		rounds_seen = rounds_seen + 1;
		pthread_barrier_wait(&shared->turn);
		pthread_barrier_wait(&shared->turn);
	}
	return nullptr;
}

int main()
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	pthread_t threads[THREADS];
	pthread_barrierattr_t attr;
	uint64_t id;
	cairn_t *c;

	shared = (struct shared *)mmap(nullptr, sizeof(*shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->turn, &attr, THREADS + 1);
	owned = std::make_shared<int>(1);
	CHECK_OK(cairn_open(&c, &o));
	CHECK(__libc_single_threaded);
	for (intptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], nullptr, work, (void *)i));
	CHECK(!__libc_single_threaded);
	for (unsigned round = 1; round <= ROUNDS; round++) {
		pthread_barrier_wait(&shared->turn);
		if (round > 1)
			CHECK_OK(cairn_rewind(c, id));
		CHECK_U64(owned.use_count(), 1);
		for (volatile unsigned *seen : seen_by)
			CHECK_U64(*seen, round);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		pthread_barrier_wait(&shared->turn);
	}
	for (pthread_t thread : threads)
		CHECK(!pthread_join(thread, nullptr));
	CHECK_OK(cairn_close(c));
	return 0;
}
