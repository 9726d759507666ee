/* SPDX-License-Identifier: MIT */
/*
 * A run as speculation sees it: for each interval a context key and the pages written, in order.
 * Either a trace of a real program or made up; cairn-bench replays both.
 */
#ifndef BENCH_RECORDED_RUN_H
#define BENCH_RECORDED_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct interval {
	uint64_t key;
	size_t first, count; /* in pages[] */
};

struct run {
	char name[256];
	struct interval *intervals;
	uintptr_t *pages;
	size_t interval_count, interval_room, page_count, page_room;
};

void run_begin_interval(struct run *r, uint64_t key);
/* Of the interval begun last. Exits when there is no memory. */
void run_add_page(struct run *r, uintptr_t page);
void run_free(struct run *r);
/* By address. */
void run_sort_pages(uintptr_t *pages, size_t count);

/*
 * Read a trace. False: *why says what is wrong, and at which byte. `cut`: a trace that was cut
 * short is taken as far as it goes.
 */
bool run_load(struct run *r, const char *path, bool cut, char *why, size_t why_size);

/*
 * Make one up: KIND or KIND:param=value,... (see run_kinds). The same seed gives the same run.
 */
bool run_invent(struct run *r, const char *spec, size_t intervals, uint64_t seed, char *why,
	size_t why_size);
void run_kinds(void); /* print what there is */

/* 64 bits of a seeded sequence. */
uint64_t run_random(uint64_t *seed);

#endif
