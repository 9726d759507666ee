/* SPDX-License-Identifier: MIT */
/*
 * Private memory that code without hooks stores to, as a library does: it goes back where
 * cairn_area_add has named it, whoever stores first, and stays elsewhere. Random stores of both
 * kinds and of the kernel's, rewinds to any kept checkpoint, every byte compared with a full copy.
 * argv: TRACKER. Exit status 77 says that this host cannot watch pages.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include "../lib/harness.h"

#define KEEP   4
#define ROUNDS 2000
#define PAGES  12
#define LEN    (PAGES * 4096ul)
#define NO_HOOKS __attribute__((noinline, disable_sanitizer_instrumentation))

/* Survives restores. */
static struct lasting {
	uint64_t random, count, back;
	uint64_t ids[KEEP + 1]; /* oldest first */
	char copies[KEEP + 1][LEN];
} *lasting;

static char *area, *beside; /* both without a name at first */

static uint64_t draw(uint64_t below)
{
	return test_draw(&lasting->random, below);
}

static NO_HOOKS void library_stores(volatile char *at, char value)
{
	*at = value;
}

static __attribute__((noinline)) void program_stores(volatile char *at, char value)
{
	*at = value;
}

/* Past libc, whose wrapper would keep what it overwrites. */
static NO_HOOKS void kernel_stores(char *at)
{
	long got;

	__asm__ volatile("syscall"
			 : "=a"(got)
			 : "0"(SYS_getrandom), "D"(at), "S"(8), "d"(0)
			 : "rcx", "r11", "memory");
	CHECK(got == 8);
}

static void store_some(void)
{
	for (uint64_t n = draw(20); n > 0; n--) {
		char *at = area + draw(LEN - 8);

		switch (draw(5)) {
		case 0:
			program_stores(at, (char)draw(256));
			break;
		case 1: /* the trap: a hook keeps what is not of the checkpoint any more */
			library_stores(at, (char)draw(256));
			program_stores(at, (char)draw(256));
			break;
		case 2:
			kernel_stores(at);
			break;
		default:
			library_stores(at, (char)draw(256));
		}
	}
}

static void take(cairn_t *c)
{
	uint64_t id;

	if (cairn_checkpoint(c, &id) != CAIRN_TAKEN)
		test_fail("a rewind came to a checkpoint");
	if (lasting->count == KEEP) {
		memmove(lasting->ids, lasting->ids + 1, (KEEP - 1) * sizeof(*lasting->ids));
		memmove(lasting->copies, lasting->copies + 1, (KEEP - 1) * LEN);
		lasting->count--;
	}
	lasting->ids[lasting->count] = id;
	memcpy(lasting->copies[lasting->count++], area, LEN);
}

static void rewind_to(cairn_t *c, uint64_t i)
{
	CHECK_OK(cairn_rewind(c, lasting->ids[i]));
	lasting->count = i + 1;
}

static void look(cairn_t *c, uint64_t i)
{
	static char seen[LEN];

	CHECK_OK(cairn_peek(c, lasting->ids[i], area, seen, LEN));
	CHECK(!memcmp(seen, lasting->copies[i], LEN));
}

static void at_random(cairn_t *c)
{
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t i = lasting->count ? draw(lasting->count) : 0;

		store_some();
		if (!lasting->count || draw(3)) {
			take(c);
		} else if (draw(3)) {
			rewind_to(c, i);
			CHECK(!memcmp(area, lasting->copies[i], LEN));
		} else {
			look(c, i);
		}
		if (!draw(200)) {
			CHECK_OK(cairn_pause(c));
			store_some();
			CHECK_OK(cairn_resume(c));
			lasting->count = 0;
		}
	}
}

