/* SPDX-License-Identifier: MIT */
#include "session/engine.h"
#include "base/copy.h"

static uint64_t surface_bytes(const cairn_t *c)
{
	uint64_t n = 0;

	for (size_t i = 0; i < c->area_count; i++)
		n += c->areas[i]->end - c->areas[i]->begin;
	return n;
}

int cairn_stats(cairn_t *c, struct cairn_stats *out)
{
	struct cairn_stats s = { .size = sizeof(s) };
	size_t size;

	if (!out || out->size < sizeof(out->size))
		return CAIRN_EOPTION;
	CRN_TRY(crn_lock(c));
	for (size_t i = 0; c->ops->name[i] && i < sizeof(s.tracker) - 1; i++)
		s.tracker[i] = c->ops->name[i];
	s.checkpoints = c->figures.checkpoints;
	s.failed = c->figures.failed;
	s.restores = c->figures.restores;
	s.pages_saved = c->figures.pages_saved;
	s.pages_eager = c->figures.pages_eager;
	s.pages_restored = c->figures.pages_restored;
	s.faults = (c->ops->faults ? c->ops->faults(c->tracker) : 0) - c->figures.faults_before;
	s.checkpoint_ns = c->figures.checkpoint_ns;
	s.restore_ns = c->figures.restore_ns;
	s.areas = c->area_count;
	s.surface_bytes = surface_bytes(c);
	s.mirror_bytes = c->ops->bytes ? c->ops->bytes(c->tracker) : 0;
	s.journal_bytes = c->journal ? crn_journal_bytes(c->journal) : 0;
	s.engine_bytes = crn_arena_bytes(c->arena);
	s.engine_bytes_max = crn_arena_bytes_max(c->arena);
	crn_unlock(c);
	size = out->size; /* a caller that was built against an older header gets its part */
	crn_copy(out, &s, CRN_MIN(size, sizeof(s)));
	out->size = size;
	return 0;
}

int cairn_stats_reset(cairn_t *c)
{
	CRN_TRY(crn_lock(c));
	crn_fill(&c->figures, 0, sizeof(c->figures));
	c->figures.faults_before = c->ops->faults ? c->ops->faults(c->tracker) : 0;
	crn_unlock(c);
	return 0;
}
