/* SPDX-License-Identifier: MIT */
/* Runs that are made up: known working sets, for comparing strategies on what they must handle. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "recorded_run.h"

#define BASE	    0x7f0000000000ul
#define PAGE_OF(n)  (BASE + (uintptr_t)(n) * 4096)
#define SETTING_MAX 6

struct setting {
	const char *name;
	double value;
};

struct kind {
	const char *name, *summary;
	struct setting settings[SETTING_MAX];
	void (*interval)(struct run *r, const struct setting *s, size_t i, uint64_t *seed);
};

/* A page at most once per interval, as a tracker reports it. */
static void add_once(struct run *r, uintptr_t page)
{
	const struct interval *now = &r->intervals[r->interval_count - 1];

	for (size_t i = now->count; i-- > 0;)
		if (r->pages[now->first + i] == page)
			return;
	run_add_page(r, page);
}

static double uniform(uint64_t *seed)
{
	return (double)(run_random(seed) >> 11) / (double)(1ull << 53);
}

/* 0 .. n - 1, the i-th with a weight of 1 / (i + 1). */
static size_t zipf(size_t n, uint64_t *seed)
{
	static double *sums;
	static size_t known;
	double drawn;
	size_t low = 0, high = n - 1;

	if (known != n) {
		free(sums);
		sums = malloc(n * sizeof(*sums));
		if (!sums)
			abort();
		for (size_t i = 0; i < n; i++)
			sums[i] = 1.0 / (double)(i + 1) + (i ? sums[i - 1] : 0);
		known = n;
	}
	drawn = uniform(seed) * sums[n - 1];
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (sums[middle] < drawn)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* `pick` of `hot` pages and `tail` picks by Zipf of `pages`; hot ones lie apart. */
static void mixed(struct run *r, const struct setting *s, size_t i, uint64_t *seed)
{
	size_t hot = (size_t)s[0].value, pick = (size_t)s[1].value, tail = (size_t)s[2].value;

	run_begin_interval(r, 0);
	while (r->intervals[r->interval_count - 1].count < (pick < hot ? pick : hot))
		add_once(r, PAGE_OF(100000 + run_random(seed) % hot * 37));
	for (size_t k = 0; k < tail; k++)
		add_once(r, PAGE_OF(zipf((size_t)s[3].value, seed) * 3));
}

static void zipf_alone(struct run *r, const struct setting *s, size_t i, uint64_t *seed)
{
	run_begin_interval(r, 0);
	for (size_t k = 0; k < (size_t)s[0].value; k++)
		add_once(r, PAGE_OF(zipf((size_t)s[1].value, seed) * 3));
}

/* Two request types with disjoint working sets, and pages that both write. */
static void alternate(struct run *r, const struct setting *s, size_t i, uint64_t *seed)
{
	size_t type = s[3].value > 0 ? uniform(seed) < s[3].value : i & 1;

	run_begin_interval(r, type);
	for (size_t k = 0; k < (size_t)s[0].value; k++)
		add_once(r, PAGE_OF(k));
	for (size_t k = 0; k < (size_t)s[1].value; k++)
		add_once(r, PAGE_OF(1000 + type * 1000 + k));
	for (size_t k = 0; k < (size_t)s[2].value; k++)
		add_once(r, PAGE_OF(5000 + zipf(1000, seed)));
}

/* A stable working set that becomes another one every so many intervals. */
static void phases(struct run *r, const struct setting *s, size_t i, uint64_t *seed)
{
	size_t phase = i / (size_t)s[0].value;

	run_begin_interval(r, 0);
	for (size_t k = 0; k < (size_t)s[1].value; k++)
		if (uniform(seed) < s[2].value)
			add_once(r, PAGE_OF(phase * 1000 + k));
	for (size_t k = 0; k < (size_t)s[3].value; k++)
		add_once(r, PAGE_OF(900000 + run_random(seed) % 4000));
}

/* Runs of consecutive pages at changing places: what Histase is made for. */
static void stride(struct run *r, const struct setting *s, size_t i, uint64_t *seed)
{
	run_begin_interval(r, 0);
	for (size_t k = 0; k < (size_t)s[0].value; k++) {
		size_t at = run_random(seed) % (size_t)s[2].value;

		for (size_t n = 0; n < (size_t)s[1].value; n++)
			add_once(r, PAGE_OF(at + n));
	}
}

/* Pages with a period each: 1, 2, 3, ... */
static void periods(struct run *r, const struct setting *s, size_t i, uint64_t *seed)
{
	run_begin_interval(r, 0);
	for (size_t k = 0; k < (size_t)s[0].value; k++)
		if (i % (k % (size_t)s[1].value + 1) == 0)
			add_once(r, PAGE_OF(k));
}

static const struct kind kinds[] = {
	{ "mixed", "some of a hot set, and a Zipf tail",
		{ { "hot", 20 }, { "pick", 12 }, { "tail", 3 }, { "pages", 4000 } }, mixed },
	{ "zipf", "Zipf picks alone", { { "picks", 15 }, { "pages", 4000 } }, zipf_alone },
	{ "alternate", "two request types by turns (or drawn, with chance p)",
		{ { "common", 5 }, { "own", 15 }, { "tail", 1 }, { "p", 0 } }, alternate },
	{ "phases", "a stable set, replaced at each phase",
		{ { "length", 500 }, { "pages", 15 }, { "p", 0.9 }, { "tail", 1 } }, phases },
	{ "stride", "runs of pages at places drawn at random",
		{ { "runs", 3 }, { "length", 16 }, { "pages", 16384 } }, stride },
	{ "periods", "every page at a period of its own", { { "pages", 60 }, { "longest", 20 } },
		periods },
};

void run_kinds(void)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		printf("  %-10s %s:", kinds[i].name, kinds[i].summary);
		for (size_t k = 0; k < SETTING_MAX && kinds[i].settings[k].name; k++)
			printf(" %s=%g", kinds[i].settings[k].name, kinds[i].settings[k].value);
		printf("\n");
	}
}

