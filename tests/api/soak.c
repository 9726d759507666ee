/* SPDX-License-Identifier: MIT */
/*
 * soak TRACKER KEEP COUNT: many checkpoints in one session. Each interval writes a few pages; what
 * they hold at a checkpoint follows from its id, so that any kept one can be looked at without a
 * copy. The engine's memory must stop growing once the journal is full.
 */
#include <string.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 64ul
#define WRITE 4  /* pages written per interval */
#define LOOK  64 /* intervals from one look at the past to the next, on average */

static volatile uint64_t (*area)[PAGE / 8];
static cairn_t *c;

/* Interval n writes pages n, n + 1, ... modulo PAGES: the last to write page p up to n. */
static uint64_t last_writer(uint64_t n, uint64_t p)
{
	uint64_t back = (n - p) % PAGES;

	return back > PAGES - WRITE ? n : n - back;
}

static void write_interval(uint64_t n)
{
	for (uint64_t k = 0; k < WRITE; k++) {
		area[(n + k) % PAGES][n % 512] ^= n;
		area[(n + k) % PAGES][7] = n;
	}
}

static void expect(uint64_t id)
{
	uint64_t p = (id * 2654435761u >> 16) % PAGES, seen, want = last_writer(id, p);

	CHECK_OK(cairn_peek(c, id, (void *)&area[p][7], &seen, sizeof(seen)));
	if (id >= PAGES)
		CHECK_U64(seen, want);
}

static uint64_t engine_bytes(void)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	return s.engine_bytes;
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t count, id = 0, oldest, newest, full = 0, random = 1;

	if (argc != 4)
		test_fail("usage: soak TRACKER KEEP COUNT");
	o.tracker = argv[1];
	o.surface = "none";
	o.keep = (uint32_t)strtoul(argv[2], NULL, 0);
	count = strtoull(argv[3], NULL, 0);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, (void *)area, PAGES * PAGE));
	for (uint64_t n = 1; n <= count; n++) {
		write_interval(n);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		CHECK_U64(id, n);
		random = random * 6364136223846793005u + 1442695040888963407u;
		if ((random >> 33) % LOOK == 0 || n == count) {
			uint64_t first, back;

			CHECK_OK(cairn_range(c, &oldest, &newest));
			first = oldest ? oldest : 1; /* at checkpoint 0 there was no area */
			back = first + (random >> 20) % (newest - first + 1);
			expect(back);
			expect(first);
		}
		if (n == 2ul * o.keep + 2 * PAGES)
			full = engine_bytes();
	}
	if (full && engine_bytes() > full + full / 8)
		test_fail("the engine grew from %llu to %llu bytes", (unsigned long long)full,
			(unsigned long long)engine_bytes());
	/* All the way back. */
	CHECK_OK(cairn_rewind(c, oldest));
	for (uint64_t p = 0; oldest >= PAGES && p < PAGES; p++)
		CHECK_U64(area[p][7], last_writer(oldest, p));
	dprintf(1, "%llu checkpoints, back to %llu, %llu bytes\n", (unsigned long long)count,
		(unsigned long long)oldest, (unsigned long long)engine_bytes());
	CHECK_OK(cairn_close(c));
	return 0;
}
