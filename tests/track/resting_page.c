/* SPDX-License-Identifier: MIT */
/*
 * resting_page TRACKER FEED: pages that every interval has written for long, and that rest now, go
 * cold when their strategy's paper says: after one interval, or after N.
 */
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 8
#define STEPS 300

static uint8_t *area;

static void rest(struct cairn_options *o, const char *strategy, unsigned patience)
{
	struct cairn_stats s = { .size = sizeof(s) };
	uint64_t id;
	cairn_t *c;

	o->strategy = strategy;
	c = test_open(o);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	for (unsigned step = 0; step < STEPS; step++) {
		for (size_t i = 0; i < PAGES; i++)
			area[i * PAGE + step * 7 % PAGE]++;
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	}
	for (unsigned step = 0; step <= patience; step++) {
		CHECK_OK(cairn_stats(c, &s));
		if (s.hot_pages != (step < patience ? PAGES : 0))
			test_fail("%s: %llu hot pages after %u idle intervals", strategy,
				(unsigned long long)s.hot_pages, step);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	}
	CHECK_OK(cairn_close(c));
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	CHECK(argc > 2);
	o.tracker = argv[1];
	o.feed = argv[2];
	o.surface = "none";
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	rest(&o, "last", 1);
	rest(&o, "active-cks", 5);
	rest(&o, "active-cks:n=2", 2);
	return 0;
}
