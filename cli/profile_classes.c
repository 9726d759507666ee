/* SPDX-License-Identifier: MIT */
/*
 * From what was seen of each thread to classes of processes, and the site of each. Processes that
 * were forked by the same call, by the same way, are one class, whatever they are called.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include "elf_file.h"
#include "plan.h"
#include "profile_classes.h"

#define SHARE_LEAST  20     /* a place with less than 1/20 of the calls is no top of a loop */
#define SAMPLE_SECONDS  0.01 /* between two samples of a computing thread */
#define COMPUTES_LEAST  0.2  /* of the load's time: less needs no site of its own */
#define WRITES_LEAST 4      /* one output in so many turns is enough for a site */
#define SITE_RATE_TO 10000.0
#define PASSING_TURNS 8    /* what ended before the load lives in a loop of so many */

static bool is_wait_site(const struct profile_wait *w)
{
	return profile_kind(w->nr) == PROFILE_SITE && !w->polls;
}

enum profile_kind profile_kind(long nr)
{
	switch (nr) {
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
	case SYS_poll:
	case SYS_ppoll:
	case SYS_select:
	case SYS_pselect6:
	case SYS_accept:
	case SYS_accept4:
		return PROFILE_SITE;
	}
	return nr < 0 ? PROFILE_SAMPLE : PROFILE_CALL;
}

bool profile_polls(pid_t tid, long nr, uint64_t fd)
{
	char path[64], line[64];
	unsigned long flags = 0;
	FILE *f;

	if (nr != SYS_accept && nr != SYS_accept4)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", (int)tid, (int)fd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "flags: %lo", &flags) == 1)
			break;
	if (f)
		fclose(f);
	return flags & O_NONBLOCK;
}

/* ---- one thread ------------------------------------------------------------------------------ */

/* Is there a frame that stays while others inside it have come back? */
static bool loops(const struct profile_task *t, const struct profile_wait *w, unsigned *frame)
{
	*frame = profile_loop_frame(t, w->stack);
	return *frame > 0 && *frame < w->stack->depth && w->total > 1;
}

/*
 * The loop in which the thread was last seen to turn. Loops of its start have waited as well, and
 * have ended. False if no turn of any was seen.
 */
static bool present_loop(const struct profile_task *t, struct profile_frame *out)
{
	const struct profile_wait *last = NULL;
	unsigned frame;

	for (unsigned i = 0; i < t->wait_count; i++)
		if (loops(t, &t->waits[i], &frame) && (!last || t->waits[i].look > last->look)) {
			last = &t->waits[i];
			*out = last->stack->frames[frame];
		}
	return last != NULL;
}

/* A turn of the present loop passes this place. */
static bool in_loop(const struct profile_task *t, const struct profile_wait *w,
	const struct profile_frame *loop, unsigned *frame)
{
	if (!loops(t, w, frame))
		return false;
	for (unsigned i = *frame; i < w->stack->depth; i++)
		if (w->stack->frames[i].cfa == loop->cfa &&
			w->stack->frames[i].function == loop->function)
			return true;
	return false;
}

static bool waits(const struct profile_wait *w, bool sites)
{
	return w->nr >= 0 && (is_wait_site(w) || (!sites && (w->slept || w->polls)));
}

/*
 * The waits nearest to the loop's frame are its top; of those the most frequent. `sites`: only
 * calls that are the site `wait`; otherwise others in which the thread has been found asleep.
 */
static const struct profile_wait *top_of_loop(const struct profile_task *t, bool sites)
{
	const struct profile_wait *best = NULL;
	struct profile_frame loop;
	unsigned frame, best_frame = 0;
	uint64_t most = 0;

	if (!present_loop(t, &loop))
		return NULL;
	for (unsigned i = 0; i < t->wait_count; i++)
		if (waits(&t->waits[i], false) && t->waits[i].calls > most)
			most = t->waits[i].calls;
	for (unsigned i = 0; i < t->wait_count; i++) {
		const struct profile_wait *w = &t->waits[i];

		if (!waits(w, sites) || !w->calls || w->calls < most / SHARE_LEAST ||
			!in_loop(t, w, &loop, &frame))
			continue;
		if (!best || frame < best_frame ||
			(frame == best_frame && w->calls > best->calls)) {
			best = w;
			best_frame = frame;
		}
	}
	return best;
}

