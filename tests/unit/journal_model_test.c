/* SPDX-License-Identifier: MIT */
/*
 * The journal against a naive model: a full copy of every page at every checkpoint. A small mirror
 * tracker of our own feeds it. Random pages, K, restores, evictions, failed checkpoints, memory
 * limits; the seed reruns exactly:
 *
 *	journal_model_test [SEED [ROUNDS]]
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/check.h"
#include "base/status.h"
#include "fake_arena.h"
#include "guarded_rig.h"
#include "journal/delta.h"
#include "journal/journal.h"

#define PAGES     300u
#define IDS_MAX   4000u
#define UNLIMITED (SIZE_MAX / 2)

#define EXPECT(cond)                                                                               \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: seed %llu: expected %s\n", __FILE__, __LINE__,     \
				(unsigned long long)seed, #cond);                                  \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

static unsigned long long seed;
static uint64_t rng_state;

static uint64_t rng(void)
{
	rng_state ^= rng_state << 13;
	rng_state ^= rng_state >> 7;
	rng_state ^= rng_state << 17;
	return rng_state * 0x2545f4914f6cdd1d;
}

static uint64_t below(uint64_t n)
{
	return (rng() >> 11) % n;
}

struct world {
	struct crn_arena arena;
	struct crn_journal *journal;
	uint32_t keep;
	bool undo_pages;
	uint8_t *live;
	void *mirror[PAGES];     /* content at the newest checkpoint; NULL: zeros */
	bool dirty[PAGES];       /* written since (or said to be) */
	uint8_t *model[IDS_MAX]; /* NULL: failed, or dropped by a restore */
	uint64_t oldest, newest, next_id;
};

static uint8_t *page_of(struct world *w, unsigned i)
{
	return w->live + i * CRN_PAGE_SIZE;
}

static const void *or_zeros(const void *page)
{
	static const uint8_t zeros[CRN_PAGE_SIZE];

	return page ? page : zeros;
}

static bool same(const void *a, const void *b)
{
	return !memcmp(or_zeros(a), or_zeros(b), CRN_PAGE_SIZE);
}

/* ---- The program and its tracker ---------------------------------------------------------- */

static void scribble(struct world *w)
{
	unsigned i = (unsigned)(below(4) ? below(20) : below(PAGES));
	uint64_t *page = (uint64_t *)page_of(w, i);

	w->dirty[i] = true;
	switch (below(8)) {
	case 0: /* written with what it held */
		break;
	case 1:
		memset(page, 0, CRN_PAGE_SIZE);
		break;
	case 2: /* too much for a delta */
		for (unsigned k = 0; k < 512; k++)
			page[k] = rng();
		break;
	case 3: /* about as much as a delta may hold */
		for (unsigned k = 0, n = 230 + (unsigned)below(40); k < n; k++)
			page[k] = rng();
		break;
	case 4: /* one word in every line */
		for (unsigned k = 0; k < 512; k += 8)
			page[k + below(8)] = rng();
		break;
	case 5: /* the ends */
		page[0] ^= rng();
		page[511] ^= rng();
		break;
	default:
		for (unsigned n = 1 + (unsigned)below(20); n; n--)
			page[below(512)] = rng();
	}
}

/* Records of more entries than a frame holds, and some that fill one exactly. */
static void burst(struct world *w)
{
	unsigned n = below(3) ? (unsigned)below(PAGES) : 255;

	for (unsigned i = 0; i < n; i++) {
		page_of(w, i)[below(CRN_PAGE_SIZE)]++;
		w->dirty[i] = true;
	}
}

/*
 * As a tracker of undo pages does: the frame was taken at the first write and needs no successor.
 */
static void hand_copy(struct world *w, struct crn_sink *sink, unsigned i)
{
	size_t limit = w->arena.frames_max;
	void *copy;

	w->arena.frames_max = UNLIMITED;
	copy = crn_frame_alloc(&w->arena);
	w->arena.frames_max = limit == UNLIMITED ? limit : limit + 1;
	memcpy(copy, w->mirror[i], CRN_PAGE_SIZE);
	memcpy(w->mirror[i], page_of(w, i), CRN_PAGE_SIZE);
	EXPECT(sink->take(sink, (uintptr_t)page_of(w, i), CRN_PAGE_SIZE, copy, true) == 0);
}

