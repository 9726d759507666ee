/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include "base/bits.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/pagemap.h"

int crn_pagemap_open(void)
{
	return crn_fd_open_own("/proc/self/pagemap", O_RDONLY);
}

static long scan_runs(int pagemap, struct crn_scan *scan, uintptr_t *cursor, uintptr_t end,
	struct crn_page_run *runs, size_t max)
{
	long count;

	scan->start = *cursor;
	scan->end = end;
	scan->vec = (uint64_t)(uintptr_t)runs;
	scan->vec_len = max;
	count = crn_pagemap_scan(pagemap, scan);
	if (count >= 0)
		*cursor = scan->walk_end;
	return count;
}

long crn_pagemap_written(int pagemap, uintptr_t *cursor, uintptr_t end, bool protect,
	struct crn_page_run *runs, size_t max)
{
	/* The kernel has a fast path for exactly this combination of masks: 2 cycles a page. */
	struct crn_scan scan = {
		.flags = CRN_SCAN_CHECK_WPASYNC | (protect ? CRN_SCAN_WP_MATCHING : 0),
		.category_mask = CRN_PAGE_WRITTEN,
		.return_mask = CRN_PAGE_WRITTEN,
	};

	return scan_runs(pagemap, &scan, cursor, end, runs, max);
}

long crn_pagemap_stored(int pagemap, uintptr_t *cursor, uintptr_t end, bool protect,
	struct crn_page_run *runs, size_t max)
{
	struct crn_scan scan = {
		.flags = CRN_SCAN_CHECK_WPASYNC | (protect ? CRN_SCAN_WP_MATCHING : 0),
		.category_inverted = CRN_PAGE_PFNZERO,
		.category_mask = CRN_PAGE_WRITTEN | CRN_PAGE_PFNZERO,
		.category_anyof_mask = CRN_PAGE_PRESENT | CRN_PAGE_SWAPPED,
		.return_mask = CRN_PAGE_WRITTEN,
	};

	return scan_runs(pagemap, &scan, cursor, end, runs, max);
}

long crn_pagemap_protected(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max)
{
	/* An entry, if only of the protection itself; and not written since. */
	struct crn_scan scan = {
		.category_inverted = CRN_PAGE_WRITTEN,
		.category_mask = CRN_PAGE_WRITTEN,
		.category_anyof_mask = CRN_PAGE_PRESENT | CRN_PAGE_SWAPPED,
		.return_mask = CRN_PAGE_WRITTEN,
	};

	return scan_runs(pagemap, &scan, cursor, end, runs, max);
}

long crn_pagemap_guards(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max)
{
	struct crn_scan scan = { .category_mask = CRN_PAGE_GUARD, .return_mask = CRN_PAGE_GUARD };
	long count = scan_runs(pagemap, &scan, cursor, end, runs, max);

	if (count == -EINVAL || count == -ENOTTY) {
		*cursor = end;
		count = 0;
	}
	return count;
}

bool crn_pagemap_tells_guards(int pagemap, void *page)
{
	struct crn_scan scan = {
		.start = (uintptr_t)page,
		.end = (uintptr_t)page + CRN_PAGE_SIZE,
		.category_mask = CRN_PAGE_GUARD,
	};

	return crn_pagemap_scan(pagemap, &scan) >= 0 || crn_memory_unguard(page) < 0;
}

int crn_pagemap_entries(int pagemap, uintptr_t addr, uint64_t *entries, size_t count)
{
	size_t len = count * sizeof(*entries), done = 0;
	uint64_t at = (addr >> CRN_PAGE_SHIFT) * sizeof(*entries);

	while (done < len) {
		long got = crn_sys4(
			SYS_pread64, pagemap, (uint8_t *)entries + done, len - done, at + done);

		if (got == -EINTR)
			continue;
		if (got < 0)
			return (int)got;
		if (got == 0)
			return -EIO;
		done += (size_t)got;
	}
	return 0;
}

