/* SPDX-License-Identifier: MIT */
/*
 * Going back: cairn_restore (memory, registers and stack) and cairn_rewind (memory alone) with n
 * pages written since the checkpoint, for each tracker, from the call to the program running again.
 * The floor is copying these pages back from where copies of them lie. The pages stay open after
 * the first restore, as in a loop of tries.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cairn/cairn.h"
#include "measure.h"

#define TABLE "restore"

static const char *const trackers[] = { "async", "softdirty", "uffd", "mprotect", "fork" };
static const uint32_t counts[] = { 28, 58, 200, 1000 };
#define TRACKERS (sizeof(trackers) / sizeof(trackers[0]))
#define COUNTS   (sizeof(counts) / sizeof(counts[0]))

/* In static storage, because a restore puts the stack back, and these must not go back with it. */
static struct series restores[TRACKERS][COUNTS], rewinds[TRACKERS][COUNTS], floors[COUNTS];
static uint32_t pages[1000];
static char *area, *copies;
static size_t area_bytes;
static cairn_t *session;
static uint64_t checkpoint_id, begin_tick, end_tick;
static int left;

static int repeats(size_t tracker)
{
	return toy ? 3 : strcmp(trackers[tracker], "fork") == 0 ? 20 : 200;
}

/* Every page must be as it was: a restore that is fast because it does nothing is not one. */
static void check_pages(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (memcmp(area + pages[i] * PAGE, copies + i * PAGE, PAGE) != 0)
			fail("restore", "a page is not as it was");
}

static void run_restore(struct series *s, uint32_t count, int repeat_count)
{
	left = repeat_count + 2;
	check(cairn_checkpoint(session, &checkpoint_id), "cairn_checkpoint");
	if (left <= repeat_count) {
		end_tick = tick();
		check_pages(count);
		if (left < repeat_count)
			series_add(s, begin_tick, end_tick);
	}
	if (left-- == 0)
		return;
	touch_pages(area, pages, count);
	begin_tick = tick();
	check(cairn_restore(session, checkpoint_id), "cairn_restore");
}

static void run_rewind(struct series *s, uint32_t count, int repeat_count)
{
	uint64_t id;

	check(cairn_checkpoint(session, &id), "cairn_checkpoint");
	for (int i = -2; i < repeat_count; i++) {
		uint64_t begin, end;

		touch_pages(area, pages, count);
		begin = tick();
		check(cairn_rewind(session, id), "cairn_rewind");
		end = tick();
		check_pages(count);
		if (i >= 0)
			series_add(s, begin, end);
	}
}

static void run_floor(struct series *s, uint32_t count)
{
	for (int i = -2; i < (toy ? 3 : 200); i++) {
		uint64_t begin, end;

		touch_pages(area, pages, count);
		begin = tick();
		for (uint32_t p = 0; p < count; p++)
			memcpy(area + pages[p] * PAGE, copies + p * PAGE, PAGE);
		end = tick();
		check_pages(count);
		if (i >= 0)
			series_add(s, begin, end);
	}
}

static bool open_session(const char *tracker)
{
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	int ret;

	options.tracker = tracker;
	options.strategy = "none"; /* the tracker's own price */
	options.surface = "none";
	ret = cairn_open(&session, &options);
	if (ret < 0)
		emit_missing(TABLE, tracker, cairn_strerror(ret));
	else
		check(cairn_area_add(session, area, area_bytes), "cairn_area_add");
	return ret == 0;
}

static void prepare(uint32_t count, int round)
{
	pick_pages(pages, count, area_bytes / PAGE, round + 1);
	for (uint32_t i = 0; i < count; i++)
		memcpy(copies + i * PAGE, area + pages[i] * PAGE, PAGE);
}

static void run_round(int round, bool missing[TRACKERS])
{
	for (size_t n = 0; n < COUNTS; n++) {
		prepare(counts[n], round);
		run_floor(&floors[n], counts[n]);
	}
	for (size_t t = 0; t < TRACKERS; t++) {
		if (missing[t])
			continue;
		missing[t] = !open_session(trackers[t]);
		for (size_t n = 0; n < COUNTS && !missing[t]; n++) {
			prepare(counts[n], round);
			run_restore(&restores[t][n], counts[n], repeats(t));
			run_rewind(&rewinds[t][n], counts[n], repeats(t));
		}
		if (!missing[t])
			check(cairn_close(session), "cairn_close");
	}
}

int main(int argc, char **argv)
{
	bool missing[TRACKERS] = { false };

	measure_begin(argc, argv);
	area_bytes = toy ? 8 * MIB : 64 * MIB;
	area = map_pages(area_bytes);
	copies = map_pages(1000 * PAGE);
	for (int round = 0; round < (toy ? 1 : 7); round++)
		run_round(round, missing);
	for (size_t n = 0; n < COUNTS; n++) {
		emit(TABLE, "memcpy", &floors[n], 1, "\"pages\":%u", counts[n]);
		for (size_t t = 0; t < TRACKERS; t++) {
			if (missing[t])
				continue;
			emit(TABLE, trackers[t], &restores[t][n], 1,
				"\"pages\":%u,\"how\":\"restore\"", counts[n]);
			emit(TABLE, trackers[t], &rewinds[t][n], 1,
				"\"pages\":%u,\"how\":\"rewind\"", counts[n]);
		}
	}
	return 0;
}
