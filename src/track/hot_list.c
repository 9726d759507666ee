/* SPDX-License-Identifier: MIT */
#include "track/hot_list.h"

#include <errno.h>
#include "base/arena.h"
#include "base/check.h"
#include "base/sink.h"
#include "os/clock.h"
#include "os/guarded.h"

void crn_hot_list_open(struct crn_hot_list *l, struct crn_track_env *env,
	const struct crn_hot_owner *owner, void *tracker)
{
	*l = (struct crn_hot_list){
		.env = env, .owner = owner, .tracker = tracker,
		.exact = env->predictor && env->predictor->exact,
	};
	crn_hot_form_open(&l->form);
}

void crn_hot_list_close(struct crn_hot_list *l)
{
	struct crn_arena *arena = l->env->arena;

	crn_block_free(arena, l->at, l->capacity * sizeof(*l->at));
	crn_block_free(arena, l->copies, l->copy_capacity * sizeof(*l->copies));
}

size_t crn_hot_list_from(const struct crn_hot_list *l, uintptr_t page)
{
	size_t i;

	CRN_FIRST(i, l->count, l->at[i].page >= page);
	return i;
}

struct crn_hot_entry *crn_hot_list_find(const struct crn_hot_list *l, uintptr_t page)
{
	size_t i = crn_hot_list_from(l, page);

	return i < l->count && l->at[i].page == page ? &l->at[i] : NULL;
}

static int room_for(struct crn_hot_list *l, size_t more)
{
	struct crn_arena *arena = l->env->arena;

	CRN_TRY(crn_table_grow(arena, (void **)&l->at, &l->capacity, l->count, l->count + more,
		sizeof(*l->at)));
	return crn_table_grow(arena, (void **)&l->copies, &l->copy_capacity, l->copy_count,
		l->count + more, sizeof(*l->copies));
}

void crn_hot_list_spread(struct crn_hot_list *l, size_t count)
{
	size_t to;

	if (count < 2 || room_for(l, count) < 0)
		return;
	for (to = l->capacity; l->count;)
		l->at[--to] = l->at[--l->count];
	l->tail = to;
	l->spread = true;
}

void crn_hot_list_gather(struct crn_hot_list *l)
{
	if (l->spread)
		while (l->tail < l->capacity)
			l->at[l->count++] = l->at[l->tail++];
	l->spread = false;
}

/* Where the page's entry is, or is to be. */
static size_t place_of(struct crn_hot_list *l, uintptr_t page)
{
	if (!l->spread)
		return crn_hot_list_from(l, page);
	while (l->tail < l->capacity && l->at[l->tail].page <= page)
		l->at[l->count++] = l->at[l->tail++];
	return l->count && l->at[l->count - 1].page == page ? l->count - 1 : l->count;
}

struct crn_hot_entry *crn_hot_list_add(
	struct crn_hot_list *l, uintptr_t page, void *where, bool *made)
{
	size_t at = place_of(l, page);

	*made = at == l->count || l->at[at].page != page;
	if (!*made)
		return &l->at[at];
	if (!l->spread && room_for(l, 1) < 0)
		return NULL;
	for (size_t i = l->count; i > at; i--)
		l->at[i] = l->at[i - 1];
	l->count++;
	l->at[at] = (struct crn_hot_entry){
		.page = page, .where = where, .slot = CRN_HOT_NO_SLOT, .changed = true,
	};
	return &l->at[at];
}

void crn_hot_list_sweep(struct crn_hot_list *l)
{
	size_t kept = 0;

	for (size_t i = 0; i < l->count; i++)
		if (l->at[i].where)
			l->at[kept++] = l->at[i];
	l->count = kept;
}

void crn_hot_list_drop(struct crn_hot_list *l, uintptr_t begin, uintptr_t end)
{
	for (size_t i = crn_hot_list_from(l, begin); i < l->count && l->at[i].page < end; i++)
		l->at[i].where = NULL;
	crn_hot_list_sweep(l);
}

void crn_hot_list_rebased(struct crn_hot_list *l, uintptr_t begin, uintptr_t end)
{
	for (size_t i = crn_hot_list_from(l, begin); i < l->count && l->at[i].page < end; i++)
		l->at[i].hashed = false;
	l->stale = true;
}