/* The function called by the loop's frame, or the next inside it that is of the program itself. */
static const struct profile_frame *own_callee(
	const struct profile_process *q, const struct profile_stack *s, unsigned frame)
{
	while (frame-- > 0) {
		const struct profile_frame *f = &s->frames[frame];

		if (f->function && f->object && !strcmp(f->object, q->exe))
			return f;
	}
	return NULL;
}

/* The sample of a computing thread whose callee is met most often. */
static const struct profile_wait *busiest(const struct profile_task *t)
{
	const struct profile_wait *best = NULL;
	struct profile_frame loop;
	uint64_t most = 0;
	unsigned frame;

	if (!present_loop(t, &loop))
		return NULL;
	for (unsigned i = 0; i < t->wait_count; i++) {
		const struct profile_wait *w = &t->waits[i];
		const struct profile_frame *f;
		uint64_t sum = 0;

		if (w->nr >= 0 || !in_loop(t, w, &loop, &frame) ||
			!(f = own_callee(t->process, w->stack, frame)))
			continue;
		for (unsigned j = 0; j < t->wait_count; j++) {
			const struct profile_wait *o = &t->waits[j];
			unsigned of;

			if (o->nr < 0 && in_loop(t, o, &loop, &of)) {
				const struct profile_frame *g =
					own_callee(t->process, o->stack, of);

				sum += g && g->function == f->function ? o->calls : 0;
			}
		}
		if (sum > most) {
			most = sum;
			best = w;
		}
	}
	return best;
}

uint64_t profile_candidate(const struct profile_task *t)
{
	const struct profile_wait *w = busiest(t);
	const struct profile_frame *f;

	if (!w)
		return 0;
	f = own_callee(t->process, w->stack, profile_loop_frame(t, w->stack));
	return f ? f->function : 0;
}

/* Where the thread is now, or was last. */
static const struct profile_wait *last_wait(const struct profile_task *t)
{
	if (t->current)
		return t->current;
	return t->wait_count ? &t->waits[t->wait_count - 1] : NULL;
}

/* ---- the site -------------------------------------------------------------------------------- */

/* As `cairn run` will understand it; false if the entry cannot be a site. */
static bool function_site(const struct profile_process *q, const struct profile_frame *f,
	double rate, char *out, size_t size)
{
	uint64_t address = f->function - f->bias, found;
	const char *symbol = profile_symbol(f);
	struct plan_builder b = { 0 };
	struct elf_file e;
	bool named, fits;
	double n = 1;

	if (elf_open(&e, q->exe) < 0)
		return false;
	named = symbol && elf_symbol(&e, symbol, &found) && found == address;
	elf_close(&e);
	fits = plan_add_function(&b, q->exe, 0, address) == 0;
	plan_free(&b);
	if (!fits)
		return false;
	if (named)
		snprintf(out, size, "func:%s", symbol);
	else
		snprintf(out, size, "func:0x%lx", (unsigned long)address);
	if (rate > PROFILE_SITE_RATE) {
		while (rate / n > SITE_RATE_TO)
			n *= 2;
		snprintf(out + strlen(out), size - strlen(out), "/%.0f", n);
	}
	return true;
}

