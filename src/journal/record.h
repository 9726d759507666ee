/* SPDX-License-Identifier: MIT */
/* Inside journal/ only: how records and entries lie in memory. */
#ifndef CRN_RECORD_H
#define CRN_RECORD_H

#include "base/bits.h"
#include "base/check.h"
#include "journal/frame_fifo.h"
#include "journal/journal.h"

enum crn_form {
	CRN_FORM_ZERO,     /* ref unused */
	CRN_FORM_WHOLE,    /* ref: a frame that the journal owns */
	CRN_FORM_DELTA,    /* ref: a delta in the delta FIFO */
	CRN_FORM_BORROWED, /* ref: a page of the tracker; staged records only */
};

/* Page address with the form in its low bits, so that sorting by `key` is sorting by page. */
struct crn_entry {
	uint64_t key;
	uint64_t ref;
};

#define CRN_ENTRIES_PER_FRAME (CRN_FIFO_CAPACITY / sizeof(struct crn_entry))

static inline uintptr_t crn_entry_page(const struct crn_entry *e)
{
	return crn_page_down(e->key);
}

static inline enum crn_form crn_entry_form(const struct crn_entry *e)
{
	return (enum crn_form)(e->key & (CRN_PAGE_SIZE - 1));
}

struct crn_record {
	uint64_t id;
	uint64_t count;
	uint64_t whole; /* of its entries */
	struct crn_fifo_mark entries, deltas; /* the tails of the FIFOs when it began */
};

/* Walks the entries of one record in address order. */
struct crn_cursor {
	const struct crn_entry *at;
	uint64_t left;
	struct crn_fifo_frame *frame; /* NULL: entries are contiguous (the staged record) */
};

enum crn_open_record {
	CRN_RECORD_NONE,
	CRN_RECORD_KEPT,   /* begin: will be committed */
	CRN_RECORD_STAGED, /* stage: will only be looked at */
};

struct crn_journal {
	struct crn_sink sink; /* first: the sink's functions find the journal by it */
	struct crn_arena *arena;
	uint32_t keep;

	/* The ring of sealed records: slots of `keep` records, the oldest at `first`. */
	struct crn_record *ring;
	uint32_t first, count;
	struct crn_fifo entries, deltas;

	/*
	 * The open record: unsorted entries in one growing block, until it is committed or walked.
	 */
	enum crn_open_record open_kind;
	bool discards; /* KEPT, but K = 1, or its past is lost */
	struct crn_record open;
	struct crn_entry *staging;
	size_t staging_count, staging_capacity;
	bool staging_sorted;

	/* Frames of the record that was evicted last, for exchange: no detour through the arena. */
	void **spares;
	size_t spare_count, spare_capacity;
	/* That record's entries that still have theirs: `yielding` whole ones. */
	bool yields;
	struct crn_cursor yield;
	size_t yielding;

	/* One cursor and one heap slot for each record and the staged one. */
	struct crn_cursor *cursors;
	uint32_t *heap;
	void *scratch[2]; /* pages made by a walk: at_from, at_to; the second holds any delta */

	uint64_t whole_count; /* frames owned through entries, the open record's included */
	uint64_t pages;       /* handed over since open */
};

static inline struct crn_record *crn_record_at(const struct crn_journal *j, uint32_t i)
{
	uint32_t slot = j->first + i;

	return &j->ring[slot < j->keep ? slot : slot - j->keep];
}

/* The first record whose id is >= id; count if there is none. */
uint32_t crn_record_lower(const struct crn_journal *j, uint64_t id);

struct crn_cursor crn_cursor_open(const struct crn_journal *j, const struct crn_record *r);
static inline void crn_cursor_step(struct crn_cursor *c)
{
	c->at++;
	if (--c->left && c->frame &&
		(const uint8_t *)c->at == c->frame->bytes + CRN_FIFO_CAPACITY) {
		c->frame = c->frame->next;
		c->at = (const struct crn_entry *)c->frame->bytes;
	}
}

/* ---- The open record ---- */

static inline struct crn_journal *crn_journal_of(struct crn_sink *sink)
{
	return (struct crn_journal *)sink;
}

/* Under pressure the oldest record goes first; a record that is only looked at may not cost one. */
static inline bool crn_journal_make_room(struct crn_journal *j)
{
	return j->open_kind == CRN_RECORD_KEPT && crn_journal_evict(j);
}

int crn_staging_grow(struct crn_journal *j, size_t more);
static inline int crn_staging_reserve(struct crn_journal *j, size_t more)
{
	if (crn_likely(j->staging_count + more <= j->staging_capacity))
		return 0;
	return crn_staging_grow(j, more);
}

/* There is room. */
static inline void crn_stage(
	struct crn_journal *j, uintptr_t page, enum crn_form form, const void *ref)
{
	struct crn_entry *e = &j->staging[j->staging_count++];

	CRN_DASSERT(j->staging_count <= j->staging_capacity);
	e->key = page | form;
	e->ref = (uint64_t)(uintptr_t)ref;
	j->whole_count += form == CRN_FORM_WHOLE;
	j->open.whole += form == CRN_FORM_WHOLE;
	/* Trackers hand over by address, but for a few. (No `&=`: each would wait for the last.) */
	if (crn_unlikely(j->staging_count > 1 && crn_entry_page(e - 1) >= page))
		j->staging_sorted = false;
}

/* The pages' frames are to be written to. */
static inline void crn_frames_open(
	struct crn_journal *j, const struct crn_page_copy *pages, size_t count)
{
	if (crn_likely(!crn_frames_sealed(j->arena)))
		return;
	for (size_t i = 0; i < count; i++)
		crn_frame_open(j->arena, pages[i].to);
}

/* Sort the open record once. */
void crn_staging_sort(struct crn_journal *j);

/* ---- The sink where it wants differences (base/sink.h); _last: where nothing is kept ---- */

int crn_sink_absorb(struct crn_sink *sink, uintptr_t addr, void *frame, const void *live);
int crn_sink_absorb_last(
	struct crn_sink *sink, uintptr_t addr, void *frame, const void *live);
size_t crn_sink_absorb_pages(
	struct crn_sink *sink, struct crn_page_copy *pages, size_t count, bool down);
size_t crn_sink_absorb_pages_last(
	struct crn_sink *sink, struct crn_page_copy *pages, size_t count, bool down);

#endif
