/* SPDX-License-Identifier: MIT */
/* The active list of Active-RND, but a full list loses its oldest page. */
#include "speculate/active_list.h"

static uint32_t victim(struct crn_speculation *s, struct crn_working_set *ws)
{
	return ws->first;
}

static void fifo_fault(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page)
{
	crn_active_fault(s, ws, page, victim);
}

static void fifo_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
	crn_active_checkpoint(s, ws, victim);
}

const struct crn_strategy_ops crn_strategy_active_fifo = {
	.name = "active-fifo",
	.summary = "active list of sampled size, oldest page evicted (SMC 5.1)",
	.parameters = { CRN_ACTIVE_PARAMETERS },
	.state_size = sizeof(struct crn_active_list),
	.context_open = crn_active_open,
	.fault = fifo_fault,
	.checkpoint = fifo_checkpoint,
};
