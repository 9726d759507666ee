/* SPDX-License-Identifier: MIT */
/* `cairn profile report`: what loop_classes.c has found, for people, as JSON, for cairn-cc. */
#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include "commands.h"
#include "cxx_name.h"
#include "elf_file.h"
#include "loop_profile.h"
#include "profile.h"

#define ROWS_MAX 12 /* loops of one class, in the text */

#define BLOCKING(name) #name,
static const char *const calls[] = {
#include "rt/blocking_calls.def"
};
#undef BLOCKING

struct arguments {
	const char *path;
	bool json, sites;
};

static double seconds(uint64_t ns)
{
	return (double)ns / 1e9;
}

/* By its symbol, as options take it, and as it is written in C++. */
static void print_function(const struct loop_point *point, FILE *out)
{
	char *name = cxx_name(point->function);

	fprintf(out, "%s", point->function);
	if (name)
		fprintf(out, " [%s]", name);
	free(name);
}

static void print_place(const struct loop_point *point, FILE *out)
{
	fprintf(out, "%s", point->file);
	if (point->line)
		fprintf(out, ":%u", point->line);
	if (!point->line && !point->forks)
		fprintf(out, ", loop %u of %u", point->index + 1, point->count);
}

/* ---- text --------------------------------------------------------------------------------- */

static void print_calls(uint64_t kinds, FILE *out)
{
	const char *between = "";

	for (size_t k = 0; k < sizeof(calls) / sizeof(calls[0]); k++)
		if (kinds >> k & 1) {
			fprintf(out, "%s%s", between, calls[k]);
			between = ", ";
		}
}

static void print_waits(const struct loop_sum *s, FILE *out)
{
	if (!s->counts.waits)
		return;
	fprintf(out, "\n      ");
	print_calls(s->counts.wait_kinds, out);
	fprintf(out, ": %lu times", (unsigned long)s->counts.waits);
	if (s->inside_ns)
		fprintf(out, ", %.0f %% of its time",
			100 * (double)s->counts.waited_ns / (double)s->inside_ns);
}

static void print_loop(const struct loop_profile *p, const struct loop_sum *s, FILE *out)
{
	const struct loop_point *point = &p->points[s->point];

	fprintf(out, "  %s ", s->site ? "*" : " ");
	print_function(point, out);
	fprintf(out, " (");
	print_place(point, out);
	fprintf(out, "): %s; %lu turn%s",
		s->kind == LOOP_NEVER ? "never ended" : s->kind == LOOP_LONG ? "long" : "short",
		(unsigned long)s->turns, s->turns == 1 ? "" : "s");
	if (s->inside_ns && s->turns)
		fprintf(out, " in %.3f s, %.1f per second", seconds(s->inside_ns),
			(double)s->turns / seconds(s->inside_ns));
	if (s->counts.entries > 1)
		fprintf(out, ", entered %lu times", (unsigned long)s->counts.entries);
	if (s->no_site)
		fprintf(out, "; no site: %s", s->no_site);
	print_waits(s, out);
	fprintf(out, "\n");
}

/* Something turns that was not counted. */
static void print_outside(const struct loop_profile *p, const struct loop_class *c, FILE *out)
{
	if (!c->outside_waits && !c->called)
		return;
	fprintf(out, "    Called again and again by code without counters, a library's loop "
		     "perhaps:\n");
	if (c->called) {
		const struct loop_point *point = &p->points[c->called->point];

		fprintf(out, "      ");
		print_function(point, out);
		fprintf(out, " (");
		print_place(point, out);
		fprintf(out, "): %lu times\n", (unsigned long)c->called->counts.outside);
	}
	if (c->outside_waits) {
		fprintf(out, "      functions that call ");
		print_calls(c->outside_kinds, out);
		fprintf(out, ": %lu times\n", (unsigned long)c->outside_waits);
	}
	fprintf(out, "    Build that code with -fcairn-profile, too, or name the function that it "
		     "calls in each\n    turn (cairn-cc -fcairn-site=FUNCTION).\n");
}

