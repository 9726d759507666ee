/* SPDX-License-Identifier: MIT */
/*
 * Which processes of a profile are of one class, what their loops did, and which loop of each
 * class is its request loop: one that never ended under the load, the innermost of those (SMC
 * section 6). Where none is, because the program ended by itself: the innermost that was long.
 */
#include "loop_profile.h"
#include <stdlib.h>
#include <string.h>

/* ---- classes ------------------------------------------------------------------------------ */

static uint32_t class_of(struct loop_classes *all, int32_t parent, uint32_t born_at)
{
	struct loop_class *c = all->list;

	for (uint32_t i = 0; i < all->count; i++)
		if (c[i].parent == parent && c[i].born_at == born_at)
			return i;
	c[all->count] = (struct loop_class){ .parent = parent, .born_at = born_at };
	return all->count++;
}

static void find_classes(const struct loop_profile *p, struct loop_classes *all)
{
	all->list = loop_profile_alloc(p->process_count, sizeof(*all->list));
	for (uint32_t i = 0; i < p->process_count; i++) {
		struct loop_process *process = &p->processes[i];
		const struct crn_loop_section *s = process->section;
		uint32_t born_at = s->born_at ? p->points[s->born_at - 1].same + 1 : 0;
		int32_t parent = process->parent < 0
			? -1
			: (int32_t)p->processes[process->parent].class;
		struct loop_class *c;

		process->class = class_of(all, parent, born_at);
		c = &all->list[process->class];
		if (!c->processes++)
			c->pid = s->pid;
		c->life_ns += s->last_ns - s->began_ns;
		c->outside_waits += s->outside_waits;
		c->outside_kinds |= s->outside_kinds;
	}
}

/* ---- loops -------------------------------------------------------------------------------- */

/* Of one process: activations that go on count until it was seen last. */
static void add_counts(struct loop_sum *sum, const struct loop_profile *p,
	const struct crn_loop_section *s, const struct crn_loop_counts *c)
{
	/* Two threads in a loop that calls nothing may lose counts to each other. */
	uint64_t active = c->entries > c->exits ? c->entries - c->exits : 0;
	uint64_t running = 0, longest = c->longest_ns;
	uint64_t life = s->last_ns - s->began_ns;
	int64_t waited = (int64_t)(c->waited_ns + c->waiting * s->last_ns);

	if (active && c->entered_ns && active * s->last_ns > c->entered_ns)
		running = active * s->last_ns - c->entered_ns;
	if (active && running / active > longest)
		longest = running / active;
	sum->inside_ns += c->inside_ns + running;
	sum->turns += c->passes > c->entries ? c->passes - c->entries : 0;
	sum->counts.passes += c->passes;
	sum->counts.entries += c->entries;
	sum->counts.exits += c->exits;
	sum->counts.waits += c->waits;
	/* A call that was left by a jump counts as one that goes on. */
	if (waited > 0)
		sum->counts.waited_ns += (uint64_t)waited < c->inside_ns + running
			? (uint64_t)waited
			: c->inside_ns + running;
	sum->counts.wait_kinds |= c->wait_kinds;
	sum->counts.foreign += c->foreign;
	sum->counts.outside += c->outside;
	if (longest > sum->counts.longest_ns)
		sum->counts.longest_ns = longest;
	if (c->outer)
		sum->counts.outer = p->points[c->outer - 1].same + 1;
	if (life && longest >= life / 2)
		sum->kind = LOOP_LONG;
}

static void sum_loops(const struct loop_profile *p, struct loop_class *c, uint32_t class)
{
	uint32_t points = p->head.point_count;
	struct loop_sum *sums = loop_profile_alloc(points, sizeof(*sums));

	for (uint32_t i = 0; i < p->process_count; i++) {
		const struct loop_process *process = &p->processes[i];

		if (process->class != class)
			continue;
		for (uint32_t j = 0; j < points; j++)
			if (!p->points[j].forks && process->counts[j].entries)
				add_counts(&sums[p->points[j].same], p, process->section,
					&process->counts[j]);
	}
	c->sums = sums;
	for (uint32_t j = 0; j < points; j++) {
		if (!sums[j].counts.entries)
			continue;
		sums[j].point = j;
		if (!sums[j].counts.exits)
			sums[j].kind = LOOP_NEVER;
		c->sums[c->sum_count++] = sums[j];
	}
}

/* ---- sites -------------------------------------------------------------------------------- */

