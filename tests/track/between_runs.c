/* SPDX-License-Identifier: MIT */
/*
 * between_runs FEED store | read | writev | emptied calm | doubt | flood: two pages were written,
 * and are protected by one call with all that lies between them. Just before it (here the engine's
 * own call does) another thread or process changes a page there, which was none of the written
 * ones. It must be in the next checkpoint at last, also if the feed is in doubt by then, or has had
 * no room for the report.
 */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "fed_session.h"
#include "os/pagemap.h"

#define PAGE   4096ul
#define LEN    (2ul << 20)
#define FIRST  16 /* pages */
#define LAST   80
#define MIDDLE 40
#define FLOOD  16384 /* pages: twice what a feed has room for */

long __real_crn_pagemap_stored(int pagemap, uintptr_t *cursor, uintptr_t end, bool protect,
	struct crn_page_run *runs, size_t max);
long __wrap_crn_pagemap_stored(int pagemap, uintptr_t *cursor, uintptr_t end, bool protect,
	struct crn_page_run *runs, size_t max);

static uint8_t *area;
static const char *what, *after;
static bool armed;
static int ask[2], done[2]; /* pipes to who changes the page, and back */

static uint8_t *middle(void)
{
	return area + MIDDLE * PAGE;
}

static void change(void)
{
	uint8_t value = 9;
	struct iovec from = { &value, 1 }, to = { middle(), 1 };
	int ends[2];

	if (!strcmp(what, "store")) {
		*(volatile uint8_t *)middle() = 9;
	} else if (!strcmp(what, "read")) {
		CHECK(!pipe(ends) && write(ends[1], &value, 1) == 1);
		CHECK(read(ends[0], middle(), 1) == 1);
	} else if (!strcmp(what, "writev")) {
		CHECK(process_vm_writev(getppid(), &from, 1, &to, 1, 0) == 1);
	} else {
		CHECK(!madvise(middle(), PAGE, MADV_DONTNEED));
	}
}

static void *changing_main(void *arg)
{
	char x;

	while (read(ask[0], &x, 1) == 1) {
		change();
		CHECK(write(done[1], "x", 1) == 1);
	}
	return arg;
}

static void change_now(uintptr_t begin, uintptr_t end)
{
	char x;

	if (!armed || (uintptr_t)middle() < begin || (uintptr_t)middle() >= end)
		return;
	armed = false;
	CHECK(write(ask[1], "x", 1) == 1 && read(done[0], &x, 1) == 1);
}

long __wrap_crn_pagemap_stored(int pagemap, uintptr_t *cursor, uintptr_t end, bool protect,
	struct crn_page_run *runs, size_t max)
{
	if (protect)
		change_now(*cursor, end);
	return __real_crn_pagemap_stored(pagemap, cursor, end, protect, runs, max);
}

/* What makes the feed doubt at its next drain. */
static void disturb(void)
{
	size_t len = strcmp(after, "flood") ? PAGE : FLOOD * PAGE;
	volatile uint8_t *at =
		mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	for (size_t i = 0; i < len; i += PAGE)
		at[i] = 1;
	CHECK(!munmap((void *)at, len));
}

/* A thread of ours, or for writev another process. */
static void start_changing(void)
{
	pthread_t thread;

	CHECK(!pipe(ask) && !pipe(done));
	if (strcmp(what, "writev")) {
		CHECK(!pthread_create(&thread, NULL, changing_main, NULL));
		return;
	}
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)changing_main(NULL);
		_exit(0);
	}
}

static void store_both(uint8_t value)
{
	*(volatile uint8_t *)(area + FIRST * PAGE) = value;
	*(volatile uint8_t *)(area + LAST * PAGE) = value;
}

/* Of an interval that writes both. */
static uint64_t checkpoint(cairn_t *c, uint8_t value)
{
	uint64_t id;

	store_both(value);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	return id;
}

int main(int argc, char **argv)
{
	uint8_t expected, value = 2;
	uint64_t id;
	cairn_t *c;

	CHECK(argc > 3);
	what = argv[2];
	after = argv[3];
	expected = strcmp(what, "emptied") ? 9 : 0;
	area = mmap(NULL, LEN * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	area = (uint8_t *)(((uintptr_t)area + LEN - 1) & ~(LEN - 1)); /* one call at most */
	CHECK(!madvise(area, LEN, MADV_NOHUGEPAGE));
	memset(area, 1, LEN);
	start_changing();
	c = open_fed(argv[1], "none");
	CHECK_OK(cairn_area_add(c, area, LEN));
	/* A feed that is in doubt just now has all looked at, without that call. */
	for (armed = true; armed && value < 12; value++)
		checkpoint(c, value);
	CHECK(!armed);
	if (strcmp(after, "calm"))
		disturb();
	id = checkpoint(c, value);
	CHECK_U64(*middle(), expected);
	store_both(100);
	*(volatile uint8_t *)middle() = 100;
	CHECK_OK(cairn_rewind(c, id));
	CHECK_U64(*middle(), expected);
	CHECK_U64(area[FIRST * PAGE], value);
	CHECK_U64(area[LAST * PAGE], value);
	CHECK_OK(cairn_close(c));
	return 0;
}