void crn_hot_list_touch(struct crn_hot_list *l, uintptr_t begin, uintptr_t end)
{
	for (size_t i = crn_hot_list_from(l, begin); i < l->count && l->at[i].page < end; i++)
		l->touched = l->at[i].touched = true;
}

void crn_hot_list_forget_touched(struct crn_hot_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		l->at[i].touched = false;
	l->touched = false;
}

/* The page differs. For how long it is trusted to, the first time, is by its number. */
static uint8_t longer_streak(struct crn_hot_entry *e)
{
	unsigned blind;

	if (e->streak + 1u < CRN_HOT_STREAK)
		return (uint8_t)(e->streak + 1u);
	if (e->streak < CRN_HOT_STREAK) {
		blind = crn_pages(e->page) % CRN_HOT_LOOKS;
	} else {
		e->trust += e->trust < CRN_HOT_TRUST;
		blind = (CRN_HOT_LOOKS << e->trust) - 1;
	}
	return (uint8_t)(CRN_HOT_DUE - blind);
}

/* The line in which the page differs from `old`, or CRN_LINES. */
static unsigned line_of(
	const struct crn_hot_entry *e, const void *old, const struct crn_hot_entry *next)
{
	const void *live = (const void *)e->page, *next_live = (const void *)next->page;

	if (crn_guarded_line_differs(old, live, e->line))
		return e->line;
	return crn_guarded_line(
		old, live, e->line, next->hashed ? next_live : next->old, next_live);
}

static bool hash_differs(
	const struct crn_hot_entry *e, const void *content, const struct crn_hot_entry *next)
{
	uint64_t hash[2];

	return crn_guarded_hash(content, hash, (const void *)next->page) < 0 ||
		hash[0] != e->hash[0] || hash[1] != e->hash[1];
}

/* The page was found to be as `old`, which is hashed: others may write to the page itself. */
static bool hash(const struct crn_hot_list *l, struct crn_hot_entry *e, const void *old,
	const struct crn_hot_entry *next)
{
	return crn_hot_form_hashes(l->count) &&
		crn_guarded_hash(old, e->hash, (const void *)next->page) >= 0;
}

bool crn_hot_compare(
	const struct crn_hot_list *l, struct crn_hot_entry *e, const void *old)
{
	static const uint8_t zeros[CRN_PAGE_SIZE] __attribute__((aligned(64)));
	const struct crn_hot_entry *next = e + (e + 1 < l->at + l->count);
	unsigned line;

	old = old ? old : zeros;
	if (e->hashed) {
		CRN_XASSERT(!hash_differs(e, old, next));
		e->hashed = !hash_differs(e, (const void *)e->page, next);
		e->changed = !e->hashed;
	} else {
		line = line_of(e, old, next);
		e->changed = line != CRN_LINES;
		e->line = e->changed ? line % CRN_LINES : e->line;
		e->hashed = !e->changed && hash(l, e, old, next);
	}
	e->streak = e->changed && !l->exact ? longer_streak(e) : 0;
	e->trust = e->changed ? e->trust : 0;
	return e->changed;
}

/* Has the page's frame to be handed over, and can the page be copied as it is? Not at address 0. */
static inline bool is_plain(const struct crn_hot_list *l, const struct crn_hot_entry *e)
{
	CRN_DASSERT(!e->changed || !e->hashed);
	return e->changed && crn_likely(e->old && e->page) && !crn_page_closed(l->env, e->page);
}

/* The entries of these pages, from e on, have what `copies` says. */
static void note_exchanged(struct crn_hot_list *l, struct crn_hot_entry *e,
	const struct crn_page_copy *copies, size_t count)
{
	for (; count; e++) {
		if (e->page != (uintptr_t)copies->from)
			continue;
		if (copies->to != e->old) {
			e->old = copies->to;
			l->owner->replaced(l->tracker, e);
		}
		e->changed = false;
		copies++;
		count--;
	}
}

/*
 * Pages and frames that are more than a cache holds would all have left it again if each
 * checkpoint began with the first. So one begins where the one before it ended.
 */
