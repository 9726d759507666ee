/* SPDX-License-Identifier: MIT */
/*
 * The fixed costs: a checkpoint of explicit areas with nothing written, and a rewind of 28 pages
 * that are open (as in a search that tries again and again), or hot, beside copying 28 pages back.
 */
#include <stdio.h>
#include <string.h>

#include "cairn/cairn.h"
#include "measure.h"

#define PAGES 28
#define BATCH 16 /* empty checkpoints per sample: one alone is near what a tick costs */

static const char *const trackers[] = { "uffd", "mprotect", "async", "softdirty", "fork" };
#define TRACKERS (sizeof(trackers) / sizeof(trackers[0]))

static struct series empties[TRACKERS], rewinds[TRACKERS], hot_rewinds[TRACKERS], floor_series;
static uint32_t pages[PAGES];
static char *area, *untracked, *copies;
static size_t area_bytes;

/* In blocks of their own: each with the caches that it makes for itself. */
static void measure_rewind(cairn_t *session, uint64_t id, struct series *s, bool count)
{
	uint64_t begin, end;

	touch_pages(area, pages, PAGES);
	begin = tick();
	check(cairn_rewind(session, id), "cairn_rewind");
	end = tick();
	if (count)
		series_add(s, begin, end);
	if (memcmp(area + pages[0] * PAGE, copies, PAGE) != 0)
		fail("cairn_rewind", "a page is not as it was");
}

static void measure_copy(bool count)
{
	uint64_t begin, end;

	touch_pages(untracked, pages, PAGES);
	begin = tick();
	for (int p = 0; p < PAGES; p++)
		memcpy(untracked + pages[p] * PAGE, copies + p * PAGE, PAGE);
	end = tick();
	if (count)
		series_add(&floor_series, begin, end);
}

static int run_tracker(size_t t)
{
	int repeat_count = toy ? 3 : strcmp(trackers[t], "fork") == 0 ? 5 : 500;
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	cairn_t *session;
	uint64_t id = 0;
	int ret;

	options.tracker = trackers[t];
	options.strategy = "none"; /* the tracker's own price */
	options.surface = "none";
	ret = cairn_open(&session, &options);
	if (ret < 0)
		return ret;
	check(cairn_area_add(session, area, area_bytes), "cairn_area_add");
	for (int i = -2; i < repeat_count; i++) {
		uint64_t begin = tick();

		for (volatile int b = 0; b < BATCH; b++)
			check(cairn_checkpoint(session, &id), "cairn_checkpoint");
		if (i >= 0)
			series_add(&empties[t], begin, tick());
	}
	for (int i = -2; i < repeat_count; i++)
		measure_rewind(session, id, &rewinds[t], i >= 0);
	for (int i = -2; i < repeat_count; i++)
		measure_copy(i >= 0);
	check(cairn_close(session), "cairn_close");
	return 0;
}

/* Pages that the default strategy has found hot: they stay writable, and no feed tells of them. */
static void run_hot(size_t t)
{
	int train_count = toy ? 30 : 200, repeat_count = toy ? 3 : 500;
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	struct cairn_stats stats = { .size = sizeof(stats) };
	cairn_t *session;
	uint64_t id = 0;

	options.tracker = trackers[t];
	options.surface = "none";
	check(cairn_open(&session, &options), "cairn_open");
	check(cairn_area_add(session, area, area_bytes), "cairn_area_add");
	for (int i = 0; i < train_count; i++) {
		touch_pages(area, pages, PAGES);
		for (int p = 0; p < PAGES && i == train_count - 1; p++)
			memcpy(area + pages[p] * PAGE, copies + p * PAGE, PAGE);
		check(cairn_checkpoint(session, &id), "cairn_checkpoint");
	}
	check(cairn_stats(session, &stats), "cairn_stats");
	for (int i = -2; stats.hot_pages == PAGES && i < repeat_count; i++)
		measure_rewind(session, id, &hot_rewinds[t], i >= 0);
	check(cairn_close(session), "cairn_close");
}

int main(int argc, char **argv)
{
	int missing[TRACKERS] = { 0 };

	measure_begin(argc, argv);
	area_bytes = toy ? 4 * MIB : 64 * MIB;
	area = map_pages(area_bytes);
	untracked = map_pages(area_bytes);
	copies = map_pages(PAGES * PAGE);
	pick_pages(pages, PAGES, area_bytes / PAGE, 1);
	for (int p = 0; p < PAGES; p++)
		memcpy(copies + p * PAGE, area + pages[p] * PAGE, PAGE);
	for (int round = 0; round < (toy ? 1 : 7); round++)
		for (size_t t = 0; t < TRACKERS; t++)
			if (!missing[t]) {
				missing[t] = run_tracker(t);
				if (!missing[t])
					run_hot(t);
			}
	emit("empty", "memcpy", &floor_series, 1, "\"what\":\"rewind\",\"pages\":%d", PAGES);
	for (size_t t = 0; t < TRACKERS; t++) {
		if (missing[t]) {
			emit_missing("empty", trackers[t], cairn_strerror(missing[t]));
			continue;
		}
		emit("empty", trackers[t], &empties[t], BATCH, "\"what\":\"checkpoint\"");
		emit("empty", trackers[t], &rewinds[t], 1, "\"what\":\"rewind\",\"pages\":%d",
			PAGES);
		if (hot_rewinds[t].count)
			emit("empty", trackers[t], &hot_rewinds[t], 1,
				"\"what\":\"rewind, hot\",\"pages\":%d", PAGES);
	}
	return 0;
}
