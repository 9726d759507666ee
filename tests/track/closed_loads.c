/* SPDX-License-Identifier: MIT */
/*
 * closed_loads CASE: the content of hundreds of pages that the program has closed is fetched with
 * one descriptor for each call (a garbage collector closes tens of thousands), of which nothing is
 * left afterwards: a child could read its parent's memory by it.
 *
 *	many    checkpoints, looks into the past, and rewinds
 *	reused  another thread of the program closes the descriptor, and has its number for a file
 *	none    there is no descriptor left
 *	frozen  nor is there, and a frozen process holds what was closed: a rewind fails
 *	threads nor is there, and other threads would see what is opened: calls fail, and nothing is
 *	        taken for empty
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 300ul

/* Memory that no restore turns back. */
static struct outside {
	int opened; /* in this call */
	bool reuse, none;
	int taken; /* the number that was taken away, -1: none */
} *outside;

static cairn_t *c;
static uint8_t *pages;

int __real_crn_fd_open_own(const char *path, int flags);
int __wrap_crn_fd_open_own(const char *path, int flags);
int __wrap_crn_fd_open_own(const char *path, int flags)
{
	bool memory = strcmp(path, "/proc/self/mem") == 0 && (flags & O_ACCMODE) == O_RDONLY;

	if (memory && outside->none)
		return -EMFILE;
	outside->opened += memory;
	return __real_crn_fd_open_own(path, flags);
}

int __real_crn_memory_force_read_by(int fd, void *dst, uintptr_t addr, size_t len);
int __wrap_crn_memory_force_read_by(int fd, void *dst, uintptr_t addr, size_t len);
int __wrap_crn_memory_force_read_by(int fd, void *dst, uintptr_t addr, size_t len)
{
	if (outside->reuse && outside->taken < 0) {
		int zero = open("/dev/zero", O_RDONLY);

		CHECK(zero >= 0 && dup2(zero, fd) == fd && close(zero) == 0);
		outside->taken = fd;
	}
	return __real_crn_memory_force_read_by(fd, dst, addr, len);
}

static bool leads_to(int fd, const char *file)
{
	char path[40], target[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, file) != NULL;
}

/* A call is over. */
static void expect_one(void)
{
	CHECK(outside->opened <= (outside->reuse ? 4 : 1));
	outside->opened = 0;
	for (int fd = 0; fd < 1024; fd++)
		CHECK(!leads_to(fd, "/mem"));
	if (outside->taken < 0)
		return;
	CHECK(leads_to(outside->taken, "/dev/zero") && close(outside->taken) == 0);
	outside->taken = -1;
}

static void write_and_close(uint8_t value)
{
	CHECK(!mprotect(pages, PAGES * PAGE, PROT_READ | PROT_WRITE));
	for (size_t i = 0; i < PAGES; i++)
		memset(pages + i * PAGE, value + (int)i % 7, PAGE);
	CHECK(!mprotect(pages, PAGES * PAGE, PROT_NONE));
}

static uint64_t take(uint8_t value)
{
	uint64_t id;

	write_and_close(value);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	expect_one();
	return id;
}

static void expect_then(uint64_t id, uint8_t value)
{
	static uint8_t then[PAGES * PAGE];

	CHECK_OK(cairn_peek(c, id, pages, then, sizeof(then)));
	expect_one();
	for (size_t i = 0; i < sizeof(then); i++)
		CHECK(then[i] == value + i / PAGE % 7);
}

static void expect_now(uint8_t value)
{
	CHECK(!mprotect(pages, PAGES * PAGE, PROT_READ));
	for (size_t i = 0; i < PAGES * PAGE; i++)
		CHECK(pages[i] == value + i / PAGE % 7);
}

static void *wait_for_end(void *until)
{
	pthread_mutex_lock(until);
	pthread_mutex_unlock(until);
	return NULL;
}

/* Not one of them is wrong when there are descriptors again. */
static void among_threads(void)
{
	static pthread_mutex_t end = PTHREAD_MUTEX_INITIALIZER;
	pthread_t thread;
	uint64_t id, next;

	CHECK(!pthread_mutex_lock(&end));
	CHECK(!pthread_create(&thread, NULL, wait_for_end, &end));
	CHECK_OK(cairn_area_add(c, pages, PAGES * PAGE));
	id = take(50);
	outside->none = true;
	write_and_close(60);
	CHECK_RC(cairn_checkpoint(c, &next), -EMFILE);
	outside->none = false;
	CHECK_RC(cairn_checkpoint(c, &next), CAIRN_TAKEN);
	write_and_close(70);
	CHECK_OK(cairn_rewind(c, next));
	expect_now(60);
	CHECK_OK(cairn_rewind(c, id));
	expect_now(50);
	CHECK(!pthread_mutex_unlock(&end) && !pthread_join(thread, NULL));
}

static void from_frozen(void)
{
	struct rlimit before, none;
	uint64_t id;

	CHECK_OK(cairn_area_add(c, pages, PAGES * PAGE));
	id = take(50);
	write_and_close(60);
	CHECK(!mprotect(pages, PAGES * PAGE, PROT_READ | PROT_WRITE));
	CHECK(!getrlimit(RLIMIT_NOFILE, &before));
	none = before;
	none.rlim_cur = 3;
	CHECK(!setrlimit(RLIMIT_NOFILE, &none));
	CHECK(cairn_rewind(c, id) < 0);
	CHECK(!setrlimit(RLIMIT_NOFILE, &before));
	expect_now(60);
	CHECK_OK(cairn_rewind(c, id));
	expect_now(50);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	const char *how = argc > 1 ? argv[1] : "many";
	uint64_t id[4];

	outside = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		0);
	CHECK(outside != MAP_FAILED && pages != MAP_FAILED);
	memset(pages, 1, PAGES * PAGE);
	outside->taken = -1;
	o.tracker = "async";
	o.feed = "scan";
	o.keep = 8;
	if (!strcmp(how, "threads") || !strcmp(how, "frozen"))
		o.surface = "none";
	if (!strcmp(how, "frozen")) {
		o.tracker = "fork";
		o.feed = NULL;
	}
	c = test_open(&o);
	expect_one();
	if (o.surface) {
		if (!strcmp(how, "threads"))
			among_threads();
		else
			from_frozen();
		CHECK_OK(cairn_close(c));
		return 0;
	}
	outside->reuse = !strcmp(how, "reused");
	outside->none = !strcmp(how, "none");
	for (int i = 0; i < 4; i++)
		id[i] = take((uint8_t)(10 * i + 10));
	for (int i = 0; i < 4; i++)
		expect_then(id[i], (uint8_t)(10 * i + 10));
	CHECK_OK(cairn_rewind(c, id[1]));
	expect_one();
	expect_now(20);
	CHECK_OK(cairn_close(c));
	return 0;
}