/* From older checkpoints on it goes back by what hooks see alone; so it does when it is removed. */
static void older(cairn_t *c)
{
	lasting->count = 0;
	take(c);
	library_stores(area, 1);
	CHECK_OK(cairn_area_add(c, area, LEN));
	library_stores(area, 2);
	take(c);
	library_stores(area, 3);
	take(c);
	library_stores(area, 4);
	rewind_to(c, 1);
	CHECK(area[0] == 2);
	library_stores(area, 5);
	rewind_to(c, 0);
	CHECK(area[0] == 2); /* the interval before is not undone */
	take(c);
	library_stores(area, 6);
	take(c);
	library_stores(area, 7);
	CHECK_OK(cairn_area_remove(c, area, LEN));
	rewind_to(c, 1);
	CHECK(area[0] == 7);
	CHECK_OK(cairn_area_add(c, area, LEN));
	library_stores(area, 8);
	rewind_to(c, 1);
	CHECK(area[0] == 8);
}

static void unnamed(cairn_t *c)
{
	lasting->count = 0;
	take(c);
	library_stores(beside, 1);
	program_stores(beside + 4096, 1);
	library_stores(area, 9);
	rewind_to(c, 0);
	CHECK(beside[0] == 1 && beside[4096] == 0 && area[0] != 9);
}

/* With registers and stack. */
static void comes_back(cairn_t *c)
{
	uint64_t id;
	char before = area[4096 * 3];

	lasting->back = 0;
	if (cairn_checkpoint(c, &id) == CAIRN_TAKEN) {
		library_stores(area + 4096 * 3, (char)(before + 1));
		lasting->back = 1;
		(void)!cairn_restore(c, id);
		test_fail("cairn_restore came back");
	}
	CHECK(lasting->back == 1 && area[4096 * 3] == before);
}

static void refused(cairn_t *c)
{
	static char image[3 * 4096];
	uint64_t id;
	char stack[64], *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK_RC(cairn_area_add(c, image, sizeof(image)), CAIRN_EOVERLAP);
	CHECK_RC(cairn_area_add(c, stack, sizeof(stack)), CAIRN_EOVERLAP);
	CHECK_RC(cairn_area_add(c, area + 4096, 4096), CAIRN_EOVERLAP);
	CHECK_RC(cairn_area_remove(c, area, 4096), CAIRN_ENOTAREA);
	CHECK(page != MAP_FAILED && !mprotect(page, 4096, PROT_READ));
	CHECK_RC(cairn_area_add(c, page, 8192), CAIRN_EUNMAPPED);
	CHECK(!mprotect(page, 4096, PROT_READ | PROT_WRITE));
	CHECK_OK(cairn_area_add(c, page, 8192));
	/* Closed behind its back: nothing is touched, and when it is removed all is good again. */
	lasting->count = 0;
	take(c);
	library_stores(area, 11);
	CHECK(!mprotect(page, 4096, PROT_NONE));
	CHECK_RC(cairn_rewind(c, lasting->ids[0]), CAIRN_ELAYOUT);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_ELAYOUT);
	CHECK(area[0] == 11);
	CHECK_OK(cairn_area_remove(c, page, 8192));
	rewind_to(c, 0);
	CHECK(area[0] != 11);
	munmap(page, 8192);
}

static void *map_some(size_t len, int shared)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE,
		(shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;
	int err;

	(void)argc;
	lasting = map_some(sizeof(*lasting), 1);
	lasting->random = 88172645463325252ull;
	area = map_some(LEN, 0);
	beside = map_some(LEN, 0);
	memset(area, 77, LEN / 2); /* and pages that are not there yet */
	o.tracker = argv[1];
	o.keep = KEEP;
	CHECK_OK(cairn_open(&c, &o));
	err = cairn_area_add(c, area, LEN);
	if (err == CAIRN_ENOTRACK)
		test_skip("asynchronous write protection of pages");
	CHECK_OK(err);
	at_random(c);
	unnamed(c);
	comes_back(c);
	refused(c);
	CHECK_OK(cairn_area_remove(c, area, LEN));
	older(c);
	CHECK_OK(cairn_close(c));
	o.keep = 1;
	CHECK_OK(cairn_open(&c, &o));
	CHECK_OK(cairn_area_add(c, area, LEN));
	unnamed(c);
	comes_back(c);
	CHECK_OK(cairn_close(c));
	return 0;
}
