/* SPDX-License-Identifier: MIT */
/*
 * contexts TRACKER: a program with two types of requests whose pages have nothing in common but a
 * few. Each strategy mispredicts less if cairn_context names the type of the coming interval than
 * without, by counts of pages, and has a working set for each. Rewinds bring back what was there,
 * with keys and without. A key that is never named again is in nobody's way.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE   4096ul
#define OWN    15u /* pages of each type */
#define SHARED 5u  /* that both write */
#define PAGES  (2 * OWN + SHARED)
#define KEEP   8u
#define WARM   300u
#define STEPS  600u
#define EVERY  37u /* intervals from one rewind to the next */

static uint8_t *area, copies[KEEP][PAGES * PAGE];
static uint64_t ids[KEEP];
static uint64_t seed;

/* One request: each page of its type, and the shared ones, get something new. */
static void serve(unsigned type)
{
	for (size_t i = 0; i < PAGES; i++)
		if (i >= 2 * OWN || i / OWN == type)
			*(uint64_t *)(area + i * PAGE + test_draw(&seed, 512) * 8) +=
				1 + test_draw(&seed, 256);
}

/* To some kept checkpoint: all is as it was. EVERY intervals later all of them are new again. */
static void go_back(cairn_t *c, unsigned step)
{
	unsigned back = (unsigned)test_draw(&seed, KEEP), at = (step + KEEP - back) % KEEP;

	CHECK_OK(cairn_rewind(c, ids[at]));
	if (memcmp(area, copies[at], PAGES * PAGE))
		test_fail("step %u: %u checkpoints back is not what it was", step, back);
}

/* Mispredicted pages. The same requests in the same order, whatever the strategy and the keys. */
static uint64_t run(const char *tracker, const char *strategy, bool keyed, bool rewinds)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct cairn_stats s = { .size = sizeof(s) };
	cairn_t *c;

	o.tracker = tracker;
	o.strategy = strategy;
	o.surface = "none";
	o.keep = KEEP;
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	seed = 42;
	/* A type that is never seen again. */
	if (keyed)
		CHECK_OK(cairn_context(c, 77));
	for (unsigned step = 0; step < WARM + STEPS; step++) {
		unsigned type = (unsigned)test_draw(&seed, 2);
		uint64_t id;

		if (keyed && step)
			CHECK_OK(cairn_context(c, ~0ull - type));
		if (step == WARM)
			CHECK_OK(cairn_stats_reset(c));
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		ids[step % KEEP] = id;
		memcpy(copies[step % KEEP], area, PAGES * PAGE);
		serve(type);
		if (rewinds && step % EVERY == EVERY - 1)
			go_back(c, step);
	}
	CHECK_OK(cairn_stats(c, &s));
	CHECK_U64(s.contexts, keyed ? 4 : 1); /* 0, at first, and 77 beside the types */
	CHECK_OK(cairn_close(c));
	return s.overcopied + s.undercopied;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *strategy;
		unsigned least; /* times fewer mispredictions, in tenths */
	} rows[] = {
		{ "last", 50 },
		{ "active-fifo", 50 },
		{ "active-rnd", 50 },
		{ "active-cks", 50 },
		{ "gspec", 50 },
		/* Copying the other type's pages in vain is cheaper than their way out and back. */
		{ "decay", 10 },
		{ "histase", 10 }, /* at a fault, it goes by strides alone */
	};

	CHECK(argc > 1);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *strategy = rows[i].strategy;
		uint64_t alone = run(argv[1], strategy, false, false);
		uint64_t keyed = run(argv[1], strategy, true, false);

		dprintf(2, "%s: %llu mispredictions alone, %llu with keys\n", strategy,
			(unsigned long long)alone, (unsigned long long)keyed);
		if (keyed * rows[i].least > alone * 10)
			test_fail("%s: keys do not help enough", strategy);
		(void)run(argv[1], strategy, false, true);
		(void)run(argv[1], strategy, true, true);
	}
	return 0;
}
