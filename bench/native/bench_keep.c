/* SPDX-License-Identifier: MIT */
/*
 * What keeping more checkpoints costs: cairn_checkpoint with 15 pages written, for K = 1, 10, 100
 * and 1000, after the journal has filled up. Only the call is timed, not the faults of the stores
 * before it. The difference to K = 1 is the hand-over to the journal.
 */
#include <stdio.h>
#include <string.h>

#include "cairn/cairn.h"
#include "measure.h"

#define PAGES 15

static const uint32_t keeps[] = { 1, 10, 100, 1000 };
static const char *const trackers[] = { "async", "uffd", "mprotect" };
#define KEEPS    (sizeof(keeps) / sizeof(keeps[0]))
#define TRACKERS (sizeof(trackers) / sizeof(trackers[0]))

static struct series figures[TRACKERS][KEEPS], floor_series;
static uint32_t pages[PAGES];
static char *area, *copies;
static size_t area_bytes;

static int run(size_t t, size_t k)
{
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	int fill = toy ? 5 : keeps[k] + 50, repeat_count = toy ? 3 : 300;
	cairn_t *session;
	uint64_t id;
	int ret;

	options.tracker = trackers[t];
	options.strategy = "none"; /* the tracker's own price */
	options.surface = "none";
	options.keep = keeps[k];
	ret = cairn_open(&session, &options);
	if (ret < 0)
		return ret;
	check(cairn_area_add(session, area, area_bytes), "cairn_area_add");
	for (int i = -fill; i < repeat_count; i++) {
		uint64_t begin;

		touch_pages(area, pages, PAGES);
		begin = tick();
		check(cairn_checkpoint(session, &id), "cairn_checkpoint");
		if (i >= 0)
			series_add(&figures[t][k], begin, tick());
	}
	check(cairn_close(session), "cairn_close");
	for (int i = -2; i < repeat_count; i++) {
		uint64_t begin;

		touch_pages(area, pages, PAGES);
		begin = tick();
		for (int p = 0; p < PAGES; p++)
			memcpy(copies + p * PAGE, area + pages[p] * PAGE, PAGE);
		if (i >= 0)
			series_add(&floor_series, begin, tick());
	}
	return 0;
}

int main(int argc, char **argv)
{
	int missing[TRACKERS] = { 0 };

	measure_begin(argc, argv);
	area_bytes = toy ? 4 * MIB : 64 * MIB;
	area = map_pages(area_bytes);
	copies = map_pages(PAGES * PAGE);
	pick_pages(pages, PAGES, area_bytes / PAGE, 1);
	for (int round = 0; round < (toy ? 1 : 7); round++)
		for (size_t t = 0; t < TRACKERS; t++)
			for (size_t k = 0; k < KEEPS && !missing[t]; k++)
				missing[t] = run(t, k);
	emit("keep", "memcpy", &floor_series, 1, "\"pages\":%d", PAGES);
	for (size_t t = 0; t < TRACKERS; t++) {
		if (missing[t])
			emit_missing("keep", trackers[t], cairn_strerror(missing[t]));
		for (size_t k = 0; k < KEEPS && !missing[t]; k++)
			emit("keep", trackers[t], &figures[t][k], 1, "\"pages\":%d,\"keep\":%u",
				PAGES, keeps[k]);
	}
	return 0;
}