static void exchange(struct world *w, struct crn_sink *sink, struct crn_page_copy *pages,
	size_t count)
{
	struct crn_page_copy were[PAGES];

	memcpy(were, pages, count * sizeof(*pages));
	EXPECT(sink->exchange(sink, pages, count) == count);
	for (size_t n = 0; n < count; n++) {
		size_t i = (size_t)((char *)pages[n].from - (char *)page_of(w, 0)) / CRN_PAGE_SIZE;

		EXPECT(pages[n].to && (pages[n].to == were[n].to) == (w->keep == 1));
		EXPECT(pages[n].from == were[n].from);
		w->mirror[i] = pages[n].to;
		w->dirty[i] = false;
		memcpy(w->mirror[i], pages[n].from, CRN_PAGE_SIZE);
	}
}

static struct crn_page_copy frame_of(struct world *w, unsigned i)
{
	return (struct crn_page_copy){ .to = w->mirror[i], .from = page_of(w, i) };
}

/* Those that have a frame. */
static size_t with_frame(struct world *w, struct crn_page_copy *pages)
{
	size_t count = 0;

	for (unsigned i = 0; i < PAGES; i++)
		if (w->dirty[i] && w->mirror[i])
			pages[count++] = frame_of(w, i);
	return count;
}

/* All at once. */
static void exchange_all(struct world *w, struct crn_sink *sink)
{
	struct crn_page_copy pages[PAGES];

	exchange(w, sink, pages, with_frame(w, pages));
}

/* Does the page differ from its frame in more than a delta may hold? */
static bool differs_too_much(const struct crn_page_copy *page)
{
	const uint64_t *old = page->to, *now = page->from;
	size_t lines = 0, words = 0;

	for (unsigned line = 0; line < 512; line += 8) {
		size_t before = words;

		for (unsigned k = line; k < line + 8; k++)
			words += old[k] != now[k];
		lines += words > before;
	}
	return 8 + ((lines + 7) & ~(size_t)7) + 8 * words > CRN_DELTA_MAX;
}

/* How many were absorbed, taken over, and could not be read. */
static unsigned absorbed[3];

/* The same; one of them may not be readable. */
static void absorb_all(struct world *w, struct crn_sink *sink)
{
	struct crn_page_copy pages[PAGES], were[PAGES];
	size_t count = with_frame(w, pages), done, hidden = below(2 * count + 1), noted = 0;
	bool whole[PAGES];

	for (size_t n = 0; n < count; n++)
		whole[n] = w->keep > 1 && differs_too_much(&pages[n]);
	memcpy(were, pages, sizeof(pages));
	if (hidden < count)
		mprotect((void *)pages[hidden].from, CRN_PAGE_SIZE, PROT_NONE);
	done = sink->absorb_pages(sink, pages, count, below(2));
	if (hidden < count)
		mprotect((void *)were[hidden].from, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE);
	for (size_t n = 0; n < count; n++) {
		size_t i = (size_t)((char *)were[n].from - (char *)page_of(w, 0)) / CRN_PAGE_SIZE;

		EXPECT(!pages[n].from == (n == hidden));
		absorbed[!pages[n].from ? 2 : !pages[n].to]++;
		if (!pages[n].from)
			continue; /* it comes again */
		EXPECT(!pages[n].to == whole[n]);
		w->dirty[i] = false;
		noted += pages[n].to != NULL;
		if (!pages[n].to) {
			w->mirror[i] = crn_frame_alloc(&w->arena);
			EXPECT(w->mirror[i]);
			memcpy(w->mirror[i], page_of(w, (unsigned)i), CRN_PAGE_SIZE);
		}
		EXPECT(same(w->mirror[i], page_of(w, (unsigned)i)));
	}
	EXPECT(noted == done);
}

