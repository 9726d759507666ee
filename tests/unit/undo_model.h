/* SPDX-License-Identifier: MIT */
/*
 * The plainest model of a tracker, a full copy of the area at every interval_begin, and what is
 * done to both.
 */
#ifndef UNDO_MODEL_H
#define UNDO_MODEL_H

#include "undo_rig.h"

/* Pages that differ from the model without having been shown are lost writes. */
static void check_all_seen(struct rig *r)
{
	for (size_t p = 0; p < PAGES; p++)
		if (!r->seen[p])
			assert_memory_equal(r->live + p * CRN_PAGE_SIZE,
				r->begin + p * CRN_PAGE_SIZE, CRN_PAGE_SIZE);
	memset(r->seen, 0, sizeof(r->seen));
}

static void end_interval(struct rig *r)
{
	assert_int_equal(r->ops->interval_end(r->t, &r->sink), 0);
	check_all_seen(r);
	memcpy(r->before, r->begin, BYTES);
	memcpy(r->begin, r->live, BYTES);
	assert_int_equal(r->ops->interval_begin(r->t), 0);
}

static void rewind_interval(struct rig *r)
{
	r->rewind = 1;
	assert_int_equal(r->ops->undo(r->t, &r->sink), 0);
	r->rewind = 0;
	check_all_seen(r);
	assert_memory_equal(r->live, r->begin, BYTES);
}

/* Go one interval further back, page by page, as a restore does. */
static void rewind_further(struct rig *r)
{
	static const uint8_t zeros[CRN_PAGE_SIZE];

	rewind_interval(r);
	for (size_t p = 0; p < PAGES; p++) {
		uint8_t *old = r->before + p * CRN_PAGE_SIZE;
		bool zero = !memcmp(old, zeros, CRN_PAGE_SIZE);

		if (!memcmp(r->live + p * CRN_PAGE_SIZE, old, CRN_PAGE_SIZE))
			continue;
		assert_int_equal(r->ops->rebase(r->t, (uintptr_t)r->live + p * CRN_PAGE_SIZE,
					 zero ? NULL : old),
			0);
		memcpy(r->live + p * CRN_PAGE_SIZE, old, CRN_PAGE_SIZE);
		memcpy(r->begin + p * CRN_PAGE_SIZE, old, CRN_PAGE_SIZE);
	}
}

static void look_everywhere(struct rig *r)
{
	static const uint8_t zeros[CRN_PAGE_SIZE];

	for (size_t p = 0; p < PAGES; p++) {
		const uint8_t *live = r->live + p * CRN_PAGE_SIZE;
		const void *old;
		int zero = r->ops->look(r->t, (uintptr_t)live, &old);

		old = zero ? zeros : old ? old : live;
		assert_memory_equal(old, r->begin + p * CRN_PAGE_SIZE, CRN_PAGE_SIZE);
	}
}

static void random_stores(struct rig *r)
{
	for (uint32_t n = rnd(40); n; n--) {
		size_t at = rnd(BYTES - 16);

		switch (rnd(3)) {
		case 0:
			r->live[at] = (uint8_t)rnd(256);
			break;
		case 1:
			memset(r->live + at, (int)rnd(256), 16);
			break;
		default:
			memmove(r->live + at, r->live + rnd(BYTES - 16), 16);
		}
	}
}

#endif
