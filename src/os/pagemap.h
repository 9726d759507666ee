/* SPDX-License-Identifier: MIT */
/*
 * Which pages are populated and which were written: by PAGEMAP_SCAN where the kernel has it,
 * otherwise from the entries of the pagemap.
 */
#ifndef CRN_OS_PAGEMAP_H
#define CRN_OS_PAGEMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "os/sys.h"

/* struct page_region, struct pm_scan_arg of the kernel. */
struct crn_page_run {
	uint64_t begin, end;
	uint64_t categories; /* enum crn_page_category */
};

struct crn_scan {
	uint64_t size;
	uint64_t flags; /* enum crn_scan_flags */
	uint64_t start, end;
	uint64_t walk_end; /* out: how far it came */
	uint64_t vec;      /* struct crn_page_run[vec_len], or 0 */
	uint64_t vec_len;
	uint64_t max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

enum crn_page_category {
	CRN_PAGE_WPALLOWED = 1u << 0,
	CRN_PAGE_WRITTEN = 1u << 1,
	CRN_PAGE_FILE = 1u << 2,
	CRN_PAGE_PRESENT = 1u << 3,
	CRN_PAGE_SWAPPED = 1u << 4,
	CRN_PAGE_PFNZERO = 1u << 5,
	CRN_PAGE_HUGE = 1u << 6,
	CRN_PAGE_SOFT_DIRTY = 1u << 7,
	/*
	 * MADV_GUARD_INSTALL (Linux 6.13): any access raises SIGSEGV. The category is younger than
	 * the advice (6.15), and what a kernel does not know it refuses with -EINVAL.
	 */
	CRN_PAGE_GUARD = 1u << 8,
};

enum crn_scan_flags {
	CRN_SCAN_WP_MATCHING = 1u << 0,
	CRN_SCAN_CHECK_WPASYNC = 1u << 1, /* fail with -EPERM on a mapping that is not registered */
};

#define CRN_PAGEMAP_SCAN 0xc0606610ul /* _IOWR('f', 16, struct pm_scan_arg) */

/*
 * /proc/self/pagemap at a high number. It stays bound to this address space: a forked child opens
 * its own.
 */
int crn_pagemap_open(void);

/* One PAGEMAP_SCAN as it stands in *scan (size is filled in). Runs written, or -errno. */
static inline long crn_pagemap_scan(int pagemap, struct crn_scan *scan)
{
	scan->size = sizeof(*scan);
	return crn_sys3(SYS_ioctl, pagemap, CRN_PAGEMAP_SCAN, scan);
}

/*
 * The fast way to the written pages of [begin, end), protecting them again if `protect`. Fills
 * runs[] from *cursor on (begin with *cursor = begin) and moves *cursor; done when *cursor == end.
 * Runs written, or -errno; -EPERM: something unregistered is inside.
 */
long crn_pagemap_written(int pagemap, uintptr_t *cursor, uintptr_t end, bool protect,
	struct crn_page_run *runs, size_t max);

/*
 * Those of them that hold something: not what has been emptied since it was protected, nor what has
 * only been loaded from and is zeros.
 */
long crn_pagemap_stored(int pagemap, uintptr_t *cursor, uintptr_t end, bool protect,
	struct crn_page_run *runs, size_t max);

/*
 * The pages of [*cursor, end) that a userfaultfd protects, populated or not, as runs; cursor as
 * above; 30 cycles a page. Runs written, or -errno.
 */
long crn_pagemap_protected(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max);

/*
 * The guard pages of [*cursor, end) as runs; cursor as above. Runs written; 0 where the kernel does
 * not tell; or -errno.
 */
long crn_pagemap_guards(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max);

/* This kernel has no guard pages, or tells of them. `page` is ours, private and anonymous. */
bool crn_pagemap_tells_guards(int pagemap, void *page);

/* Bits of one 64-bit entry of /proc/PID/pagemap. */
#define CRN_PAGEMAP_SOFT_DIRTY (1ull << 55)
#define CRN_PAGEMAP_EXCLUSIVE  (1ull << 56)
#define CRN_PAGEMAP_UFFD_WP    (1ull << 57)
#define CRN_PAGEMAP_FILE       (1ull << 61)
#define CRN_PAGEMAP_SWAP       (1ull << 62)
#define CRN_PAGEMAP_PRESENT    (1ull << 63)

/* `count` entries from the page of addr on. 0, or -errno (-EIO: cut short). */
int crn_pagemap_entries(int pagemap, uintptr_t addr, uint64_t *entries, size_t count);

/*
 * The populated (present or swapped) parts of [*cursor, end) as runs, whichever way the kernel
 * offers; cursor as above. A page that holds nothing but a userfaultfd marker may be reported as
 * well, and without PAGEMAP_SCAN one that only maps the shared zero page, as after a load: the
 * answer is "may hold something". Runs written, or -errno.
 */
long crn_pagemap_populated(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max);

/*
 * The first page of [begin, end) that may hold something, or end. On any error (no PAGEMAP_SCAN) it
 * is begin.
 */
uintptr_t crn_pagemap_first(int pagemap, uintptr_t begin, uintptr_t end);

/*
 * The pages of [*cursor, end), of a private mapping of a file, that are the process's own copies,
 * as runs; cursor as above. Runs written, or -errno.
 */
long crn_pagemap_own(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max);
/* Of these, those that do not lie on swap; by PAGEMAP_SCAN alone. */
long crn_pagemap_own_present(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max);

/*
 * Those that hold content in memory, the zero page not counted; by PAGEMAP_SCAN alone.
 */
long crn_pagemap_present(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max);

#endif
