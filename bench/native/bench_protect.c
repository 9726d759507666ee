/* SPDX-License-Identifier: MIT */
/*
 * What CAIRN_PROTECT costs: 15 pages written and a checkpoint, with the engine's memory closed
 * between calls and without, turn by turn, for each tracker. Of a mirror only the frames that are
 * written are opened, so the price grows with the pages, not with the area. A memcpy of them is the
 * floor.
 */
#include <stdio.h>
#include <string.h>

#include "cairn/cairn.h"
#include "measure.h"

#define TABLE "protect"
#define COUNT 15u

static const char *const trackers[] = { "async", "softdirty", "uffd", "mprotect", "fork" };
#define TRACKERS (sizeof(trackers) / sizeof(trackers[0]))

struct variant {
	struct series total, checkpoint;
};

static struct variant figures[TRACKERS][2]; /* without, with */
static struct series floor_series;
static int missing[TRACKERS];
static uint32_t pages[COUNT];

static int run(struct variant *v, const char *tracker, bool protect, char *area, size_t bytes)
{
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	int repeats = toy ? 3 : strcmp(tracker, "fork") == 0 ? 15 : 100;
	cairn_t *session;
	uint64_t id;
	int ret;

	options.tracker = tracker;
	options.strategy = "none"; /* the tracker's own price */
	options.surface = "none";
	options.flags = protect ? CAIRN_PROTECT : 0;
	ret = cairn_open(&session, &options);
	if (ret < 0)
		return ret;
	ret = cairn_area_add(session, area, bytes);
	for (int i = -2; i < repeats && ret >= 0; i++) {
		uint64_t begin = tick(), between, end;

		touch_pages(area, pages, COUNT);
		between = tick();
		ret = cairn_checkpoint(session, &id);
		end = tick();
		if (i < 0)
			continue; /* cold caches */
		series_add(&v->total, begin, end);
		series_add(&v->checkpoint, between, end);
	}
	(void)cairn_close(session);
	return ret;
}

static void copy_pages(char *copies, const char *area)
{
	for (int i = toy ? 3 : 100; i > 0; i--) {
		uint64_t begin = tick();

		for (unsigned p = 0; p < COUNT; p++)
			memcpy(copies + p * PAGE, area + pages[p] * PAGE, PAGE);
		series_add(&floor_series, begin, tick());
	}
}

static void emit_size(size_t bytes)
{
	emit(TABLE, "memcpy", &floor_series, 1, "\"kib\":%zu,\"pages\":%u", bytes / 1024, COUNT);
	series_free(&floor_series);
	for (size_t t = 0; t < TRACKERS; t++) {
		if (missing[t] < 0) {
			emit_missing(TABLE, trackers[t], cairn_strerror(missing[t]));
			continue;
		}
		for (int p = 0; p < 2; p++) {
			struct variant *v = &figures[t][p];
			unsigned long long alone = series_quantile(&v->checkpoint, 0.5);

			emit(TABLE, trackers[t], &v->total, 1,
				"\"kib\":%zu,\"protect\":%s,\"pages\":%u,\"checkpoint\":%llu",
				bytes / 1024, p ? "true" : "false", COUNT, alone);
			series_free(&v->total);
			series_free(&v->checkpoint);
		}
	}
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { MIB, 64 * MIB };
	char *copies;

	measure_begin(argc, argv);
	copies = map_pages(COUNT * PAGE);
	for (int s = 0; s < (toy ? 1 : 2); s++) {
		char *area = map_pages(sizes[s]);

		pick_pages(pages, COUNT, sizes[s] / PAGE, 1);
		for (int round = 0; round < (toy ? 1 : 7); round++) {
			copy_pages(copies, area);
			for (size_t t = 0; t < TRACKERS; t++) {
				for (int p = 0; p < 2 && missing[t] >= 0; p++)
					missing[t] = run(&figures[t][p], trackers[t], p, area,
						sizes[s]);
			}
		}
		emit_size(sizes[s]);
	}
	return 0;
}
