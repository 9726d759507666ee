/* SPDX-License-Identifier: MIT */
/* Filling and dropping records; journal_walk.c reads them. */
#include "journal/journal.h"

#include "base/arena.h"
#include "base/copy.h"
#include "base/status.h"
#include "journal/record.h"

#define SPARES_KEPT 64u /* frames that may lie idle between checkpoints; 256 KiB */

/* ---- Memory ------------------------------------------------------------------------ */

/* As crn_table_grow, at the price of old records if need be. */
static int table_reserve(struct crn_journal *j, void **table, size_t *capacity, size_t count,
	size_t need, size_t item_size)
{
	while (crn_table_grow(j->arena, table, capacity, count, need, item_size) < 0) {
		if (!crn_journal_make_room(j))
			return CAIRN_EMEMORY;
	}
	return 0;
}

int crn_staging_grow(struct crn_journal *j, size_t more)
{
	return table_reserve(j, (void **)&j->staging, &j->staging_capacity, j->staging_count,
		j->staging_count + more, sizeof(*j->staging));
}

static int frames_reserve(struct crn_journal *j, size_t count)
{
	while (crn_frame_reserve(j->arena, count) < 0) {
		if (!crn_journal_make_room(j))
			return CAIRN_EMEMORY;
	}
	return 0;
}

/* Let go of what an entry owns; `spare`: kept for exchange while there is room. */
static void entry_drop(struct crn_journal *j, const struct crn_entry *e, bool spare)
{
	void *frame = (void *)(uintptr_t)e->ref;

	if (crn_entry_form(e) != CRN_FORM_WHOLE)
		return;
	j->whole_count--;
	if (crn_likely(spare && j->spare_count < j->spare_capacity))
		j->spares[j->spare_count++] = frame;
	else
		crn_frame_free(j->arena, frame);
}

static void drop_entries(struct crn_journal *j, const struct crn_record *r, bool spare)
{
	struct crn_cursor c;

	if (!j->whole_count)
		return;
	for (c = crn_cursor_open(j, r); c.left; crn_cursor_step(&c))
		entry_drop(j, c.at, spare);
}

static void clear_fifos(struct crn_journal *j)
{
	crn_fifo_clear(&j->entries);
	crn_fifo_clear(&j->deltas);
}

/* Free what the FIFOs hold from before the oldest record. */
static void fifos_follow(struct crn_journal *j)
{
	const struct crn_record *next = &j->open;

	if (j->count)
		next = crn_record_at(j, 0);
	else if (j->open_kind == CRN_RECORD_NONE)
		next = NULL;
	if (next) {
		crn_fifo_evict(&j->entries, next->entries);
		crn_fifo_evict(&j->deltas, next->deltas);
	} else {
		clear_fifos(j);
	}
}

static void forget_oldest(struct crn_journal *j)
{
	j->first = j->first + 1 < j->keep ? j->first + 1 : 0;
	j->count--;
}

/*
 * Evict the record that the open one will push out, but let it have its frames until exchange asks
 * for them, one by one between copies, which hides the time that it takes.
 */
static void evict_yielding(struct crn_journal *j)
{
	const struct crn_record *r = crn_record_at(j, 0);

	CRN_ASSERT(!j->yields);
	j->yields = true;
	j->yield = crn_cursor_open(j, r);
	j->yielding = r->whole;
	forget_oldest(j);
}

/* What nobody has asked for, and the entries. */
static void yield_rest(struct crn_journal *j)
{
	if (!j->yields)
		return;
	for (; crn_unlikely(j->yielding) && j->yield.left; crn_cursor_step(&j->yield))
		entry_drop(j, j->yield.at, true);
	j->yielding = 0;
	j->yields = false;
	fifos_follow(j);
}

static bool evict(struct crn_journal *j, bool spare)
{
	yield_rest(j);
	if (!j->count)
		return false;
	drop_entries(j, crn_record_at(j, 0), spare);
	forget_oldest(j);
	fifos_follow(j);
	return true;
}

