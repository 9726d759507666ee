/* SPDX-License-Identifier: MIT */
/*
 * Reading the journal: one page (look), every changed page (walk), every invariant (check).
 *
 * The walk merges the records by address: a binary heap of cursors, keyed by (page, age), gives the
 * entries of one page after each other, oldest first, which is the order in which a chain is
 * folded.
 */
#include "base/copy.h"
#include "base/status.h"
#include "journal/delta.h"
#include "journal/record.h"

/* ---- Chains: the content of a page, folded from its entries, oldest first ------------------- */

struct chain {
	void *scratch;
	const void *end; /* the whole page that ended the chain, NULL: zeros */
	bool ended;
	bool mixed; /* scratch holds the XOR of the deltas so far */
};

static void chain_add(struct chain *c, const struct crn_entry *e)
{
	if (c->ended)
		return;
	switch (crn_entry_form(e)) {
	case CRN_FORM_DELTA:
		if (!c->mixed)
			crn_fill(c->scratch, 0, CRN_PAGE_SIZE);
		crn_delta_apply(c->scratch, (const void *)(uintptr_t)e->ref);
		c->mixed = true;
		break;
	case CRN_FORM_ZERO:
		c->ended = true;
		break;
	case CRN_FORM_WHOLE:
	case CRN_FORM_BORROWED:
		c->end = (const void *)(uintptr_t)e->ref;
		c->ended = true;
		break;
	}
}

static const void *chain_content(struct chain *c)
{
	uint64_t *to = c->scratch;
	const uint64_t *from = c->end;

	if (!c->mixed)
		return c->end;
	if (from) {
		for (size_t i = 0; i < CRN_PAGE_SIZE / 8; i++)
			to[i] ^= from[i];
	}
	return to;
}

static void chain_end(struct chain *c, const void *present)
{
	if (!c->ended) {
		c->end = present;
		c->ended = true;
	}
}

/* ---- One page -------------------------------------------------------------------------------- */

static const struct crn_entry *search_run(const struct crn_entry *e, size_t count, uintptr_t page)
{
	size_t lo = 0, hi = count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (crn_entry_page(&e[mid]) < page)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < count && crn_entry_page(&e[lo]) == page ? &e[lo] : NULL;
}

bool crn_journal_staged(const struct crn_journal *j, uintptr_t page)
{
	CRN_DASSERT(j->open_kind == CRN_RECORD_STAGED && j->staging_sorted);
	return search_run(j->staging, j->staging_count, page) != NULL;
}

/*
 * The entry of a page in a record, or NULL. Whole frames of smaller addresses are skipped by their
 * last entry.
 */
static const struct crn_entry *record_find(
	const struct crn_journal *j, const struct crn_record *r, uintptr_t page)
{
	struct crn_cursor c = crn_cursor_open(j, r);

	while (c.left) {
		size_t n = (size_t)((const struct crn_entry *)(c.frame->bytes + CRN_FIFO_CAPACITY) -
				    c.at);

		n = CRN_MIN(n, c.left);
		if (crn_entry_page(&c.at[n - 1]) >= page)
			return search_run(c.at, n, page);
		c.left -= n;
		if (c.left) {
			c.frame = c.frame->next;
			c.at = (const struct crn_entry *)c.frame->bytes;
		}
	}
	return NULL;
}

int crn_journal_look(struct crn_journal *j, uint64_t id, uintptr_t page, const void *newest,
	const void **content)
{
	struct chain chain = { .scratch = j->scratch[0] };
	int found = 0;

	for (uint32_t i = crn_record_lower(j, id); i < j->count && !chain.ended; i++) {
		const struct crn_entry *e = record_find(j, crn_record_at(j, i), page);

		if (e) {
			chain_add(&chain, e);
			found = 1;
		}
	}
	chain_end(&chain, newest);
	*content = chain_content(&chain);
	return found;
}

/* ---- Every page ------------------------------------------------------------------------------ */

struct merge {
	struct crn_journal *j;
	uint32_t count; /* cursors in the heap */
};

/* Cursor a comes before b: lower page, or the same page and the older record. */
static bool before(const struct crn_journal *j, uint32_t a, uint32_t b)
{
	uintptr_t x = crn_entry_page(j->cursors[a].at), y = crn_entry_page(j->cursors[b].at);

	return x < y || (x == y && a < b);
}

static void merge_down(struct merge *m, uint32_t root)
{
	uint32_t *h = m->j->heap;
	uint32_t moved = h[root];

	for (;;) {
		uint32_t child = 2 * root + 1;

		if (child >= m->count)
			break;
		if (child + 1 < m->count && before(m->j, h[child + 1], h[child]))
			child++;
		if (!before(m->j, h[child], moved))
			break;
		h[root] = h[child];
		root = child;
	}
	h[root] = moved;
}

static void merge_add(struct merge *m, uint32_t index, struct crn_cursor c)
{
	if (!c.left)
		return;
	m->j->cursors[index] = c;
	m->j->heap[m->count++] = index;
}

/* One cursor for each record from `from` on; index count stands for the staged record. */
static void merge_open(struct merge *m, struct crn_journal *j, uint32_t from)
{
	m->j = j;
	m->count = 0;
	for (uint32_t i = from; i < j->count; i++)
		merge_add(m, i, crn_cursor_open(j, crn_record_at(j, i)));
	if (j->open_kind == CRN_RECORD_STAGED) {
		crn_staging_sort(j);
		merge_add(m, j->count,
			(struct crn_cursor){ .at = j->staging, .left = j->staging_count });
	}
	for (uint32_t i = m->count / 2; i-- > 0;)
		merge_down(m, i);
}

