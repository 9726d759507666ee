/* SPDX-License-Identifier: MIT */
/*
 * Each way to find written pages as a bare loop: one range, one thread, one copy of each written
 * page, and nothing that makes it complete (other threads, the kernel's own writes, mappings that
 * change, lost records, more than one checkpoint). What a tracker is held against.
 *
 *	scan	one PAGEMAP_SCAN of the range finds the pages and protects them
 *	bpf	a program on the tracepoints of page faults notes addresses in shared memory
 *	images	the program copies the page as well, as it was before: there is no other copy
 *	perf	a ring of page faults, of this thread
 *
 * With the latter three each page is protected by a call of its own.
 */
#ifndef BENCH_BARE_LOOP_H
#define BENCH_BARE_LOOP_H

#include <stdbool.h>
#include <stddef.h>

enum bare_kind { BARE_NONE, BARE_SCAN, BARE_BPF, BARE_IMAGES, BARE_PERF };

struct bare_loop;

/* Track [area, area+bytes), all of which is there. NULL, or what is missing: *out is NULL then. */
const char *bare_open(struct bare_loop **out, enum bare_kind kind, char *area, size_t bytes);
/* Copy what has been written, and protect it again. How many pages these were. */
size_t bare_checkpoint(struct bare_loop *b);
/*
 * Does the copy hold what this page of the area holds? Of images: with the word, which touch_pages
 * has counted up since?
 */
bool bare_same(const struct bare_loop *b, size_t page);
void bare_close(struct bare_loop *b);

#endif
