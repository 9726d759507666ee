/* SPDX-License-Identifier: MIT */
/*
 * cairn-bench: replay a trace, or a run that is made up, through speculation strategies without the
 * program. Deterministic: the same run, seed and strategy give the same line, but for own_cycles.
 */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "output.h"
#include "replay_score.h"

#define LIST_MAX   256
#define CYCLES_MAX (1ul << 24)

static struct cost_model models[] = {
	{ .name = "smc", .costs = { .fault = 800, .copy = 100 } },
	/* Cycles on the machine of the README's figures. */
	{ .name = "mprotect",
		.costs = { .fault = 20000, .copy = 130, .protect = 10000, .open = 12000 } },
	{ .name = "uffd", .costs = { .fault = 13000, .copy = 130, .protect = 2700, .open = 3000 } },
	{ .name = "async", .late = true,
		.costs = { .fault = 3600, .copy = 130, .protect = 4300, .open = 4300 } },
	{ .name = "scan", .late = true,
		.costs = { .fault = 3600, .copy = 130, .protect = 200, .open = 4300 } },
};

struct settings {
	struct replay_options replay;
	const char *strategies[LIST_MAX], *synthetic[LIST_MAX];
	struct cost_model costs[LIST_MAX];
	size_t strategy_count, synthetic_count, cost_count, intervals;
	bool cut, figures, figures_only;
	unsigned turn;
};

static void push(const char **list, size_t *count, const char *item)
{
	if (*count == LIST_MAX)
		errx(2, "more than %d of these", LIST_MAX);
	list[(*count)++] = item;
}

/* What follows the number, or NULL. */
static const char *cycles(const char *text, uint32_t *out)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (*text < '0' || *text > '9' || value > CYCLES_MAX)
		return NULL;
	*out = (uint32_t)value;
	return end;
}

static bool all_cycles(const char *text, struct crn_costs *c)
{
	uint32_t *const fields[] = { &c->fault, &c->copy, &c->protect, &c->open };

	for (size_t i = 0; i < 4; i++) {
		text = cycles(text, fields[i]);
		if (!text || *text != (i < 3 ? ',' : 0))
			return false;
		text += i < 3;
	}
	return c->copy;
}

static void add_costs(struct settings *s, const char *text)
{
	struct cost_model *m = &s->costs[s->cost_count];
	struct crn_costs *c = &m->costs;
	size_t name = strcspn(text, ":");
	const char *rest;

	if (s->cost_count++ == LIST_MAX)
		errx(2, "more than %d cost models", LIST_MAX);
	for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		if (strlen(models[i].name) != name || strncmp(models[i].name, text, name))
			continue;
		*m = models[i];
		m->name = text;
		rest = text[name] ? cycles(text + name + 1, &c->copy) : "";
		if (!rest || *rest || !c->copy)
			errx(2, "--costs: '%s': COPY is a number of cycles", text);
		return;
	}
	m->name = text;
	if (!all_cycles(text, c))
		errx(2, "--costs: '%s' is neither smc, mprotect, uffd, async or scan nor "
			"FAULT,COPY,PROTECT,OPEN in cycles", text);
}

/* NAME:a=1/2/3,b=4 means three strategies. The first list is spread; the rest by recursion. */
static void add_sweep(struct settings *s, const char *spec)
{
	const char *slash = strchr(spec, '/'), *from, *to, *at;

	if (!slash) {
		push(s->strategies, &s->strategy_count, strdup(spec));
		return;
	}
	for (from = slash; from > spec && from[-1] != '=' && from[-1] != ','; from--)
		;
	to = slash + strcspn(slash, ",");
	for (at = from; at < to; at += strcspn(at, "/,") + 1) {
		char *one;

		if (asprintf(&one, "%.*s%.*s%s", (int)(from - spec), spec,
			    (int)strcspn(at, "/,"), at, to) < 0)
			err(2, "no memory");
		add_sweep(s, one);
		free(one);
	}
}

static void add_all(struct settings *s)
{
	const char *name, *summary;

	/* meta runs these, and the bound has no mispredictions to count. */
	for (size_t i = 0; crn_strategy_describe(i, &name, &summary); i++)
		if (strcmp(name, "meta") && strcmp(name, "oracle-count"))
			push(s->strategies, &s->strategy_count, name);
}

