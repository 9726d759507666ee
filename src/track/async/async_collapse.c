/* SPDX-License-Identifier: MIT */
/*
 * Huge pages for memory that nobody writes. A scan looks at 512 entries for 2 MiB of small pages,
 * and at one for a huge page. The first store to a huge page splits it, and from then on each of
 * its pages is protected by itself. So what is written is tracked page by page as ever, and a scan
 * costs by the stretches that have been written since they were adopted.
 *
 *	| PPPPPPPP | PPPP..PP | PPPPSPPP |	P: present, .: not, S: shared with a child of fork
 *	  one huge   as it is   as it is
 *
 * A stretch that is not full is left alone: joining would give the program memory that it has not
 * asked for. So is one with shared pages, which joining would copy.
 */
#include <errno.h>
#include "track/async/async.h"
#include "base/bits.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "os/thread.h"

/*
 * As a rule a stretch takes half a millisecond; more where the kernel first moves pages about,
 * or where a virtual machine's host has not given it the memory yet. A scan that passes over it is
 * half a microsecond shorter each time.
 */
#define PATIENCE_NS 50000000ull
#define STRETCH_NS  5000000ull
#define KEEPER_MS   100

static bool is_full(struct crn_async *t, uintptr_t begin)
{
	const uint64_t kinds = CRN_PAGEMAP_PRESENT | CRN_PAGEMAP_EXCLUSIVE | CRN_PAGEMAP_FILE;
	uint64_t entries[64];

	for (uintptr_t at = begin; at < begin + CRN_ASYNC_CHUNK;
		at += CRN_ARRAY_SIZE(entries) * CRN_PAGE_SIZE) {
		if (crn_pagemap_entries(t->pagemap, at, entries, CRN_ARRAY_SIZE(entries)) < 0)
			return false;
		for (size_t i = 0; i < CRN_ARRAY_SIZE(entries); i++)
			if ((entries[i] & kinds) != (CRN_PAGEMAP_PRESENT | CRN_PAGEMAP_EXCLUSIVE))
				return false;
	}
	return true;
}

/* Until then it shares all pages, as any child does. */
static void await_keeper(const struct crn_keeper *k)
{
	for (int i = 0; i < KEEPER_MS && !crn_keeper_is_light(k); i++)
		crn_doze(CRN_MILLISECOND);
}

void crn_async_collapse(struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	uintptr_t at = (begin + CRN_ASYNC_CHUNK - 1) & ~(CRN_ASYNC_CHUNK - 1);
	uint64_t start, count = 0;

	if (t->feed || at >= end || end - at < CRN_ASYNC_CHUNK || !crn_memory_huge_allowed())
		return;
	await_keeper(t->env->keeper);
	start = crn_clock_kernel_ns();
	for (; end - at >= CRN_ASYNC_CHUNK; at += CRN_ASYNC_CHUNK) {
		int err;

		if (!is_full(t, at))
			continue;
		err = crn_memory_advise((void *)at, CRN_ASYNC_CHUNK, MADV_COLLAPSE);
		count += err >= 0;
		if (err == -ENOMEM || err == -EBUSY || /* no memory; a limit has been reached */
			crn_clock_kernel_ns() - start > PATIENCE_NS + count * STRETCH_NS)
			break;
	}
	crn_debug("%lu huge pages in %zx-%zx", (unsigned long)count, begin, end);
}
