/* SPDX-License-Identifier: MIT */
/* Asynchronous write protection, raw: just enough of the kernel's interface to measure it. */
#ifndef BENCH_PAGE_TRACKING_H
#define BENCH_PAGE_TRACKING_H

#include <stdbool.h>
#include <stddef.h>

struct tracking {
	int uffd, pagemap;
};

/* Track [base, base+bytes). NULL, or what is missing. */
const char *tracking_open(struct tracking *t, void *base, size_t bytes);

/* How many pages of the range were written since they were protected; protects them again if asked
 * to. */
long tracking_scan(struct tracking *t, void *base, size_t bytes, bool protect);

/* Protect the range, written or not. */
void tracking_protect(struct tracking *t, void *base, size_t bytes);

#endif
