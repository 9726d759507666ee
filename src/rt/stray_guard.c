/* SPDX-License-Identifier: MIT */
/*
 * Stray stores stop before they damage a checkpoint (LMC, section IV-B; "Techniques for in-memory
 * checkpointing", section 3.3).
 *
 * Shadow: a hook looks at the tag of the address before the store. Tags of the shadow, of the tags,
 * of the engine's memory, and tags of those tags in turn are the metatagmap. Nothing of it is
 * mapped, and with -fcairn-guard=on nothing can be: so the look itself ends in SIGSEGV. The page of
 * state is in the program's image and has tags, but they never say "saved": each store to it comes
 * to the slow path. So the guard costs hooks nothing.
 *
 * Undo log: hooks compare the address with the begin of the primary memory and with that page.
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
