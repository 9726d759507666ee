/* SPDX-License-Identifier: MIT */
/*
 * Tags of the shadow, from the engine's side: all of them are reset at a checkpoint (LMC, section
 * IV-C). rt/shadow_hooks.c sets them.
 *
 *	kind      what a checkpoint costs                        what hooks pay for it
 *	zero      a byte for each region that was saved
 *	bzero     all pages of tags that were ever used          each such page is listed once
 *	mmap      two mappings, and a fault for each page of
 *	          tags that is used again
 *	dontneed  two walks of page tables, and those faults
 *	epoch     one addition; every 255th time as bzero        a load; each such page is listed once
 */
#ifndef CRN_TRACK_TAGS_H
#define CRN_TRACK_TAGS_H

#include "rt/rt.h"

/* All tags clean, and what the kind keeps made ready. 0 or -errno, nothing left behind. */
int crn_tags_open(void);
/* Tags mean nothing any more. */
void crn_tags_close(void);
/* A new interval: no region is saved, and the list of saved regions is empty. */
void crn_tags_reset(void);
/* The same where neither tags nor the list can be relied on. */
void crn_tags_renew(void);
/* No region counts as saved any more, though the list names them still. Not with epochs. */
void crn_tags_clear(void);
/* Empty the list alone. */
void crn_tags_forget_list(void);

#endif
