/* SPDX-License-Identifier: MIT */
/*
 * The hot pages as the tracker knows them. Slots are dense and the lowest free one is taken, so
 * that the map of changed pages stays short. All arrays are one block that grows by doubling; the
 * lists of evictions and promotions have room for every slot, so that evicting never allocates.
 */
#include "speculate/strategy.h"

#define SLOTS_FIRST 64u

static size_t block_size(size_t capacity)
{
	return capacity * (sizeof(struct crn_hot_run) + sizeof(struct crn_hot_page) +
				  sizeof(uintptr_t) + sizeof(uint32_t)) +
		3 * (capacity / 64) * sizeof(uint64_t);
}

static void lay_out(struct crn_hot_table *h, void *block, size_t capacity)
{
	h->block = block;
	h->block_size = block_size(capacity);
	h->capacity = capacity;
	h->evicted = block;
	h->promoted = (struct crn_hot_page *)(h->evicted + capacity);
	h->page = (uintptr_t *)(h->promoted + capacity);
	h->used = (uint64_t *)(h->page + capacity);
	h->changed = h->used + capacity / 64;
	h->steady = h->changed + capacity / 64;
	h->entry = (uint32_t *)(h->steady + capacity / 64);
}

static bool grow(struct crn_speculation *s)
{
	struct crn_hot_table old = s->hot, *h = &s->hot;
	size_t capacity = old.capacity ? old.capacity * 2 : SLOTS_FIRST;
	void *block = s->port->alloc(s->port, block_size(capacity));

	if (!block) {
		s->stats.alloc_failures++;
		return false;
	}
	lay_out(h, block, capacity);
	for (size_t i = 0; i < old.evicted_count; i++)
		h->evicted[i] = old.evicted[i];
	for (size_t i = 0; i < old.promoted_count; i++)
		h->promoted[i] = old.promoted[i];
	for (size_t i = 0; i < old.capacity; i++) {
		h->page[i] = old.page[i];
		h->entry[i] = old.entry[i];
	}
	for (size_t i = 0; i < old.capacity / 64; i++) {
		h->used[i] = old.used[i];
		h->changed[i] = old.changed[i];
		h->steady[i] = old.steady[i];
	}
	if (old.block)
		s->port->free(s->port, old.block, old.block_size);
	return true;
}

void crn_hot_free(struct crn_speculation *s)
{
	if (s->hot.block)
		s->port->free(s->port, s->hot.block, s->hot.block_size);
	s->hot = (struct crn_hot_table){ 0 };
}

/* The lowest free slot, or CRN_SLOT_NONE. */
static uint32_t take_slot(struct crn_speculation *s)
{
	struct crn_hot_table *h = &s->hot;
	size_t word = 0;

	if (s->port->hot_max && h->count >= s->port->hot_max) {
		s->stats.refused++;
		return CRN_SLOT_NONE;
	}
	if (h->count == h->capacity && !grow(s))
		return CRN_SLOT_NONE;
	while (!~h->used[word])
		word++;
	return (uint32_t)(word * 64 + (size_t)__builtin_ctzll(~h->used[word]));
}

/* Has it just been written, so that it need not be opened? */
static bool is_open(struct crn_speculation *s, const struct crn_working_set *from, uintptr_t page)
{
	uint32_t index = crn_ws_find(from, page);

	return index != CRN_WS_NONE && from->entries[index].faulted == s->clock;
}

static bool promote(struct crn_speculation *s, const struct crn_working_set *from,
	struct crn_working_set *ws, uint32_t index)
{
	struct crn_ws_entry *e = &ws->entries[index];
	struct crn_hot_table *h = &s->hot;
	uint32_t slot = take_slot(s);

	if (slot == CRN_SLOT_NONE)
		return false;
	h->used[slot / 64] |= 1ull << slot % 64;
	h->steady[slot / 64] &= ~(1ull << slot % 64);
	h->page[slot] = e->page;
	h->entry[slot] = index;
	h->count++;
	if (slot >= h->limit)
		h->limit = slot + 1;
	e->slot = slot;
	h->promoted[h->promoted_count++] = (struct crn_hot_page){ e->page, slot };
	s->stats.promotions++;
	s->stats.reopened += !is_open(s, from, e->page);
	return true;
}

static void free_slot(struct crn_hot_table *h, uint32_t slot)
{
	h->used[slot / 64] &= ~(1ull << slot % 64);
	h->count--;
	while (h->limit && !(h->used[(h->limit - 1) / 64] >> (h->limit - 1) % 64 & 1))
		h->limit--;
}

void crn_hot_drop(struct crn_speculation *s, struct crn_working_set *ws, uint32_t index)
{
	free_slot(&s->hot, ws->entries[index].slot);
	ws->entries[index].slot = CRN_SLOT_NONE;
}

void crn_hot_evict(struct crn_speculation *s, struct crn_working_set *ws, uint32_t index)
{
	uintptr_t page = ws->entries[index].page;

	s->hot.evicted[s->hot.evicted_count++] =
		(struct crn_hot_run){ page, page + CRN_PORT_PAGE };
	s->stats.evictions++;
	crn_hot_drop(s, ws, index);
}

/* ---- Order ---------------------------------------------------------------------------- */

/*
 * By the first word of each item, in place: short lists by insertion, others by a heap, for there
 * is no stack for a recursion. Pages are promoted in order, mostly. An item is two words.
 */