static void hand_over(struct world *w, struct crn_sink *sink, unsigned i)
{
	void *frame = w->mirror[i];

	if (frame && w->undo_pages && below(4)) {
		hand_copy(w, sink, i);
		return;
	}
	if (frame && sink->exchange) {
		struct crn_page_copy page = frame_of(w, i);

		exchange(w, sink, &page, 1);
		return;
	}
	if (frame && sink->absorb && below(8)) {
		int ret = sink->absorb(sink, (uintptr_t)page_of(w, i), frame, page_of(w, i));

		EXPECT(ret >= 0);
		if (ret)
			return;
	} else {
		EXPECT(sink->take(sink, (uintptr_t)page_of(w, i), CRN_PAGE_SIZE, frame, true) == 0);
	}
	w->mirror[i] = crn_frame_alloc(&w->arena);
	EXPECT(w->mirror[i]);
	memcpy(w->mirror[i], page_of(w, i), CRN_PAGE_SIZE);
}

/* Intervals of a small K that wanted differences, and whole pages: one journal has both. */
static unsigned forms[2];

static int interval_end(struct world *w, struct crn_sink *sink)
{
	size_t count = 0, bare = 0;
	unsigned start = (unsigned)below(PAGES); /* not in address order */

	for (unsigned i = 0; i < PAGES; i++) {
		count += w->dirty[i];
		bare += w->dirty[i] && !w->mirror[i];
	}
	/*
	 * At K = 1 only bare pages are promised a frame, but hand_over also takes: one more is
	 * enough.
	 */
	CRN_TRY(sink->prepare(sink, count, w->keep == 1 ? bare + 1 : bare));
	if (w->keep > 1 && w->keep <= CRN_JOURNAL_WHOLE_MAX && count)
		forms[sink->exchange != NULL]++;
	if (sink->exchange && below(2))
		exchange_all(w, sink);
	if (sink->absorb && below(2))
		absorb_all(w, sink);
	for (unsigned n = 0; n < PAGES; n++) {
		unsigned i = (start + n) % PAGES;

		if (w->dirty[i])
			hand_over(w, sink, i);
		w->dirty[i] = false;
	}
	return 0;
}

/* ---- Operations ------------------------------------------------------------------------------ */

static void checkpoint(struct world *w)
{
	uint64_t id = w->next_id++;

	if (interval_end(w, crn_journal_begin(w->journal, w->newest, false)) < 0) {
		EXPECT(w->arena.frames_max != UNLIMITED);
		crn_journal_abort(w->journal);
		return; /* the interval goes on; the id is used up */
	}
	EXPECT(crn_journal_commit(w->journal) == 0);
	w->newest = id;
	w->model[id] = malloc(PAGES * CRN_PAGE_SIZE);
	memcpy(w->model[id], w->live, PAGES * CRN_PAGE_SIZE);
}

/* Can `id` be named? Asks the journal; what it says is checked against K. */
static bool kept(struct world *w, uint64_t id)
{
	uint64_t oldest;
	bool is = id == w->newest || crn_journal_has(w->journal, id);

	EXPECT(!is || w->model[id]);
	if (is && id != w->newest)
		EXPECT(crn_journal_oldest(w->journal, &oldest) && id >= oldest);
	return is;
}

static uint64_t any_kept(struct world *w)
{
	uint64_t oldest = w->newest, id;

	(void)crn_journal_oldest(w->journal, &oldest);
	do
		id = oldest + below(w->newest - oldest + 1);
	while (!kept(w, id));
	return id;
}

static void stage(struct world *w)
{
	struct crn_sink *sink = crn_journal_stage(w->journal, w->newest);

	for (unsigned i = PAGES; i-- > 0;)
		if (w->dirty[i])
			EXPECT(sink->take(sink, (uintptr_t)page_of(w, i), CRN_PAGE_SIZE,
				       w->mirror[i], false) == 0);
}

struct restore_walk {
	struct crn_walk walk;
	struct world *w;
	uint64_t id;
	uintptr_t last;
};