static inline bool downwards(const struct crn_hot_list *l)
{
	return l->turns & 1;
}

/* Those that can be handed over as they are, in `copies`. *changed: all that have changed. */
static size_t list_plain(const struct crn_hot_list *l, struct crn_hot_entry *begin,
	struct crn_hot_entry *end, struct crn_page_copy *copies, size_t *changed)
{
	size_t count = 0;

	*changed = 0;
	for (struct crn_hot_entry *e = begin; e < end; e++) {
		*changed += e->changed;
		if (is_plain(l, e))
			copies[count++] = (struct crn_page_copy){ e->old, (void *)e->page };
	}
	return count;
}

size_t crn_hot_exchange(struct crn_hot_list *l, struct crn_hot_entry *begin,
	struct crn_hot_entry *end, struct crn_sink *sink, bool *left)
{
	struct crn_page_copy *copies = l->copies + l->copy_count;
	size_t changed, done, count = list_plain(l, begin, end, copies, &changed);
	void *first;

	*left = changed;
	if (!count)
		return 0;
	first = copies->to;
	done = sink->exchange(sink, copies, count);
	l->copy_count += done;
	*left = done < changed;
	/* Nothing to note: nobody asks again, and all frames have stayed. */
	if (*left || copies->to != first)
		note_exchanged(l, begin, copies, done);
	return done;
}

static void turn_round(struct crn_page_copy *copies, size_t count)
{
	for (size_t i = 0; i + 1 < count; i++) {
		struct crn_page_copy first = copies[i];

		copies[i] = copies[--count];
		copies[count] = first;
	}
}

void crn_hot_copy_now(struct crn_hot_list *l)
{
	size_t done = 0, count = l->copy_count;

	l->copy_count = 0;
	if (downwards(l))
		turn_round(l->copies, count);
	for (; done < count; done++) {
		done += crn_guarded_copy_pages(l->copies + done, count - done);
		if (crn_likely(done == count))
			return;
		l->owner->unreadable(l->tracker,
			crn_hot_list_find(l, (uintptr_t)l->copies[done].from));
	}
}

/* What the sink has said of a page that it was asked to absorb, as absorb would. */
static int said_of(const struct crn_page_copy *page)
{
	if (!page->from)
		return -EFAULT;
	return page->to != NULL;
}

int crn_hot_turn(struct crn_hot_list *l, struct crn_hot_entry *begin, struct crn_hot_entry *end,
	struct crn_sink *sink, uint64_t *count)
{
	struct crn_page_copy *asked;
	size_t changed, plain = 0, done;
	int err = 0;

	if (begin == end)
		return 0;
	asked = l->copies + l->copy_count;
	if (crn_likely(sink->absorb)) {
		plain = list_plain(l, begin, end, asked, &changed);
		done = plain ? sink->absorb_pages(sink, asked, plain, downwards(l)) : 0;
		*count += done;
		if (crn_likely(done == changed))
			return 0;
	}
	for (struct crn_hot_entry *e = begin; e < end; e++) {
		int got = plain && is_plain(l, e) ? said_of(asked++) : -EFAULT;

		if (!e->changed || got > 0)
			continue;
		(*count)++;
		got = l->owner->turn(l->tracker, e, got, sink);
		err = err < 0 ? err : got;
	}
	return err;
}

uint64_t crn_hot_meter_begin(struct crn_hot_list *l, bool first)
{
	if (first) {
		l->cycles = 0;
		if (crn_likely(++l->turns % CRN_HOT_METER_EVERY) || !l->count)
			return 0;
	} else if (crn_likely(!l->cycles)) {
		return 0;
	}
	return crn_clock_ticks();
}

uint32_t crn_hot_meter_end(struct crn_hot_list *l, uint64_t begin, const struct crn_sink *last)
{
	uint32_t price;

	if (crn_likely(!begin) || !l->count)
		return 0;
	l->cycles += crn_clock_ticks() - begin;
	price = (uint32_t)(l->cycles / l->count);
	/* There may have been too many pages for the form that was asked for. */
	if (last && !last->absorb != l->form.differences)
		crn_hot_form_note(&l->form, price);
	return price;
}
