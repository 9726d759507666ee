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
