/* SPDX-License-Identifier: MIT */
/*
 * guard_pages TRACKER SURFACE STRATEGY: guard pages (MADV_GUARD_INSTALL), as a libc puts them
 * below the stacks of threads. What was one when it was first tracked is left alone; one that came
 * later goes again when a restore puts back what was there.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE          4096ul
#define PAGES         16ul
#define GUARD_INSTALL 102

static cairn_t *c;

static volatile uint8_t *map_guarded(void)
{
	uint8_t *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);

	CHECK(p != MAP_FAILED);
	memset(p, 1, PAGES * PAGE);
	if (madvise(p, PAGE, GUARD_INSTALL))
		test_skip("MADV_GUARD_INSTALL (Linux 6.13)");
	return p;
}

static void close_page(volatile uint8_t *page)
{
	CHECK_OK(cairn_area_touch(c, (void *)page, PAGE));
	CHECK(!madvise((void *)page, PAGE, GUARD_INSTALL));
}

static bool is_guard(volatile uint8_t *page)
{
	return madvise((void *)page, PAGE, MADV_POPULATE_READ) && errno == EFAULT;
}

static uint64_t take(void)
{
	uint64_t id;

	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	return id;
}

/* A guard in a mapping that has come in the place of another one, which held nothing. */
static void replaced(bool explicit)
{
	volatile uint8_t *p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t id;

	CHECK(p != MAP_FAILED);
	if (explicit)
		CHECK_OK(cairn_area_add(c, (void *)p, PAGES * PAGE));
	id = take();
	CHECK(mmap((void *)p, PAGES * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
	CHECK(!madvise((void *)(p + 2 * PAGE), PAGE, GUARD_INSTALL));
	CHECK_OK(cairn_rewind(c, id));
	CHECK(!is_guard(p + 2 * PAGE));
}

/* A guard in memory that may not be written. */
static void unwritable(volatile uint8_t *page)
{
	uint64_t id;

	CHECK(!mprotect((void *)page, PAGE, PROT_READ));
	id = take();
	close_page(page);
	CHECK_OK(cairn_rewind(c, id));
	CHECK_U64(*page, 1);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	volatile uint8_t *first = map_guarded(), *second;
	uint64_t id[3];

	o.tracker = argc > 1 ? argv[1] : "async";
	o.surface = argc > 2 ? argv[2] : "all";
	o.strategy = argc > 3 ? argv[3] : "none";
	o.keep = 8;
	c = test_open(&o);
	if (!strcmp(o.surface, "none"))
		CHECK_OK(cairn_area_add(c, (void *)first, PAGES * PAGE));
	first[5 * PAGE] = 2;
	id[0] = take();
	second = map_guarded();
	if (!strcmp(o.surface, "none"))
		CHECK_OK(cairn_area_add(c, (void *)second, PAGES * PAGE));
	id[1] = take();
	second[PAGE] = first[5 * PAGE] = 3;
	id[2] = take();
	second[PAGE] = first[5 * PAGE] = 4;
	CHECK_OK(cairn_rewind(c, id[2]));
	CHECK_U64(first[5 * PAGE], 3);
	CHECK_OK(cairn_rewind(c, id[1]));
	CHECK_U64(first[5 * PAGE], 2);
	CHECK_U64(second[PAGE], 1);

	/* Pages that become guards: written before, and not. */
	first[7 * PAGE] = 9;
	close_page(first + 7 * PAGE);
	close_page(first + 8 * PAGE);
	first[5 * PAGE] = 9;
	CHECK_OK(cairn_rewind(c, id[1]));
	CHECK_U64(first[5 * PAGE], 2);
	CHECK_U64(first[7 * PAGE], 1);
	CHECK_U64(first[8 * PAGE], 1);
	for (size_t i = 7; i < 10; i++)
		close_page(first + i * PAGE);
	first[5 * PAGE] = 9;
	id[2] = take();
	first[5 * PAGE] = 10;
	CHECK_OK(cairn_rewind(c, id[2]));
	CHECK_U64(first[5 * PAGE], 9);
	/* A guard then and now; but hot pages are put back as zeros, for they cannot be told. */
	if (!strcmp(o.strategy, "none"))
		CHECK(is_guard(first + 7 * PAGE));
	take();
	take();
	CHECK_OK(cairn_rewind(c, id[1]));
	CHECK_U64(first[5 * PAGE], 2);
	for (size_t i = 7; i < 10; i++)
		CHECK_U64(first[i * PAGE], 1);
	CHECK_OK(cairn_rewind(c, id[0]));
	CHECK_U64(first[5 * PAGE], 2);
	/* A guard it is still. */
	CHECK(is_guard(first));

	if (strcmp(o.tracker, "uffd") && strcmp(o.tracker, "mprotect"))
		replaced(!strcmp(o.surface, "none"));

	if (strcmp(o.tracker, "mprotect"))
		unwritable(first + 12 * PAGE);
	CHECK_OK(cairn_close(c));
	return 0;
}
