/* SPDX-License-Identifier: MIT */
/*
 * content_session TRACKER: active-cks goes by what pages hold. A page that each interval stores to,
 * but never with anything new, is evicted after N checkpoints, and hot again with its next store;
 * one that changes stays. In a session, and as strategy meta scores it.
 */
#include <string.h>
#include <sys/mman.h>
#include "../lib/harness.h"
#include "session/session.h"

#define PAGE   4096ul
#define BUSY   4u /* pages that change in each interval, */
#define SILENT 4u /* and, behind them, pages that are stored to and stay as they are */
#define STEPS  61u
#define N      5u

static uint8_t *area;

static cairn_t *run(const char *tracker, const char *strategy)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id;
	cairn_t *c;

	o.tracker = tracker;
	o.surface = "none";
	o.strategy = strategy;
	memset(area, 1, (BUSY + SILENT) * PAGE);
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, (BUSY + SILENT) * PAGE));
	for (unsigned step = 0; step < STEPS; step++) {
		for (size_t i = 0; i < BUSY + SILENT; i++) {
			volatile uint8_t *at = area + i * PAGE + step * 67 % PAGE;

			*at = i < BUSY ? (uint8_t)(*at + 1) : 1;
		}
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	}
	return c;
}

/* A silent page is hot for N intervals after the one that made it so. */
static uint64_t faults(unsigned n)
{
	return BUSY + SILENT * ((STEPS + n) / (n + 1));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *strategy;
		unsigned n;
	} live[] = { { "active-cks", N }, { "active-cks:n=2", 2 }, { "active-cks:n=1000", 1000 } };
	struct cairn_stats s = { .size = sizeof(s) };
	struct crn_rival rival = { .name = "" };
	cairn_t *c;

	CHECK(argc > 1);
	area = mmap(NULL, (BUSY + SILENT) * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++) {
		c = run(argv[1], live[i].strategy);
		CHECK_OK(cairn_stats(c, &s));
		CHECK_U64(s.undercopied, faults(live[i].n));
		CHECK_U64(s.promotions, faults(live[i].n));
		CHECK_U64(s.evictions, s.promotions - s.hot_pages);
		CHECK_OK(cairn_close(c));
	}
	c = run(argv[1], "meta");
	for (size_t i = 0; strcmp(rival.name, "active-cks"); i++)
		CHECK(crn_session_rival(c, i, &rival));
	CHECK_U64(rival.undercopied, faults(N));
	CHECK_OK(cairn_close(c));
	return 0;
}
