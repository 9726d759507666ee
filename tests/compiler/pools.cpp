// SPDX-License-Identifier: MIT
//
// A pool of threads that wait on std::condition_variable, whose functions are libstdc++'s: those who
// wait go on waiting when a checkpoint is restored, and are found when there is work.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>
#define _Noreturn [[noreturn]]
#include "cairn/cairn.h"
#include "../lib/harness.h"

enum { THREADS = 4, ROUNDS = 300, MAX_S = 50 };

static struct {
	std::mutex lock;
	std::condition_variable to_do, idle;
	std::deque<unsigned> queue;
	unsigned waiting, done;
	bool over;
} pool;

static struct kept {
	unsigned round, restored;
} *kept; // survives restores

static void work()
{
	std::unique_lock<std::mutex> held(pool.lock);

	for (;;) {
		pool.waiting++;
		pool.idle.notify_one();
		while (pool.queue.empty() && !pool.over)
			pool.to_do.wait(held);
		pool.waiting--;
		if (pool.over)
			return;
		unsigned job = pool.queue.front();
		pool.queue.pop_front();
		held.unlock();
		held.lock();
		pool.done += job;
	}
}

static void until_all_wait(std::unique_lock<std::mutex> &held)
{
	while (pool.waiting < THREADS || !pool.queue.empty())
		pool.idle.wait(held);
}

static void run(cairn_t *c, std::unique_lock<std::mutex> &held)
{
	while (kept->round++ < ROUNDS) {
		unsigned before = pool.done, jobs = 1 + kept->round % 7;
		uint64_t id;
		int got = cairn_checkpoint(c, &id);

		CHECK(got >= 0);
		if (got == CAIRN_RESTORED) {
			kept->restored++;
			kept->round++;
		}
		CHECK_U64(pool.done, before);
		for (unsigned i = 0; i < jobs; i++) {
			pool.queue.push_back(1);
			if (jobs % 2)
				pool.to_do.notify_one();
			else
				pool.to_do.notify_all();
		}
		until_all_wait(held);
		CHECK_U64(pool.done, before + jobs);
		if (kept->round % 3)
			CHECK_OK(cairn_restore(c, id)); // does not return
	}
}

int main()
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	std::vector<std::thread> threads;
	cairn_t *c;

	CHECK_OK(cairn_open(&c, &o));
	kept = (struct kept *)mmap(nullptr, sizeof(*kept), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(kept != MAP_FAILED);
	alarm(MAX_S);
	for (int i = 0; i < THREADS; i++)
		threads.emplace_back(work);
	std::unique_lock<std::mutex> held(pool.lock);
	until_all_wait(held);
	run(c, held);
	pool.over = true;
	pool.to_do.notify_all();
	held.unlock();
	for (std::thread &t : threads)
		t.join();
	CHECK(kept->restored > ROUNDS / 3);
	CHECK_OK(cairn_close(c));
	return 0;
}
