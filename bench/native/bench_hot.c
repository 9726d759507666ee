/* SPDX-License-Identifier: MIT */
/*
 * What speculation is for: pages that an interval writes again and again. 15 hot pages and n cold
 * ones that come once, in an area of 64 MiB, beside a memcpy of the same pages; then the mixed
 * workload: 12 of 20 hot pages and 3 picks of 4000 by Zipf's law. The floor is a memcpy of exactly
 * the pages that were written; in the mixed workload of each to where its own copy is, for a
 * checkpoint has those of all other pages as well. (There a memcpy to one buffer that the caches
 * hold is measured beside it.) An interval is the stores, with their faults, and the checkpoint; a
 * mixed one without what its stores take in memory that nobody tracks, which is to miss the
 * caches. Who keeps K copies of a page cannot write them all to the same place: what that costs
 * alone is measured as well. All figures are medians of the means of blocks: a strategy may put
 * off its work for some intervals, and then do it in one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cairn/cairn.h"
#include "measure.h"

#define HOT	   15
#define COLD_MAX   5
#define MIXED_HOT  20
#define MIXED_PICK 12
#define TAIL	   4000
#define TAIL_PICK  3
#define PAGES_MAX  32
#define KEEP_MAX   1000

/* What one row is called, and what a session of it is opened with. */
struct kind {
	const char *name, *tracker, *feed;
};
static const struct kind kinds[] = {
	{ "uffd", "uffd", NULL },
	{ "mprotect", "mprotect", NULL },
	{ "async", "async", NULL },
};
/* async where it is told otherwise than by the best feed. */
static const struct kind feeds[] = {
	{ "async+bpf", "async", "bpf" },
	{ "async+images", "async", "bpf-images" },
	{ "async+perf", "async", "perf" },
	{ "async+scan", "async", "scan" },
};
/* All that know nothing of the future. */
static const char *const strategies[] = { "decay", "none", "last", "active-rnd", "active-fifo",
	"active-cks", "gspec", "histase" };
static const int colds[] = { 0, 1, 2, COLD_MAX };
static char *area, *untracked, *copies, *buffer;
static size_t area_pages;
static uint32_t scattered[TAIL + MIXED_HOT];
static double zipf[TAIL];
static uint64_t seed = 88172645463325252ull;

struct round {
	uint32_t pages[PAGES_MAX];
	size_t count;
};

static uint32_t rnd(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 32) * below >> 32);
}

/* One line of each page, another one each time, as a request does to most pages. */
static void store(char *base, const struct round *r)
{
	static uint64_t turn;

	turn++;
	for (size_t i = 0; i < r->count; i++) {
		uint64_t *line = (uint64_t *)(base + r->pages[i] * PAGE + (turn * 7 + i) % 64 * 64);

		for (int k = 0; k < 3; k++)
			line[k] += turn + (uint64_t)k;
	}
}

/* One behind the other, or apart: each to where its own copy is. */
static void copy(const struct round *r, char *to, bool apart)
{
	for (size_t i = 0; i < r->count; i++)
		memcpy(to + (apart ? r->pages[i] : i) * PAGE, untracked + r->pages[i] * PAGE,
			PAGE);
}

/* ---- Workloads ------------------------------------------------------------------------ */

static void hot_and_cold(struct round *r, size_t cold)
{
	static uint32_t next;

	r->count = 0;
	for (; r->count < HOT; r->count++)
		r->pages[r->count] = scattered[r->count];
	for (size_t i = 0; i < cold; i++)
		r->pages[r->count++] = scattered[HOT + (next++ * 61) % (TAIL - HOT)];
}

static void zipf_begin(void)
{
	double sum = 0;

	for (int i = 0; i < TAIL; i++)
		zipf[i] = sum += 1.0 / (i + 1);
	for (int i = 0; i < TAIL; i++)
		zipf[i] /= sum;
}

static uint32_t zipf_pick(void)
{
	double u = rnd(1u << 30) / (double)(1u << 30);
	int low = 0, high = TAIL - 1;

	while (low < high) {
		int mid = (low + high) / 2;

		if (zipf[mid] < u)
			low = mid + 1;
		else
			high = mid;
	}
	return (uint32_t)low;
}

static void add_once(struct round *r, uint32_t page)
{
	for (size_t i = 0; i < r->count; i++)
		if (r->pages[i] == page)
			return;
	r->pages[r->count++] = page;
}

