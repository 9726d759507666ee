/* SPDX-License-Identifier: MIT */
/* When memory_max is reached: what is given up for a checkpoint or a restore, in which order. */
#include "base/arena.h"
#include "base/status.h"
#include "journal/journal.h"
#include "session/engine.h"

bool crn_give_up_oldest(cairn_t *c)
{
	uint64_t oldest;

	if (c->marks.count < 2)
		return false;
	if (c->journal && crn_journal_oldest(c->journal, &oldest) &&
		oldest <= crn_mark_at(c, 0)->id)
		crn_journal_evict(c->journal);
	crn_marks_drop_oldest(c);
	return true;
}

/* The oldest ones, of those before `id`: so many, or all that have frames to give. */
static bool give_up_some(cairn_t *c, size_t count, uint64_t id)
{
	uint64_t oldest;

	for (size_t i = 0; i < count; i++) {
		if (!c->journal || !crn_journal_oldest(c->journal, &oldest) || oldest >= id ||
			!crn_give_up_oldest(c))
			return i;
	}
	return true;
}

bool crn_blocks_made(cairn_t *c, uint64_t id)
{
	int got;

	if (c->ops->hold)
		c->ops->hold(c->tracker, true);
	for (size_t n = 1; (got = crn_blocks_from_frames(c->arena)) == CAIRN_EMEMORY; n *= 2)
		if (!give_up_some(c, n, id))
			break;
	if (c->ops->hold)
		c->ops->hold(c->tracker, false);
	return got > 0;
}

bool crn_give_up_open(cairn_t *c)
{
	struct crn_sink *sink;

	if (c->ops->caps & CRN_TRACK_KEEPS || !c->control->lost)
		return false;
	sink = crn_journal_begin(c->journal, crn_mark_newest(c)->id, true);
	if (c->ops->interval_end(c->tracker, sink) < 0) {
		crn_journal_abort(c->journal);
		return false;
	}
	(void)crn_journal_commit(c->journal); /* nothing: it cannot fail */
	return c->ops->interval_begin(c->tracker) >= 0;
}
