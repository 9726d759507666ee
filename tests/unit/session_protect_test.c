/* SPDX-License-Identifier: MIT */
/*
 * CAIRN_PROTECT: wild stores into mirror, undo pages and journal are stopped, and nothing else is.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>
#include "session/engine.h"

#define PAGES 64

static sigjmp_buf caught;

static void on_fault(int sig)
{
	siglongjmp(caught, 1);
}

static bool store_faults(uintptr_t addr)
{
	if (sigsetjmp(caught, 1))
		return true;
	*(volatile uint8_t *)addr = 0xee;
	return false;
}

static void wild_stores(void **state)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint8_t *area = mmap(NULL, PAGES * CRN_PAGE_SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sigaction act = { .sa_handler = on_fault };
	uintptr_t begin, end;
	volatile size_t stopped = 0; /* over siglongjmp */
	uint64_t id;
	cairn_t *c;
	int err;

	sigaction(SIGSEGV, &act, NULL);
	o.tracker = *state;
	o.surface = "none";
	o.keep = 4;
	o.flags = CAIRN_PROTECT;
	err = cairn_open(&c, &o);
	if (err == CAIRN_ENOTRACK)
		skip();
	assert_int_equal(err, 0);
	memset(area, 1, PAGES * CRN_PAGE_SIZE);
	assert_int_equal(cairn_area_add(c, area, PAGES * CRN_PAGE_SIZE), 0);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		memset(area, 10 + round, PAGES / 2 * CRN_PAGE_SIZE);
	}

	crn_arena_frames(c->arena, &begin, &end);
	assert_true(end - begin > PAGES * CRN_PAGE_SIZE);
	for (uintptr_t at = begin; at < end; at += CRN_PAGE_SIZE)
		stopped += store_faults(at + 100);
	assert_int_equal(stopped, crn_pages(end - begin));

	assert_int_equal(cairn_rewind(c, id), 0);
	assert_int_equal(area[0], 11);
	assert_int_equal(cairn_rewind(c, id - 2), 0);
	assert_int_equal(area[0], 1);
	assert_int_equal(area[PAGES * CRN_PAGE_SIZE - 1], 1);
	assert_int_equal(cairn_close(c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ "async", wild_stores, NULL, NULL, "async" },
		{ "mprotect", wild_stores, NULL, NULL, "mprotect" },
		{ "uffd", wild_stores, NULL, NULL, "uffd" },
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