static const char *why_not(const struct loop_sum *s, uint64_t life_ns)
{
	if (s->turns < 2)
		return "it was not seen to turn";
	if (s->counts.foreign)
		return "in a thread that is not its process's first";
	if (!s->inside_ns)
		return "it calls nothing";
	/* It reads what has come for one request, say: once for its head, once for the rest. */
	if (s->kind == LOOP_LONG && s->turns < 2 * s->counts.entries)
		return "it turned less than twice when it was entered";
	/* Its process may have ended, by chance, while a short one ran. */
	if (s->kind == LOOP_NEVER && !s->counts.waits && s->counts.longest_ns < life_ns / 10)
		return "it was short";
	return NULL;
}

static struct loop_sum *sum_of(struct loop_class *c, uint64_t outer)
{
	for (uint32_t i = 0; outer && i < c->sum_count; i++)
		if (c->sums[i].point == outer - 1)
			return &c->sums[i];
	return NULL;
}

/* Those around it turn less often. */
static void drop_outer(struct loop_class *c, const struct loop_sum *s)
{
	struct loop_sum *o = sum_of(c, s->counts.outer);

	for (uint32_t i = 0; o && o != s && i < c->sum_count; i++) {
		if (o->site)
			o->no_site = "another one turns in it";
		o = sum_of(c, o->counts.outer);
	}
}

static bool choose(struct loop_class *c, enum loop_kind kind)
{
	bool any = false;

	for (uint32_t i = 0; i < c->sum_count; i++)
		if (c->sums[i].kind == kind) {
			c->sums[i].no_site = why_not(&c->sums[i], c->life_ns / c->processes);
			c->sums[i].site = !c->sums[i].no_site;
		}
	for (uint32_t i = 0; i < c->sum_count; i++)
		if (c->sums[i].kind == kind && c->sums[i].site)
			drop_outer(c, &c->sums[i]);
	for (uint32_t i = 0; i < c->sum_count; i++) {
		if (c->sums[i].kind != kind)
			continue;
		c->sums[i].site &= !c->sums[i].no_site;
		any |= c->sums[i].site;
	}
	return any;
}

/*
 * What a loop calls that nobody counts, of a library say, is entered or waits in no loop: far more
 * often than the start of a program does, and than the sites turn.
 */
static void find_outside(struct loop_class *c)
{
	uint64_t least = 16ull * c->processes, called = 0;

	for (uint32_t i = 0; i < c->sum_count; i++) {
		if (c->sums[i].site && c->sums[i].turns * 2 > least)
			least = c->sums[i].turns * 2;
		c->threads |= c->sums[i].counts.foreign > 0;
	}
	if (c->outside_waits < least)
		c->outside_waits = 0;
	for (uint32_t i = 0; i < c->sum_count; i++) {
		const struct loop_sum *s = &c->sums[i];

		if (s->counts.outside < least || s->counts.outside <= called ||
			s->counts.waits < s->counts.entries / 2)
			continue;
		called = s->counts.outside;
		c->called = s;
	}
}

static void add_site(struct loop_classes *all, uint32_t point)
{
	for (uint32_t i = 0; i < all->site_count; i++)
		if (all->sites[i] == point)
			return;
	all->sites[all->site_count++] = point;
}

/* Loops that never ended first; within, those that turned most. */
static int by_weight(const void *a, const void *b)
{
	const struct loop_sum *x = a, *y = b;

	if (x->site != y->site)
		return x->site ? -1 : 1;
	if (x->kind != y->kind)
		return x->kind > y->kind ? -1 : 1;
	if (x->turns != y->turns)
		return x->turns > y->turns ? -1 : 1;
	return x->point < y->point ? -1 : 1;
}

void loop_classes_find(const struct loop_profile *p, struct loop_classes *out)
{
	find_classes(p, out);
	out->sites = loop_profile_alloc(p->head.point_count, sizeof(*out->sites));
	for (uint32_t i = 0; i < out->count; i++) {
		struct loop_class *c = &out->list[i];

		sum_loops(p, c, i);
		if (!choose(c, LOOP_NEVER))
			choose(c, LOOP_LONG);
		qsort(c->sums, c->sum_count, sizeof(*c->sums), by_weight);
		find_outside(c);
		for (uint32_t j = 0; j < c->sum_count; j++)
			if (c->sums[j].site)
				add_site(out, c->sums[j].point);
	}
}
