/* SPDX-License-Identifier: MIT */
/* The report of `cairn profile`, for people and as JSON. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "elf_file.h"
#include "profile_classes.h"
#include "runnable.h"

/* Without the version: epoll_wait@@GLIBC_2.3.2 */
static int symbol_length(const char *symbol)
{
	return (int)strcspn(symbol, "@");
}

/* A caller's return address may be the first byte of the next function. */
static void frame_text(const struct profile_frame *f, char *out, size_t size)
{
	const char *symbol = profile_symbol(f);

	if (symbol)
		snprintf(out, size, "%.*s+0x%lx", symbol_length(symbol), symbol,
			(unsigned long)(f->pc - f->function));
	else
		snprintf(out, size, "0x%lx", (unsigned long)(f->pc - f->bias));
}

static void function_text(const struct profile_frame *f, char *out, size_t size)
{
	const char *symbol = profile_symbol(f);

	if (symbol)
		snprintf(out, size, "%.*s", symbol_length(symbol), symbol);
	else
		snprintf(out, size, "the function at 0x%lx",
			(unsigned long)((f->function ? f->function : f->pc) - f->bias));
}

/* ---- text ------------------------------------------------------------------------------------ */

static void print_row(const struct profile_row *r, double seconds, FILE *out)
{
	const struct profile_stack *s = r->wait->stack;
	unsigned last = r->loops ? r->frame : s->depth - 1;
	char text[256];

	if (r->loops) {
		function_text(&s->frames[r->frame], text, sizeof(text));
		fprintf(out, "  loop in %s", text);
	} else {
		fprintf(out, "  no turn of a loop was seen");
	}
	if (!r->first_thread)
		fprintf(out, ", %u thread%s", r->threads, r->threads == 1 ? "" : "s");
	if (r->wait->nr < 0 && r->loops && !(r->rate > 0))
		fprintf(out, "\n  computes; its turns were not counted\n");
	else if (r->wait->nr < 0 && r->loops)
		fprintf(out, "\n  computes; %s%.0f turns/s\n",
			r->rate > PROFILE_SITE_RATE ? "at least " : "", r->rate);
	else if (r->wait->nr < 0)
		fprintf(out, "\n  computes\n");
	else
		fprintf(out, "\n  %s %s, %.1f times/s, %.0f %% of the time\n",
			r->sleeps ? "waits in" : "calls", profile_call_name(r->wait->nr), r->rate,
			seconds > 0 ? (double)r->ns / 1e7 / seconds / r->threads : 0);
	for (unsigned i = 0; i <= last; i++) {
		const char *object = s->frames[i].object;

		frame_text(&s->frames[i], text, sizeof(text));
		fprintf(out, "      %-40s %s\n", text, object ? elf_base_name(object) : "?");
	}
	if (r->at[0])
		fprintf(out, "  --at %s\n", r->at);
}

/* As a shell takes it for one word. */
static void print_word(const char *word, FILE *out)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";

	if (*word && !word[strspn(word, plain)]) {
		fprintf(out, " %s", word);
		return;
	}
	fputs(" '", out);
	for (; *word; word++)
		*word == '\'' ? (void)fputs("'\\''", out) : (void)fputc(*word, out);
	fputc('\'', out);
}

static void print_text(const struct profile *p, const struct profile_classes *all, FILE *out)
{
	double seconds = profile_seconds(p);
	char path[PATH_MAX];

	fprintf(out, "%.1f s%s, %u process class%s", seconds, p->load_ns ? " under load" : "",
		all->count, all->count == 1 ? "" : "es");
	if (all->passing)
		fprintf(out, "; %u process%s came and went", all->passing,
			all->passing == 1 ? "" : "es");
	fprintf(out, "\n");
	for (unsigned i = 0; i < all->count; i++) {
		const struct profile_class *c = &all->list[i];

		fprintf(out, "\n%s (%s), %u process%s\n", c->process->title, c->process->exe,
			c->processes, c->processes == 1 ? "" : "es");
		for (unsigned j = 0; j < c->row_count; j++)
			print_row(&c->rows[j], seconds, out);
	}
	fprintf(out, "\n");
	if (!all->site_count) {
		fprintf(out, "No loop was seen to turn: give it a load, or more time.\n");
		return;
	}
	/* If it would refuse the program, that says why, on standard error. */
	fflush(out);
	if (check_program(p->argv[0], path))
		return;
	fprintf(out, "cairn run");
	for (unsigned i = 0; i < all->site_count; i++)
		fprintf(out, " --at %s", all->sites[i]);
	fprintf(out, " --");
	for (char **a = p->argv; *a; a++)
		print_word(*a, out);
	fprintf(out, "\n");
}

/* ---- JSON ------------------------------------------------------------------------------------ */

void profile_json_string(const char *s, FILE *out)
{
	fputc('"', out);
	for (; s && *s; s++) {
		if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f)
			fprintf(out, "\\u%04x", (unsigned char)*s);
		else
			fputc(*s, out);
	}
	fputc('"', out);
}

static void json_frame(const struct profile_frame *f, FILE *out)
{
	const char *symbol = profile_symbol(f);

	fprintf(out, "{\"function\": ");
	symbol ? profile_json_string(symbol, out) : (void)fputs("null", out);
	fprintf(out, ", \"address\": %lu, \"object\": ", (unsigned long)(f->pc - f->bias));
	profile_json_string(f->object, out);
	fprintf(out, "}");
}

static void json_row(const struct profile_row *r, FILE *out)
{
	const struct profile_stack *s = r->wait->stack;

	fprintf(out,
		"{\"threads\": %u, \"call\": \"%s\", \"calls\": %lu, \"rate\": %.3f, \"ns\": %lu, "
		"\"at\": ",
		r->threads, profile_call_name(r->wait->nr), (unsigned long)r->calls, r->rate,
		(unsigned long)r->ns);
	r->at[0] ? profile_json_string(r->at, out) : (void)fputs("null", out);
	fprintf(out, ", \"loop\": ");
	r->loops ? (void)fprintf(out, "%u", r->frame) : (void)fputs("null", out);
	fprintf(out, ", \"stack\": [");
	for (unsigned i = 0; i < s->depth; i++) {
		fputs(i ? ", " : "", out);
		json_frame(&s->frames[i], out);
	}
	fprintf(out, "]}");
}

static void print_json(const struct profile *p, const struct profile_classes *all, FILE *out)
{
	fprintf(out, "{\"seconds\": %.3f, \"passing\": %u, \"at\": [", profile_seconds(p),
		all->passing);
	for (unsigned i = 0; i < all->site_count; i++) {
		fputs(i ? ", " : "", out);
		profile_json_string(all->sites[i], out);
	}
	fprintf(out, "], \"classes\": [");
	for (unsigned i = 0; i < all->count; i++) {
		const struct profile_class *c = &all->list[i];

		fprintf(out, "%s{\"exe\": ", i ? ", " : "");
		profile_json_string(c->process->exe, out);
		fprintf(out, ", \"title\": ");
		profile_json_string(c->process->title, out);
		fprintf(out, ", \"processes\": %u, \"threads\": [", c->processes);
		for (unsigned j = 0; j < c->row_count; j++) {
			fputs(j ? ", " : "", out);
			json_row(&c->rows[j], out);
		}
		fprintf(out, "]}");
	}
	fprintf(out, "]}\n");
}

void profile_report(const struct profile *p, FILE *out)
{
	static struct profile_classes all;

	profile_classify(p, &all);
	p->json ? print_json(p, &all, out) : print_text(p, &all, out);
}
