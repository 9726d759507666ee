/* SPDX-License-Identifier: MIT */
/*
 * Areas that were dropped while there was no memory to cut them out of a tracker's tables. A drop
 * cannot fail, so it is finished later. Until then the tracker takes no checkpoint and no area, and
 * restores nothing (CAIRN_EMEMORY), because its tables name memory that is no longer tracked.
 */
#ifndef CRN_LATE_DROPS_H
#define CRN_LATE_DROPS_H

#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"
#include "base/status.h"

#define CRN_LATE_DROPS 64

struct crn_late_drops {
	struct {
		uintptr_t begin, end;
	} at[CRN_LATE_DROPS];
	size_t count; /* CRN_LATE_DROPS + 1: there were more, it is so for good */
};

static inline void crn_late_drops_add(struct crn_late_drops *l, uintptr_t begin, uintptr_t end)
{
	if (l->count < CRN_LATE_DROPS) {
		l->at[l->count].begin = begin;
		l->at[l->count].end = end;
	}
	l->count = CRN_MIN(l->count + 1, (size_t)CRN_LATE_DROPS + 1);
}

/* `cut` does no harm if it is called twice. 0 or CAIRN_EMEMORY. */
static inline int crn_late_drops_finish(struct crn_late_drops *l,
	int (*cut)(void *tracker, uintptr_t begin, uintptr_t end), void *tracker)
{
	if (l->count > CRN_LATE_DROPS)
		return CAIRN_EMEMORY;
	for (; l->count; l->count--)
		CRN_TRY(cut(tracker, l->at[l->count - 1].begin, l->at[l->count - 1].end));
	return 0;
}

#endif
