/* SPDX-License-Identifier: MIT */
/*
 * What every native benchmark needs: the time stamp counter, series of samples with their median,
 * and results as JSON lines on stdout. bench/run.py adds machine, kernel and commit to each line.
 *
 * A benchmark runs its variants turn by turn in `rounds`, so that a change of clock speed or a
 * noisy neighbour meets all of them; a figure is the median over the samples of all rounds.
 */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <x86intrin.h>

#include "cairn/cairn.h"

#define PAGE 4096ul
#define MIB  (1024ul * 1024)

/* Sizes: full, or small enough to prove in a second that a benchmark still works. */
extern bool toy;

/*
 * Reads --toy; keeps the process on one CPU; measures what a pair of tick() costs. Exits on bad
 * usage.
 */
void measure_begin(int argc, char **argv);

/* Cycles of the time stamp counter, ordered against what is around it. */
static inline uint64_t tick(void)
{
	unsigned int cpu;
	uint64_t t;

	_mm_lfence();
	t = __rdtscp(&cpu);
	_mm_lfence();
	return t;
}

/* Samples of one figure. All zero is an empty one. */
struct series {
	uint64_t *values;
	size_t count, size;
};

/* Add end - begin, minus what measuring costs. */
void series_add(struct series *s, uint64_t begin, uint64_t end);
/* Add a value as it is. */
void series_put(struct series *s, uint64_t value);
uint64_t series_quantile(struct series *s, double q);
void series_free(struct series *s);

/*
 * Print one result: table and row name it, `settings` are members of a JSON object
 * ("\"pages\":15"), or "". Times are in cycles, for `per` operations per sample (their cost is
 * divided by it).
 */
void emit(const char *table, const char *row, struct series *s, uint64_t per, const char *settings,
	...) __attribute__((format(printf, 5, 6)));

/* The row cannot be had here; says why. */
void emit_missing(const char *table, const char *row, const char *why);

/*
 * Anonymous memory of 4 KiB pages, populated with something that is not zero. Exits if there is
 * none.
 */
char *map_pages(size_t bytes);

/* `count` different pages of `total`, scattered, always the same for the same seed. */
void pick_pages(uint32_t *pages, size_t count, size_t total, uint32_t seed);

/* Write one word into each of these pages. */
void touch_pages(char *base, const uint32_t *pages, size_t count);

_Noreturn void fail(const char *what, const char *why);

/* What a call of the library has returned: exits if it is an error. */
static inline void check(int ret, const char *what)
{
	if (ret < 0)
		fail(what, cairn_strerror(ret));
}

#endif