static void print_class(const struct loop_profile *p, const struct loop_classes *all, uint32_t i,
	FILE *out)
{
	const struct loop_class *c = &all->list[i];
	uint32_t shown = 0;

	fprintf(out, "\nclass %u: %u process%s (pid %u%s), %.3f s", i + 1, c->processes,
		c->processes == 1 ? "" : "es", c->pid, c->processes == 1 ? "" : ", ...",
		seconds(c->life_ns));
	if (c->parent >= 0 && c->born_at) {
		fprintf(out, "; forked by class %d in ", c->parent + 1);
		print_function(&p->points[c->born_at - 1], out);
		fprintf(out, " (");
		print_place(&p->points[c->born_at - 1], out);
		fprintf(out, ")");
	} else if (c->parent >= 0) {
		fprintf(out, "; from class %d", c->parent + 1);
	}
	fprintf(out, "\n");
	for (uint32_t j = 0; j < c->sum_count && shown < ROWS_MAX; j++) {
		if (c->sums[j].kind == LOOP_OTHER)
			break;
		print_loop(p, &c->sums[j], out);
		shown++;
	}
	if (c->sum_count > shown)
		fprintf(out, "    and %u other loop%s\n", c->sum_count - shown,
			c->sum_count - shown == 1 ? "" : "s");
	print_outside(p, c, out);
}