/*
 * Populated runs out of the classic entries, a few hundred at a time; pages that have any bit of
 * `without` are left out.
 */
static long populated_by_entries(int pagemap, uintptr_t *cursor, uintptr_t end, uint64_t without,
	struct crn_page_run *runs, size_t max)
{
	uint64_t entries[128];
	uintptr_t at = *cursor;
	size_t count = 0;

	while (at < end) {
		size_t n = CRN_MIN((end - at) >> CRN_PAGE_SHIFT, CRN_ARRAY_SIZE(entries));
		int err = crn_pagemap_entries(pagemap, at, entries, n);

		if (err < 0)
			return err;
		for (size_t i = 0; i < n; i++, at += CRN_PAGE_SIZE) {
			if (!(entries[i] & (CRN_PAGEMAP_PRESENT | CRN_PAGEMAP_SWAP)) ||
				entries[i] & without)
				continue;
			if (count && runs[count - 1].end == at) {
				runs[count - 1].end += CRN_PAGE_SIZE;
				continue;
			}
			if (count == max) {
				*cursor = at;
				return (long)count;
			}
			runs[count++] =
				(struct crn_page_run){ at, at + CRN_PAGE_SIZE, CRN_PAGE_PRESENT };
		}
	}
	*cursor = end;
	return (long)count;
}

/* The same with PAGEMAP_SCAN, by its categories, where the kernel has it. */
static long populated_without(int pagemap, uintptr_t *cursor, uintptr_t end, uint64_t without,
	uint64_t without_entry, struct crn_page_run *runs, size_t max)
{
	struct crn_scan scan = {
		.category_inverted = without,
		.category_mask = without,
		.category_anyof_mask = CRN_PAGE_PRESENT | CRN_PAGE_SWAPPED,
		.return_mask = CRN_PAGE_PRESENT,
	};
	long count = scan_runs(pagemap, &scan, cursor, end, runs, max);

	if (count == -ENOTTY || count == -EINVAL || count == -ENOSYS)
		count = populated_by_entries(pagemap, cursor, end, without_entry, runs, max);
	return count;
}

long crn_pagemap_populated(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max)
{
	return populated_without(pagemap, cursor, end, CRN_PAGE_PFNZERO, 0, runs, max);
}

uintptr_t crn_pagemap_first(int pagemap, uintptr_t begin, uintptr_t end)
{
	struct crn_page_run run;
	struct crn_scan scan = {
		.category_anyof_mask = CRN_PAGE_PRESENT | CRN_PAGE_SWAPPED,
		.return_mask = CRN_PAGE_PRESENT | CRN_PAGE_SWAPPED,
		.max_pages = 1,
	};
	uintptr_t walked = begin;
	long count = begin < end ? scan_runs(pagemap, &scan, &walked, end, &run, 1) : 0;

	if (count < 0)
		return begin;
	return count ? run.begin : walked;
}

long crn_pagemap_own(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max)
{
	return populated_without(pagemap, cursor, end, CRN_PAGE_FILE | CRN_PAGE_PFNZERO,
		CRN_PAGEMAP_FILE, runs, max);
}

static long present_without(int pagemap, uintptr_t *cursor, uintptr_t end, uint64_t without,
	struct crn_page_run *runs, size_t max)
{
	struct crn_scan scan = {
		.category_inverted = without,
		.category_mask = without | CRN_PAGE_PRESENT,
		.return_mask = CRN_PAGE_PRESENT,
	};

	return scan_runs(pagemap, &scan, cursor, end, runs, max);
}

long crn_pagemap_own_present(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max)
{
	return present_without(pagemap, cursor, end, CRN_PAGE_FILE, runs, max);
}

long crn_pagemap_present(
	int pagemap, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max)
{
	return present_without(pagemap, cursor, end, CRN_PAGE_PFNZERO, runs, max);
}
