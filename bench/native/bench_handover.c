/* SPDX-License-Identifier: MIT */
/*
 * What it costs to hand the pages of one interval to a journal of K, beside copying the same pages:
 * the floor of every checkpoint. A mirror of our own plays the tracker; each interval dirties one
 * line of every page, which is what a server's request does to most of its pages. bench_keep.c
 * measures the same from outside.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "base/arena.h"
#include "base/copy.h"
#include "journal/journal.h"
#include "os/host.h"
#include "measure.h"

#define ARENA_BYTES (1ul << 30)
#define PAGES_MAX   1000u

struct bench {
	struct crn_arena *arena;
	struct crn_journal *journal;
	uint8_t *live;
	void *mirror[PAGES_MAX];
	void *shadow[PAGES_MAX]; /* what the floor copies to */
	unsigned pages;
	uint64_t id;
	struct series floor, ours, restore;
};

static int commit_nothing(void *addr, size_t len)
{
	return 0;
}

static void *map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		fail("mmap", "out of memory");
	return p;
}

/* Scattered: every fourth page of the region. */
static uint8_t *page_of(struct bench *b, unsigned i)
{
	return b->live + (size_t)i * 4 * CRN_PAGE_SIZE;
}

static void open_bench(struct bench *b, unsigned pages, uint32_t keep)
{
	memset(b, 0, sizeof(*b));
	b->pages = pages;
	b->live = map((size_t)PAGES_MAX * 4 * CRN_PAGE_SIZE);
	if (crn_arena_init(&b->arena, map(ARENA_BYTES), ARENA_BYTES, ARENA_BYTES, true,
		    commit_nothing) < 0 ||
		crn_journal_open(&b->journal, b->arena, keep) < 0)
		fail("crn_journal_open", "refused");
	for (unsigned i = 0; i < pages; i++) {
		for (unsigned k = 0; k < CRN_PAGE_SIZE; k++)
			page_of(b, i)[k] = (uint8_t)(i * 31 + k * 7);
		b->mirror[i] = crn_frame_alloc(b->arena);
		b->shadow[i] = crn_frame_alloc(b->arena);
		crn_copy_page(b->mirror[i], page_of(b, i));
	}
}

static void close_bench(struct bench *b)
{
	uintptr_t begin, end;

	crn_journal_close(b->journal);
	crn_arena_range(b->arena, &begin, &end);
	munmap((void *)begin, ARENA_BYTES);
	series_free(&b->floor);
	series_free(&b->ours);
	series_free(&b->restore);
	munmap(b->live, (size_t)PAGES_MAX * 4 * CRN_PAGE_SIZE);
}

static void dirty(struct bench *b)
{
	for (unsigned i = 0; i < b->pages; i++) {
		uint64_t *line = (uint64_t *)(page_of(b, i) + (b->id * 7 + i) % 64 * 64);

		for (unsigned k = 0; k < 3; k++)
			line[k] += b->id + k;
	}
	b->id++;
}

static void floor_round(struct bench *b, bool count)
{
	uint64_t begin;

	dirty(b);
	begin = tick();
	for (unsigned i = 0; i < b->pages; i++)
		crn_copy_page(b->shadow[i], page_of(b, i));
	if (count)
		series_add(&b->floor, begin, tick());
}

/* All at once, as trackers do. */
static void hand_over(struct bench *b, struct crn_sink *sink)
{
	struct crn_page_copy pages[PAGES_MAX];

	for (unsigned i = 0; i < b->pages; i++)
		pages[i] = (struct crn_page_copy){ .to = b->mirror[i], .from = page_of(b, i) };
	if (!sink->exchange) {
		if (sink->absorb_pages(sink, pages, b->pages, b->id & 1) != b->pages)
			fail("absorb_pages", "not all");
		return;
	}
	if (sink->exchange(sink, pages, b->pages) != b->pages)
		fail("exchange", "no frame");
	for (unsigned i = 0; i < b->pages; i++) {
		b->mirror[i] = pages[i].to;
		crn_copy_page(pages[i].to, pages[i].from);
	}
}

static void journal_round(struct bench *b, bool count)
{
	struct crn_sink *sink;
	uint64_t begin;

	dirty(b);
	begin = tick();
	sink = crn_journal_begin(b->journal, b->id, false);
	if (sink->prepare(sink, b->pages, 0) < 0)
		fail("prepare", "refused");
	hand_over(b, sink);
	if (crn_journal_commit(b->journal) < 0)
		fail("crn_journal_commit", "refused");
	if (count)
		series_add(&b->ours, begin, tick());
}

/*
 * What a restore to the oldest kept checkpoint stores: every page once, copied to where the floor
 * copies to.
 */
static int store_page(struct crn_walk *self, uintptr_t page, const void *at_from, const void *at_to)
{
	struct bench *b = *(struct bench **)(self + 1);

	crn_copy_page(b->shadow[0], at_from ? at_from : (void *)page);
	return 0;
}

static void restore_round(struct bench *b)
{
	struct {
		struct crn_walk walk;
		struct bench *b;
	} w = { { .page = store_page }, b };
	uint64_t oldest, begin = tick();

	if (!crn_journal_oldest(b->journal, &oldest))
		return;
	if (crn_journal_walk(b->journal, oldest, CRN_JOURNAL_NOW, &w.walk) < 0)
		fail("crn_journal_walk", "refused");
	series_add(&b->restore, begin, tick());
}

static void run(unsigned pages, uint32_t keep)
{
	static struct bench b;
	unsigned rounds = toy ? 4 : pages > 100 ? 30 : 200;
	char row[32];

	open_bench(&b, pages, keep);
	for (unsigned i = 0; i < keep + 16; i++)
		journal_round(&b, false);
	/*
	 * In blocks: each side with the cache that it makes for itself, both under the same noise.
	 */
	for (unsigned i = 0; i < rounds; i++) {
		for (int n = 0; n < 32; n++)
			floor_round(&b, n >= 8);
		for (int n = 0; n < 32; n++)
			journal_round(&b, n >= 8);
	}
	for (unsigned i = 0; i < (toy ? 2 : 20); i++)
		restore_round(&b);
	snprintf(row, sizeof(row), "K = %u", keep);
	emit("hand_over", "copy (floor)", &b.floor, 1, "\"keep\":%u,\"pages\":%u", keep, pages);
	emit("hand_over", row, &b.ours, 1, "\"keep\":%u,\"pages\":%u,\"journal_bytes\":%llu", keep,
		pages, (unsigned long long)crn_journal_bytes(b.journal));
	if (b.restore.count)
		emit("walk_to_oldest", row, &b.restore, 1, "\"keep\":%u,\"pages\":%u", keep, pages);
	close_bench(&b);
}

int main(int argc, char **argv)
{
	static const uint32_t keeps[] = { 1, 2, 10, 16, 17, 100, 1000 };
	struct crn_host host;

	measure_begin(argc, argv);
	crn_host_probe(&host); /* as every session does: pages are compared as this processor can */
	for (unsigned k = 0; k < CRN_ARRAY_SIZE(keeps); k++) {
		run(15, keeps[k]);
		run(200, keeps[k]);
	}
	return 0;
}