static int put_back(struct crn_walk *self, uintptr_t page, const void *at_from, const void *at_to)
{
	struct restore_walk *r = (struct restore_walk *)self;
	struct world *w = r->w;
	size_t i = (page - (uintptr_t)w->live) / CRN_PAGE_SIZE;

	EXPECT(i < PAGES && page > r->last && !at_to);
	r->last = page;
	EXPECT(same(at_from, w->model[r->id] + i * CRN_PAGE_SIZE));
	memcpy((void *)page, or_zeros(at_from), CRN_PAGE_SIZE);
	return 0;
}

static void drop_model(struct world *w, uint64_t from)
{
	for (uint64_t id = from; id < w->next_id; id++) {
		free(w->model[id]);
		w->model[id] = NULL;
	}
}

static void restore(struct world *w)
{
	uint64_t id = any_kept(w);
	struct restore_walk r = { .walk = { .page = put_back }, .w = w, .id = id };

	stage(w);
	EXPECT(crn_journal_walk(w->journal, id, CRN_JOURNAL_NOW, &r.walk) == 0);
	crn_journal_abort(w->journal);
	crn_journal_truncate(w->journal, id);
	EXPECT(!memcmp(w->live, w->model[id], PAGES * CRN_PAGE_SIZE));
	drop_model(w, id + 1);
	w->newest = id;
	for (unsigned i = 0; i < PAGES; i++) { /* rebase */
		w->dirty[i] = false;
		if (!w->mirror[i] && !same(page_of(w, i), NULL)) {
			size_t limit = w->arena.frames_max;

			w->arena.frames_max = UNLIMITED;
			w->mirror[i] = crn_frame_alloc(&w->arena);
			w->arena.frames_max = limit;
		}
		if (w->mirror[i])
			memcpy(w->mirror[i], page_of(w, i), CRN_PAGE_SIZE);
	}
}

static void look(struct world *w)
{
	uint64_t id = any_kept(w);

	for (unsigned n = 0; n < 8; n++) {
		unsigned i = (unsigned)below(PAGES);
		const void *content = &content;

		(void)crn_journal_look(
			w->journal, id, (uintptr_t)page_of(w, i), w->mirror[i], &content);
		EXPECT(same(content, w->model[id] + i * CRN_PAGE_SIZE));
	}
}

struct change_walk {
	struct crn_walk walk;
	struct world *w;
	const uint8_t *from, *to;
	bool seen[PAGES];
	bool now;
};

static const void *present(struct crn_walk *self, uintptr_t page)
{
	struct change_walk *c = (struct change_walk *)self;
	size_t i = (page - (uintptr_t)c->w->live) / CRN_PAGE_SIZE;

	return c->now ? (void *)page : c->w->mirror[i];
}

static int compare(struct crn_walk *self, uintptr_t page, const void *at_from, const void *at_to)
{
	struct change_walk *c = (struct change_walk *)self;
	size_t i = (page - (uintptr_t)c->w->live) / CRN_PAGE_SIZE;

	EXPECT(i < PAGES && !c->seen[i]);
	c->seen[i] = true;
	EXPECT(same(at_from, c->from + i * CRN_PAGE_SIZE));
	EXPECT(same(at_to, c->to + i * CRN_PAGE_SIZE));
	return 0;
}

static void changes(struct world *w)
{
	uint64_t a = any_kept(w), b = any_kept(w), t;
	struct change_walk c = { .walk = { compare, present, true }, .w = w };

	if (a > b)
		t = a, a = b, b = t;
	c.now = below(3) == 0;
	c.from = w->model[a];
	c.to = c.now ? w->live : w->model[b];
	if (c.now)
		stage(w);
	EXPECT(crn_journal_walk(w->journal, a, c.now ? CRN_JOURNAL_NOW : b, &c.walk) == 0);
	if (c.now)
		crn_journal_abort(w->journal);
	for (unsigned i = 0; i < PAGES; i++) /* nothing that changed may be missing */
		EXPECT(c.seen[i] || same(c.from + i * CRN_PAGE_SIZE, c.to + i * CRN_PAGE_SIZE));
}

