/* SPDX-License-Identifier: MIT */
/*
 * The metatagmap of 64-bit programs (stray_guard.c): addresses of tags that must never be mapped.
 * Nothing is mapped there, and with -fcairn-guard=on nobody can map anything there.
 */
#include "rt/rt.h"
#include "base/bits.h"
#include "base/status.h"
#include "os/memory.h"

#define LOWEST    (16ul << 20) /* nobody maps that low */
#define ARENA_LEN (4ul << 40)  /* where it can be, with regions of one byte */

/* The tags of [at, at+len), their tags, and so on. What is inhibited needs none that are. */
static int inhibit_tags(uintptr_t at, size_t len)
{
	uint32_t shift = __cairn_shape.shift;

	if (!shift)
		return crn_memory_inhibit((uintptr_t)crn_rt_tag(at, 0), len);
	for (at >>= shift, len >>= shift; at >= LOWEST; at >>= shift, len >>= shift) {
		uintptr_t end = crn_page_up(at + len);

		CRN_TRY(crn_memory_inhibit(crn_page_down(at), end - crn_page_down(at)));
	}
	return 0;
}

/* Of bytes: what the session takes of the engine's range has its tags in what it does not. */
static int inhibit_engine(void)
{
	if (__cairn_shape.shift)
		return inhibit_tags(CRN_RT_ENGINE_AT, CRN_RT_ENGINE_LEN);
	CRN_TRY(inhibit_tags(CRN_RT_ENGINE_AT, ARENA_LEN));
	return inhibit_tags(CRN_RT_LIST_AT, CRN_RT_LISTED_AT + CRN_RT_LIST_MAX - CRN_RT_LIST_AT);
}

static int inhibit_window(uintptr_t primary, size_t len)
{
	uint32_t shift = __cairn_shape.shift;

	CRN_TRY(inhibit_tags(primary - CRN_RT_SHADOW_BELOW, len));
	return inhibit_tags((uintptr_t)crn_rt_tag(primary, shift), len >> shift);
}

int crn_rt_guard_start(void)
{
	if (!crn_rt_guarded() || __cairn_shape.kind != CRN_RT_SHADOW)
		return 0;
	CRN_TRY(inhibit_window(CRN_RT_IMAGE_AT, CRN_RT_IMAGE_LEN));
	CRN_TRY(inhibit_window(CRN_RT_MAPS_AT, CRN_RT_MAPS_LEN));
	return inhibit_engine();
}
