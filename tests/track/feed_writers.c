/* SPDX-License-Identifier: MIT */
/*
 * Every way in which memory can be written, under one feed: feed_writers FEED CASE. The old content
 * must come back each time, and the feed must have been trusted where it can be (or the scan alone
 * would have been tested).
 *
 * Feed bpf-images has no mirror: who writes without a fault and is not announced by
 * cairn_area_touch costs the past of the interval, which must be said. What comes after is good.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include "../lib/harness.h"

#define PAGE   4096ul
#define PAGES  20000ul /* more than any ring holds */
#define ROUNDS 40

static cairn_t *c;
static uint8_t *area;
static const char *feed_name;
static uint64_t newest;
static bool could_open;
static bool images;     /* the feed is bpf-images */
static bool unfaulting; /* under it, the writer at work raises no fault */
static unsigned asleep; /* threads that only sleep any more */
static bool spins;      /* a thread has stored, and makes no call any more */

static void open_area(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct cairn_stats s = { .size = sizeof(s) };
	int rc;

	o.tracker = "async";
	o.feed = feed_name;
	o.strategy = "none"; /* hot pages raise no faults */
	o.surface = "none";
	rc = cairn_open(&c, &o);
	if (rc == CAIRN_ENOTRACK && !could_open)
		test_skip("this feed, or userfaultfd with WP_ASYNC");
	CHECK_OK(rc);
	CHECK_OK(cairn_stats(c, &s));
	CHECK(!strcmp(s.feed, feed_name));
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	memset(area, 1, PAGES / 2 * PAGE);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	for (int i = 0; i < 4; i++) /* what opening has stirred up settles */
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
}

static uint64_t scans(void)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	return s.scans;
}

static uint8_t before(size_t page)
{
	return page < PAGES / 2;
}

static void check_past(size_t page)
{
	uint8_t *at = area + page * PAGE, old = 9;

	CHECK_OK(cairn_peek(c, newest, at, &old, 1));
	CHECK_U64(old, before(page));
}

/* The page is written now. Is the past right, by peek and by a rewind, or lost and said to be? */
static void check_page(size_t page)
{
	uint8_t *at = area + page * PAGE, now = *at, old;

	CHECK(now != before(page));
	if (unfaulting) {
		CHECK_RC(cairn_peek(c, newest, at, &old, 1), CAIRN_EFAILED);
		CHECK_RC(cairn_rewind(c, newest), CAIRN_EFAILED);
		CHECK_U64(*at, now);
		memset(at, before(page), PAGE);
		return;
	}
	check_past(page);
	CHECK_OK(cairn_rewind(c, newest));
	CHECK_U64(*at, before(page));
}

/* ---- Writers, each of one page ------------------------------------------------------------- */

static void store(uint8_t *at)
{
	*(volatile uint8_t *)at = 7;
}

static void read_call(uint8_t *at)
{
	int ends[2];

	CHECK(!pipe(ends) && write(ends[1], "x", 1) == 1 && read(ends[0], at, 1) == 1);
	close(ends[0]);
	close(ends[1]);
}

static void *thread_main(void *at)
{
	store(at);
	return NULL;
}

static void thread_store(uint8_t *at)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, thread_main, at));
	CHECK(!pthread_join(thread, NULL));
}

/* A thread that was there before, and stays: no cause for doubt. */
static struct {
	pthread_t thread;
	int ask[2], done[2];
} asked;

static void *asked_main(void *arg)
{
	uint8_t *at;

	while (read(asked.ask[0], &at, sizeof(at)) == sizeof(at)) {
		store(at);
		if (write(asked.done[1], "x", 1) != 1)
			break;
	}
	return arg;
}

static void asked_start(void)
{
	CHECK(!pipe(asked.ask) && !pipe(asked.done));
	CHECK(!pthread_create(&asked.thread, NULL, asked_main, NULL));
}

