/* SPDX-License-Identifier: MIT */
/*
 * racing_births SURFACE: a mapping that has come is gone again when it is about to be tracked, as
 * if another thread had unmapped it just then. Whatever is there afterwards, the checkpoint
 * succeeds, and a rewind to before it brings back every byte.
 */
#include <stdbool.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define BYTES (24 * PAGE)
#define AT    (8 * PAGE)
#define HOLE  (4 * PAGE)

enum afterwards { AS_BEFORE, HALF, NOTHING, READ_ONLY, WAYS };

static char *area;
static bool armed;

int __real_crn_area_track(void *c, uintptr_t begin, uintptr_t end, uint32_t flags, uint64_t born);
int __wrap_crn_area_track(void *c, uintptr_t begin, uintptr_t end, uint32_t flags, uint64_t born);

int __wrap_crn_area_track(void *c, uintptr_t begin, uintptr_t end, uint32_t flags, uint64_t born)
{
	if (armed && begin >= (uintptr_t)area && end <= (uintptr_t)area + BYTES) {
		armed = false;
		CHECK(!munmap((void *)begin, end - begin));
	}
	return __real_crn_area_track(c, begin, end, flags, born);
}

static void map(size_t at, size_t len, int prot)
{
	CHECK(mmap(area + at, len, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		area + at);
}

static void map_afterwards(enum afterwards way)
{
	const int rw = PROT_READ | PROT_WRITE;

	if (way != NOTHING)
		map(AT, way == HALF ? HOLE / 2 : HOLE, way == READ_ONLY ? PROT_READ : rw);
}

static void race(const char *surface, enum afterwards way, bool look)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t first, id;
	cairn_t *c;

	map(0, BYTES, PROT_READ | PROT_WRITE);
	memset(area, 1, BYTES);
	o.tracker = "async";
	o.surface = surface;
	o.keep = 10;
	c = test_open(&o);
	if (!strcmp(surface, "none"))
		CHECK_OK(cairn_area_add(c, area, BYTES));
	CHECK_OK(cairn_checkpoint(c, &first));
	CHECK(!munmap(area + AT, HOLE));
	CHECK_OK(cairn_checkpoint(c, &id));
	map(AT, HOLE, PROT_READ | PROT_WRITE);
	armed = true;
	CHECK_OK(cairn_checkpoint(c, &id));
	CHECK(!armed);
	map_afterwards(way);
	if (look)
		CHECK_OK(cairn_checkpoint(c, &id));
	CHECK_OK(cairn_rewind(c, first));
	for (size_t i = 0; i < BYTES; i++)
		CHECK(area[i] == 1);
	CHECK_OK(cairn_close(c));
}

int main(int argc, char **argv)
{
	if (argc != 2)
		test_fail("usage: racing_births SURFACE");
	area = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	for (int way = AS_BEFORE; way < WAYS; way++) {
		race(argv[1], (enum afterwards)way, false);
		race(argv[1], (enum afterwards)way, true);
	}
	return 0;
}
