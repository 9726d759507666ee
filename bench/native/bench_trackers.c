/* SPDX-License-Identifier: MIT */
/*
 * What a checkpoint costs with n pages written since the last, for each tracker, in an area of 64
 * MiB and of 1 GiB: the stores with their faults, plus cairn_checkpoint. The floor is copying these
 * pages. The pages are scattered and stay the same from interval to interval; none of them is hot.
 *
 * `async`, scanning, joins memory that it adopts into huge pages, so its row has memory of its own
 * in each round; all others share an area of 4 KiB pages, `async+4k` among them.
 *
 * Beside each way in which `async` finds them runs a bare loop of the same technique, in the same
 * round, behind it: `ratio` is the median over the rounds of what their two medians are to each
 * other.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bare_loop.h"
#include "cairn/cairn.h"
#include "measure.h"

#define TABLE "trackers"

/*
 * `async` by the scan, by the feeds that need none, and by the one that needs no mirror; `bare`:
 * the loop that it is held against, if any. A bare loop stands behind what it is for.
 */
static const struct {
	const char *row, *tracker, *feed, *bare;
	enum bare_kind kind; /* of a bare loop */
} trackers[] = {
	{ "async", "async", "scan", NULL, BARE_NONE },
	{ "async+4k", "async", "scan", "bare scan", BARE_NONE },
	{ "bare scan", "", NULL, NULL, BARE_SCAN },
	{ "async+bpf", "async", "bpf", "bare bpf", BARE_NONE },
	{ "bare bpf", "", NULL, NULL, BARE_BPF },
	{ "async+images", "async", "bpf-images", "bare images", BARE_NONE },
	{ "bare images", "", NULL, NULL, BARE_IMAGES },
	{ "async+perf", "async", "perf", "bare perf", BARE_NONE },
	{ "bare perf", "", NULL, NULL, BARE_PERF },
	{ "softdirty", "softdirty", NULL, NULL, BARE_NONE },
	{ "uffd", "uffd", NULL, NULL, BARE_NONE },
	{ "mprotect", "mprotect", NULL, NULL, BARE_NONE },
	{ "fork", "fork", NULL, NULL, BARE_NONE },
};
static const uint32_t counts[] = { 1, 5, 15, 50, 200, 1000 };
#define TRACKERS   (sizeof(trackers) / sizeof(trackers[0]))
#define COUNTS     (sizeof(counts) / sizeof(counts[0]))
#define ROUNDS_MAX 21

struct cost {
	struct series total, stores, checkpoint;
	uint64_t medians[ROUNDS_MAX]; /* of the total, round by round */
	uint64_t bytes;               /* of mirror, undo pages and images */
};

struct figures {
	struct cost of[COUNTS];
	const char *missing; /* why there are none, or NULL */
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
		return bytes > 64 * MIB ? 4 : 9;
	return bytes > 64 * MIB ? (count >= 200 ? 20 : 40) : (count >= 200 ? 20 : 100);
}

static uint64_t held_bytes(cairn_t *session)
{
	struct cairn_stats stats = { .size = sizeof(stats) };
	int ret = cairn_stats(session, &stats);

	if (ret < 0)
		fail("cairn_stats", cairn_strerror(ret));
	return stats.mirror_bytes;
}

/* What takes the checkpoints: a session, or a bare loop. */
struct subject {
	const char *name;
	cairn_t *session;
	struct bare_loop *bare;
};

static void take_checkpoint(struct subject *s)
{
	uint64_t id;
	int ret;

	if (s->bare) {
		(void)bare_checkpoint(s->bare);
		return;
	}
	ret = cairn_checkpoint(s->session, &id);
	if (ret < 0)
		fail(s->name, cairn_strerror(ret));
}

/* Intervals with `count` pages written, which are picked already. */
static void run_intervals(
	struct subject *s, struct cost *cost, char *area, uint32_t count, int repeat_count)
{
	for (int i = -2; i < repeat_count; i++) {
		uint64_t begin = tick(), between, end;

		touch_pages(area, pages, count);
		between = tick();
		take_checkpoint(s);
		end = tick();
		if (i < 0)
			continue; /* the first ones meet cold caches and new pages */
		series_add(&cost->total, begin, end);
		series_add(&cost->stores, begin, between);
		series_add(&cost->checkpoint, between, end);
	}
	for (uint32_t p = 0; s->bare && p < count; p++)
		if (!bare_same(s->bare, pages[p]))
			fail(s->name, "has missed a write");
}

static void run_counts(struct figures *f, struct subject *s, char *area, size_t bytes, int round)
{
	for (size_t n = 0; n < COUNTS; n++) {
		struct cost *cost = &f->of[n];
		struct series before = cost->total;

		cost->total = (struct series){ 0 };
		pick_pages(pages, counts[n], bytes / PAGE, round + 1);
		run_intervals(s, cost, area, counts[n], repeats(s->name, bytes, counts[n]));
		cost->medians[round] = series_quantile(&cost->total, 0.5);
		for (size_t i = 0; i < before.count; i++)
			series_put(&cost->total, before.values[i]);
		series_free(&before);
		if (s->session)
			cost->bytes = held_bytes(s->session);
	}
}

