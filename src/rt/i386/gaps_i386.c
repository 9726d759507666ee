/* SPDX-License-Identifier: MIT */
/*
 * rt/metatags.c for 32-bit programs, in which all that is neither primary memory nor kept for it is
 * closed from the start: the kernel may map nothing there when the rest is full, for hooks have no
 * tags for it.
 */
#include "rt/rt.h"
#include "base/bits.h"
#include "base/status.h"
#include "os/memory.h"

#define LOWEST 0x10000u /* vm.mmap_min_addr; nobody maps lower */

static int close_between(uint64_t begin, uint64_t end)
{
	begin = CRN_MAX(begin, LOWEST);
	return begin < end ? crn_memory_inhibit((uintptr_t)begin, (size_t)(end - begin)) : 0;
}

/* What tags there are of the two windows lies between these. */
static int close_low(uint32_t shift)
{
	const uint64_t primary_end = CRN_RT_IMAGE_AT + CRN_RT_IMAGE_LEN;

	CRN_TRY(close_between(0, CRN_RT_IMAGE_AT >> shift));
	CRN_TRY(close_between(primary_end >> shift, CRN_RT_MAPS_AT >> shift));
	return close_between((1ull << 32) >> shift, CRN_RT_IMAGE_AT);
}

int crn_rt_guard_start(void)
{
	if (__cairn_shape.kind == CRN_RT_SHADOW) {
		CRN_TRY(close_low(__cairn_shape.shift));
		return crn_memory_inhibit(CRN_RT_ENGINE_AT, CRN_RT_ENGINE_LEN);
	}
	CRN_TRY(close_between(0, CRN_RT_IMAGE_AT));
	return crn_memory_inhibit(CRN_RT_IMAGE_AT + CRN_RT_IMAGE_LEN,
		CRN_RT_MAPS_AT - CRN_RT_IMAGE_AT - CRN_RT_IMAGE_LEN);
}
