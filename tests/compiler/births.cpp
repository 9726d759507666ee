// SPDX-License-Identifier: MIT
//
// -fcairn-threads: a thread that the program has made since the checkpoint, by POSIX, C11 or C++,
// would run on in memory that does not know of it. While it lives that checkpoint is refused; a
// later one is not, and when it has ended all bytes come back.
#include <atomic>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <thread>
#include <threads.h>
#include <time.h>
#define _Noreturn [[noreturn]]
#include "cairn/cairn.h"
#include "../lib/harness.h"

enum way { POSIX, C11, CPP, WAYS };

static struct shared {
	std::atomic<bool> waits, over;
} *shared; // survives restores
static long content;

static void wait_for_end()
{
	timespec t = { 0, 100000 };

	shared->waits.store(true);
	while (!shared->over.load())
		nanosleep(&t, nullptr);
}

static void *posix_thread(void *arg)
{
	wait_for_end();
	return arg;
}

static int c11_thread(void *)
{
	wait_for_end();
	return 0;
}

static pthread_t posix;
static thrd_t c11;
static std::thread cpp;

static void start(int way, bool wait)
{
	shared->waits.store(false);
	shared->over.store(false);
	if (way == POSIX)
		CHECK(!pthread_create(&posix, nullptr, posix_thread, nullptr));
	else if (way == C11)
		CHECK(thrd_create(&c11, c11_thread, nullptr) == thrd_success);
	else
		cpp = std::thread(wait_for_end);
	while (wait && !shared->waits.load())
		;
}

static void end(int way)
{
	shared->over.store(true);
	if (way == POSIX)
		CHECK(!pthread_join(posix, nullptr));
	else if (way == C11)
		CHECK(thrd_join(c11, nullptr) == thrd_success);
	else
		cpp.join();
}

// wait: or the thread is only being born when the restore is asked for.
static void run(cairn_t *c, int way, bool wait)
{
	uint64_t before, after;
	int rc;

	content = 1;
	rc = cairn_checkpoint(c, &before);
	if (rc == CAIRN_RESTORED) {
		CHECK(content == 1 && !cpp.joinable());
		return;
	}
	CHECK(rc == CAIRN_TAKEN);
	content = 2;
	start(way, wait);
	CHECK_RC(cairn_restore(c, before), CAIRN_ETHREADS);
	CHECK_RC(cairn_rewind(c, before), CAIRN_ETHREADS);
	CHECK(content == 2);
	rc = cairn_checkpoint(c, &after);
	CHECK(rc == CAIRN_TAKEN || rc == CAIRN_RESTORED);
	CHECK(content == 2);
	content = 3;
	if (rc == CAIRN_TAKEN)
		CHECK_OK(cairn_restore(c, after));
	end(way);
	CHECK_OK(cairn_restore(c, before));
}

int main()
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	o.keep = 2;
	CHECK_OK(cairn_open(&c, &o));
	shared = new (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		0)) struct shared;
	for (int round = 0; round < 30; round++)
		for (int way = 0; way < WAYS; way++)
			run(c, way, round % 2);
	CHECK_OK(cairn_close(c));
	return 0;
}