static void choose_site(const struct profile *p, struct profile_row *r)
{
	const struct profile_task *t = r->task;
	const struct profile_process *q = t->process;
	const struct profile_stack *s = r->wait->stack;

	if (is_wait_site(r->wait)) {
		strcpy(r->at, "wait");
		return;
	}
	if (!r->loops)
		return;
	/* func: means the program that `cairn run` starts, not one that it executes. */
	for (unsigned i = strcmp(q->exe, p->exe) ? 0 : r->frame; i-- > 0;) {
		const struct profile_frame *f = &s->frames[i];

		if (f->function && f->object && !strcmp(f->object, q->exe) &&
			function_site(q, f, r->rate, r->at, sizeof(r->at)))
			return;
	}
	/* A loop that waits by itself, without a function of its own in between. */
	if (t->writes - t->writes_before + t->sends > r->wait->calls / WRITES_LEAST)
		strcpy(r->at, "output");
	else
		strcpy(r->at, "timer:10");
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const char *text(const char *s)
{
	return s ? s : "";
}

static bool same_place(const struct profile_frame *a, const struct profile_frame *b)
{
	return a->pc - a->bias == b->pc - b->bias && !strcmp(text(a->object), text(b->object));
}

/* From the outermost frame inwards, `n` of them. */
static bool same_way(const struct profile_stack *a, const struct profile_stack *b, unsigned n)
{
	for (unsigned i = 1; i <= n; i++)
		if (!same_place(&a->frames[a->depth - i], &b->frames[b->depth - i]))
			return false;
	return true;
}

/* Through the same functions, whatever the lines. */
static bool same_functions(const struct profile_stack *a, const struct profile_stack *b, unsigned n)
{
	for (unsigned i = 1; i <= n; i++) {
		const struct profile_frame *f = &a->frames[a->depth - i];
		const struct profile_frame *g = &b->frames[b->depth - i];

		if (f->function - f->bias != g->function - g->bias ||
			strcmp(text(f->object), text(g->object)) != 0)
			return false;
	}
	return true;
}

/*
 * The same call in the same loop. Where one thread has seen more frames return than the other (it
 * was busier), the outer of the two frames holds the loop of both.
 */
static bool same_row(const struct profile_row *a, const struct profile_row *b)
{
	const struct profile_stack *s = a->wait->stack, *z = b->wait->stack;
	unsigned outer_a, outer_b;

	if (a->loops != b->loops || a->wait->nr != b->wait->nr ||
		a->first_thread != b->first_thread)
		return false;
	if (!a->loops)
		return s->depth == z->depth && same_way(s, z, s->depth);
	if (a->wait->nr >= 0 && !same_place(&s->frames[0], &z->frames[0]))
		return false;
	outer_a = s->depth - a->frame - 1;
	outer_b = z->depth - b->frame - 1;
	return same_functions(s, z, (outer_a < outer_b ? outer_a : outer_b) + 1);
}

/* What one thread lives in: a row of its own, not yet joined with those of others. */
static bool row_of(const struct profile *p, const struct profile_task *t, struct profile_row *r)
{
	double seconds = profile_seconds(p);

	memset(r, 0, sizeof(*r));
	r->task = t;
	r->wait = top_of_loop(t, true);
	if (!r->wait)
		r->wait = top_of_loop(t, false);
	if (!r->wait)
		r->wait = busiest(t);
	if (!r->wait)
		r->wait = last_wait(t);
	if (!r->wait)
		return false;
	r->loops = loops(t, r->wait, &r->frame);
	r->threads = 1;
	r->sleeps = r->wait->slept || is_wait_site(r->wait);
	r->first_thread = t->tid == t->process->pid;
	if (r->wait->nr < 0) {
		r->rate = t->loop.rate;
	} else {
		r->calls = r->wait->calls;
		r->ns = r->wait->ns;
		r->rate = seconds > 0 ? (double)r->calls / seconds : 0;
	}
	return true;
}

static void join(struct profile_class *c, const struct profile_row *r)
{
	for (unsigned i = 0; i < c->row_count; i++) {
		struct profile_row *o = &c->rows[i], sum = *r;

		if (!same_row(o, r))
			continue;
		if (o->wait->stack->depth - o->frame <= r->wait->stack->depth - r->frame)
			sum = *o;
		sum.sleeps = o->sleeps || r->sleeps;
		sum.threads = o->threads + 1;
		sum.calls = o->calls + r->calls;
		sum.ns = o->ns + r->ns;
		sum.rate = o->rate + r->rate;
		*o = sum;
		return;
	}
	if (c->row_count < PROFILE_ROWS_MAX)
		c->rows[c->row_count++] = *r;
}

/* ---- classes --------------------------------------------------------------------------------- */

static const struct profile_task *first_thread(
	const struct profile *p, const struct profile_process *q)
{
	const struct profile_task *found = NULL;

	for (const struct profile_task *t = p->tasks; t; t = t->next)
		if (t->process == q && t->tid == q->pid)
			found = t;
	return found;
}

/* Made by the same call in processes of the same class, and executing the same file. */
static bool same_class(const struct profile_process *a, const struct profile_process *b)
{
	if (strcmp(a->exe, b->exe) != 0 || a->root != b->root)
		return false;
	if (a->root)
		return true;
	if (!a->born_at || !b->born_at || a->born_at->depth != b->born_at->depth)
		return a->born_at == b->born_at;
	return (a->creator == b->creator || same_class(a->creator, b->creator)) &&
		same_way(a->born_at, b->born_at, a->born_at->depth);
}

/* Or made by the same functions, and living in the same loop. */
static bool alike(
	const struct profile_class *c, const struct profile_process *q, const struct profile_row *r)
{
	return !strcmp(c->process->exe, q->exe) && c->process->born_at && q->born_at &&
		c->process->born_at->depth == q->born_at->depth &&
		same_functions(c->process->born_at, q->born_at, q->born_at->depth) &&
		c->rows[0].loops && same_row(&c->rows[0], r);
}

static struct profile_class *class_of(struct profile_classes *all,
	const struct profile_process *q, const struct profile_row *r)
{
	for (unsigned i = 0; i < all->count; i++)
		if (same_class(all->list[i].process, q) || alike(&all->list[i], q, r))
			return &all->list[i];
	if (all->count == PROFILE_CLASSES_MAX)
		return NULL;
	all->list[all->count].process = q;
	return &all->list[all->count++];
}

/*
 * It came and went without a loop worth a checkpoint: a session of its own would cost more than the
 * few turns in which it reads one request, or a file.
 */
static bool passing(bool stayed, const struct profile_row *r)
{
	return !stayed && (!r->loops || r->wait->total < PASSING_TURNS);
}

static void add_process(
	struct profile_classes *all, const struct profile *p, const struct profile_process *q)
{
	const struct profile_task *first = first_thread(p, q);
	struct profile_class *c;
	struct profile_row row;

	if (!first || !row_of(p, first, &row)) {
		all->passing++;
		return;
	}
	/* Helpers that came and went: a shell, a program asked for its version. */
	if (!q->root && passing(q->stayed, &row)) {
		all->passing++;
		return;
	}
	c = class_of(all, q, &row);
	if (!c)
		return;
	c->processes++;
	join(c, &row);
	for (const struct profile_task *t = p->tasks; t; t = t->next)
		if (t->process == q && t != first && row_of(p, t, &row) &&
			!passing(t->stayed, &row))
			join(c, &row);
}

double profile_seconds(const struct profile *p)
{
	uint64_t from = p->load_ns ? p->load_ns : p->began_ns;

	return (double)(p->ended_ns - from) / 1e9;
}

static void add_site(struct profile_classes *all, const char *at)
{
	for (unsigned i = 0; i < all->site_count; i++)
		if (!strcmp(all->sites[i], at))
			return;
	if (all->site_count < PROFILE_SITES_MAX)
		all->sites[all->site_count++] = at;
}

/* For a good part of the time, not just when it was looked at once or twice. */
static bool computes(const struct profile_task *t, double seconds)
{
	return (double)t->samples * SAMPLE_SECONDS > seconds * COMPUTES_LEAST;
}

/* A timer only where there is nothing else. */
static void add_sites(struct profile_classes *all, double most, double seconds, bool timers)
{
	for (unsigned i = 0; i < all->count; i++)
		for (unsigned j = 0; j < all->list[i].row_count; j++) {
			struct profile_row *r = &all->list[i].rows[j];

			if (!r->at[0] || strncmp(r->at, "timer:", 6) == 0 ? !timers : timers)
				continue;
			if (r->loops && r->at[0] && (!timers || !all->site_count) &&
				(r->wait->nr < 0 ? computes(r->task, seconds)
						 : r->rate > 0 && r->rate >= most / 100))
				add_site(all, r->at);
			else
				r->at[0] = 0;
		}
}

/* A loop that turns less than a hundredth as often as the busiest needs no site of its own. */
static void choose_sites(const struct profile *p, struct profile_classes *all)
{
	double most = 0, seconds = profile_seconds(p);

	for (unsigned i = 0; i < all->count; i++) {
		for (unsigned j = 0; j < all->list[i].row_count; j++) {
			struct profile_row *r = &all->list[i].rows[j];

			choose_site(p, r);
			if (r->loops && r->rate > most)
				most = r->rate;
		}
	}
	add_sites(all, most, seconds, false);
	add_sites(all, most, seconds, true);
}

void profile_classify(const struct profile *p, struct profile_classes *all)
{
	memset(all, 0, sizeof(*all));
	for (const struct profile_process *q = p->processes; q; q = q->next)
		add_process(all, p, q);
	choose_sites(p, all);
}
