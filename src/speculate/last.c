/* SPDX-License-Identifier: MIT */
/* Hot is what the previous interval of the same context wrote, and nothing else. */
#include "speculate/strategy.h"

static void last_fault(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page)
{
	uint32_t index = crn_ws_add(ws, page);

	if (index != CRN_WS_NONE)
		crn_ws_set_hot(ws, index, true);
}

static void last_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct crn_hot_table *h = &s->hot;

	for (size_t word = 0; word < crn_hot_words(h); word++) {
		uint64_t idle = h->used[word] & ~h->changed[word];

		for (; idle; idle &= idle - 1) {
			size_t slot = word * 64 + (size_t)__builtin_ctzll(idle);

			crn_strategy_drop(s, ws, h->entry[slot]);
		}
	}
}

const struct crn_strategy_ops crn_strategy_last = {
	.name = "last",
	.summary = "the pages that the previous interval of the context wrote",
	.flags = CRN_STRATEGY_EXACT,
	.fault = last_fault,
	.checkpoint = last_checkpoint,
};
