/* SPDX-License-Identifier: MIT */
/*
 * The microbenchmark of "Techniques for efficient in-memory checkpointing" (Figures 2 and 3, and
 * Figure 1's sizes of regions): each iteration of a checkpointed loop writes 1 KB byte by byte to
 * places spread over a range of R bytes, every write r + 1 times.
 *
 * One source, built without hooks and by cairn-cc for each of its trackers; the page trackers run
 * in the one without. Prints, for each figure, the cycles of an iteration, the checkpoint included.
 *
 *	bench_stores none|TRACKER [--toy]      "none": no checkpoints
 *	bench_stores TRACKER --memory          what kept checkpoints take, beside what was written
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cairn/cairn.h"
#include "measure.h"

#define WRITES    1024
#define RANGE_MAX (32 * MIB)

/* As the paper has. With up to 1024 page faults in each, fewer: those of so many cycles. */
#define ITERATIONS 5000
#define PATIENCE   1000000000ull
#define LEAST      40

static char area[RANGE_MAX] __attribute__((aligned(4096)));
static uint32_t places[WRITES];
static cairn_t *session;

static void pick_places(size_t range)
{
	uint64_t state = 0x9e3779b97f4a7c15ull;

	for (int i = 0; i < WRITES; i++) {
		state = state * 6364136223846793005ull + 1442695040888963407ull;
		places[i] = (state >> 33) % range;
	}
}

static bool is_hooks(const char *tracker)
{
	return strcmp(tracker, "shadow") == 0 || strcmp(tracker, "undolog") == 0;
}

/* Trackers of pages are told of the range; the others know every store. */
static int open_session(const char *tracker, uint32_t keep)
{
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	int err;

	options.tracker = tracker;
	options.strategy = "none";
	options.keep = keep;
	options.memory_max = 1024 * MIB;
	if (!is_hooks(tracker))
		options.surface = "none";
	err = cairn_open(&session, &options);
	if (err < 0 || is_hooks(tracker))
		return err;
	return cairn_area_add(session, area, sizeof(area));
}

/* As it would be in a program: the compiler may not know that a write is the same as the last. */
static __attribute__((noinline)) void write_all(volatile char *to, int repeats, char value)
{
	for (int i = 0; i < WRITES; i++) {
		/* Unrolled, a part of the repeats would be known to be repeats. */
#pragma clang loop unroll(disable)
		for (int r = 0; r <= repeats; r++)
			to[places[i]] = value;
	}
}

static void measure_point(const char *row, size_t range, int repeats, int iterations)
{
	uint64_t first = tick(), id;
	struct series s = { 0 };

	pick_places(range);
	for (int i = -3; i < iterations; i++) {
		uint64_t begin = tick();
		int ret;

		if (i >= LEAST && begin - first > PATIENCE)
			break;
		ret = session ? cairn_checkpoint(session, &id) : 0;
		write_all(area, repeats, (char)i);
		if (i >= 0)
			series_add(&s, begin, tick());
		if (ret < 0)
			fail(row, cairn_strerror(ret));
	}
	emit("stores", row, &s, 1, "\"range\":%zu,\"repeats\":%d", range, repeats);
	series_free(&s);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

#define WRITTEN (4 * MIB)

/* KiB that only this process has, as the kernel counts them. 0: it does not tell. */
static long resident(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	char line[200];
	long kib = 0;

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "Pss: %ld", &kib) != 1)
		;
	if (f)
		fclose(f);
	return kib;
}

/* Each word once, or the undo log would keep it more often. */
static __attribute__((noinline)) void write_words(long value)
{
	volatile long *words = (volatile long *)area;

	for (size_t i = 0; i < WRITTEN / sizeof(long); i++)
		words[i] = value;
}

static void take(const char *tracker)
{
	uint64_t id;
	int err = cairn_checkpoint(session, &id);

	if (err < 0)
		fail(tracker, cairn_strerror(err));
}

static void measure_memory(const char *tracker, uint32_t keep)
{
	struct cairn_stats stats = { .size = sizeof(stats) };
	long first, opened, written;
	int err;

	write_words(1); /* what a fork has left to share */
	first = resident();
	err = open_session(tracker, keep);
	if (err < 0)
		fail(tracker, cairn_strerror(err));
	take(tracker);
	opened = resident();
	for (uint32_t i = 0; i < keep + 2; i++) {
		write_words(i);
		if (i < keep + 1)
			take(tracker);
	}
	written = resident();
	(void)cairn_stats(session, &stats);
	printf("{\"table\":\"stores_memory\",\"row\":\"%s\",\"keep\":%u,\"held\":%.3f,"
	       "\"resident\":%.3f,\"fixed_kib\":%ld}\n",
		tracker, keep, (double)stats.mirror_bytes / keep / WRITTEN,
		1024.0 * (double)(written - opened) / keep / WRITTEN, opened - first);
	(void)cairn_close(session);
}

/* Each in a process of its own, in which no session has left anything. */
static int measure_memories(const char *tracker)
{
	int status = 0;

	memset(area, 1, WRITTEN);
	for (uint32_t keep = 1; keep <= 64 && !status; keep *= 8) {
		pid_t pid = fork();

		if (pid == 0) {
			measure_memory(tracker, keep);
			exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			fail(tracker, "fork");
	}
	return status != 0;
}

int main(int argc, char **argv)
{
	const char *tracker = argc > 1 ? argv[1] : "";
	int iterations, err;

	if (!*tracker || tracker[0] == '-')
		fail("bench_stores", "usage: bench_stores none|TRACKER [--toy|--memory]");
	if (argc == 3 && strcmp(argv[2], "--memory") == 0)
		return measure_memories(tracker);
	measure_begin(argc - 1, argv + 1);
	iterations = toy ? 5 : ITERATIONS;
	memset(area, 1, sizeof(area));
	if (strcmp(tracker, "none") != 0) {
		err = open_session(tracker, 1);
		if (err < 0) {
			emit_missing("stores", tracker, cairn_strerror(err));
			return 0;
		}
	}
	for (size_t range = 32; range <= RANGE_MAX; range *= 4)
		measure_point(tracker, range, 4, iterations);
	for (int repeats = 0; repeats <= 16; repeats = repeats ? repeats * 2 : 1)
		measure_point(tracker, 128 * 1024, repeats, iterations);
	/* Intervals so long that -fcairn-hybrid makes a difference. */
	for (int repeats = 256; repeats <= 4096 && !toy; repeats *= 4)
		measure_point(tracker, 128 * 1024, repeats, LEAST);
	return 0;
}
