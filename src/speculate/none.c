/* SPDX-License-Identifier: MIT */
/* Plain copy-on-write: no page is ever hot. */
#include "speculate/strategy.h"

const struct crn_strategy_ops crn_strategy_none = {
	.name = "none",
	.summary = "plain copy-on-write",
	.flags = CRN_STRATEGY_COLD,
};
