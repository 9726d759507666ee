/* SPDX-License-Identifier: MIT */
/* What one write to one page does not show of a feed: feed_writers FEED CASE. */
#include "feed_area.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned asleep; /* threads that only sleep any more */
static bool spins;      /* a thread has stored, and makes no call any more */

/* More pages than the ring holds, many times over, with single ones between. */
static void run_overflow(void)
{
	open_area();
	for (unsigned round = 0; round < 4; round++) {
		for (size_t p = 0; p < PAGES; p++)
			store(area + p * PAGE);
		if (images) { /* there is no room for so many */
			CHECK_RC(cairn_rewind(c, newest), CAIRN_EFAILED);
			for (size_t p = 0; p < PAGES; p++)
				area[p * PAGE] = before(p);
		} else {
			CHECK_OK(cairn_rewind(c, newest));
		}
		for (size_t p = 0; p < PAGES; p++)
			CHECK_U64(area[p * PAGE], before(p));
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
		for (volatile size_t p = 5; p < 9; p++) {
			store(area + p * PAGE);
			check_page(p);
			CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
		}
	}
}

/* Many single pages that lie close together, time and again: they are protected in one call. */
static void run_scattered(void)
{
	open_area();
	for (unsigned round = 0; round < 8; round++) {
		for (size_t p = 0; p < 200; p += 2) {
			store(area + p * PAGE);
			check_past(p);
		}
		CHECK_OK(cairn_rewind(c, newest));
		for (size_t p = 0; p < 200; p++)
			CHECK_U64(area[p * PAGE], before(p));
		for (size_t p = 1; p < 200; p += 3)
			area[p * PAGE + 1]++;
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	}
	CHECK_U64(area[PAGE + 1], before(1) + 8);
}

/* All descriptors are closed: nothing is lost, whether the feed lives on or not. */
static void run_closed(void)
{
	open_area();
	CHECK(!close_range(3, ~0u, 0));
	for (size_t p = 0; p < ROUNDS; p++) {
		store(area + p * PAGE);
		check_page(p);
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	}
}

/*
 * Where the kernel copies pages the past may also be lost, and said to be: who execs is cause for
 * doubt, and so is a thread that is still in the midst of its end.
 */
static void check_or_lost(size_t page)
{
	uint8_t old;
	int rc;

	if (!images) {
		check_page(page);
		return;
	}
	rc = cairn_peek(c, newest, area + page * PAGE, &old, 1);
	CHECK(rc == CAIRN_EFAILED || (rc >= 0 && old == before(page)));
}

/* More threads than a feed remembers come, store and go: it is not given up for them. */
static void run_gone(void)
{
	enum { ROUND = 40 }; /* at once, or the kernel would make each in the place of the last */
	pthread_t threads[ROUND];

	open_area();
	for (volatile size_t round = 0; round < 40; round++) {
		uint8_t *at = area + round * 70 * PAGE;

		for (size_t i = 0; i < ROUND; i++)
			CHECK(!pthread_create(&threads[i], NULL, storing_main, at + i * PAGE));
		for (size_t i = 0; i < ROUND; i++)
			CHECK(!pthread_join(threads[i], NULL));
		check_or_lost(round * 70 + ROUND - 1);
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	}
	check_feed(feed_name);
}

/* A child of vfork that stores, and becomes another program, which lives until `until` ends. */
static void spawn(uint8_t *at, int until)
{
	pid_t pid = vfork();

	if (!pid) {
		store(at);
		dup2(until, 0);
		execl("/bin/cat", "cat", NULL);
		_exit(127);
	}
	CHECK(pid > 0);
}

/* The same with more children of vfork than a feed remembers. */
static void run_execs(void)
{
	enum { ROUND = 40 };
	int ends[2], began[2], status;

	open_area();
	CHECK(!pipe2(ends, O_CLOEXEC)); /* all live on, or they would be in one another's places */
	for (volatile size_t round = 0; round < 8; round++) {
		uint8_t *at = area + round * 70 * PAGE;

		CHECK(!pipe2(began, O_CLOEXEC));
		for (volatile size_t i = 0; i < ROUND; i++)
			spawn(at + i * PAGE, ends[0]);
		close(began[1]);
		CHECK(read(began[0], &status, 1) == 0); /* all are other programs by now */
		close(began[0]);
		check_or_lost(round * 70 + ROUND - 1);
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	}
	for (volatile int i = 0; i < 2; i++) /* if the feed is given up, then now */
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	check_feed(feed_name);
	close(ends[1]);
	while (wait(&status) > 0)
		CHECK_U64(status, 0);
}

/* A thread whose last fault, as far as a feed can tell, is not over: it spins. */
static void *spinning_main(void *at)
{
	store(at);
	__atomic_store_n(&spins, true, __ATOMIC_RELEASE);
	for (;;)
		;
	return NULL;
}