static void print_text(const struct loop_profile *p, const struct loop_classes *all, FILE *out)
{
	const struct crn_loop_head *h = &p->head;
	bool threads = false, outside = false;

	fprintf(out, "%s: %u process%s in %u class%s\n", h->program, p->process_count,
		p->process_count == 1 ? "" : "es", all->count, all->count == 1 ? "" : "es");
	if (h->lost)
		fprintf(out, "%u more processes found no room in the file: more than %u, or they "
			     "have closed it and may not open it\n", h->lost, CRN_LOOP_MAX);
	if (h->late)
		fprintf(out, "%u loops of libraries that were loaded late are not counted\n",
			h->late);
	for (uint32_t i = 0; i < all->count; i++)
		print_class(p, all, i, out);
	for (uint32_t i = 0; i < all->count; i++) {
		threads |= all->list[i].threads;
		outside |= all->list[i].outside_waits || all->list[i].called;
	}
	if (!all->site_count) {
		fprintf(out, "\nNo loop was seen to turn for long%s.\n",
			outside ? "" : ": give it a load, or time");
		return;
	}
	fprintf(out, "\nA checkpoint at the top of each loop marked *:\n");
	fprintf(out, "  cairn-cc -fcairn-sites=%s\n", p->path);
	if (threads)
		fprintf(out,
			"Other threads have loops, too: add -fcairn-threads, or "
			"-fcairn-site-threads=one if they\nwrite nothing that must be restored. "
			"With neither, no checkpoint is taken beside them.\n");
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void json_point(const struct loop_point *point, FILE *out)
{
	fprintf(out, "\"function\": ");
	profile_json_string(point->function, out);
	fprintf(out, ", \"file\": ");
	profile_json_string(point->file, out);
	fprintf(out, ", \"line\": %u", point->line);
	if (!point->forks)
		fprintf(out, ", \"column\": %u, \"index\": %u, \"count\": %u, \"depth\": %u",
			point->column, point->index, point->count, point->depth);
}

static void json_loop(const struct loop_profile *p, const struct loop_sum *s, FILE *out)
{
	static const char *const kinds[] = { "other", "long", "never ended" };
	const char *between = "";

	fprintf(out, "{");
	json_point(&p->points[s->point], out);
	fprintf(out,
		", \"kind\": \"%s\", \"site\": %s, \"turns\": %lu, \"entries\": %lu, "
		"\"exits\": %lu, \"seconds\": %.6f, \"waits\": %lu, \"waited\": %.6f, \"calls\": [",
		kinds[s->kind], s->site ? "true" : "false", (unsigned long)s->turns,
		(unsigned long)s->counts.entries, (unsigned long)s->counts.exits,
		seconds(s->inside_ns), (unsigned long)s->counts.waits,
		seconds(s->counts.waited_ns));
	for (size_t k = 0; k < sizeof(calls) / sizeof(calls[0]); k++)
		if (s->counts.wait_kinds >> k & 1) {
			fprintf(out, "%s\"%s\"", between, calls[k]);
			between = ", ";
		}
	fprintf(out, "], \"no_site\": ");
	s->no_site ? profile_json_string(s->no_site, out) : (void)fputs("null", out);
	fprintf(out, "}");
}

static void json_class(const struct loop_profile *p, const struct loop_class *c, FILE *out)
{
	fprintf(out, "{\"processes\": %u, \"pid\": %u, \"seconds\": %.6f, \"parent\": ",
		c->processes, c->pid, seconds(c->life_ns));
	c->parent < 0 ? (void)fputs("null", out) : (void)fprintf(out, "%d", c->parent);
	fprintf(out, ", \"forked_at\": ");
	if (c->born_at) {
		fprintf(out, "{");
		json_point(&p->points[c->born_at - 1], out);
		fprintf(out, "}");
	} else {
		fprintf(out, "null");
	}
	fprintf(out, ", \"outside\": %lu, ", (unsigned long)c->outside_waits);
	fprintf(out, "\"called\": ");
	if (c->called) {
		fprintf(out, "{");
		json_point(&p->points[c->called->point], out);
		fprintf(out, ", \"times\": %lu}", (unsigned long)c->called->counts.outside);
	} else {
		fprintf(out, "null");
	}
	fprintf(out, ", \"loops\": [");
	for (uint32_t j = 0; j < c->sum_count; j++) {
		fputs(j ? ", " : "", out);
		json_loop(p, &c->sums[j], out);
	}
	fprintf(out, "]}");
}

static void print_json(const struct loop_profile *p, const struct loop_classes *all, FILE *out)
{
	fprintf(out, "{\"program\": ");
	profile_json_string(p->head.program, out);
	fprintf(out,
		", \"processes\": %u, \"lost\": %u, \"late\": %u, \"sites\": %u, \"classes\": [",
		p->process_count, p->head.lost, p->head.late, all->site_count);
	for (uint32_t i = 0; i < all->count; i++) {
		fputs(i ? ", " : "", out);
		json_class(p, &all->list[i], out);
	}
	fprintf(out, "]}\n");
}

/* ---- for cairn-cc ------------------------------------------------------------------------- */

static int print_sites(const struct loop_profile *p, const struct loop_classes *all, FILE *out)
{
	if (!all->site_count) {
		fprintf(stderr, "cairn profile: %s: no loop was seen to turn for long: give it a "
				"load, or more time ("
				"`cairn profile report` shows what was seen)\n", p->path);
		return 1;
	}
	fprintf(out, "%s\n", elf_base_name(p->head.program));
	for (uint32_t i = 0; i < all->site_count; i++)
		fprintf(out, "%s\n", p->points[all->sites[i]].text);
	return 0;
}

/* ---- the command -------------------------------------------------------------------------- */

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;

	switch (key) {
	case 'j':
		a->json = true;
		return 0;
	case 's':
		a->sites = true;
		return 0;
	case ARGP_KEY_ARG:
		if (a->path)
			argp_error(state, "one file at a time");
		a->path = arg;
		return 0;
	case ARGP_KEY_END:
		if (!a->path)
			argp_error(state, "which file?");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ "json", 'j', NULL, 0, "print one JSON object on one line", 0 },
	{ "sites", 's', NULL, 0,
		"print only the loops that get checkpoints, in the form that cairn-cc reads", 0 },
	{ 0 },
};

int profile_report_loops(int argc, char **argv)
{
	static const struct argp argp = { options, parse, "FILE",
		"Show what a program built with cairn-cc -fcairn-profile has counted.", NULL, NULL,
		NULL };
	struct arguments a = { 0 };
	struct loop_profile profile = { 0 };
	struct loop_classes classes = { 0 };

	if (argp_parse(&argp, argc, argv, 0, NULL, &a) != 0)
		return CRN_EXIT_USAGE;
	if (loop_profile_read(&profile, a.path))
		return 1;
	loop_classes_find(&profile, &classes);
	if (a.sites)
		return print_sites(&profile, &classes, stdout);
	a.json ? print_json(&profile, &classes, stdout) : print_text(&profile, &classes, stdout);
	return 0;
}
