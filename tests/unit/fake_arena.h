/* SPDX-License-Identifier: MIT */
/*
 * An arena over malloc for white-box tests: counts every frame and block, fails on demand, and
 * gives freed memory back at once so that a sanitizer sees each use after free.
 */
#ifndef CRN_FAKE_ARENA_H
#define CRN_FAKE_ARENA_H

#include <stddef.h>
#include "base/arena.h"

struct crn_arena {
	size_t frames, frames_max; /* allocated now; crn_frame_alloc fails beyond */
	size_t blocks, blocks_max;
	size_t block_bytes;
};

#endif
