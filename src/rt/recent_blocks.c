/* SPDX-License-Identifier: MIT */
#include "rt/recent_blocks.h"

struct crn_recent_block crn_recent_blocks[CRN_RECENT_BLOCKS] CRN_RT_LASTING;
