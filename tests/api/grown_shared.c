/* SPDX-License-Identifier: MIT */
/*
 * grown_shared TRACKER STRATEGY [FEED]: memory that is shared without a file, and that mremap has
 * made longer than what is behind it. Whoever touches the rest is killed by SIGBUS. The engine is
 * not, even if it is told that the rest has been written. The past can be read; going back to it is
 * refused, and changes nothing.
 */
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE   4096ul
#define BEHIND 8ul
#define PAGES  16ul
#define ROUNDS 40

static uint8_t *area, copy[ROUNDS][BEHIND * PAGE], seen[BEHIND * PAGE];

static int ignore(void *ctx, void *addr, size_t len, const void *before, const void *after)
{
	return 0;
}

static void map_and_grow(void)
{
	uint8_t *at = mmap(NULL, BEHIND * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);

	CHECK(at != MAP_FAILED);
	area = mremap(at, BEHIND * PAGE, PAGES * PAGE, MREMAP_MAYMOVE);
	CHECK(area != MAP_FAILED);
}

static void store(unsigned round)
{
	for (size_t i = 0; i < BEHIND; i++)
		area[i * PAGE + round * 7] += (uint8_t)(i + 1);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id[ROUNDS];
	uint8_t byte = 0;
	cairn_t *c;

	CHECK(argc > 2);
	o.tracker = argv[1];
	o.strategy = argv[2];
	o.feed = argc > 3 ? argv[3] : NULL;
	o.surface = "none";
	o.keep = ROUNDS;
	c = test_open(&o);
	map_and_grow();
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	for (unsigned round = 0; round < ROUNDS; round++) {
		store(round);
		if (round & 1)
			CHECK_OK(cairn_area_touch(c, area + BEHIND * PAGE, 3 * PAGE));
		CHECK_RC(cairn_checkpoint(c, &id[round]), CAIRN_TAKEN);
		memcpy(copy[round], area, sizeof(copy[0]));
	}
	store(ROUNDS);
	memcpy(seen, area, sizeof(seen));
	CHECK_RC(cairn_rewind(c, id[ROUNDS - 1]), CAIRN_ELAYOUT);
	CHECK_RC(cairn_rewind(c, id[0]), CAIRN_ELAYOUT);
	CHECK(!memcmp(seen, area, sizeof(seen)));
	for (unsigned round = 0; round < ROUNDS; round++) {
		CHECK_OK(cairn_peek(c, id[round], area, seen, sizeof(seen)));
		CHECK(!memcmp(seen, copy[round], sizeof(seen)));
	}
	CHECK_OK(cairn_peek(c, id[0], area + (PAGES - 1) * PAGE, &byte, 1));
	CHECK_U64(byte, 0);
	CHECK_OK(cairn_changes(c, id[0], CAIRN_NOW, ignore, NULL));
	CHECK_OK(cairn_close(c));
	return 0;
}
