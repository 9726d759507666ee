/* SPDX-License-Identifier: MIT */
/*
 * Everything that src/speculate/ needs from the outside: fixed-width types and a table of
 * callbacks. The room includes no other header of the tree or of the system, so that a kernel
 * module compiles the same files (-ffreestanding -nostdinc); it defines CRN_PORT_TYPES and brings
 * types of its own.
 */
#ifndef CRN_PORT_H
#define CRN_PORT_H

#ifndef CRN_PORT_TYPES
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __SIZE_TYPE__ size_t;
#ifndef bool
#define bool  _Bool
#define true  1
#define false 0
#endif
#ifndef NULL
#define NULL ((void *)0)
#endif
#endif

#define CRN_PORT_EINVAL (-22)
#define CRN_PORT_ENOMEM (-12)

#define CRN_PORT_PAGE_SHIFT 12
#define CRN_PORT_PAGE	    ((uintptr_t)1 << CRN_PORT_PAGE_SHIFT)

/*
 * What this host charges, in cycles per page, measured by whoever opens the session. Only ratios
 * matter. `fault`: the first write of a cold page, its copy included. `copy`: an eager copy of a
 * page that was not written, or whatever else keeping it hot costs. `protect`: making an open page
 * cold again. `open`: making a page hot that is protected, beside its copy. And once for each
 * checkpoint at which some page goes cold, `alone`: what one alone costs beyond its share of many;
 * 0 where there is no such thing. Scores leave it out, for they count pages.
 *
 * Pages that the caches do not hold cost several times as much as those that they do. So what a
 * copy cost is kept by how many pages were hot then: sizes[i] is of 2^i pages to 2^(i+1) - 1 (the
 * last of all that are more), or 0 if there never were so many. `copy` is of late, however many.
 */
#define CRN_COST_SIZES 16u

struct crn_costs {
	uint32_t fault, copy, protect, open, alone;
	uint32_t sizes[CRN_COST_SIZES];
};

/* Where in `sizes` so many pages belong. */
static inline uint32_t crn_cost_size(size_t pages)
{
	uint32_t size = 63 - (uint32_t)__builtin_clzll(pages | 1);

	return size < CRN_COST_SIZES ? size : CRN_COST_SIZES - 1;
}

/*
 * What a copy will cost when `then` pages are hot, and `now` are: as much as of late, or what it
 * cost when so many were, if that is more. What fewer once cost says little, for there were other
 * caches to be had.
 */
static inline uint32_t crn_costs_copy(const struct crn_costs *c, size_t now, size_t then)
{
	for (uint32_t size = crn_cost_size(then) + 1, least = crn_cost_size(now); size-- > least;)
		if (c->sizes[size])
			return c->sizes[size] > c->copy ? c->sizes[size] : c->copy;
	return c->copy;
}

/* How many idle copies the way out costs, and one back at that price. */
static inline uint64_t crn_costs_even(const struct crn_costs *c, uint32_t back)
{
	return ((uint64_t)c->protect + back) / (c->copy ? c->copy : 1);
}

/* The pages of one interval of a recorded run, in the order of their first write. */
struct crn_profile_interval {
	const uintptr_t *pages;
	size_t count;
};

/*
 * The callbacks. The table outlives the speculation that was opened with it, which calls them only
 * from within its own calls, under the caller's lock. Those marked so may be NULL.
 */
struct crn_port {
	void *owner; /* the callbacks' own */
	struct crn_costs costs;
	/* Most pages that may be hot at once; 0: any number. Beyond it pages stay cold. */
	size_t hot_max;
	/*
	 * The tracker asks crn_speculation_near at each write fault, and opens what it names. Not
	 * set: it learns of writes at the checkpoint only (scan, ring, soft-dirty).
	 */
	bool at_fault;

	/* Zeroed memory, 8-aligned; NULL when there is none left. */
	void *(*alloc)(const struct crn_port *port, size_t size);
	void (*free)(const struct crn_port *port, void *block, size_t size);
	uint64_t (*random)(const struct crn_port *port); /* 64 random bits; seeded in tests */
	void (*log)(const struct crn_port *port, const char *text); /* or NULL */
	/*
	 * Of the page's content now. NULL: active-cks then relies on the map of changed pages. That
	 * says the same for less where a tracker compares them, but not under meta.
	 */
	uint64_t (*checksum)(const struct crn_port *port, uintptr_t page);
	uint64_t (*clock)(const struct crn_port *port); /* cycles, for meta; or NULL */
	/*
	 * For oracle and oracle-count: what interval `index` of the recorded run wrote (0: from the
	 * opening of the session to the first checkpoint). 0, or negative if the profile has no
	 * such interval. The list stays valid until the next call. NULL: there is no profile.
	 */
	int (*profile)(const struct crn_port *port, uint64_t index,
		struct crn_profile_interval *out);
};

/* By hand: without a CPU flag the compiler's own becomes a call of its library. */
static inline unsigned crn_popcount(uint64_t x)
{
	x -= (x >> 1) & 0x5555555555555555;
	x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333);
	x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (unsigned)((x * 0x0101010101010101) >> 56);
}

#endif