/* Tighten or lift the arena's limit. */
static void squeeze(struct world *w)
{
	w->arena.frames_max = below(2) ? UNLIMITED : w->arena.frames + below(60);
}

static uint64_t next_good(struct world *w, uint64_t id)
{
	do
		id++;
	while (!w->model[id]);
	return id;
}

static void evict(struct world *w)
{
	if (crn_journal_evict(w->journal))
		w->oldest = next_good(w, w->oldest);
	else
		EXPECT(w->oldest == w->newest);
}

static void step(struct world *w)
{
	unsigned dice = (unsigned)below(100);

	if (dice < 55)
		scribble(w);
	else if (dice < 80)
		checkpoint(w);
	else if (dice < 86)
		restore(w);
	else if (dice < 92)
		look(w);
	else if (dice < 96)
		changes(w);
	else if (dice < 97)
		evict(w);
	else if (dice < 98)
		squeeze(w);
	else
		burst(w);
}

/* Exactly the newest K good checkpoints are kept; fewer only after memory was short. */
static void expect_kept(struct world *w)
{
	uint64_t oldest = w->newest;
	size_t good = 0;

	EXPECT(crn_journal_oldest(w->journal, &oldest) == (crn_journal_count(w->journal) > 0));
	for (uint64_t id = w->oldest; id <= w->newest; id++)
		good += w->model[id] != NULL;
	for (; good > w->keep; good--)
		w->oldest = next_good(w, w->oldest);
	if (w->arena.frames_max != UNLIMITED && oldest > w->oldest)
		w->oldest = oldest;
	EXPECT(w->oldest == oldest);
	for (uint64_t id = w->oldest; id < w->newest; id++)
		EXPECT(crn_journal_has(w->journal, id) == (w->model[id] != NULL));
}

static void choose_registers(void)
{
	do
		crn_guarded_registers = (uint8_t)below(CRN_LINES_HASHED);
	while (!has((enum crn_registers)crn_guarded_registers));
}

static void play(uint32_t keep, unsigned steps)
{
	static struct world w;

	choose_registers();
	memset(&w, 0, sizeof(w));
	w.arena.frames_max = w.arena.blocks_max = UNLIMITED;
	w.keep = keep;
	w.undo_pages = below(2);
	w.live = mmap(NULL, PAGES * CRN_PAGE_SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT(w.live != MAP_FAILED);
	EXPECT(crn_journal_open(&w.journal, &w.arena, keep) == 0);
	w.model[0] = calloc(PAGES, CRN_PAGE_SIZE);
	w.next_id = 1;
	for (unsigned n = 0; n < steps && w.next_id < IDS_MAX; n++) {
		step(&w);
		crn_journal_check(w.journal);
		expect_kept(&w);
	}
	crn_journal_close(w.journal);
	for (unsigned i = 0; i < PAGES; i++)
		if (w.mirror[i])
			crn_frame_free(&w.arena, w.mirror[i]);
	EXPECT(w.arena.frames == 0 && w.arena.blocks == 0 && w.arena.block_bytes == 0);
	drop_model(&w, 0);
	munmap(w.live, PAGES * CRN_PAGE_SIZE);
}

int main(int argc, char **argv)
{
	static const uint32_t keeps[] = { 1, 2, 3, 8, 16, 17, 40, 1000 };
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 4;
	struct sigaction action = { .sa_sigaction = resume, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &action, NULL);
	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 20260;
	rng_state = seed * 0x9e3779b97f4a7c15 + 1;
	for (unsigned r = 0; r < rounds; r++)
		for (unsigned k = 0; k < CRN_ARRAY_SIZE(keeps); k++)
			play(keeps[k], 3000);
	EXPECT(!rounds || (forms[0] && forms[1]));
	EXPECT(!rounds || (absorbed[0] && absorbed[1] && absorbed[2]));
	printf("seed %llu, %u rounds: the journal agrees with the model\n", seed, rounds);
	return 0;
}
