/* SPDX-License-Identifier: MIT */
/*
 * killed_at_restore HOW: a frozen child is killed before the first, second, ... look that a restore
 * takes into its memory. The restore succeeds, or fails and has changed nothing, and the checkpoint
 * before is there. HOW: rewind, restore, or unmapped (a part of the area has to be mapped again).
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include "../lib/harness.h"
#include "child_find.h"

#define PAGE  4096ul
#define PAGES 400ul
#define HOLE  150ul /* pages from here to END are unmapped */
#define END   260ul

static cairn_t *c;
static uint8_t *area;
static uint64_t first, second;
static bool unmaps;
static int looks_left; /* then it is killed; 0: never */

long __real_crn_frozen_read(int pid, void *dst, uintptr_t addr, size_t len);
long __wrap_crn_frozen_read(int pid, void *dst, uintptr_t addr, size_t len);
long __wrap_crn_frozen_read(int pid, void *dst, uintptr_t addr, size_t len)
{
	if (looks_left && !--looks_left) {
		CHECK(!kill(pid, SIGKILL));
		expect_deaths(&pid, 1);
	}
	return __real_crn_frozen_read(pid, dst, addr, len);
}

static void write_all(uint8_t value)
{
	for (size_t i = 0; i < PAGES; i++)
		area[i * PAGE + i] = value;
}

static bool all_are(uint8_t value, bool hole)
{
	for (size_t i = 0; i < PAGES; i++)
		if (!(hole && i >= HOLE && i < END) && area[i * PAGE + i] != value)
			return false;
	return true;
}

static bool hole_is_mapped(void)
{
	return !msync(area + HOLE * PAGE, PAGE, MS_ASYNC);
}

static void begin(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	o.tracker = "fork";
	o.surface = "none";
	o.keep = 3;
	c = test_open(&o);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	write_all(1);
	CHECK_RC(cairn_checkpoint(c, &first), CAIRN_TAKEN);
	write_all(2);
}

static void end(void)
{
	looks_left = 0;
	CHECK_OK(cairn_close(c));
	CHECK(!munmap(area, PAGES * PAGE));
}

/* What an attempt to go back to `second`, of which `rc` has come, must leave behind. */
static void expect_whole(int rc)
{
	looks_left = 0;
	if (rc >= 0) {
		CHECK(all_are(2, false));
	} else {
		CHECK_RC(rc, CAIRN_EFAILED);
		CHECK(all_are(3, unmaps));
		CHECK(hole_is_mapped() == !unmaps);
	}
	CHECK_OK(cairn_rewind(c, first));
	CHECK(all_are(1, false));
}

/* True: the restore took fewer looks. */
static bool rewind_at(int look)
{
	bool over;
	int rc;

	begin();
	CHECK_RC(cairn_checkpoint(c, &second), CAIRN_TAKEN);
	write_all(3);
	if (unmaps)
		CHECK(!munmap(area + HOLE * PAGE, (END - HOLE) * PAGE));
	looks_left = look;
	rc = cairn_rewind(c, second);
	over = looks_left > 0;
	expect_whole(rc);
	end();
	return over;
}

static bool restore_at(int look)
{
	static bool over;
	int rc;

	begin();
	rc = cairn_checkpoint(c, &second);
	if (rc == CAIRN_TAKEN) {
		write_all(3);
		looks_left = look;
		rc = cairn_restore(c, second);
	}
	over = looks_left > 0;
	expect_whole(rc);
	end();
	return over;
}

int main(int argc, char **argv)
{
	bool restores = argc == 2 && !strcmp(argv[1], "restore");
	int look = 1;

	unmaps = argc == 2 && !strcmp(argv[1], "unmapped");
	child_name = "cairn-frozen";
	while (!(restores ? restore_at(look) : rewind_at(look)))
		look++;
	if (look < 8)
		test_fail("%d looks only", look);
	return 0;
}
