/* SPDX-License-Identifier: MIT */
/* Active-RND: a full active list loses a page drawn at random. */
#include "speculate/active_list.h"

/*
 * Indices are drawn until one is in use. A list that has shrunk leaves many free: past some tries
 * the next one in use is taken.
 */
static uint32_t victim(struct crn_speculation *s, struct crn_working_set *ws)
{
	uint32_t at = 0;

	for (unsigned tries = 0; tries < 32; tries++) {
		at = (uint32_t)s->port->random(s->port) & (ws->capacity - 1);
		if (ws->entries[at].page)
			return at;
	}
	while (!ws->entries[at].page)
		at = (at + 1) & (ws->capacity - 1);
	return at;
}

static void rnd_fault(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page)
{
	crn_active_fault(s, ws, page, victim);
}

static void rnd_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
	crn_active_checkpoint(s, ws, victim);
}

const struct crn_strategy_ops crn_strategy_active_rnd = {
	.name = "active-rnd",
	.summary = "active list of sampled size, random eviction (SMC 5.1)",
	.parameters = { CRN_ACTIVE_PARAMETERS },
	.state_size = sizeof(struct crn_active_list),
	.context_open = crn_active_open,
	.fault = rnd_fault,
	.checkpoint = rnd_checkpoint,
};
