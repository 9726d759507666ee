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
#include "feed_area.h"

static void read_call(uint8_t *at)
{
	int ends[2];

	CHECK(!pipe(ends) && write(ends[1], "x", 1) == 1 && read(ends[0], at, 1) == 1);
	close(ends[0]);
	close(ends[1]);
}

static void thread_store(uint8_t *at)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, storing_main, at));
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
	if (!run_case(name))
		test_fail("no such case: %s", name);
	return 0;
}