/* Step the cursor on top. */
static void merge_step(struct merge *m)
{
	uint32_t *h = m->j->heap;
	struct crn_cursor *c = &m->j->cursors[h[0]];

	crn_cursor_step(c);
	if (!c->left)
		h[0] = h[--m->count];
	if (m->count)
		merge_down(m, 0);
}

static const void *present_of(struct crn_walk *walk, uintptr_t page)
{
	return walk->present ? walk->present(walk, page) : (const void *)page;
}

/*
 * All entries of the page on top: fold them and show the page if [from, to) wrote it. `to` is an
 * index.
 */
static int walk_page(struct merge *m, uint32_t to, struct crn_walk *walk)
{
	struct crn_journal *j = m->j;
	struct chain at_from = { .scratch = j->scratch[0] }, at_to = { .scratch = j->scratch[1] };
	uintptr_t page = crn_entry_page(j->cursors[j->heap[0]].at);
	bool wanted = j->heap[0] < to; /* the oldest entry comes first */

	do {
		uint32_t index = j->heap[0];
		const struct crn_entry *e = j->cursors[index].at;

		if (wanted) {
			chain_add(&at_from, e);
			if (walk->want_to && index >= to)
				chain_add(&at_to, e);
		}
		merge_step(m);
	} while (m->count && crn_entry_page(j->cursors[j->heap[0]].at) == page);
	if (!wanted)
		return 0;
	if (!at_from.ended || (walk->want_to && !at_to.ended)) {
		const void *present = present_of(walk, page);

		chain_end(&at_from, present);
		chain_end(&at_to, present);
	}
	return walk->page(
		walk, page, chain_content(&at_from), walk->want_to ? chain_content(&at_to) : NULL);
}

int crn_journal_walk(struct crn_journal *j, uint64_t from, uint64_t to, struct crn_walk *walk)
{
	struct merge m;
	uint32_t to_index;

	CRN_ASSERT(j->open_kind != CRN_RECORD_KEPT);
	if (from >= to)
		return 0;
	to_index = crn_record_lower(j, to);
	if (j->open_kind == CRN_RECORD_STAGED && to > j->open.id)
		to_index = j->count + 1;
	merge_open(&m, j, crn_record_lower(j, from));
	while (m.count) {
		int ret = walk_page(&m, to_index, walk);

		if (ret)
			return ret;
	}
	return 0;
}

/* ---- Small questions and the check ----------------------------------------------------------- */

bool crn_journal_has(const struct crn_journal *j, uint64_t id)
{
	uint32_t i = crn_record_lower(j, id);

	return i < j->count && crn_record_at(j, i)->id == id;
}

bool crn_journal_oldest(const struct crn_journal *j, uint64_t *id)
{
	if (!j->count)
		return false;
	*id = crn_record_at(j, 0)->id;
	return true;
}

size_t crn_journal_count(const struct crn_journal *j)
{
	return j->count;
}

static uint64_t check_record(const struct crn_journal *j, const struct crn_record *r)
{
	struct crn_cursor c = crn_cursor_open(j, r);
	uint64_t whole = 0, seen = 0;
	uintptr_t last = 0;

	for (; c.left; crn_cursor_step(&c)) {
		CRN_ASSERT(!seen++ || crn_entry_page(c.at) > last);
		last = crn_entry_page(c.at);
		CRN_ASSERT(crn_entry_form(c.at) < CRN_FORM_BORROWED);
		whole += crn_entry_form(c.at) == CRN_FORM_WHOLE;
		if (crn_entry_form(c.at) == CRN_FORM_DELTA)
			CRN_ASSERT(crn_delta_size((const void *)(uintptr_t)c.at->ref) <=
				   CRN_DELTA_MAX);
	}
	CRN_ASSERT(seen == r->count && whole == r->whole);
	return whole;
}

/* A whole list, and nothing in it that is older than the oldest record. */
static void check_fifo(const struct crn_fifo *f, const struct crn_fifo_frame *oldest)
{
	const struct crn_fifo_frame *frame, *last = NULL;
	size_t n = 0;

	for (frame = f->head; frame; frame = frame->next, n++)
		last = frame;
	CRN_ASSERT(!oldest || f->head == oldest);
	CRN_ASSERT(last == f->tail && n == f->frame_count && f->used <= CRN_FIFO_CAPACITY);
}

void crn_journal_check(const struct crn_journal *j)
{
	uint64_t whole = 0;

	CRN_ASSERT(j->count <= j->keep - 1 && j->first < j->keep);
	check_fifo(&j->entries, j->count ? crn_record_at(j, 0)->entries.frame : NULL);
	check_fifo(&j->deltas, j->count ? crn_record_at(j, 0)->deltas.frame : NULL);
	if (!j->count && j->open_kind == CRN_RECORD_NONE)
		CRN_ASSERT(!j->entries.frame_count && !j->deltas.frame_count);
	for (uint32_t i = 0; i < j->count; i++) {
		if (i)
			CRN_ASSERT(crn_record_at(j, i - 1)->id < crn_record_at(j, i)->id);
		whole += check_record(j, crn_record_at(j, i));
	}
	for (size_t i = 0; i < j->staging_count; i++)
		whole += crn_entry_form(&j->staging[i]) == CRN_FORM_WHOLE;
	CRN_ASSERT(whole == j->whole_count);
}
