/* SPDX-License-Identifier: MIT */
/* Which memory the fork tracker tracks, and which checkpoints hold it. */
#include "base/arena.h"
#include "base/status.h"
#include "track/fork/fork_tracker.h"

static int ranges_reserve(struct fork_tracker *t, size_t more)
{
	return crn_table_grow(t->env->arena, (void **)&t->ranges, &t->range_capacity,
		t->range_count, t->range_count + more, sizeof(*t->ranges));
}

int fork_area_add(void *tracker, struct crn_area *area)
{
	struct fork_tracker *t = tracker;

	if (area->flags & CRN_AREA_SHARED)
		return CAIRN_ESHARED;
	CRN_TRY(fork_ranges_settle(t));
	CRN_TRY(ranges_reserve(t, 1));
	t->ranges[t->range_count++] = (struct fork_range){
		.begin = area->begin,
		.end = area->end,
		.flags = area->flags,
		.born = area->born,
		.last = FORK_LAST_OPEN,
		.placed = t->count && area->born <= fork_snapshot_at(t, t->count - 1)->id,
	};
	return 0;
}

/*
 * Make what ranges[i] has in [begin, end) a range of its own: it stays at i, what is left of it
 * before and behind goes to the end of the table.
 */
static int range_carve(struct fork_tracker *t, size_t i, uintptr_t begin, uintptr_t end)
{
	struct fork_range *r, *rest;

	r = &t->ranges[i];
	CRN_TRY(ranges_reserve(t, (size_t)(r->begin < begin) + (r->end > end)));
	r = &t->ranges[i];
	if (r->begin < begin) {
		rest = &t->ranges[t->range_count++];
		*rest = *r;
		rest->end = r->begin = begin;
	}
	if (r->end > end) {
		rest = &t->ranges[t->range_count++];
		*rest = *r;
		rest->begin = r->end = end;
	}
	return 0;
}

static bool is_open_in(const struct fork_range *r, uintptr_t begin, uintptr_t end)
{
	return r->last == FORK_LAST_OPEN && r->end > begin && r->begin < end;
}

/*
 * The part of every tracked range that lies in [begin, end) becomes past: the children of older
 * checkpoints keep their copies, and a mapping that comes back by a restore gets its content from
 * them.
 */
static int cut_out(void *tracker, uintptr_t begin, uintptr_t end)
{
	struct fork_tracker *t = tracker;
	size_t count = t->range_count;
	uint64_t newest = t->count ? fork_snapshot_at(t, t->count - 1)->id : 0;

	for (size_t i = 0; i < count; i++) {
		if (!is_open_in(&t->ranges[i], begin, end))
			continue;
		CRN_TRY(range_carve(t, i, begin, end));
		t->ranges[i].last = newest;
	}
	return 0;
}

int fork_area_gone(void *tracker, struct crn_area *area)
{
	return cut_out(tracker, area->begin, area->end);
}

int fork_ranges_settle(struct fork_tracker *t)
{
	return crn_late_drops_finish(&t->late, cut_out, t);
}

/* The children know what the mapping that it serves as has held. */
int fork_area_born(void *tracker, struct crn_area *area)
{
	struct fork_tracker *t = tracker;
	size_t count = t->range_count;

	for (size_t i = 0; i < count; i++) {
		if (!is_open_in(&t->ranges[i], area->begin, area->end))
			continue;
		CRN_TRY(range_carve(t, i, area->begin, area->end));
		t->ranges[i].placed |= area->born < t->ranges[i].born;
		t->ranges[i].born = area->born;
	}
	return 0;
}

void fork_area_drop(void *tracker, struct crn_area *area)
{
	struct fork_tracker *t = tracker;

	if (cut_out(t, area->begin, area->end) < 0)
		crn_late_drops_add(&t->late, area->begin, area->end);
}

void fork_ranges_prune(struct fork_tracker *t, uint64_t oldest, uint64_t back)
{
	for (size_t i = t->range_count; i-- > 0;) {
		const struct fork_range *r = &t->ranges[i];

		if (r->last != FORK_LAST_OPEN &&
			(r->last < oldest || r->last >= back || r->born > r->last))
			t->ranges[i] = t->ranges[--t->range_count];
	}
}

const struct fork_range *fork_range_at(const struct fork_tracker *t, uint64_t id, uintptr_t addr)
{
	for (size_t i = 0; i < t->range_count; i++) {
		const struct fork_range *r = &t->ranges[i];

		if (r->begin <= addr && addr < r->end && fork_range_holds(r, id))
			return r;
	}
	return NULL;
}
