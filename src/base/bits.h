/* SPDX-License-Identifier: MIT */
/* Page arithmetic and the few macros that everybody needs. */
#ifndef CRN_BITS_H
#define CRN_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CRN_PAGE_SHIFT 12
#define CRN_PAGE_SIZE  4096ul

#define CRN_ARRAY_SIZE(a)   (sizeof(a) / sizeof((a)[0]))
#define CRN_MIN(a, b)       ((a) < (b) ? (a) : (b))
#define CRN_MAX(a, b)       ((a) > (b) ? (a) : (b))
#define crn_likely(x)       __builtin_expect(!!(x), 1)
#define crn_unlikely(x)     __builtin_expect(!!(x), 0)

/*
 * `i` becomes the first index below `count` for which `holds`, an expression of `i`, is true; or
 * `count`. Once true it stays true for all that follow: a table is sorted by it.
 */
#define CRN_FIRST(i, count, holds)                            \
	do {                                                  \
		size_t crn_low_ = 0, crn_high_ = (count);     \
		while (crn_low_ < crn_high_) {                \
			(i) = (crn_low_ + crn_high_) / 2;     \
			if (holds)                            \
				crn_high_ = (i);              \
			else                                  \
				crn_low_ = (i) + 1;           \
		}                                             \
		(i) = crn_low_;                               \
	} while (0)

static inline uintptr_t crn_page_down(uintptr_t a)
{
	return a & ~(CRN_PAGE_SIZE - 1);
}

static inline uintptr_t crn_page_up(uintptr_t a)
{
	return (a + CRN_PAGE_SIZE - 1) & ~(CRN_PAGE_SIZE - 1);
}

static inline size_t crn_pages(size_t bytes)
{
	return bytes >> CRN_PAGE_SHIFT;
}

/* Bytes [begin, end) of memory. */
struct crn_range {
	uintptr_t begin, end;
};

#endif
