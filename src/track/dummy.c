/* SPDX-License-Identifier: MIT */
/*
 * Takes the place of the tracker under strategy `oracle-count` (SMC 5.1), a cost bound. No page is
 * protected or looked at. Each checkpoint copies as many dummy pages as the profile says that the
 * coming interval will write. Nothing that it hands over could be put back, so the session refuses
 * restores, rewinds and looks into the past. It is not in the list of trackers, and no option names
 * it.
 */
#include "base/arena.h"
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "track/track.h"

/* Copied from in turn: more than the first-level cache holds, as pages that a program writes. */
#define SOURCES 64u

struct dummy {
	struct crn_track_env *env;
	uint8_t *source;
	uint64_t copied;
};

static int dummy_probe(const struct crn_host *host)
{
	return 0;
}

static int dummy_open(void **out, struct crn_track_env *env)
{
	struct dummy *d = crn_block_alloc(env->arena, sizeof(*d));

	if (!d)
		return CAIRN_EMEMORY;
	d->env = env;
	d->source = crn_block_alloc(env->arena, SOURCES * CRN_PAGE_SIZE);
	if (!d->source)
		return CAIRN_EMEMORY;
	crn_fill(d->source, 1, SOURCES * CRN_PAGE_SIZE); /* pages of their own, not one of zeros */
	*out = d;
	return 0;
}

static void dummy_close(void *t)
{
}

static int dummy_area_add(void *t, struct crn_area *area)
{
	return 0;
}

static void dummy_area_drop(void *t, struct crn_area *area)
{
}

static int dummy_area_gone(void *t, struct crn_area *area)
{
	return 0;
}

static int dummy_begin(void *t)
{
	return 0;
}

static int dummy_end(void *t, struct crn_sink *sink)
{
	struct dummy *d = t;
	struct crn_predictor *p = d->env->predictor;
	size_t count;

	(void)p->decide(d->env);
	count = p->dummies;
	if (sink->prepare)
		CRN_TRY(sink->prepare(sink, count, count));
	for (size_t i = 0; i < count; i++) {
		void *frame = crn_frame_alloc(d->env->arena);

		if (!frame)
			return CAIRN_EMEMORY;
		crn_copy_page(frame, d->source + d->copied % SOURCES * CRN_PAGE_SIZE);
		CRN_TRY(sink->take(sink, (i + 1) * CRN_PAGE_SIZE, CRN_PAGE_SIZE, frame, true));
		d->copied++;
	}
	return 0;
}

static int dummy_range(void *t, uintptr_t addr, size_t len)
{
	return 0;
}

static int dummy_set_hot(void *t, uintptr_t addr, size_t len, bool hot)
{
	return 0;
}

static uint64_t dummy_eager(const void *t)
{
	return ((const struct dummy *)t)->copied;
}

const struct crn_tracker_ops crn_tracker_dummy = {
	.name = "dummy",
	.caps = CRN_TRACK_PAGES | CRN_TRACK_SEES_KERNEL | CRN_TRACK_THREADS | CRN_TRACK_SHARED |
		CRN_TRACK_NOTHING,
	.probe = dummy_probe,
	.open = dummy_open,
	.close = dummy_close,
	.area_add = dummy_area_add,
	.area_drop = dummy_area_drop,
	.area_gone = dummy_area_gone,
	.interval_begin = dummy_begin,
	.interval_end = dummy_end,
	.page = {
		.unprotect = dummy_range,
		.set_hot = dummy_set_hot,
		.collect = dummy_range,
	},
	.eager = dummy_eager,
};
