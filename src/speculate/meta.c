/* SPDX-License-Identifier: MIT */
/*
 * Meta speculation (SMC 7.3): the program runs on plain copy-on-write, and every other strategy is
 * shown a write of page p only if it holds p cold in this interval, as if it were alone. So all are
 * scored in one run.
 */
#include "speculate/strategy.h"

#define RIVALS_MAX 16

struct meta {
	struct crn_port port; /* the rivals' */
	struct crn_speculation *rivals[RIVALS_MAX];
	size_t count;
};

static bool takes_part(const struct crn_strategy_ops *ops, const struct crn_port *port)
{
	if (ops == &crn_strategy_meta || ops->flags & CRN_STRATEGY_BOUND)
		return false;
	return port->profile || !(ops->flags & CRN_STRATEGY_PROFILE);
}

static void meta_close(struct crn_speculation *s)
{
	struct meta *m = s->common;

	for (size_t i = 0; i < m->count; i++)
		crn_speculation_close(m->rivals[i]);
}

static int meta_open(struct crn_speculation *s)
{
	struct meta *m = s->common;
	char why[160];

	m->port = *s->port;
	m->port.costs.alone = 0; /* pages are scored, which are no cheaper together */
	for (size_t i = 0; crn_strategies[i]; i++) {
		int err;

		if (!takes_part(crn_strategies[i], s->port))
			continue;
		if (m->count == RIVALS_MAX)
			break;
		err = crn_speculation_open(&m->rivals[m->count], &m->port,
			crn_strategies[i]->name, why, sizeof(why));
		if (err < 0) {
			meta_close(s);
			return err;
		}
		m->count++;
	}
	return 0;
}

static void meta_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct meta *m = s->common;

	/* An interval that could not be noted whole is not shown. */
	for (size_t i = 0; i < m->count && !s->written.lost; i++) {
		struct crn_speculation *rival = m->rivals[i];
		uint64_t start = s->port->clock ? s->port->clock(s->port) : 0;

		crn_speculation_context(rival, s->key_next);
		crn_speculation_replay(rival, s->written.pages, s->written.count);
		if (s->port->clock)
			rival->stats.cycles += s->port->clock(s->port) - start;
	}
}

static void meta_restore(struct crn_speculation *s, uint64_t intervals)
{
	struct meta *m = s->common;

	for (size_t i = 0; i < m->count; i++)
		crn_speculation_restore(m->rivals[i], intervals);
}

static void meta_removed(struct crn_speculation *s, uintptr_t begin, uintptr_t end)
{
	struct meta *m = s->common;

	for (size_t i = 0; i < m->count; i++)
		crn_speculation_area_removed(m->rivals[i], begin, end);
}

static uint64_t meta_bytes(const struct crn_speculation *s)
{
	const struct meta *m = s->common;
	uint64_t bytes = 0;

	for (size_t i = 0; i < m->count; i++) {
		struct crn_speculation_stats stats;

		crn_speculation_stats(m->rivals[i], &stats);
		bytes += stats.memory;
	}
	return bytes;
}

struct crn_speculation *crn_speculation_rival(const struct crn_speculation *s, size_t index)
{
	const struct meta *m = s->common;

	return s->ops == &crn_strategy_meta && index < m->count ? m->rivals[index] : NULL;
}

const struct crn_strategy_ops crn_strategy_meta = {
	.name = "meta",
	.summary = "plain copy-on-write that scores all other strategies (SMC 7.3)",
	.flags = CRN_STRATEGY_COLD,
	.common_size = sizeof(struct meta),
	.open = meta_open,
	.close = meta_close,
	.checkpoint = meta_checkpoint,
	.restore = meta_restore,
	.removed = meta_removed,
	.bytes = meta_bytes,
};
