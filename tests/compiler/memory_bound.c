/* SPDX-License-Identifier: MIT */
/*
 * What checkpoints of an instrumented program cost in memory: at most 2.1 times what an interval
 * has written for each of K, and at most memory_max, for which the oldest go. What the program has
 * freed goes back to the kernel when no checkpoint needs it. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define MIB     (1ul << 20)
#define LIMIT   (32 * MIB)
#define WRITTEN (200 * 1024ul)

static long words[4 * MIB / sizeof(long)];
static char large[8 * MIB];
static volatile size_t large_at = sizeof(large) - 1; /* or it would not be written */

static struct cairn_stats stats(cairn_t *c)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	return s;
}

/* Each word once, or the undo log would keep it more often. */
static void write_interval(int n)
{
	size_t begin = (size_t)n * 7919 * 16 % (sizeof(words) / sizeof(long) - 2 * WRITTEN / 8);

	for (size_t i = 0; i < WRITTEN / sizeof(long); i++)
		words[begin / 16 * 16 + i] += n + 1;
}

static cairn_t *begin(const char *tracker, uint32_t keep, uint64_t memory_max)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	o.tracker = tracker;
	o.keep = keep;
	o.memory_max = memory_max;
	CHECK_OK(cairn_open(&c, &o));
	return c;
}

/* The entry of an undo log's short store is as long as the store again: that is what it is. */
static void bound_by_written(const char *tracker)
{
	cairn_t *c = begin(tracker, 8, 0);
	uint64_t before, held, id;
	double factor;

	before = stats(c).engine_bytes;
	for (int n = 0; n < 20; n++) {
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		write_interval(n);
	}
	held = stats(c).mirror_bytes;
	factor = (double)held / (8 * WRITTEN);
	printf("%s: %.3f times the written set for each of 8 checkpoints, arena %lu KiB\n", tracker,
		factor, (unsigned long)(stats(c).engine_bytes - before) / 1024);
	CHECK(held >= 8 * WRITTEN && factor < 2.1);
	CHECK(stats(c).engine_bytes - before < 21 * 8 * WRITTEN / 10 + 4 * MIB);
	CHECK_OK(cairn_close(c));
}

static void bound_by_limit(const char *tracker)
{
	cairn_t *c = begin(tracker, 1000, LIMIT);
	uint64_t id, oldest, newest;
	long sum = 0, now = 0;

	for (int n = 0; n < 400; n++) {
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		write_interval(n);
		/* The arena, and beside it the open interval. */
		CHECK(stats(c).engine_bytes + 3 * WRITTEN <= LIMIT);
	}
	CHECK_OK(cairn_range(c, &oldest, &newest));
	for (size_t i = 0; i < sizeof(words) / sizeof(long); i++)
		sum += words[i];
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memset(words, 1, WRITTEN);
	CHECK_OK(cairn_rewind(c, id));
	for (size_t i = 0; i < sizeof(words) / sizeof(long); i++)
		now += words[i];
	CHECK(now == sum && stats(c).failed == 0);
	CHECK_OK(cairn_close(c));
}

/* Interval by interval: one that writes too much cannot be undone, others can. All by long runs. */
static void bound_by_interval(const char *tracker)
{
	cairn_t *c = begin(tracker, 1, 8 * MIB);
	char *bytes = (char *)words;
	uint64_t id;

	for (int turn = 1; turn < 4; turn++) {
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		memset(bytes, turn, MIB);
		CHECK_OK(cairn_rewind(c, id));
		CHECK(bytes[0] != turn && bytes[MIB / 2 + 1] != turn && bytes[MIB - 1] != turn);
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		memset(bytes, turn, sizeof(words));
		memset(large, turn, sizeof(large));
		CHECK(stats(c).mirror_bytes <= 8 * MIB);
		CHECK(cairn_rewind(c, id) == CAIRN_EFAILED);
		CHECK(bytes[4 * MIB - 1] == turn && large[large_at] == turn);
	}
	CHECK_OK(cairn_close(c));
}

/* The least that a session takes is enough for a small interval. */
static void bound_by_least(const char *tracker)
{
	cairn_t *c = begin(tracker, 1, MIB);
	long was = words[5];
	uint64_t id;

	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	words[5] += 7;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(words[5] == was);
	CHECK_OK(cairn_close(c));
}

#define BLOCKS 48
#define PAGES  (MIB / 4096)

static unsigned char resident[BLOCKS][PAGES];

static unsigned long resident_pages(char *const *blocks)
{
	unsigned long count = 0;

	for (int b = 0; b < BLOCKS; b++) {
		CHECK(!mincore(blocks[b], MIB, resident[b]));
		for (size_t i = 0; i < PAGES; i++)
			count += resident[b][i] & 1;
	}
	return count;
}

static void fill_blocks(char **blocks)
{
	for (int b = 0; b < BLOCKS; b++) {
		blocks[b] = malloc(MIB);
		CHECK(blocks[b]);
		memset(blocks[b], b + 1, MIB);
	}
}

/* Freed memory comes back as long as a kept checkpoint has it, and stays away after that. */
static void gives_back(const char *tracker)
{
	static char *blocks[BLOCKS];
	static int turn;
	cairn_t *c = begin(tracker, 2, 0);
	unsigned long before, after;
	uint64_t id, filled = 0;

	fill_blocks(blocks);
	before = resident_pages(blocks);
	CHECK(before > BLOCKS * PAGES / 2); /* but for what was swapped out */
	if (cairn_checkpoint(c, &filled) == CAIRN_TAKEN) {
		for (int b = 0; b < BLOCKS; b++)
			free(blocks[b]);
		CHECK_OK(cairn_restore(c, filled)); /* does not return */
	}
	for (int b = 0; b < BLOCKS; b++) {
		for (size_t i = 0; i < MIB; i++)
			CHECK(blocks[b][i] == b + 1);
		free(blocks[b]);
	}
	for (turn = 0; turn < 1000; turn++)
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	after = resident_pages(blocks);
	printf("%s: %lu of %lu freed pages stay\n", tracker, after, before);
	CHECK(after < before / 3);
	fill_blocks(blocks);
	CHECK_OK(cairn_close(c));
}

int main(int argc, char **argv)
{
	(void)argc;
	bound_by_written(argv[1]);
	bound_by_limit(argv[1]);
	bound_by_interval(argv[1]);
	bound_by_least(argv[1]);
	gives_back(argv[1]);
	return 0;
}