/* What is drawn from is not empty, and what is divided by not 0; a chance is at most 1. */
static void limits(const char *name, double *least, double *most)
{
	bool count = !strcmp(name, "pages") || !strcmp(name, "length") || !strcmp(name, "longest");

	*least = count ? 1 : 0;
	*most = strcmp(name, "p") ? 1e9 : 1;
}

static bool apply_settings(struct setting *settings, const char *text, char *why, size_t why_size)
{
	char copy[256], *rest = copy, *item, *end;
	double least, most;

	snprintf(copy, sizeof(copy), "%s", text);
	while ((item = strsep(&rest, ","))) {
		char *value = strchr(item, '=');
		size_t k = 0;

		if (value)
			*value++ = 0;
		while (k < SETTING_MAX && settings[k].name && strcmp(settings[k].name, item))
			k++;
		if (!value || k == SETTING_MAX || !settings[k].name) {
			snprintf(why, why_size,
				"'%s' is no setting of this kind of run; --list shows them", item);
			return false;
		}
		limits(item, &least, &most);
		settings[k].value = strtod(value, &end);
		if (end == value || *end || !(settings[k].value >= least) ||
			settings[k].value > most) {
			snprintf(why, why_size, "%s: '%s' is not a number from %g to %g", item,
				value, least, most);
			return false;
		}
	}
	return true;
}

bool run_invent(struct run *r, const char *spec, size_t intervals, uint64_t seed, char *why,
	size_t why_size)
{
	size_t name = strcspn(spec, ":");

	*r = (struct run){ 0 };
	snprintf(r->name, sizeof(r->name), "%s", spec);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct setting settings[SETTING_MAX];

		if (strlen(kinds[i].name) != name || strncmp(kinds[i].name, spec, name))
			continue;
		memcpy(settings, kinds[i].settings, sizeof(settings));
		if (spec[name] && !apply_settings(settings, spec + name + 1, why, why_size))
			return false;
		for (size_t n = 0; n < intervals; n++)
			kinds[i].interval(r, settings, n, &seed);
		return true;
	}
	snprintf(why, why_size, "'%.*s' is no kind of run; --list shows them", (int)name, spec);
	return false;
}