static void mixed(struct round *r)
{
	r->count = 0;
	while (r->count < MIXED_PICK)
		add_once(r, scattered[rnd(MIXED_HOT)]);
	for (int i = 0; i < TAIL_PICK; i++)
		add_once(r, scattered[MIXED_HOT + zipf_pick()]);
}

/* ---- Measuring -------------------------------------------------------------------------- */

/* The series have one value for each block of intervals, its mean. */
struct row {
	const struct kind *kind;
	const char *strategy;
	uint32_t keep;
	int cold; /* -1: the mixed workload */
	struct series floor, checkpoint, interval;
	struct series plain, in_buffer; /* the stores, untracked; mixed, to one buffer */
};

/* The first intervals of a block find the caches as others have left them, and do not count. */
struct block {
	int rounds, counted;
	uint64_t first, second; /* cycles, of both halves of an interval */
};

static void count(struct block *b, int round, uint64_t begin, uint64_t middle, uint64_t end)
{
	if (round < b->rounds / 4)
		return;
	b->counted++;
	b->first += middle - begin;
	b->second += end - middle;
}

static void add_mean(struct series *series, const struct block *b, uint64_t cycles)
{
	series_add(series, 0, cycles / (uint64_t)b->counted);
}

static void next_round(const struct row *w, struct round *r)
{
	if (w->cold < 0)
		mixed(r);
	else
		hot_and_cold(r, (size_t)w->cold);
}

/* Copies to places that no cache holds hold up the next stores: those count with the buffer's. */
static void floor_block(struct row *w, struct series *floor, bool apart, int rounds)
{
	struct block b = { .rounds = rounds };

	for (int n = 0; n < rounds; n++) {
		struct round r;
		uint64_t begin, middle, end;

		next_round(w, &r);
		begin = tick();
		store(untracked, &r);
		middle = tick();
		copy(&r, apart ? copies : buffer, apart);
		end = tick();
		count(&b, n, begin, middle, end);
	}
	if (!apart)
		add_mean(&w->plain, &b, b.first);
	add_mean(floor, &b, b.second);
}

static void in_turn_block(struct series *series, char *buffers, uint32_t keep, int rounds)
{
	static uint32_t turn;
	struct block b = { .rounds = rounds };

	for (int n = 0; n < rounds; n++) {
		struct round r;
		uint64_t begin;

		hot_and_cold(&r, 0);
		store(untracked, &r);
		begin = tick();
		copy(&r, buffers + turn++ % keep * HOT * PAGE, false);
		count(&b, n, begin, begin, tick());
	}
	add_mean(series, &b, b.second);
}

static void checkpoint_block(struct row *w, cairn_t *session, int rounds)
{
	struct block b = { .rounds = rounds };
	uint64_t id;

	for (volatile int n = 0; n < rounds; n++) {
		struct round r;
		uint64_t begin, middle, end;

		next_round(w, &r);
		begin = tick();
		store(area, &r);
		middle = tick();
		check(cairn_checkpoint(session, &id), "cairn_checkpoint");
		end = tick();
		count(&b, n, begin, middle, end);
	}
	add_mean(&w->checkpoint, &b, b.second);
	add_mean(&w->interval, &b, b.first + b.second);
}

static cairn_t *open_session(const struct row *w, int *err)
{
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	cairn_t *session;

	options.tracker = w->kind->tracker;
	options.feed = w->kind->feed;
	options.strategy = w->strategy;
	options.surface = "none";
	options.keep = w->keep;
	*err = cairn_open(&session, &options);
	if (*err < 0)
		return NULL;
	check(cairn_area_add(session, area, area_pages * PAGE), "cairn_area_add");
	return session;
}

/* What a mixed interval takes without its stores' way to memory. */
static void leave_out(struct series *series, uint64_t stores)
{
	for (size_t i = 0; i < series->count; i++)
		series->values[i] -= series->values[i] < stores ? series->values[i] : stores;
}

static void report(struct row *w, const struct cairn_stats *s, struct series *series,
	const char *what)
{
	double n = s->checkpoints ? (double)s->checkpoints : 1;

	emit("hot", w->kind->name, series, 1,
		"\"what\":\"%s\",\"strategy\":\"%s\",\"keep\":%u,\"cold\":%d,\"floor\":%llu,"
		"\"buffer\":%llu,\"stores\":%llu,\"hot_pages\":%llu,\"overcopied\":%.2f,"
		"\"undercopied\":%.2f",
		what, w->strategy, w->keep, w->cold,
		(unsigned long long)series_quantile(&w->floor, 0.5),
		(unsigned long long)series_quantile(&w->in_buffer, 0.5),
		(unsigned long long)series_quantile(&w->plain, 0.5),
		(unsigned long long)s->hot_pages, (double)s->overcopied / n,
		(double)s->undercopied / n);
}

