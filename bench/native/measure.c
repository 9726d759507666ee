/* SPDX-License-Identifier: MIT */
#include "measure.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

bool toy;

static uint64_t tick_cost;
static double ticks_per_ns;

void fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void calibrate(void)
{
	struct series s = { 0 };
	uint64_t ns = now_ns(), ticks = tick();

	while (now_ns() - ns < 50000000)
		;
	ticks_per_ns = (double)(tick() - ticks) / (now_ns() - ns);
	for (int i = 0; i < 1001; i++) {
		uint64_t begin = tick();

		series_add(&s, begin, tick());
	}
	tick_cost = series_quantile(&s, 0.5);
	series_free(&s);
}

void measure_begin(int argc, char **argv)
{
	cpu_set_t one;
	int cpu = sched_getcpu();

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--toy") != 0) {
			fprintf(stderr, "usage: %s [--toy]\n", argv[0]);
			exit(2);
		}
		toy = true;
	}
	CPU_ZERO(&one);
	CPU_SET(cpu < 0 ? 0 : cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
	setvbuf(stdout, NULL, _IOLBF, 0);
	calibrate();
}

void series_put(struct series *s, uint64_t value)
{
	if (s->count == s->size) {
		s->size = s->size ? s->size * 2 : 256;
		s->values = realloc(s->values, s->size * sizeof(*s->values));
		if (!s->values)
			fail("measure", "out of memory");
	}
	s->values[s->count++] = value;
}

void series_add(struct series *s, uint64_t begin, uint64_t end)
{
	uint64_t cycles = end - begin;

	series_put(s, cycles > tick_cost ? cycles - tick_cost : 0);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

uint64_t series_quantile(struct series *s, double q)
{
	if (s->count == 0)
		return 0;
	qsort(s->values, s->count, sizeof(*s->values), compare);
	return s->values[(size_t)(q * (s->count - 1) + 0.5)];
}

void series_free(struct series *s)
{
	free(s->values);
	*s = (struct series){ 0 };
}

void emit(const char *table, const char *row, struct series *s, uint64_t per, const char *settings,
	...)
{
	double median = (double)series_quantile(s, 0.5) / per;
	va_list ap;

	printf("{\"table\":\"%s\",\"row\":\"%s\",\"cycles\":%.0f,\"ns\":%.1f,\"p10\":%.0f,\"p90\":%"
	       ".0f,"
	       "\"samples\":%zu",
		table, row, median, median / ticks_per_ns, (double)series_quantile(s, 0.1) / per,
		(double)series_quantile(s, 0.9) / per, s->count);
	if (settings[0]) {
		putchar(',');
		va_start(ap, settings);
		vprintf(settings, ap);
		va_end(ap);
	}
	printf("}\n");
}

void emit_missing(const char *table, const char *row, const char *why)
{
	printf("{\"table\":\"%s\",\"row\":\"%s\",\"missing\":\"", table, row);
	for (; *why; why++)
		putchar(*why == '"' ? '\'' : *why);
	printf("\"}\n");
}

char *map_pages(size_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED)
		fail("mmap", "no memory");
	madvise(at, bytes, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < bytes; i += PAGE)
		memset(at + i, 1 + (int)(i / PAGE % 251), PAGE);
	return at;
}

void pick_pages(uint32_t *pages, size_t count, size_t total, uint32_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;

	/*
	 * One page out of each of `count` equal stretches: scattered, and different by
	 * construction.
	 */
	for (size_t i = 0; i < count; i++) {
		size_t begin = i * total / count, end = (i + 1) * total / count;

		state = state * 6364136223846793005ull + 1442695040888963407ull;
		pages[i] = begin + (state >> 33) % (end - begin);
	}
}

void touch_pages(char *base, const uint32_t *pages, size_t count)
{
	for (size_t i = 0; i < count; i++)
		++*(volatile uint64_t *)(base + pages[i] * PAGE + 64);
}
