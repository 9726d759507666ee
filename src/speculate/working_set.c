/* SPDX-License-Identifier: MIT */
/* The working set's table, hash and lists. */
#include "speculate/working_set.h"

#define CAPACITY_FIRST 64u
#define CAPACITY_MAX   (1u << 28)

static uint32_t bucket_of(const struct crn_working_set *ws, uintptr_t page)
{
	uint64_t mixed = (uint64_t)(page >> CRN_PORT_PAGE_SHIFT) * 0x9e3779b97f4a7c15ull;

	return (uint32_t)(mixed >> 32) & (ws->capacity - 1);
}

void crn_ws_init(struct crn_working_set *ws, const struct crn_port *port, uint64_t key)
{
	*ws = (struct crn_working_set){
		.key = key,
		.port = port,
		.free = CRN_WS_NONE,
		.first = CRN_WS_NONE,
		.last = CRN_WS_NONE,
		.touched = CRN_WS_NONE,
	};
}

static void free_tables(const struct crn_port *port, struct crn_ws_entry *entries,
	uint32_t *buckets, uint32_t capacity)
{
	if (entries)
		port->free(port, entries, capacity * sizeof(*entries));
	if (buckets)
		port->free(port, buckets, capacity * sizeof(*buckets));
}

void crn_ws_fini(struct crn_working_set *ws)
{
	free_tables(ws->port, ws->entries, ws->buckets, ws->capacity);
	ws->entries = NULL;
	ws->buckets = NULL;
	ws->capacity = ws->count = ws->hot_count = 0;
}

uint32_t crn_ws_find(const struct crn_working_set *ws, uintptr_t page)
{
	uint32_t at;

	if (!ws->capacity)
		return CRN_WS_NONE;
	at = ws->buckets[bucket_of(ws, page)];
	while (at != CRN_WS_NONE && ws->entries[at].page != page)
		at = ws->entries[at].chain;
	return at;
}

static void enter_hash(struct crn_working_set *ws, uint32_t index)
{
	uint32_t *bucket = &ws->buckets[bucket_of(ws, ws->entries[index].page)];

	ws->entries[index].chain = *bucket;
	*bucket = index;
}

/* Twice the room. Entries keep their indices. */
static bool grow(struct crn_working_set *ws)
{
	uint32_t old = ws->capacity, capacity = old ? old * 2 : CAPACITY_FIRST;
	struct crn_ws_entry *entries, *old_entries = ws->entries;
	uint32_t *buckets, *old_buckets = ws->buckets;

	if (capacity > CAPACITY_MAX)
		return false;
	entries = ws->port->alloc(ws->port, capacity * sizeof(*entries));
	buckets = ws->port->alloc(ws->port, capacity * sizeof(*buckets));
	if (!entries || !buckets) {
		free_tables(ws->port, entries, buckets, capacity);
		return false;
	}
	for (uint32_t i = 0; i < old; i++)
		entries[i] = old_entries[i];
	for (uint32_t i = 0; i < capacity; i++)
		buckets[i] = CRN_WS_NONE;
	ws->entries = entries;
	ws->buckets = buckets;
	ws->capacity = capacity;
	free_tables(ws->port, old_entries, old_buckets, old);
	for (uint32_t i = 0; i < old; i++)
		if (entries[i].page)
			enter_hash(ws, i);
	for (uint32_t i = capacity; i-- > old;) {
		entries[i].chain = ws->free;
		ws->free = i;
	}
	return true;
}

static void append(struct crn_working_set *ws, uint32_t index)
{
	struct crn_ws_entry *e = &ws->entries[index];

	e->prev = ws->last;
	e->next = CRN_WS_NONE;
	if (ws->last != CRN_WS_NONE)
		ws->entries[ws->last].next = index;
	else
		ws->first = index;
	ws->last = index;
}

static void unlink_entry(struct crn_working_set *ws, uint32_t index)
{
	struct crn_ws_entry *e = &ws->entries[index];

	if (e->prev != CRN_WS_NONE)
		ws->entries[e->prev].next = e->next;
	else
		ws->first = e->next;
	if (e->next != CRN_WS_NONE)
		ws->entries[e->next].prev = e->prev;
	else
		ws->last = e->prev;
}

uint32_t crn_ws_add(struct crn_working_set *ws, uintptr_t page)
{
	uint32_t index = crn_ws_find(ws, page);

	if (index != CRN_WS_NONE || !page)
		return index;
	if (ws->free == CRN_WS_NONE && !grow(ws)) {
		ws->failures++;
		return CRN_WS_NONE;
	}
	index = ws->free;
	ws->free = ws->entries[index].chain;
	ws->entries[index] = (struct crn_ws_entry){ .page = page, .slot = CRN_WS_NONE };
	enter_hash(ws, index);
	append(ws, index);
	ws->count++;
	return index;
}

static void leave_touched(struct crn_working_set *ws, uint32_t index)
{
	uint32_t *link = &ws->touched;

	while (*link != index)
		link = &ws->entries[*link].touched;
	*link = ws->entries[index].touched;
	ws->entries[index].flags &= ~(uint32_t)CRN_WS_TOUCHED;
}

void crn_ws_remove(struct crn_working_set *ws, uint32_t index)
{
	struct crn_ws_entry *e = &ws->entries[index];
	uint32_t *link = &ws->buckets[bucket_of(ws, e->page)];

	if (e->flags & CRN_WS_TOUCHED)
		leave_touched(ws, index);
	if (e->flags & CRN_WS_HOT)
		ws->hot_count--;
	while (*link != index)
		link = &ws->entries[*link].chain;
	*link = e->chain;
	unlink_entry(ws, index);
	e->page = 0;
	e->flags = 0;
	e->chain = ws->free;
	ws->free = index;
	ws->count--;
}

void crn_ws_renew(struct crn_working_set *ws, uint32_t index)
{
	if (ws->last == index)
		return;
	unlink_entry(ws, index);
	append(ws, index);
}

void crn_ws_set_hot(struct crn_working_set *ws, uint32_t index, bool hot)
{
	struct crn_ws_entry *e = &ws->entries[index];

	if (!(e->flags & CRN_WS_HOT) == !hot)
		return;
	e->flags ^= CRN_WS_HOT;
	if (hot)
		ws->hot_count++;
	else
		ws->hot_count--;
	if (e->flags & CRN_WS_TOUCHED)
		return;
	e->flags |= CRN_WS_TOUCHED;
	e->touched = ws->touched;
	ws->touched = index;
}

uint64_t crn_ws_bytes(const struct crn_working_set *ws)
{
	return (uint64_t)ws->capacity * (sizeof(*ws->entries) + sizeof(*ws->buckets));
}

bool crn_ws_sound(const struct crn_working_set *ws)
{
	uint32_t listed = 0, hot = 0, marked = 0, touched = 0, prev = CRN_WS_NONE;

	for (uint32_t at = ws->first; at != CRN_WS_NONE; at = ws->entries[at].next) {
		const struct crn_ws_entry *e = &ws->entries[at];

		if (++listed > ws->count || e->prev != prev || crn_ws_find(ws, e->page) != at)
			return false;
		hot += !!(e->flags & CRN_WS_HOT);
		marked += !!(e->flags & CRN_WS_TOUCHED);
		prev = at;
	}
	for (uint32_t at = ws->touched; at != CRN_WS_NONE; at = ws->entries[at].touched)
		if (++touched > marked || !(ws->entries[at].flags & CRN_WS_TOUCHED))
			return false;
	return listed == ws->count && hot == ws->hot_count && touched == marked &&
		prev == ws->last;
}
