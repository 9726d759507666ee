/* SPDX-License-Identifier: MIT */
/* Keeping what a system call is about to write, where a pointer may lead nowhere. */
#ifndef CRN_RT_KEEP_READABLE_H
#define CRN_RT_KEEP_READABLE_H

#include "os/memory.h"
#include "rt/wrap.h"

/* As far as there is memory: the kernel stops there, too. */
static inline void crn_keep_readable(uintptr_t addr, size_t len)
{
	uintptr_t at[CRN_PROBE_MAX], end = addr + len;

	while (addr < end) {
		size_t count = 0, good;

		for (uintptr_t a = addr; a < end && count < CRN_PROBE_MAX;
			a = crn_page_down(a) + CRN_PAGE_SIZE)
			at[count++] = a;
		good = crn_memory_readable(at, count);
		if (!good)
			return;
		len = CRN_MIN(end, crn_page_down(at[good - 1]) + CRN_PAGE_SIZE) - addr;
		keep((void *)addr, len);
		if (good < count)
			return;
		addr += len;
	}
}

#endif
