/* SPDX-License-Identifier: MIT */
/*
 * Stray stores stop before they damage a checkpoint (LMC, section IV-B; "Techniques for in-memory
 * checkpointing", section 3.3).
 *
 * Shadow: a hook reads the tag of the address before the store. The tags of the shadow, of the tags
 * and of the engine's memory, and the tags of those tags, are the metatagmap. None of it is mapped,
 * and with -fcairn-guard=on none of it can be, so the read itself ends in SIGSEGV. The page of
 * state lies in the program's image and has tags, but they never say "saved", so each store to it
 * takes the slow path. The guard therefore costs hooks nothing.
 *
 * Undo log: hooks compare the address with the begin of the primary memory, and with that page.
 */
#include "rt/rt.h"
#include "base/bits.h"

/* The pass defines it in code whose hooks guard. */
extern const char __cairn_guard_on __attribute__((weak));

bool crn_rt_guarded(void)
{
	return &__cairn_guard_on;
}

/*
 * SAFETY: as all hooks. Page 0 is nobody's; its fault is the program's, or its handler's that goes
 * back to a checkpoint.
 */
void crn_rt_stray(uintptr_t addr)
{
	(void)*(volatile char *)(addr & (CRN_PAGE_SIZE - 1));
}
