/* SPDX-License-Identifier: MIT */
/* Asynchronous write protection, raw: just enough of the kernel's interface to measure it. */
#ifndef BENCH_PAGE_TRACKING_H
#define BENCH_PAGE_TRACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tracking {
	int uffd, pagemap;
};

/* Written pages in a row, as the kernel reports them. */
struct tracking_run {
	uint64_t begin, end, categories;
};

/* Track [base, base+bytes). NULL, or what is missing. */
const char *tracking_open(struct tracking *t, void *base, size_t bytes);
/* And track it no more. */
void tracking_close(struct tracking *t);

/*
 * How many pages of the range were written since they were protected; protects them again if asked
 * to.
 */
long tracking_scan(struct tracking *t, void *base, size_t bytes, bool protect);

/* The same; the first `room` runs of them, and how many these are. Negative: it failed. */
long tracking_runs(struct tracking *t, void *base, size_t bytes, bool protect,
	struct tracking_run *runs, size_t room);

/* Protect the range, written or not. */
void tracking_protect(struct tracking *t, void *base, size_t bytes);

#endif
