/* SPDX-License-Identifier: MIT */
/*
 * outgrown TRACKER STRATEGY: an interval writes more than memory_max has room for. Its past is
 * lost, and what is older: at the stores, or (async, whose mirror has it) by the second checkpoint
 * that has no room for it. One checkpoint may fail for that; the next one is good again, and so are
 * those that follow, even if their stack is deeper than any before.
 */
#include <alloca.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 6000ul
#define FEW   200ul
#define DEEP  100000ul

static cairn_t *c;
static uint8_t *area;
static bool mirrored;

static __attribute__((noinline)) int take(size_t depth, uint64_t *id)
{
	volatile uint8_t *frame = alloca(depth);
	int got;

	frame[0] = 1;
	got = cairn_checkpoint(c, id);
	return got + 0 * frame[0];
}

static uint64_t taken(void)
{
	uint64_t id;

	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	return id;
}

static void store_to(size_t count, uint8_t byte)
{
	for (size_t i = 0; i < count; i++)
		area[i * PAGE] = byte;
}

static void check(uint8_t few, uint8_t others)
{
	for (size_t i = 0; i < PAGES; i++)
		CHECK(area[i * PAGE] == (i < FEW ? few : others));
}

static void outgrow(uint8_t few, uint8_t others, uint8_t byte, size_t depth)
{
	uint64_t before = taken(), id, failed;
	struct cairn_stats stats = { .size = sizeof(stats) };
	int rc;

	CHECK_OK(cairn_stats(c, &stats));
	failed = stats.failed;

	store_to(PAGES, byte);
	if (!mirrored)
		CHECK_RC(cairn_rewind(c, before), CAIRN_EFAILED);
	rc = take(depth, &id);
	CHECK(rc == CAIRN_TAKEN || rc == CAIRN_EMEMORY);
	if (mirrored) { /* nothing is lost yet */
		CHECK(rc == CAIRN_EMEMORY);
		CHECK_OK(cairn_rewind(c, before));
		check(few, others);
		store_to(PAGES, byte);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_EMEMORY); /* another interval */
	}
	id = taken();
	CHECK_RC(cairn_rewind(c, before), CAIRN_EFAILED);
	CHECK_OK(cairn_stats(c, &stats));
	CHECK(stats.failed > failed);
	for (uint8_t n = 1; n < 20; n++) {
		store_to(FEW, byte + n);
		check(byte + n, byte);
		CHECK_OK(cairn_rewind(c, id));
		check(byte + n - 1, byte);
		store_to(FEW, byte + n);
		id = taken();
	}
	store_to(FEW, 0);
	CHECK_OK(cairn_rewind(c, id - 3));
	check(byte + 16, byte);
}

int main(int argc, char **argv)
{
	struct cairn_options options = CAIRN_OPTIONS_INIT;

	CHECK(argc == 3);
	options.tracker = argv[1];
	options.strategy = argv[2];
	options.surface = "none";
	mirrored = !strcmp(argv[1], "async");
	options.memory_max = (mirrored ? 40 : 16) << 20; /* mirrors have 24 */
	options.keep = 8;
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	store_to(PAGES, 1);
	c = test_open(&options);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	outgrow(1, 1, 50, 64);
	outgrow(66, 50, 100, DEEP);
	CHECK_OK(cairn_close(c));
	return 0;
}
