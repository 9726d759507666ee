/* SPDX-License-Identifier: MIT */
/*
 * oracle_session TRACKER: a session is recorded, then opened with the trace as the profile of an
 * oracle that may not miss a single page. The same stores raise no doubt, also if intervals are
 * taken back and done again. One page that is not stored to does, and so does an end before the
 * profile's; one that the profile does not have ends it. With another surface nothing is opened.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../lib/harness.h"
#include "session/session.h"

#define PAGE  4096ul
#define PAGES 32u
#define STEPS 60u
#define KEEP  8u
#define BACK  3u
#define SKIP  5u /* a page that is not as recorded, at step LATE: before its changes are trusted */
#define LATE  20u

enum deviation { SAME, FEWER_PAGES, MORE_PAGES, REWINDS, FEWER_STEPS };

static uint8_t *area;
static char trace[64], strategy[128];

static void serve(unsigned step, enum deviation how)
{
	for (unsigned k = 0; k < PAGES; k++) {
		bool due = step >> k % 5 & 1 || k == SKIP;

		if (how == FEWER_PAGES && step == LATE && k == SKIP)
			due = false;
		if (how == MORE_PAGES && step == LATE)
			due = true;
		if (due)
			area[k * PAGE + step]++;
	}
}

static cairn_t *opened(const char *tracker, const char *name)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	o.tracker = tracker;
	o.strategy = name;
	o.surface = "none";
	o.keep = KEEP;
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	return c;
}

static void run(cairn_t *c, enum deviation how)
{
	unsigned steps = how == FEWER_STEPS ? STEPS - 2 : STEPS;
	uint64_t ids[STEPS];

	for (unsigned step = 0; step < steps; step++) {
		bool again = how == REWINDS && step % 7 == 6;

		serve(step, how);
		CHECK_RC(cairn_checkpoint(c, &ids[step]), CAIRN_TAKEN);
		if (!again || step < BACK)
			continue;
		CHECK_OK(cairn_rewind(c, ids[step - BACK]));
		for (unsigned redo = step - BACK + 1; redo <= step; redo++) {
			serve(redo, how);
			CHECK_RC(cairn_checkpoint(c, &ids[redo]), CAIRN_TAKEN);
		}
	}
}

static void expect(const char *tracker, enum deviation how, const char *why)
{
	struct cairn_stats s = { .size = sizeof(s) };
	cairn_t *c = opened(tracker, strategy);

	run(c, how);
	crn_profile_finish(c);
	CHECK_OK(cairn_stats(c, &s));
	if (strncmp(s.strategy_why, why, strlen(why)) != 0 ||
		(strcmp(why, "named") == 0 && strcmp(s.strategy_why, why) != 0))
		test_fail("deviation %d: '%s', not '%s'", how, s.strategy_why, why);
	CHECK_OK(cairn_close(c));
}

static unsigned descriptors(void)
{
	unsigned count = 0;

	for (int fd = 0; fd < 4096; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void refuse_other_surface(const char *tracker)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	unsigned before = descriptors();
	char surface[64];
	cairn_t *c = NULL;

	snprintf(surface, sizeof(surface), "%p-%p", (void *)area, (void *)(area + PAGES * PAGE));
	o.tracker = tracker;
	o.strategy = strategy;
	o.surface = surface;
	CHECK_RC(cairn_open(&c, &o), CAIRN_ESTRATEGY);
	CHECK(!c && descriptors() == before);
}

int main(int argc, char **argv)
{
	cairn_t *c;

	CHECK(argc > 1);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	snprintf(trace, sizeof(trace), "/tmp/cairn-oracle-%d", (int)getpid());
	snprintf(strategy, sizeof(strategy), "oracle:pages=0,share=0,profile=%s", trace);
	c = opened(argv[1], "none");
	CHECK_OK(crn_trace_start(c, trace));
	run(c, SAME);
	CHECK_OK(crn_trace_finish(c));
	CHECK_OK(cairn_close(c));
	expect(argv[1], SAME, "named");
	expect(argv[1], REWINDS, "named");
	expect(argv[1], FEWER_PAGES, "named: in doubt");
	expect(argv[1], MORE_PAGES, "given up");
	expect(argv[1], FEWER_STEPS, "named: the profile goes on");
	/* The others take no surface but explicit areas. */
	if (!strcmp(argv[1], "async"))
		refuse_other_surface(argv[1]);
	expect(argv[1], SAME, "named");
	CHECK(unlink(trace) == 0);
	return 0;
}
