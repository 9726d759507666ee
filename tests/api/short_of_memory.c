/* SPDX-License-Identifier: MIT */
/*
 * Mappings come and go in a session that has no memory left. Checkpoints and rewinds may be refused
 * for that; no rewind stops half way, and after each that succeeds every page is as it was. Once
 * mappings stay, checkpoints and rewinds are good again.
 */
#include <stdbool.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 96
#define KEEP  17
#define TURNS 250
#define QUIET 20
#define BAD   3 /* of those */
#define GONE  0

static char *area;
static uint8_t there[PAGES];		/* what each page holds, or GONE */
static uint8_t past[TURNS + QUIET + 2][PAGES];	/* by checkpoint */
static uint32_t seed;
static unsigned rewinds;

static unsigned below(unsigned n)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 16) % n;
}

static void unmap_some(void)
{
	for (unsigned n = below(20); n; n--) {
		unsigned page = below(PAGES);

		CHECK(!munmap(area + page * PAGE, PAGE));
		there[page] = GONE;
	}
}

static void map_all(uint8_t value)
{
	for (size_t i = 0; i < PAGES; i++) {
		char *at = area + i * PAGE;

		if (there[i] == GONE)
			CHECK(mmap(at, PAGE, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
		memset(at, value, PAGE);
		there[i] = value;
	}
}

static void compare(void)
{
	for (size_t i = 0; i < PAGES; i++) {
		unsigned char resident;
		bool mapped = !mincore(area + i * PAGE, PAGE, &resident);

		CHECK(mapped == (there[i] != GONE));
		for (size_t k = 0; mapped && k < PAGE; k++)
			CHECK((uint8_t)area[i * PAGE + k] == there[i]);
	}
}

static void rewind_somewhere(cairn_t *c)
{
	uint64_t oldest, newest, id;

	if (cairn_range(c, &oldest, &newest) < 0)
		return;
	id = oldest + below((unsigned)(newest - oldest + 1));
	if (cairn_rewind(c, id) < 0)
		return;
	memcpy(there, past[id], PAGES);
	compare();
	rewinds++;
}

static void settle(cairn_t *c)
{
	unsigned bad = 0;
	uint64_t id;

	map_all(1);
	for (unsigned turn = 0; turn < QUIET; turn++) {
		unsigned page = below(PAGES);

		area[page * PAGE] = 0;
		if (cairn_checkpoint(c, &id) < 0) {
			bad++;
			continue;
		}
		area[page * PAGE] = 1;
		if (cairn_rewind(c, id) < 0)
			bad++;
		else
			CHECK(!area[page * PAGE]);
		area[page * PAGE] = 1;
	}
	CHECK(bad <= BAD);
}

static void run(uint64_t memory)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id;
	cairn_t *c;

	o.tracker = "async"; /* the one that brings back parts of areas */
	o.surface = "none";
	o.strategy = "none";
	o.keep = KEEP;
	o.memory_max = memory;
	memset(there, GONE, PAGES);
	map_all(1);
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	for (unsigned turn = 0; turn < TURNS; turn++) {
		unmap_some();
		if (below(3) && cairn_checkpoint(c, &id) >= 0)
			memcpy(past[id], there, PAGES);
		if (below(2))
			map_all((uint8_t)(1 + turn % 255));
		if (below(3) == 0)
			rewind_somewhere(c);
	}
	settle(c);
	CHECK_OK(cairn_close(c));
	CHECK(!munmap(area, PAGES * PAGE));
}

int main(void)
{
	area = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	for (uint64_t memory = 1050000; memory < 1700000; memory += 50000)
		for (seed = 1; seed < 400; seed += 20)
			run(memory);
	CHECK(rewinds > 100);
	return 0;
}