/* The next one; there is one. */
static inline void *yield_frame(struct crn_cursor *yield)
{
	const struct crn_entry *e;

	do {
		e = yield->at;
		crn_cursor_step(yield);
	} while (crn_entry_form(e) != CRN_FORM_WHOLE);
	return (void *)(uintptr_t)e->ref;
}

/* ---- The sink ------------------------------------------------------------------------ */

static int spares_grow(struct crn_journal *j, size_t need)
{
	if (crn_likely(need <= j->spare_capacity))
		return 0;
	return table_reserve(j, (void **)&j->spares, &j->spare_capacity, j->spare_count, need,
		sizeof(*j->spares));
}

static void spares_trim(struct crn_journal *j, size_t keep)
{
	while (j->spare_count > keep)
		crn_frame_free(j->arena, j->spares[--j->spare_count]);
}

/*
 * `count` frames for exchange: those of the record that this interval will push out of the journal,
 * and what is missing from the arena. All of these before the first page is copied, because the
 * arena's atomic operations would wait for the stores of the copy before.
 */
static int spares_prepare(struct crn_journal *j, size_t count)
{
	CRN_TRY(spares_grow(j, count));
	if (j->count == j->keep - 1)
		evict_yielding(j);
	while (j->spare_count + j->yielding < count) {
		void *frame = crn_frame_alloc(j->arena);

		if (frame)
			j->spares[j->spare_count++] = frame;
		else if (!evict(j, true))
			return CAIRN_EMEMORY;
	}
	return 0;
}

static size_t sink_exchange(
	struct crn_sink *sink, struct crn_page_copy *pages, size_t count);
static size_t sink_exchange_last(
	struct crn_sink *sink, struct crn_page_copy *pages, size_t count);

/*
 * What whole pages cost is cache: a frame that was last touched K checkpoints ago, for every page.
 * Beyond the cache differences are always cheaper.
 */
static bool fits_whole(const struct crn_journal *j, size_t count)
{
	return j->keep <= CRN_JOURNAL_WHOLE_MAX && count <= CRN_JOURNAL_WHOLE_FRAMES / j->keep;
}

static void choose_form(struct crn_journal *j, size_t count)
{
	bool whole = !j->sink.differences && (j->discards || fits_whole(j, count));

	j->sink.exchange = NULL;
	j->sink.absorb = NULL;
	j->sink.absorb_pages = NULL;
	if (whole) {
		j->sink.exchange = j->discards ? sink_exchange_last : sink_exchange;
		return;
	}
	j->sink.absorb = j->discards ? crn_sink_absorb_last : crn_sink_absorb;
	j->sink.absorb_pages = j->discards ? crn_sink_absorb_pages_last : crn_sink_absorb_pages;
}

/*
 * A page needs one frame at most: the one that replaces what was taken over, or (absorbed) a part
 * of a frame of the delta FIFO, whose frames each hold at least one delta. The rest are the entries
 * themselves.
 */
static int sink_prepare(struct crn_sink *sink, size_t count, size_t bare)
{
	struct crn_journal *j = crn_journal_of(sink);
	size_t entry_frames = count / CRN_ENTRIES_PER_FRAME + 2;

	choose_form(j, count);
	if (j->discards)
		return frames_reserve(j, bare);
	CRN_TRY(crn_staging_reserve(j, count));
	if (!sink->exchange)
		return frames_reserve(j, count + entry_frames);
	CRN_TRY(spares_prepare(j, count - bare));
	return frames_reserve(j, bare + entry_frames);
}

/*
 * All that the loop looks at is in variables of its own: to the compiler each store to an entry
 * might be one to the journal, which it would read anew.
 */