#define SHORT 64u

struct item {
	uintptr_t key, value;
};

_Static_assert(sizeof(struct item) == sizeof(struct crn_hot_run), "sorted as items");
_Static_assert(sizeof(struct item) == sizeof(struct crn_hot_page), "sorted as items");

static void sift(struct item *at, size_t from, size_t count)
{
	struct item moved = at[from];

	for (size_t child = 2 * from + 1; child < count; child = 2 * from + 1) {
		if (child + 1 < count && at[child + 1].key > at[child].key)
			child++;
		if (at[child].key <= moved.key)
			break;
		at[from] = at[child];
		from = child;
	}
	at[from] = moved;
}

static void insert(struct item *at, size_t i)
{
	struct item moved = at[i];

	for (; i && at[i - 1].key > moved.key; i--)
		at[i] = at[i - 1];
	at[i] = moved;
}

static void sort(void *items, size_t count)
{
	struct item *at = items;
	size_t sorted = 1;

	while (sorted < count && (count <= SHORT || at[sorted].key >= at[sorted - 1].key))
		insert(at, sorted++);
	if (sorted >= count)
		return;
	for (size_t i = count / 2; i-- > 0;)
		sift(at, i, count);
	for (size_t i = count; i-- > 1;) {
		struct item last = at[i];

		at[i] = at[0];
		at[0] = last;
		sift(at, 0, i);
	}
}

/* Sorted, and neighbours joined. */
static void finish_lists(struct crn_hot_table *h)
{
	size_t kept = 0;

	if (h->promoted_count > 1)
		sort(h->promoted, h->promoted_count);
	if (h->evicted_count < 2)
		return;
	sort(h->evicted, h->evicted_count);
	for (size_t i = 1; i < h->evicted_count; i++) {
		if (h->evicted[kept].end == h->evicted[i].begin)
			h->evicted[kept].end = h->evicted[i].end;
		else
			h->evicted[++kept] = h->evicted[i];
	}
	h->evicted_count = kept + 1;
}

/* ---- Wish and fact ---------------------------------------------------------------------- */

/* Entries that are hot but wish not to be go first: their slots can be used again. */
static void settle_pass(struct crn_speculation *s, const struct crn_working_set *from, bool evict)
{
	struct crn_working_set *ws = s->current;

	for (uint32_t at = ws->touched; at != CRN_WS_NONE; at = ws->entries[at].touched) {
		struct crn_ws_entry *e = &ws->entries[at];
		bool hot = e->slot != CRN_SLOT_NONE, wish = e->flags & CRN_WS_HOT;

		if (evict && hot && !wish)
			crn_hot_evict(s, ws, at);
		if (!evict && !hot && wish && !promote(s, from, ws, at)) {
			e->flags &= ~(uint32_t)CRN_WS_HOT;
			ws->hot_count--;
		}
	}
}

void crn_hot_settle(struct crn_speculation *s, const struct crn_working_set *from)
{
	struct crn_working_set *ws = s->current;

	if (ws->touched != CRN_WS_NONE) {
		settle_pass(s, from, true);
		settle_pass(s, from, false);
		while (ws->touched != CRN_WS_NONE) {
			struct crn_ws_entry *e = &ws->entries[ws->touched];

			e->flags &= ~(uint32_t)CRN_WS_TOUCHED;
			ws->touched = e->touched;
		}
	}
	finish_lists(&s->hot);
}

/* The slot of a page goes over to the new working set, or is given up. */
static void move_slot(struct crn_speculation *s, struct crn_working_set *from,
	struct crn_working_set *to, uint32_t slot)
{
	uint32_t index = s->hot.entry[slot], there = crn_ws_find(to, s->hot.page[slot]);
	bool wanted = there != CRN_WS_NONE && to->entries[there].flags & CRN_WS_HOT;

	if (!wanted && s->ops->stay && s->ops->stay(s, from, index, to)) {
		there = crn_ws_add(to, s->hot.page[slot]);
		wanted = there != CRN_WS_NONE;
	}
	if (!wanted) {
		crn_hot_evict(s, from, index);
		return;
	}
	from->entries[index].slot = CRN_SLOT_NONE;
	to->entries[there].slot = slot;
	s->hot.entry[slot] = there;
}

void crn_hot_switch(
	struct crn_speculation *s, struct crn_working_set *from, struct crn_working_set *to)
{
	struct crn_hot_table *h = &s->hot;

	if (s->ops->leave && !s->given_up)
		s->ops->leave(s, from);
	for (size_t slot = 0; slot < h->limit; slot++)
		if (h->used[slot / 64] >> slot % 64 & 1)
			move_slot(s, from, to, (uint32_t)slot);
	while (from->touched != CRN_WS_NONE) {
		struct crn_ws_entry *e = &from->entries[from->touched];

		e->flags &= ~(uint32_t)CRN_WS_TOUCHED;
		from->touched = e->touched;
	}
	/* What it wants and the tracker does not have yet. */
	for (uint32_t at = to->first; at != CRN_WS_NONE; at = to->entries[at].next) {
		struct crn_ws_entry *e = &to->entries[at];

		if (e->flags & CRN_WS_HOT && e->slot == CRN_SLOT_NONE &&
			!(e->flags & CRN_WS_TOUCHED)) {
			e->flags |= CRN_WS_TOUCHED;
			e->touched = to->touched;
			to->touched = at;
		}
	}
}
