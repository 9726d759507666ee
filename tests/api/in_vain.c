/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint fails because memory_max has no room for a table. Under fork, where checkpoints have
 * no frames, older ones could make none: all of them are kept.
 */
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 20000ul
#define TAKEN 20u

static uint8_t *area;

static void taken(cairn_t *c, uint8_t byte)
{
	uint64_t id;

	area[0] = byte;
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
}

/* Each second page is a mapping of its own then. */
static void protect_some(int prot)
{
	for (size_t i = 0; i < PAGES; i += 2)
		CHECK(!mprotect(area + i * PAGE, PAGE, prot));
}

int main(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t oldest, newest, before, id;
	cairn_t *c;

	o.tracker = "fork";
	o.strategy = "none";
	o.surface = "none";
	o.keep = 2 * TAKEN;
	o.memory_max = (1 << 20) + 1000;
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	for (uint8_t i = 0; i < TAKEN; i++)
		taken(c, i);
	CHECK_OK(cairn_range(c, &before, &newest));
	protect_some(PROT_READ);
	for (int i = 0; i < 2; i++)
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_EMEMORY);
	protect_some(PROT_READ | PROT_WRITE);
	CHECK_OK(cairn_range(c, &oldest, &newest));
	CHECK_U64(oldest, before);
	CHECK_OK(cairn_rewind(c, before + TAKEN / 2));
	CHECK(area[0] == before + TAKEN / 2 - 1);
	CHECK_OK(cairn_close(c));
	return 0;
}