static void exchange_frames(struct crn_journal *j, struct crn_page_copy *pages, size_t count)
{
	struct crn_entry *e = j->staging + j->staging_count;
	struct crn_cursor yield = j->yield;
	size_t yielded = CRN_MIN(count, j->yielding);
	void **spare = j->spares + j->spare_count;
	uintptr_t page, last = j->staging_count ? crn_entry_page(e - 1) : 0;
	bool sorted = true;

	for (size_t i = 0; i < count; i++) {
		page = (uintptr_t)pages[i].from;
		sorted &= page > last;
		last = page;
		e[i].key = page | CRN_FORM_WHOLE;
		e[i].ref = (uint64_t)(uintptr_t)pages[i].to;
		pages[i].to = i < yielded ? yield_frame(&yield) : *--spare;
	}
	j->yield = yield;
	j->yielding -= yielded;
	j->spare_count -= count - yielded;
	j->whole_count += count - yielded;
	j->open.whole += count;
	j->staging_count += count;
	j->staging_sorted &= sorted;
}

static size_t sink_exchange(
	struct crn_sink *sink, struct crn_page_copy *pages, size_t count)
{
	struct crn_journal *j = crn_journal_of(sink);

	if (crn_staging_reserve(j, count) < 0)
		return 0;
	/* More may come than was prepared for, when handlers save pages meanwhile. */
	count = CRN_MIN(count, j->spare_count + j->yielding);
	exchange_frames(j, pages, count);
	crn_frames_open(j, pages, count);
	j->pages += count;
	return count;
}

static int take_copy(struct crn_journal *j, uintptr_t page, const void *old)
{
	void *frame;

	while (!(frame = crn_frame_alloc(j->arena))) {
		if (!crn_journal_make_room(j))
			return CAIRN_EMEMORY;
	}
	crn_copy_page(frame, old);
	crn_stage(j, page, CRN_FORM_WHOLE, frame);
	return 0;
}

static int take_page(struct crn_journal *j, uintptr_t page, void *old, bool owned)
{
	CRN_TRY(crn_staging_reserve(j, 1));
	if (!old) {
		crn_stage(j, page, CRN_FORM_ZERO, NULL);
	} else if (j->open_kind == CRN_RECORD_STAGED) {
		CRN_ASSERT(!owned);
		crn_stage(j, page, CRN_FORM_BORROWED, old);
	} else if (owned) {
		crn_stage(j, page, CRN_FORM_WHOLE, old);
	} else {
		return take_copy(j, page, old);
	}
	return 0;
}

static int sink_take(struct crn_sink *sink, uintptr_t addr, size_t len, void *old, bool owned)
{
	struct crn_journal *j = crn_journal_of(sink);

	CRN_ASSERT(j->open_kind != CRN_RECORD_NONE);
	CRN_ASSERT(!(addr & (CRN_PAGE_SIZE - 1)) && !(len & (CRN_PAGE_SIZE - 1)));
	CRN_ASSERT(!owned || len == CRN_PAGE_SIZE);
	if (j->open_kind == CRN_RECORD_KEPT) {
		j->pages += crn_pages(len);
		if (j->discards) {
			if (owned && old)
				crn_frame_free(j->arena, old);
			return 0;
		}
	}
	for (size_t at = 0; at < len; at += CRN_PAGE_SIZE)
		CRN_TRY(take_page(j, addr + at, old ? (char *)old + at : NULL, owned));
	return 0;
}

/* Nothing is kept, the frame just gets the new content. */
static size_t sink_exchange_last(
	struct crn_sink *sink, struct crn_page_copy *pages, size_t count)
{
	struct crn_journal *j = crn_journal_of(sink);

	crn_frames_open(j, pages, count);
	j->pages += count;
	return count;
}

/* ---- Records ---------------------------------------------------------------------------- */

static void open_record(struct crn_journal *j, uint64_t id, enum crn_open_record kind)
{
	CRN_ASSERT(j->open_kind == CRN_RECORD_NONE);
	CRN_ASSERT(!j->count || crn_record_at(j, j->count - 1)->id < id);
	j->open_kind = kind;
	j->sink.take = sink_take;
	j->staging_count = 0;
	j->staging_sorted = true;
	j->open.id = id;
	j->open.count = j->open.whole = 0;
	j->open.entries = crn_fifo_tail(&j->entries);
	j->open.deltas = crn_fifo_tail(&j->deltas);
}

