/* SPDX-License-Identifier: MIT */
/*
 * Hybrid intervals ("Techniques for in-memory checkpointing", chapter 5): an interval that turns
 * out long continues in page mode, in which a page tracker notices stores instead of the program's
 * hooks.
 *
 *	checkpoint        switch                              checkpoint, restore, peek
 *	    | store mode    |  page mode                          |
 *	    |  hooks save   |  mirror = content at the switch     | merge: what no hook had saved of
 *	    |               |  hooks are inert, code without      |  the written pages is saved now,
 *	    |               |  hooks runs                         |  with the mirror's content
 *
 * Page mode only adds to what the hooks keep. After `merge` that is what it would be if every store
 * since the switch had had its hook. So older checkpoints, peek and rewind need not know of it.
 *
 * Why no store is missed:
 *
 *	- What hooks saved before the switch is older, and older content wins: save_old does not
 *	  overwrite what is saved; in a log it lies behind, where it is undone last.
 *	- The mirror is copied with signals blocked and no other thread (-fcairn-hybrid has one),
 *	  so all of it is from one instant. From then on every store counts, whether by hooked
 *	  code, code without hooks, the kernel or libraries.
 *	- A hook that the switch interrupts (in a signal handler) has not stored yet, and looks
 *	  again before what it has read becomes valid (crn_rt_paged).
 *	- Memory that is not in the mirror has hooks in both versions of a function, or is copied
 *	  whole: the active stack at the checkpoint, thread-local variables at the switch.
 *	- Code without hooks is left before the next interval begins, because it cannot reach a
 *	  checkpoint.
 */
#ifndef CRN_PAGE_MODE_H
#define CRN_PAGE_MODE_H

#include "base/bits.h"
#include "track/hooked/inner_pages.h"
#include "track/track.h"

struct crn_hook_ops;

struct crn_page_mode {
	struct crn_inner_pages inner;
	bool refused;  /* page mode cannot be had here: said once */
	uint64_t upset; /* crn_program_maps.upset when the areas were added */
	struct crn_area **areas; /* sorted, disjoint */
	size_t area_count, area_capacity;
	struct crn_range *spans; /* the same, for hooks: crn_rt.paged */
	size_t span_capacity;
	struct crn_area *found; /* what should be areas; scratch */
	size_t found_count, found_capacity;
	uint64_t merge_begin, merge_end; /* of a log: what the last merge appended */

	/* The break-even, in nanoseconds but for `hook_ps`. */
	uint64_t page_ns;   /* to copy and to notice a page */
	uint64_t hook_ps;
	uint64_t switch_ns; /* of the last switch that found a mirror; 0: there was none */
	uint64_t granted;   /* hooks that the open interval was given so far */
	uint64_t even;      /* the break-even, in hooks, when it was looked at last; 0: never */
	uint64_t began, long_after; /* when it began; how long the last one took to the switch */
	uint32_t in_row;    /* intervals one after another that were long */
	bool at_once;       /* the open interval began in page mode */
	struct crn_long_figures figures;
};

/* All are called with the session's lock. */

/* With the session: measures. */
void crn_page_mode_open(
	struct crn_page_mode *p, struct crn_track_env *env, const struct crn_hook_ops *hooks);
void crn_page_mode_close(struct crn_page_mode *p);
/* No mirror is kept from one page mode to the next. */
void crn_page_mode_disarm(struct crn_page_mode *p);
/* See struct crn_tracker_ops, interval_long. */
int crn_page_mode_switch(struct crn_page_mode *p, const struct crn_hook_ops *hooks);
/* Hooks have come to the end of their patience: switch, or grant them more. */
void crn_page_mode_consider(struct crn_page_mode *p, const struct crn_hook_ops *hooks);
/* What the open interval overwrote is all where its hooks keep it. */
void crn_page_mode_merge(struct crn_page_mode *p);
/* The interval ends, with `merge` if what undoes it is still needed: hooks work again. */
void crn_page_mode_end(struct crn_page_mode *p, const struct crn_hook_ops *hooks, bool merge);
/* One has begun, in store mode; it may switch at once. */
void crn_page_mode_begin(struct crn_page_mode *p, const struct crn_hook_ops *hooks);
uint64_t crn_page_mode_bytes(const struct crn_page_mode *p);

#endif