static void run(const struct kind *kind, const char *strategy, uint32_t keep, int cold)
{
	struct row w = { .kind = kind, .strategy = strategy, .keep = keep, .cold = cold };
	/* A mixed block is long enough for what a strategy does now and then. */
	int blocks = toy ? 2 : cold < 0 ? 15 : 60, block = cold < 0 ? 512 : 32, err;
	int warm = toy ? 8 : 2000;
	struct cairn_stats stats = { .size = sizeof(stats) };
	cairn_t *session = open_session(&w, &err);

	if (!session) {
		emit_missing("hot", kind->name, cairn_strerror(err));
		return;
	}
	checkpoint_block(&w, session, warm + (int)keep);
	series_free(&w.checkpoint);
	series_free(&w.interval);
	w.checkpoint = w.interval = (struct series){ NULL, 0, 0 };
	check(cairn_stats_reset(session), "cairn_stats_reset");
	for (int i = 0; i < blocks; i++) {
		if (cold < 0)
			floor_block(&w, &w.floor, true, block);
		floor_block(&w, cold < 0 ? &w.in_buffer : &w.floor, false, block);
		checkpoint_block(&w, session, block);
	}
	check(cairn_stats(session, &stats), "cairn_stats");
	if (cold < 0)
		leave_out(&w.interval, series_quantile(&w.plain, 0.5));
	report(&w, &stats, &w.checkpoint, "checkpoint");
	report(&w, &stats, &w.interval, "interval");
	check(cairn_close(session), "cairn_close");
	series_free(&w.floor);
	series_free(&w.in_buffer);
	series_free(&w.plain);
	series_free(&w.checkpoint);
	series_free(&w.interval);
}

static void run_in_turn(uint32_t keep)
{
	struct row w = { .cold = 0 };
	struct series in_turn = { NULL, 0, 0 };
	char *buffers = map_pages((size_t)keep * HOT * PAGE);

	for (int i = 0; i < (toy ? 2 : 60); i++) {
		floor_block(&w, &w.floor, false, 32);
		in_turn_block(&in_turn, buffers, keep, 32);
	}
	emit("hot_in_turn", "memcpy", &in_turn, 1, "\"keep\":%u,\"floor\":%llu", keep,
		(unsigned long long)series_quantile(&w.floor, 0.5));
	series_free(&w.floor);
	series_free(&w.plain);
	series_free(&in_turn);
	munmap(buffers, (size_t)keep * HOT * PAGE);
}

static void run_colds(const struct kind *kind)
{
	for (size_t i = 0; i < sizeof(colds) / sizeof(colds[0]); i++)
		run(kind, "decay", 1, colds[i]);
}

/* What a fault and a protection cost: the prices of the bounds. */
static void run_prices(const struct kind *kind)
{
	run(kind, "none", 1, 0);
	run(kind, "none", 1, COLD_MAX);
}

static void run_kind(const struct kind *kind)
{
	run_colds(kind);
	run(kind, "decay", 10, 0);
	run(kind, "decay", KEEP_MAX, 0);
	run_prices(kind);
	for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++)
		run(kind, strategies[i], 1, -1);
}

int main(int argc, char **argv)
{
	measure_begin(argc, argv);
	area_pages = (toy ? 32 : 64) * MIB / PAGE;
	area = map_pages(area_pages * PAGE);
	untracked = map_pages(area_pages * PAGE);
	copies = map_pages(area_pages * PAGE);
	buffer = map_pages(PAGES_MAX * PAGE);
	pick_pages(scattered, TAIL + MIXED_HOT, area_pages, 1);
	zipf_begin();
	run_in_turn(10);
	run_in_turn(KEEP_MAX);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		run_kind(&kinds[i]);
	for (size_t i = 0; i < sizeof(feeds) / sizeof(feeds[0]); i++) {
		run_colds(&feeds[i]);
		run_prices(&feeds[i]);
		run(&feeds[i], "decay", 1, -1);
		run(&feeds[i], "none", 1, -1);
	}
	return 0;
}