struct crn_sink *crn_journal_begin(struct crn_journal *j, uint64_t id, bool lost)
{
	while (lost && evict(j, false))
		;
	j->discards = lost || j->keep == 1;
	open_record(j, id, CRN_RECORD_KEPT);
	j->sink.prepare = sink_prepare;
	j->sink.keeps = !j->discards;
	j->sink.differences = false;
	choose_form(j, 0);
	return &j->sink;
}

struct crn_sink *crn_journal_stage(struct crn_journal *j, uint64_t id)
{
	open_record(j, id, CRN_RECORD_STAGED);
	j->sink.prepare = NULL;
	j->sink.absorb = NULL;
	j->sink.absorb_pages = NULL;
	j->sink.exchange = NULL;
	return &j->sink;
}

/* Move the sorted entries from the block to the FIFO. */
static int seal_entries(struct crn_journal *j)
{
	const struct crn_entry *e = j->staging;
	size_t left = j->staging_count;

	while (left) {
		struct crn_entry *to = crn_fifo_room(&j->entries, sizeof(*to));
		size_t n;

		if (!to) {
			if (crn_journal_make_room(j))
				continue;
			crn_fifo_truncate(&j->entries, j->open.entries);
			return CAIRN_EMEMORY;
		}
		n = (CRN_FIFO_CAPACITY - j->entries.used) / sizeof(*to);
		n = CRN_MIN(n, left);
		for (size_t i = 0; i < n; i++)
			to[i] = e[i];
		crn_fifo_push(&j->entries, n * sizeof(*to));
		e += n;
		left -= n;
	}
	return 0;
}

int crn_journal_commit(struct crn_journal *j)
{
	CRN_ASSERT(j->open_kind == CRN_RECORD_KEPT);
	if (!j->discards) {
		crn_staging_sort(j);
		CRN_TRY(seal_entries(j));
		j->open.count = j->staging_count;
		*crn_record_at(j, j->count) = j->open;
		j->count++;
		yield_rest(j);
		if (j->count > j->keep - 1)
			evict(j, false);
		spares_trim(j, SPARES_KEPT);
		/* Who asks for the oldest next time finds it in the cache. */
		__builtin_prefetch(crn_record_at(j, 1));
	}
	j->open_kind = CRN_RECORD_NONE;
	j->staging_count = 0;
	CRN_XASSERT((crn_journal_check(j), true));
	return 0;
}

void crn_journal_abort(struct crn_journal *j)
{
	CRN_ASSERT(j->open_kind != CRN_RECORD_NONE);
	yield_rest(j);
	for (size_t i = 0; i < j->staging_count; i++)
		entry_drop(j, &j->staging[i], false);
	crn_fifo_truncate(&j->deltas, j->open.deltas);
	j->staging_count = 0;
	j->open_kind = CRN_RECORD_NONE;
	if (!j->count) /* all were evicted meanwhile: only the mark held the last frames */
		clear_fifos(j);
}

bool crn_journal_evict(struct crn_journal *j)
{
	return evict(j, false);
}

void crn_journal_truncate(struct crn_journal *j, uint64_t id)
{
	uint32_t from = crn_record_lower(j, id);

	CRN_ASSERT(j->open_kind == CRN_RECORD_NONE);
	if (from == j->count)
		return;
	for (uint32_t i = from; i < j->count; i++)
		drop_entries(j, crn_record_at(j, i), false);
	if (from) {
		crn_fifo_truncate(&j->entries, crn_record_at(j, from)->entries);
		crn_fifo_truncate(&j->deltas, crn_record_at(j, from)->deltas);
	} else {
		clear_fifos(j);
	}
	j->count = from;
	CRN_XASSERT((crn_journal_check(j), true));
}
