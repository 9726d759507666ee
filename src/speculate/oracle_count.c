/* SPDX-License-Identifier: MIT */
/*
 * The papers' oracle (SMC 5.1), a cost bound: no page is tracked, and at each checkpoint as many
 * dummy pages are copied as the profile says that the coming interval will write. A server does not
 * do the same twice, and may run for longer: then the profile begins again.
 */
#include "speculate/strategy.h"

struct oracle_count {
	uint64_t index;
};

/* A session copies nothing before its first checkpoint; a replay counts from the first interval. */
static int count_open(struct crn_speculation *s)
{
	struct crn_profile_interval first;

	if (s->port->profile && s->port->profile(s->port, 0, &first) >= 0)
		s->dummies = first.count;
	return 0;
}

static void count_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct crn_profile_interval coming;
	struct oracle_count *o = s->common;

	o->index++;
	if (s->port->profile(s->port, o->index, &coming) < 0) {
		o->index = 0;
		if (s->port->profile(s->port, 0, &coming) < 0) {
			crn_strategy_give_up(s, "the profile is empty", 0, 0);
			return;
		}
	}
	s->dummies = coming.count;
}

static void count_restore(struct crn_speculation *s, uint64_t intervals)
{
	struct oracle_count *o = s->common;

	o->index -= intervals < o->index ? intervals : o->index;
}

const struct crn_strategy_ops crn_strategy_oracle_count = {
	.name = "oracle-count",
	.summary = "a cost bound, no checkpoints: copies the right number of dummy pages (SMC 5.1)",
	.flags = CRN_STRATEGY_PROFILE | CRN_STRATEGY_BOUND | CRN_STRATEGY_COLD,
	.common_size = sizeof(struct oracle_count),
	.open = count_open,
	.checkpoint = count_checkpoint,
	.restore = count_restore,
};
