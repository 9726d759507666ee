/* SPDX-License-Identifier: MIT */
/*
 * Pages that are written together: of each two neighbours, whether the last interval that could
 * have written both did. A run is as far as such pairs go around a page, within its region.
 *
 * Histase (HBFT 4.1.2) opens a run of mean length at each fault of its region. Where single pages
 * and bursts of hundreds alternate, as they do in programs that now and then work on one large
 * buffer, that is too long for the ones and too short for the others. Here each pair has a memory
 * of its own: written together it is joined, and parted when its run was tried, that is when a page
 * of the run was written, and it was not written whole.
 */
#ifndef CRN_RUNS_H
#define CRN_RUNS_H

#include "speculate/region_table.h"

/* Learn from the interval that ends: the pages that it wrote, cold or hot. */
void crn_runs_learn(struct crn_speculation *s, struct crn_regions *regions);

/* The run around the page. False: it is alone. Any thread, as crn_speculation_near. */
bool crn_runs_around(
	const struct crn_regions *regions, uintptr_t page, uintptr_t *begin, uintptr_t *end);

#endif
