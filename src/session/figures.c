/* SPDX-License-Identifier: MIT */
/* cairn_stats: the figures that all parts count, put together. */
#include "session/engine.h"
#include "base/copy.h"
#include "base/log.h"

static uint64_t surface_bytes(const cairn_t *c)
{
	uint64_t n = 0;

	for (size_t i = 0; i < c->area_count; i++)
		n += c->areas[i]->end - c->areas[i]->begin;
	return n;
}

static uint64_t eager(const cairn_t *c)
{
	return c->ops->eager ? c->ops->eager(c->tracker) : 0;
}

/* `to` is all zeros. */
static void copy_name(char *to, size_t size, const char *name)
{
	for (size_t i = 0; name[i] && i < size - 1; i++)
		to[i] = name[i];
}

/* `to` is all zeros. */
static void feed_why(const cairn_t *c, char *to, size_t size)
{
	if (c->env.feed_refused)
		(void)crn_format(to, size, "%s: %s", c->env.feed_refused, c->env.feed_why);
}

static void long_intervals(const cairn_t *c, struct cairn_stats *s)
{
	struct crn_long_figures f = { 0 };

	if (c->ops->intervals_long)
		c->ops->intervals_long(c->tracker, &f);
	s->long_intervals = f.switches - c->figures.long_before.switches;
	s->long_at_once = f.begun - c->figures.long_before.begun;
}

int cairn_stats(cairn_t *c, struct cairn_stats *out)
{
	struct cairn_stats s = { .size = sizeof(s) };
	size_t size;

	if (!out || out->size < sizeof(out->size))
		return CAIRN_EOPTION;
	CRN_TRY(crn_lock(c));
	copy_name(s.tracker, sizeof(s.tracker), c->ops->name);
	if (c->ops->feed) {
		copy_name(s.feed, sizeof(s.feed), c->ops->feed(c->tracker, &s.scans));
		s.scans -= c->figures.scans_before;
		feed_why(c, s.feed_why, sizeof(s.feed_why));
	}
	s.checkpoints = c->figures.checkpoints;
	s.failed = c->figures.failed;
	s.restores = c->figures.restores;
	s.pages_saved = c->figures.pages_saved;
	s.pages_eager = eager(c) - c->figures.eager_before;
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
	long_intervals(c, &s);
	copy_name(s.strategy_why, sizeof(s.strategy_why), c->strategy_why);
	crn_strategy_stats(c, &s);
	size = out->size; /* a caller that was built against an older header gets its part */
	crn_result(c, out, CRN_MIN(size, sizeof(s)));
	crn_unlock(c);
	crn_copy(out, &s, CRN_MIN(size, sizeof(s)));
	out->size = size;
	return 0;
}

int cairn_stats_reset(cairn_t *c)
{
	CRN_TRY(crn_lock(c));
	crn_fill(&c->figures, 0, sizeof(c->figures));
	if (c->ops->feed)
		(void)c->ops->feed(c->tracker, &c->figures.scans_before);
	c->figures.faults_before = c->ops->faults ? c->ops->faults(c->tracker) : 0;
	c->figures.eager_before = eager(c);
	if (c->ops->intervals_long)
		c->ops->intervals_long(c->tracker, &c->figures.long_before);
	if (c->speculation)
		crn_speculation_stats_reset(c->speculation);
	crn_unlock(c);
	return 0;
}
