/* SPDX-License-Identifier: MIT */
/*
 * Memory that belongs to the program, for a page tracker (track/hooked/page_mode.c): its image, its
 * mappings, its heap. All other mappings belong to libraries, whose state must not be rolled back
 * with whole pages. Kept only in programs that were built with -fcairn-hybrid.
 */
#ifndef CRN_PROGRAM_MAPS_H
#define CRN_PROGRAM_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"

#define CRN_PROGRAM_MAPS_MAX 1024

/* Whole pages; no restore turns them back, a forked child inherits them. */
struct crn_program_maps {
	int locked;
	uint32_t count;
	bool overflowed; /* a range was left out */
	/* Counts what may have taken pages of a range away, or put others in their place. */
	uint64_t upset;
	size_t tls_below, tls_size; /* the program's thread-local variables, below the TLS base */
	struct crn_range at[CRN_PROGRAM_MAPS_MAX]; /* sorted, disjoint, not touching */
};

extern struct crn_program_maps crn_program_maps;

/* Was the program built with -fcairn-hybrid? */
bool crn_rt_hybrid(void);

/* At the start of the program: its image, without what the run-time keeps there. */
void crn_program_maps_start(void);

/* In programs built without -fcairn-hybrid these do nothing. From outside in to whole pages. */
void crn_program_maps_add(uintptr_t begin, uintptr_t end);
void crn_program_maps_cut(uintptr_t begin, uintptr_t end);
/* Pages of [begin, end) may be others now, though the range stays the program's. */
void crn_program_maps_upset(void);

#endif