static void asked_store(uint8_t *at)
{
	char done;

	CHECK(write(asked.ask[1], &at, sizeof(at)) == sizeof(at));
	CHECK(read(asked.done[0], &done, 1) == 1);
}

/* A thread that neither sleeps nor writes: it cannot be seen at rest. */
static void *busy_main(void *arg)
{
	for (;;)
		sched_yield();
	return arg;
}

static void busy_start(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, busy_main, NULL));
}

static void busy_store(uint8_t *at)
{
	store(at);
}

static void vfork_store(uint8_t *at)
{
	volatile pid_t pid = vfork();

	if (!pid) {
		store(at);
		_exit(0);
	}
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static void own_vmwritev(uint8_t *at)
{
	struct iovec from = { "x", 1 }, to = { at, 1 };

	CHECK(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == 1);
}

static void in_child(uint8_t *at, void (*fn)(pid_t parent, uint8_t *at))
{
	pid_t parent = getpid(), pid = fork();
	int status;

	if (!pid) {
		fn(parent, at);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void write_parent(pid_t parent, uint8_t *at)
{
	struct iovec from = { "x", 1 }, to = { at, 1 };

	if (process_vm_writev(parent, &from, 1, &to, 1, 0) != 1)
		_exit(1);
}

static void foreign_vmwritev(uint8_t *at)
{
	in_child(at, write_parent);
}

/* The parent is stopped meanwhile, but its wait goes on when it is let go. */
static void poke_parent(pid_t parent, uint8_t *at)
{
	int status;

	if (ptrace(PTRACE_SEIZE, parent, 0, 0) || ptrace(PTRACE_INTERRUPT, parent, 0, 0) ||
		waitpid(parent, &status, 0) != parent ||
		ptrace(PTRACE_POKEDATA, parent, at, 0x0707070707070707) ||
		ptrace(PTRACE_DETACH, parent, 0, 0))
		_exit(1);
}

static void ptrace_poke(uint8_t *at)
{
	in_child(at, poke_parent);
}

static void proc_mem(uint8_t *at)
{
	int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0 && pwrite(fd, "x", 1, (off_t)(uintptr_t)at) == 1);
	close(fd);
}

static void direct_read(uint8_t *at)
{
	static uint8_t block[PAGE] __attribute__((aligned(4096)));
	char name[] = "direct-XXXXXX";
	int fd = mkostemp(name, O_CLOEXEC | O_DIRECT);

	struct statfs fs;

	if (fd < 0)
		test_skip("O_DIRECT (this file system refuses it)");
	unlink(name);
	CHECK(!fstatfs(fd, &fs));
	if (images && fs.f_type == TMPFS_MAGIC)
		test_skip("O_DIRECT past the page cache (this file system has nothing else)");
	memset(block, 8, PAGE);
	CHECK(pwrite(fd, block, PAGE, 0) == (ssize_t)PAGE);
	CHECK(pread(fd, at, PAGE, 0) == (ssize_t)PAGE);
	close(fd);
}

static void dropped(uint8_t *at)
{
	if (!*at)
		store(at);
	else
		CHECK(!madvise(at, PAGE, MADV_DONTNEED));
}

static const struct writer {
	const char *name;
	void (*write)(uint8_t *at);
	enum { BY_FAULT, BY_FAULT_AND_DOUBT, UNSEEN } how;
} writers[] = {
	{ "store", store, BY_FAULT },
	{ "read", read_call, BY_FAULT },
	{ "thread", thread_store, BY_FAULT_AND_DOUBT }, /* its stack is mapped */
	{ "asked", asked_store, BY_FAULT },
	{ "busy", busy_store, BY_FAULT },
	{ "vfork", vfork_store, BY_FAULT_AND_DOUBT }, /* it takes the lock as it ends */
	{ "vmwritev", own_vmwritev, UNSEEN },
	{ "foreign", foreign_vmwritev, UNSEEN },
	{ "ptrace", ptrace_poke, UNSEEN },
	{ "procmem", proc_mem, UNSEEN },
	{ "direct", direct_read, UNSEEN },
	{ "dontneed", dropped, UNSEEN },
};

static void run_writer(const struct writer *w)
{
	uint64_t start;

	if (w->write == asked_store)
		asked_start();
	if (w->write == busy_store) {
		open_area(); /* without it, it can be had */
		CHECK_OK(cairn_close(c));
		could_open = true;
		busy_start();
	}
	open_area();
	start = scans();
	for (size_t i = 0; i < ROUNDS; i++) {
		size_t page = (i * 7919 + 3) % PAGES;

		/* Every other one is announced; and what is not there cannot be dropped. */
		unfaulting = images && w->how == UNSEEN && i % 2;
		if (images && w->how == UNSEEN && !unfaulting)
			CHECK_OK(cairn_area_touch(c, area + page * PAGE, PAGE));
		if (w->write == dropped && !before(page))
			unfaulting = false;
		w->write(area + page * PAGE);
		if (w->how != UNSEEN && page + 1 < PAGES) {
			/* What the writer has done to the lock spoils nothing. */
			store(area + (page + 1) * PAGE);
			check_past(page + 1);
		}
		check_page(page);
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	}
	if (w->how == BY_FAULT && strcmp(feed_name, "scan") && scans() - start > ROUNDS / 4)
		test_fail("%llu scans: the feed was not trusted",
			(unsigned long long)(scans() - start));
}

/* ---- More than one page ---------------------------------------------------------------------- */

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

/* More threads than a feed remembers come, store and go: it is not given up for them. */
static void run_gone(void)
{
	enum { ROUND = 40 }; /* at once, or the kernel would make each in the place of the last */
	struct cairn_stats s = { .size = sizeof(s) };
	pthread_t threads[ROUND];

	open_area();
	for (volatile size_t round = 0; round < 40; round++) {
		uint8_t *at = area + round * 70 * PAGE;

		for (size_t i = 0; i < ROUND; i++)
			CHECK(!pthread_create(&threads[i], NULL, thread_main, at + i * PAGE));
		for (size_t i = 0; i < ROUND; i++)
			CHECK(!pthread_join(threads[i], NULL));
		check_page(round * 70 + ROUND - 1);
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	}
	CHECK_OK(cairn_stats(c, &s));
	CHECK(!strcmp(s.feed, feed_name));
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

/* More threads than a feed remembers are there at once: it is given up, with all that it knew. */
static void run_crowded(void)
{
	enum { COUNT = 300 };
	struct cairn_stats s = { .size = sizeof(s) };
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
	CHECK_OK(cairn_stats(c, &s));
	CHECK(!strcmp(s.feed, "scan"));
	other = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(other != MAP_FAILED);
	CHECK_OK(cairn_area_add(c, other, PAGE));
	CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
	store(other);
	CHECK_OK(cairn_rewind(c, newest));
	CHECK_U64(*other, 0);
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

int main(int argc, char **argv)
{
	const char *name = argc > 2 ? argv[2] : "";

	feed_name = argc > 1 ? argv[1] : "";
	images = !strcmp(feed_name, "bpf-images");
	for (size_t i = 0; i < sizeof(writers) / sizeof(writers[0]); i++) {
		if (!strcmp(writers[i].name, name)) {
			run_writer(&writers[i]);
			return 0;
		}
	}
	if (!strcmp(name, "overflow"))
		run_overflow();
	else if (!strcmp(name, "scattered"))
		run_scattered();
	else if (!strcmp(name, "closed"))
		run_closed();
	else if (!strcmp(name, "gone"))
		run_gone();
	else if (!strcmp(name, "reused"))
		run_reused();
	else if (!strcmp(name, "crowded"))
		run_crowded();
	else if (!strcmp(name, "quiet"))
		run_quiet();
	else
		test_fail("no such case: %s", name);
	return 0;
}
