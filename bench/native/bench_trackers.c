/* SPDX-License-Identifier: MIT */
/*
 * What a checkpoint costs with n pages written since the last, for each tracker, in an area of 64
 * MiB and of 1 GiB: the stores with their faults, plus cairn_checkpoint. The floor is copying these
 * pages. The pages are scattered and stay the same from interval to interval; none of them is hot.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cairn/cairn.h"
#include "measure.h"

#define TABLE "trackers"

/* `async` by the scan, by the feeds that need none, and by the one that needs no mirror. */
static const struct {
	const char *row, *tracker, *feed;
} trackers[] = {
	{ "async", "async", "scan" },
	{ "async+bpf", "async", "bpf" },
	{ "async+perf", "async", "perf" },
	{ "async+images", "async", "bpf-images" },
	{ "softdirty", "softdirty", NULL },
	{ "uffd", "uffd", NULL },
	{ "mprotect", "mprotect", NULL },
	{ "fork", "fork", NULL },
};
static const uint32_t counts[] = { 1, 5, 15, 50, 200, 1000 };
#define TRACKERS (sizeof(trackers) / sizeof(trackers[0]))
#define COUNTS   (sizeof(counts) / sizeof(counts[0]))

struct figures {
	struct series total[COUNTS], stores[COUNTS], checkpoint[COUNTS];
	uint64_t bytes[COUNTS]; /* of mirror, undo pages and images */
	int missing;            /* why there are none */
};

static struct figures figures[TRACKERS];
static struct series floors[COUNTS];
static uint32_t pages[1000];

static int repeats(const char *tracker, size_t bytes, uint32_t count)
{
	bool slow = strcmp(tracker, "fork") == 0;

	if (toy)
		return 3;
	if (slow)
		return bytes > 64 * MIB ? 4 : 25;
	return bytes > 64 * MIB ? (count >= 200 ? 20 : 40) : (count >= 200 ? 60 : 300);
}

static uint64_t held_bytes(cairn_t *session)
{
	struct cairn_stats stats = { .size = sizeof(stats) };
	int ret = cairn_stats(session, &stats);

	if (ret < 0)
		fail("cairn_stats", cairn_strerror(ret));
	return stats.mirror_bytes;
}

static void run_tracker(struct figures *f, size_t which, char *area, size_t bytes, int round)
{
	const char *tracker = trackers[which].tracker;
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	cairn_t *session;
	uint64_t id;
	int ret;

	options.tracker = tracker;
	options.feed = trackers[which].feed;
	options.strategy = "none"; /* the tracker's own price */
	options.surface = "none";
	options.memory_max = 4 * bytes + 256 * MIB;
	ret = cairn_open(&session, &options);
	if (ret == 0) {
		ret = cairn_area_add(session, area, bytes);
		if (ret < 0)
			(void)cairn_close(session);
	}
	f->missing = ret;
	if (ret < 0)
		return;
	for (size_t n = 0; n < COUNTS; n++) {
		int repeat_count = repeats(tracker, bytes, counts[n]);

		pick_pages(pages, counts[n], bytes / PAGE, round + 1);
		for (int i = -2; i < repeat_count; i++) {
			uint64_t begin = tick(), between, end;

			touch_pages(area, pages, counts[n]);
			between = tick();
			ret = cairn_checkpoint(session, &id);
			end = tick();
			if (ret < 0)
				fail(tracker, cairn_strerror(ret));
			if (i < 0)
				continue; /* the first ones meet cold caches and new pages */
			series_add(&f->total[n], begin, end);
			series_add(&f->stores[n], begin, between);
			series_add(&f->checkpoint[n], between, end);
		}
		f->bytes[n] = held_bytes(session);
	}
	ret = cairn_close(session);
	if (ret < 0)
		fail("cairn_close", cairn_strerror(ret));
}

/* Copying the same pages: no checkpoint that keeps old content can cost less. */
static void run_floor(char *area, char *copy, size_t bytes, int round)
{
	for (size_t n = 0; n < COUNTS; n++) {
		pick_pages(pages, counts[n], bytes / PAGE, round + 1);
		for (int i = -2; i < (toy ? 3 : 200); i++) {
			uint64_t begin = tick();

			touch_pages(area, pages, counts[n]);
			for (uint32_t p = 0; p < counts[n]; p++)
				memcpy(copy + p * PAGE, area + pages[p] * PAGE, PAGE);
			if (i >= 0)
				series_add(&floors[n], begin, tick());
		}
	}
}

static void emit_all(size_t bytes)
{
	size_t mib = bytes / MIB;

	for (size_t n = 0; n < COUNTS; n++) {
		emit(TABLE, "memcpy", &floors[n], 1, "\"mib\":%zu,\"pages\":%u", mib, counts[n]);
		series_free(&floors[n]);
	}
	for (size_t t = 0; t < TRACKERS; t++) {
		struct figures *f = &figures[t];

		if (f->missing)
			emit_missing(TABLE, trackers[t].row, cairn_strerror(f->missing));
		for (size_t n = 0; n < COUNTS && !f->missing; n++) {
			emit(TABLE, trackers[t].row, &f->total[n], 1,
				"\"mib\":%zu,\"pages\":%u,\"stores\":%llu,\"checkpoint\":%llu,"
				"\"bytes\":%llu",
				mib, counts[n],
				(unsigned long long)series_quantile(&f->stores[n], 0.5),
				(unsigned long long)series_quantile(&f->checkpoint[n], 0.5),
				(unsigned long long)f->bytes[n]);
			series_free(&f->total[n]);
			series_free(&f->stores[n]);
			series_free(&f->checkpoint[n]);
		}
	}
}

static bool enough_memory(size_t bytes)
{
	return (uint64_t)sysconf(_SC_AVPHYS_PAGES) * PAGE > 3 * (uint64_t)bytes;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 64 * MIB, 1024 * MIB };

	measure_begin(argc, argv);
	for (int s = 0; s < (toy ? 1 : 2); s++) {
		size_t bytes = toy ? 8 * MIB : sizes[s];
		int rounds = toy ? 1 : s == 0 ? 7 : 3;
		char *area, *copy;

		if (!enough_memory(bytes)) {
			emit_missing(TABLE, "1 GiB", "not enough free memory");
			continue;
		}
		area = map_pages(bytes);
		copy = map_pages(1000 * PAGE);
		for (int round = 0; round < rounds; round++) {
			run_floor(area, copy, bytes, round);
			for (size_t t = 0; t < TRACKERS; t++)
				run_tracker(&figures[t], t, area, bytes, round);
		}
		emit_all(bytes);
	}
	return 0;
}