static void *sleeping_main(void *arg)
{
	__atomic_add_fetch(&asleep, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
	return arg;
}

/* Where it has stored lies another area now, in a part that nobody has touched. */
static void run_reused(void)
{
	const size_t len = PAGES * PAGE;
	pthread_t thread;

	open_area();
	CHECK(!pthread_create(&thread, NULL, spinning_main, area + len - PAGE));
	while (!__atomic_load_n(&spins, __ATOMIC_ACQUIRE))
		sched_yield();
	CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	CHECK_OK(cairn_area_remove(c, area, len));
	CHECK(mmap(area, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		      0) == area);
	memset(area, 1, PAGES / 2 * PAGE);
	CHECK_OK(cairn_area_add(c, area, len));
	CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	for (volatile size_t p = 0; p < PAGES; p += 999) {
		store(area + p * PAGE);
		check_page(p);
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	}
}

static void *elsewhere_main(void *arg)
{
	uint64_t start;

	for (volatile int i = 0; i < 4; i++) /* what its birth has stirred up settles */
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	start = scans();
	for (volatile size_t i = 0; i < ROUNDS; i++) {
		store(area + i * 70 * PAGE);
		check_or_lost(i * 70);
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	}
	if (scans() - start > ROUNDS / 4)
		test_fail("%llu scans: the feed was not trusted",
			(unsigned long long)(scans() - start));
	return arg;
}

/* Another thread takes the checkpoints from now on: its calls are known as the engine's. */
static void run_elsewhere(void)
{
	pthread_t thread;

	open_area();
	CHECK(!pthread_create(&thread, NULL, elsewhere_main, NULL));
	CHECK(!pthread_join(thread, NULL));
	store(area + PAGE);
	check_or_lost(1);
}

/* More threads than a feed remembers are there at once: it is given up, with all that it knew. */
static void run_crowded(void)
{
	enum { COUNT = 300 };
	pthread_t thread;
	uint8_t *other;

	run_reused(); /* somebody has not come to the end of a fault where memory was added */
	CHECK_OK(cairn_area_remove(c, area, PAGES * PAGE));
	for (size_t i = 0; i < COUNT; i++)
		CHECK(!pthread_create(&thread, NULL, sleeping_main, NULL));
	while (__atomic_load_n(&asleep, __ATOMIC_ACQUIRE) < COUNT)
		sched_yield();
	for (int i = 0; i < 4; i++)
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	check_feed("scan");
	other = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(other != MAP_FAILED);
	CHECK_OK(cairn_area_add(c, other, PAGE));
	CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	store(other);
	CHECK_OK(cairn_rewind(c, newest));
	CHECK_U64(*other, 0);
}

static struct {
	int ask[2];
	bool done;
} drops;

static void *dropping_main(void *arg)
{
	uint8_t byte;

	while (read(drops.ask[0], &byte, 1) == 1) {
		CHECK(!madvise(area, PAGES / 2 * PAGE, MADV_DONTNEED));
		__atomic_store_n(&drops.done, true, __ATOMIC_RELEASE);
	}
	return arg;
}

/*
 * Checkpoints while another thread drops pages, for which it holds the address space's lock. It
 * does nothing afterwards that would be cause for doubt.
 */
static void run_drops(void)
{
	pthread_t thread;
	uint8_t old = 9;

	open_area();
	CHECK(!pipe(drops.ask) && !pthread_create(&thread, NULL, dropping_main, NULL));
	for (unsigned round = 0; round < ROUNDS; round++) {
		memset(area, 1, PAGES / 2 * PAGE);
		drops.done = false;
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
		CHECK(write(drops.ask[1], "x", 1) == 1);
		while (!__atomic_load_n(&drops.done, __ATOMIC_ACQUIRE))
			CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
		for (size_t p = 0; p < PAGES / 2; p++) {
			store(area + p * PAGE);
			CHECK_OK(cairn_peek(c, newest, area + p * PAGE, &old, 1));
			CHECK_U64(old, 0);
		}
	}
}

/* Nothing is written: no scan, however long. The audit is none that counts. */
static void run_quiet(void)
{
	uint64_t start;

	open_area();
	start = scans();
	for (unsigned i = 0; i < 3000; i++)
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	if (strcmp(feed_name, "scan"))
		CHECK(scans() - start < 100);
}

static const struct {
	const char *name;
	void (*run)(void);
} runs[] = {
	{ "overflow", run_overflow }, { "scattered", run_scattered }, { "closed", run_closed },
	{ "gone", run_gone }, { "execs", run_execs }, { "elsewhere", run_elsewhere },
	{ "reused", run_reused }, { "crowded", run_crowded }, { "drops", run_drops },
	{ "quiet", run_quiet }, { "begotten", run_begotten },
	{ "begotten_by_thread", run_begotten_by_thread }, { "leaderless", run_leaderless },
	{ "older", run_older },
};

bool run_case(const char *name)
{
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		if (strcmp(runs[i].name, name) == 0) {
			runs[i].run();
			return true;
		}
	}
	return false;
}
