/* SPDX-License-Identifier: MIT */
/*
 * What strategies know by region: 2 MiB, 512 pages, one page table. A region is made when a page of
 * it is first written. Those written in the interval that ends are on a list, with a bit for each
 * such page, until they are cleared.
 *
 * crn_regions_find is for crn_speculation_near, which runs in signal handlers and in any thread
 * while others change the table. It reads one word for each probe, a region's number and a value of
 * the strategy's together; what it reads besides must be single words, stored and loaded
 * atomically. Tables that are replaced stay readable until close, which at most doubles their
 * memory: a reader of one may miss what was learnt since.
 */
#ifndef CRN_REGION_TABLE_H
#define CRN_REGION_TABLE_H

#include "speculate/strategy.h"

#define CRN_REGION_SHIFT 21
#define CRN_REGION_BYTES ((uintptr_t)1 << CRN_REGION_SHIFT)
#define CRN_REGION_PAGES 512u
#define CRN_REGION_WORDS (CRN_REGION_PAGES / 64)
#define CRN_REGION_VALUE 16 /* bits of a value */

struct crn_region {
	uint64_t number;		   /* address >> CRN_REGION_SHIFT, plus 1; 0: free */
	uint64_t written[CRN_REGION_WORDS]; /* pages written in the interval that ends */
	uint32_t history; /* histase's his_stride in units of 1 / CRN_ONE; 0: none yet */
	uint32_t next;	  /* of those listed */
	bool listed;
	uint64_t joined[CRN_REGION_WORDS]; /* runs.h's: bit n is of page n and the next one */
};

struct crn_region_table {
	struct crn_region_table *retired;
	size_t size, bytes;
	struct crn_region *regions;
	uint64_t published[]; /* number << CRN_REGION_VALUE | value */
};

struct crn_regions {
	struct crn_region_table *table;
	uint32_t listed; /* the first one */
	uint64_t maybe;	 /* of those listed, a bit each: where it is not set a region is not */
	uint64_t bytes;
};

void crn_regions_init(struct crn_regions *r);
void crn_regions_fini(const struct crn_port *port, struct crn_regions *r);

/* Note a page that was written. False: no memory. */
bool crn_regions_note(const struct crn_port *port, struct crn_regions *r, uintptr_t page);
/* The region of the page, if it is on the list; NULL: not. */
struct crn_region *crn_regions_listed(const struct crn_regions *r, uintptr_t page);
/* Take one from the list; NULL: that was all. Its bits stay until crn_region_clear. */
struct crn_region *crn_regions_take(struct crn_regions *r);
void crn_region_clear(struct crn_region *region);

/* A region whose value is 0 knows nothing. */
uint32_t crn_regions_value(const struct crn_regions *r, const struct crn_region *region);
void crn_regions_publish(struct crn_regions *r, const struct crn_region *region, uint32_t value);
/* Any thread: the region of the page and its value. NULL: nothing is known. */
const struct crn_region *crn_regions_find(
	const struct crn_regions *r, uintptr_t page, uint32_t *value);
/* A new mapping starts anew: what is known of regions that lie in [begin, end) is forgotten. */
void crn_regions_forget(struct crn_regions *r, uintptr_t begin, uintptr_t end);

static inline uintptr_t crn_region_base(const struct crn_region *region)
{
	return (uintptr_t)(region->number - 1) << CRN_REGION_SHIFT;
}

/* Its number among those of the region. */
static inline unsigned crn_region_page(uintptr_t page)
{
	return (unsigned)(page >> CRN_PORT_PAGE_SHIFT) % CRN_REGION_PAGES;
}

#endif
