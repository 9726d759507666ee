/* SPDX-License-Identifier: MIT */
/*
 * Active-CKS (SMC 5.1): a page becomes hot at its first access, and cold when its checksum has
 * stayed the same for N checkpoints. entry.note is the checksum, entry.count how often it stayed.
 * Trackers compare their hot pages anyway, or hash them where they are many (track/hot_form.h):
 * then there is no checksum in the port, and what the tracker says is taken.
 */
#include "speculate/strategy.h"

enum { CKS_N };

static void cks_fault(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page)
{
	uint32_t index = crn_ws_add(ws, page);

	if (index == CRN_WS_NONE)
		return;
	crn_ws_set_hot(ws, index, true);
	/* We are told at the checkpoint: this is the content with which the interval begins. */
	if (s->port->checksum)
		ws->entries[index].note = s->port->checksum(s->port, page);
}

static bool unchanged(struct crn_speculation *s, struct crn_ws_entry *e, bool bit)
{
	uint64_t sum;

	if (!s->port->checksum)
		return !bit;
	sum = s->port->checksum(s->port, e->page);
	if (sum == e->note)
		return true;
	e->note = sum;
	return false;
}

static void cks_checkpoint(struct crn_speculation *s, struct crn_working_set *ws)
{
	struct crn_hot_table *h = &s->hot;

	for (size_t word = 0; word < crn_hot_words(h); word++) {
		for (uint64_t bits = h->used[word]; bits; bits &= bits - 1) {
			size_t slot = word * 64 + (size_t)__builtin_ctzll(bits);
			struct crn_ws_entry *e = &ws->entries[h->entry[slot]];

			if (!unchanged(s, e, h->changed[word] >> slot % 64 & 1))
				e->count = 0;
			else if (++e->count >= s->values[CKS_N])
				crn_strategy_drop(s, ws, h->entry[slot]);
		}
	}
}

const struct crn_strategy_ops crn_strategy_active_cks = {
	.name = "active-cks",
	.summary = "evicts a page whose checksum stays the same (SMC 5.1)",
	.flags = CRN_STRATEGY_EXACT,
	.parameters = {
		[CKS_N] = { "n", "checkpoints without a change before a page is evicted", 1, 5, 1,
			1 << 20 },
	},
	.fault = cks_fault,
	.checkpoint = cks_checkpoint,
};
