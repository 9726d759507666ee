/* SPDX-License-Identifier: MIT */
/* The table of regions, its list, and what of it any thread may read. */
#include "speculate/region_table.h"

#define PROBES	    16u
#define TABLE_FIRST 64u
#define VALUES	    ((1u << CRN_REGION_VALUE) - 1)

static uint64_t number_of(uintptr_t page)
{
	return (uint64_t)(page >> CRN_REGION_SHIFT) + 1;
}

static uint64_t bit_of(uint64_t number)
{
	return 1ull << number % 64;
}

static size_t slot_of(uint64_t number, size_t size)
{
	return (size_t)((number * 0x9e3779b97f4a7c15ull) >> 32) & (size - 1);
}

static struct crn_region_table *table_new(
	const struct crn_port *port, struct crn_regions *r, size_t size)
{
	size_t bytes = sizeof(struct crn_region_table) + size * sizeof(uint64_t) +
		size * sizeof(struct crn_region);
	struct crn_region_table *t = port->alloc(port, bytes);

	if (!t)
		return NULL;
	t->size = size;
	t->bytes = bytes;
	t->regions = (struct crn_region *)(t->published + size);
	r->bytes += bytes;
	return t;
}

/* The region's place, or a free one for it; NULL: none within the probes. */
static struct crn_region *place_of(struct crn_region_table *t, uint64_t number)
{
	size_t at = slot_of(number, t->size);

	for (unsigned probe = 0; probe < PROBES; probe++, at = (at + 1) & (t->size - 1))
		if (!t->regions[at].number || t->regions[at].number == number)
			return &t->regions[at];
	return NULL;
}

static uint32_t value_of(const struct crn_region_table *t, const struct crn_region *region)
{
	return (uint32_t)t->published[region - t->regions] & VALUES;
}

static void publish(struct crn_region_table *t, const struct crn_region *region, uint32_t value)
{
	uint64_t word = region->number << CRN_REGION_VALUE | value;

	__atomic_store_n(&t->published[region - t->regions], word, __ATOMIC_RELEASE);
}

/* Move all regions that know something to a table of that size. */
static bool move_to(const struct crn_port *port, struct crn_regions *r, size_t size)
{
	struct crn_region_table *old = r->table, *t = table_new(port, r, size);
	uint32_t listed = CRN_WS_NONE;

	if (!t)
		return false;
	for (size_t i = 0; old && i < old->size; i++) {
		const struct crn_region *from = &old->regions[i];
		uint32_t value = value_of(old, from);
		struct crn_region *to;

		if (!value && !from->listed)
			continue;
		to = place_of(t, from->number);
		if (!to) {
			r->bytes -= t->bytes;
			port->free(port, t, t->bytes);
			return false;
		}
		*to = *from;
		publish(t, to, value);
		if (to->listed) {
			to->next = listed;
			listed = (uint32_t)(to - t->regions);
		}
	}
	r->listed = listed;
	t->retired = old;
	__atomic_store_n(&r->table, t, __ATOMIC_RELEASE);
	return true;
}

static struct crn_region *region_of(
	const struct crn_port *port, struct crn_regions *r, uintptr_t page)
{
	uint64_t number = number_of(page);
	struct crn_region *region = r->table ? place_of(r->table, number) : NULL;

	for (unsigned tries = 0; !region && tries < 3; tries++) {
		if (!move_to(port, r, r->table ? r->table->size * 2 : TABLE_FIRST))
			return NULL;
		region = place_of(r->table, number);
	}
	if (region && !region->number) {
		region->number = number;
		publish(r->table, region, 0);
	}
	return region;
}

void crn_regions_init(struct crn_regions *r)
{
	r->listed = CRN_WS_NONE;
}

void crn_regions_fini(const struct crn_port *port, struct crn_regions *r)
{
	struct crn_region_table *t = r->table;

	while (t) {
		struct crn_region_table *gone = t;

		t = t->retired;
		port->free(port, gone, gone->bytes);
	}
}

bool crn_regions_note(const struct crn_port *port, struct crn_regions *r, uintptr_t page)
{
	struct crn_region *region = region_of(port, r, page);
	unsigned at = crn_region_page(page);

	if (!region)
		return false;
	region->written[at / 64] |= 1ull << at % 64;
	if (region->listed)
		return true;
	region->listed = true;
	region->next = r->listed;
	r->listed = (uint32_t)(region - r->table->regions);
	r->maybe |= bit_of(region->number);
	return true;
}

struct crn_region *crn_regions_listed(const struct crn_regions *r, uintptr_t page)
{
	uint64_t number = number_of(page);
	struct crn_region *region;

	if (!(r->maybe & bit_of(number)))
		return NULL;
	region = place_of(r->table, number);
	return region && region->listed ? region : NULL;
}

struct crn_region *crn_regions_take(struct crn_regions *r)
{
	struct crn_region *region;

	if (r->listed == CRN_WS_NONE)
		return NULL;
	region = &r->table->regions[r->listed];
	r->listed = region->next;
	r->maybe = r->listed == CRN_WS_NONE ? 0 : r->maybe;
	region->listed = false;
	return region;
}

void crn_region_clear(struct crn_region *region)
{
	for (unsigned word = 0; word < CRN_REGION_WORDS; word++)
		region->written[word] = 0;
}

uint32_t crn_regions_value(const struct crn_regions *r, const struct crn_region *region)
{
	return value_of(r->table, region);
}

void crn_regions_publish(struct crn_regions *r, const struct crn_region *region, uint32_t value)
{
	publish(r->table, region, value);
}

const struct crn_region *crn_regions_find(
	const struct crn_regions *r, uintptr_t page, uint32_t *value)
{
	const struct crn_region_table *t = __atomic_load_n(&r->table, __ATOMIC_ACQUIRE);
	uint64_t number = number_of(page);
	size_t at;

	if (!t)
		return NULL;
	at = slot_of(number, t->size);
	for (unsigned probe = 0; probe < PROBES; probe++, at = (at + 1) & (t->size - 1)) {
		uint64_t word = __atomic_load_n(&t->published[at], __ATOMIC_ACQUIRE);

		if (!word)
			return NULL;
		if (word >> CRN_REGION_VALUE != number)
			continue;
		*value = (uint32_t)word & VALUES;
		return *value ? &t->regions[at] : NULL;
	}
	return NULL;
}

void crn_regions_forget(struct crn_regions *r, uintptr_t begin, uintptr_t end)
{
	struct crn_region_table *t = r->table;

	if (end - begin < CRN_REGION_BYTES)
		return;
	for (size_t i = 0; t && i < t->size; i++) {
		struct crn_region *region = &t->regions[i];
		uintptr_t base = crn_region_base(region);

		if (!region->number || region->listed || base < begin ||
			base + CRN_REGION_BYTES > end)
			continue;
		region->history = 0;
		for (unsigned word = 0; word < CRN_REGION_WORDS; word++)
			__atomic_store_n(&region->joined[word], 0, __ATOMIC_RELAXED);
		publish(t, region, 0);
	}
}