static const char *open_session(struct subject *s, size_t which, char *area, size_t bytes)
{
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	int ret;

	options.tracker = s->name;
	options.feed = trackers[which].feed;
	options.strategy = "none"; /* the tracker's own price */
	options.surface = "none";
	options.memory_max = 4 * bytes + 256 * MIB;
	ret = cairn_open(&s->session, &options);
	if (ret == 0) {
		ret = cairn_area_add(s->session, area, bytes);
		if (ret < 0)
			(void)cairn_close(s->session);
	}
	return ret < 0 ? cairn_strerror(ret) : NULL;
}

/* As a program has it that gives no advice. */
static char *map_unadvised(size_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		fail("mmap", "no memory");
	memset(at, 1, bytes);
	return at;
}

static void run_tracker(struct figures *f, size_t which, char *area, size_t bytes, int round)
{
	struct subject s = { .name = trackers[which].tracker };
	char *own = NULL;

	if (strcmp(trackers[which].row, "async") == 0)
		area = own = map_unadvised(bytes);
	if (trackers[which].kind != BARE_NONE)
		f->missing = bare_open(&s.bare, trackers[which].kind, area, bytes);
	else
		f->missing = open_session(&s, which, area, bytes);
	if (!f->missing)
		run_counts(f, &s, area, bytes, round);
	if (s.bare)
		bare_close(s.bare);
	else if (s.session && cairn_close(s.session) < 0)
		fail("cairn_close", s.name);
	if (own)
		munmap(own, bytes);
}

/* Copying the same pages: no checkpoint that keeps old content can cost less. */
static void run_floor(char *area, char *copy, size_t bytes, int round)
{
	for (size_t n = 0; n < COUNTS; n++) {
		pick_pages(pages, counts[n], bytes / PAGE, round + 1);
		for (int i = -2; i < (toy ? 3 : 100); i++) {
			uint64_t begin = tick();

			touch_pages(area, pages, counts[n]);
			for (uint32_t p = 0; p < counts[n]; p++)
				memcpy(copy + p * PAGE, area + pages[p] * PAGE, PAGE);
			if (i >= 0)
				series_add(&floors[n], begin, tick());
		}
	}
}

/* What its rounds were to those of its bare loop, as members of a JSON object; or "". */
static const char *ratio_text(size_t t, size_t n, int rounds)
{
	static char text[160];
	struct series ratios = { 0 };
	size_t bare = 0;

	text[0] = 0;
	while (bare < TRACKERS && trackers[t].bare &&
		strcmp(trackers[bare].row, trackers[t].bare) != 0)
		bare++;
	if (!trackers[t].bare || figures[bare].missing)
		return text;
	for (int r = 0; r < rounds; r++)
		series_put(&ratios, 1e4 * figures[t].of[n].medians[r] /
				(figures[bare].of[n].medians[r] + 1));
	snprintf(text, sizeof(text),
		",\"bare\":\"%s\",\"ratio\":%.3f,\"ratio_p10\":%.3f,\"ratio_p90\":%.3f",
		trackers[t].bare, series_quantile(&ratios, 0.5) / 1e4,
		series_quantile(&ratios, 0.1) / 1e4, series_quantile(&ratios, 0.9) / 1e4);
	series_free(&ratios);
	return text;
}

static void emit_tracker(size_t t, size_t bytes, int rounds)
{
	for (size_t n = 0; n < COUNTS; n++) {
		struct cost *c = &figures[t].of[n];

		emit(TABLE, trackers[t].row, &c->total, 1,
			"\"mib\":%zu,\"pages\":%u,\"stores\":%llu,\"checkpoint\":%llu,"
			"\"bytes\":%llu%s",
			bytes / MIB, counts[n],
			(unsigned long long)series_quantile(&c->stores, 0.5),
			(unsigned long long)series_quantile(&c->checkpoint, 0.5),
			(unsigned long long)c->bytes, ratio_text(t, n, rounds));
		series_free(&c->total);
		series_free(&c->stores);
		series_free(&c->checkpoint);
	}
}

static void emit_all(size_t bytes, int rounds)
{
	for (size_t n = 0; n < COUNTS; n++) {
		emit(TABLE, "memcpy", &floors[n], 1, "\"mib\":%zu,\"pages\":%u", bytes / MIB,
			counts[n]);
		series_free(&floors[n]);
	}
	for (size_t t = 0; t < TRACKERS; t++) {
		if (figures[t].missing)
			emit_missing(TABLE, trackers[t].row, figures[t].missing);
		else
			emit_tracker(t, bytes, rounds);
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
		int rounds = toy ? 1 : s == 0 ? ROUNDS_MAX : 3;
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
		emit_all(bytes, rounds);
	}
	return 0;
}