static const struct option long_options[] = {
	{ "strategy", required_argument, NULL, 's' },
	{ "synthetic", required_argument, NULL, 'y' },
	{ "intervals", required_argument, NULL, 'n' },
	{ "costs", required_argument, NULL, 'c' },
	{ "seed", required_argument, NULL, 'r' },
	{ "skip", required_argument, NULL, 'k' },
	{ "late", no_argument, NULL, 'l' },
	{ "ignore-keys", no_argument, NULL, 'i' },
	{ "cut", no_argument, NULL, 'u' },
	{ "figures", no_argument, NULL, 'f' },
	{ "turn", required_argument, NULL, 't' },
	{ "list", no_argument, NULL, 'L' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static void help(void)
{
	puts("Usage: cairn-bench [OPTION]... [TRACE]...\n"
	     "Replay traces of real runs, or synthetic runs, through speculation strategies.\n"
	     "\n"
	     "  -s, --strategy=NAME[:PARAM=VALUE,...]  strategies to run (all); 1/2/3 is a sweep\n"
	     "  -y, --synthetic=KIND[:SETTING=VALUE,...]  use a synthetic run\n"
	     "  -n, --intervals=N  length of a synthetic run (20000)\n"
	     "  -c, --costs=MODEL  what the host charges (each of smc, mprotect, uffd, async);\n"
	     "                     or scan, MODEL:COPY with another price of a copy, or\n"
	     "                     FAULT,COPY,PROTECT,OPEN in cycles per page\n"
	     "  -r, --seed=N       seed for synthetic runs and strategies (1)\n"
	     "  -k, --skip=N       the first N intervals train strategies, uncounted (0)\n"
	     "  -l, --late         report writes only at the checkpoint, as a scan does\n"
	     "  -i, --ignore-keys  keep one working set for all intervals\n"
	     "      --cut          accept a trace that was cut short, as far as it goes\n"
	     "  -f, --figures      page reuse, run lengths, history similarity (HBFT Figures 4-6)\n"
	     "      --turn=N       print what a checkpoint costs each strategy, with N hot pages\n"
	     "      --list         list strategies with their parameters, and kinds of runs\n"
	     "  -h, --help         print this help and exit\n"
	     "\n"
	     "Defaults are in parentheses. `man cairn-bench` says more.");
}

static void list(void)
{
	const char *name, *summary;
	char text[160];

	puts("Strategies:");
	for (size_t i = 0; crn_strategy_describe(i, &name, &summary); i++) {
		printf("  %-13s %s\n", name, summary);
		for (size_t k = 0; crn_strategy_parameter(i, k, text, sizeof(text)); k++)
			printf("      %s\n", text);
	}
	puts("Runs that are made up:");
	run_kinds();
}

static uint64_t number(const char *option, const char *text)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno)
		errx(2, "--%s: '%s' is no number", option, text);
	return value;
}

static void parse(struct settings *s, int argc, char **argv)
{
	int option;

	while ((option = getopt_long(argc, argv, "s:y:n:c:r:k:lifh", long_options, NULL)) >= 0) {
		switch (option) {
		case 's': add_sweep(s, optarg); break;
		case 'y': push(s->synthetic, &s->synthetic_count, optarg); break;
		case 'n': s->intervals = number("intervals", optarg); break;
		case 'c': add_costs(s, optarg); break;
		case 'r': s->replay.seed = number("seed", optarg); break;
		case 'k': s->replay.skip = number("skip", optarg); break;
		case 'l': s->replay.late = true; break;
		case 'i': s->replay.ignore_keys = true; break;
		case 'u': s->cut = true; break;
		case 'f': s->figures = true; break;
		case 't': s->turn = (unsigned)number("turn", optarg); break;
		case 'L': list(); exit(0);
		case 'h': help(); exit(0);
		default: /* getopt has said what is wrong */
			fputs("Try `cairn-bench --help`.\n", stderr);
			exit(2);
		}
	}
	s->figures_only = s->figures && !s->strategy_count;
	if (!s->strategy_count)
		add_all(s);
	for (size_t i = 0; !s->cost_count && i < 4; i++)
		s->costs[i] = models[i];
	s->cost_count = s->cost_count ? s->cost_count : 4;
}

static void score(const struct settings *s, const struct run *r)
{
	char why[256];

	if (s->figures)
		replay_figures(r);
	if (!s->figures_only && s->replay.skip && s->replay.skip >= r->interval_count)
		errx(2, "--skip=%zu leaves none of the %zu intervals of %s", s->replay.skip,
			r->interval_count, r->name);
	for (size_t m = 0; m < s->cost_count && !s->figures_only; m++) {
		for (size_t i = 0; i < s->strategy_count; i++)
			if (!replay_score(r, s->strategies[i], &s->costs[m], &s->replay, why,
				    sizeof(why)))
				errx(2, "%s", why);
		replay_bound(r, &s->costs[m], s->replay.skip);
	}
}

int main(int argc, char **argv)
{
	static struct settings s = { .replay.seed = 1, .intervals = 20000 };
	char why[512];
	struct run r;

	atexit(output_end);
	parse(&s, argc, argv);
	for (size_t i = 0; s.turn && i < s.strategy_count; i++)
		if (strcmp(s.strategies[i], "oracle") &&
			!replay_turn(s.strategies[i], &s.costs[0], s.turn, why, sizeof(why)))
			errx(2, "%s", why);
	if (optind == argc && !s.synthetic_count && !s.turn)
		errx(2, "no trace, and no --synthetic; --help lists the options");
	for (size_t i = 0; i < s.synthetic_count; i++) {
		if (!run_invent(&r, s.synthetic[i], s.intervals, s.replay.seed, why, sizeof(why)))
			errx(2, "--synthetic: %s", why);
		score(&s, &r);
		run_free(&r);
	}
	for (; optind < argc; optind++) {
		if (!run_load(&r, argv[optind], s.cut, why, sizeof(why)))
			errx(1, "%s", why);
		score(&s, &r);
		run_free(&r);
	}
	return 0;
}
