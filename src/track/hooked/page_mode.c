/* SPDX-License-Identifier: MIT */
#include "track/hooked/page_mode.h"
#include "base/arena.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/maps.h"
#include "os/signal.h"
#include "os/thread.h"
#include "rt/program_maps.h"
#include "rt/rt.h"
#include "track/hooked/kept_intervals.h"

static struct crn_program_maps *maps(void)
{
	return __cairn_shape.maps;
}

static uint64_t now(const struct crn_page_mode *p)
{
	return crn_clock_ns(&p->inner.session->host->clock);
}

static uint64_t block_signals(void)
{
	return crn_signal_mask(SIG_SETMASK, ~0ul);
}

static void unblock_signals(uint64_t before)
{
	(void)crn_signal_mask(SIG_SETMASK, before);
}

/* ---- What is tracked: areas ------------------------------------------------------------------ */

static int note_found(
	struct crn_page_mode *p, const struct crn_mapping *m, const struct crn_range *own)
{
	CRN_TRY(crn_table_grow(p->inner.env.arena, (void **)&p->found, &p->found_capacity,
		p->found_count, p->found_count + 1, sizeof(*p->found)));
	p->found[p->found_count++] = (struct crn_area){
		.begin = CRN_MAX(m->begin, own->begin),
		.end = CRN_MIN(m->end, own->end),
		.flags = (m->inode ? CRN_AREA_FILE : 0) |
			(m->shared ? CRN_AREA_FILE | CRN_AREA_SHARED : 0),
	};
	return 0;
}

/* The program's memory, as far as it can be written to now: p->found. */
static int find_memory(struct crn_page_mode *p)
{
	char buffer[CRN_MAPS_BUFFER];
	struct crn_mapping m;
	struct crn_maps walk;
	int err, more = 0;

	p->found_count = 0;
	CRN_TRY(crn_maps_open(&walk, buffer));
	err = crn_maps_begin(&walk, CRN_RT_IMAGE_AT,
		CRN_MAPS_READABLE | CRN_MAPS_WRITABLE | CRN_MAPS_NO_NAMES);
	for (uint32_t i = 0; err >= 0 && (more = crn_maps_next(&walk, &m)) > 0;) {
		while (i < maps()->count && maps()->at[i].end <= m.begin)
			i++;
		for (uint32_t j = i; j < maps()->count && maps()->at[j].begin < m.end; j++)
			if (err >= 0)
				err = note_found(p, &m, &maps()->at[j]);
	}
	crn_maps_close(&walk);
	return err < 0 ? err : more;
}

static void drop_areas(struct crn_page_mode *p)
{
	while (p->area_count) {
		struct crn_area *a = p->areas[--p->area_count];

		crn_inner->area_drop(p->inner.tracker, a);
		crn_block_free(p->inner.env.arena, a, sizeof(*a));
	}
}

void crn_page_mode_disarm(struct crn_page_mode *p)
{
	if (p->inner.tracker)
		drop_areas(p);
}

/* Behind the others, which are sorted again later. */
static int add_area(struct crn_page_mode *p, uintptr_t begin, uintptr_t end, uint32_t flags)
{
	struct crn_arena *arena = p->inner.env.arena;
	struct crn_area *a;
	int err;

	CRN_TRY(crn_table_grow(arena, (void **)&p->areas, &p->area_capacity, p->area_count,
		p->area_count + 1, sizeof(struct crn_area *)));
	a = crn_block_alloc(arena, sizeof(*a));
	if (!a)
		return CAIRN_EMEMORY;
	*a = (struct crn_area){ .begin = begin, .end = end, .flags = flags };
	err = crn_inner->area_add(p->inner.tracker, a);
	if (err < 0) {
		crn_block_free(arena, a, sizeof(*a));
		return err;
	}
	p->areas[p->area_count++] = a;
	return 0;
}

static void sort_areas(struct crn_page_mode *p)
{
	for (size_t i = 1; i < p->area_count; i++) {
		struct crn_area *a = p->areas[i];
		size_t j = i;

		for (; j && p->areas[j - 1]->begin > a->begin; j--)
			p->areas[j] = p->areas[j - 1];
		p->areas[j] = a;
	}
}

/* What was found and is no area yet. Nothing has gone. */
static int add_missing(struct crn_page_mode *p)
{
	size_t known = p->area_count, a = 0;

	for (size_t i = 0; i < p->found_count; i++) {
		uintptr_t at = p->found[i].begin, end = p->found[i].end;

		while (a < known && p->areas[a]->end <= at)
			a++;
		for (size_t j = a; at < end; j++) {
			uintptr_t stop = end;

			if (j < known)
				stop = CRN_MIN(end, p->areas[j]->begin);
			if (at < stop)
				CRN_TRY(add_area(p, at, stop, p->found[i].flags));
			if (j >= known)
				break;
			at = CRN_MAX(at, p->areas[j]->end);
		}
	}
	sort_areas(p);
	return 0;
}

/* What hooks look at. */
static int list_spans(struct crn_page_mode *p)
{
	CRN_TRY(crn_table_grow(p->inner.env.arena, (void **)&p->spans, &p->span_capacity, 0,
		p->area_count, sizeof(*p->spans)));
	for (size_t i = 0; i < p->area_count; i++)
		p->spans[i] = (struct crn_range){ p->areas[i]->begin, p->areas[i]->end };
	return 0;
}

/* ---- Its intervals --------------------------------------------------------------------------- */

static int save_page(struct crn_sink *self, uintptr_t addr, size_t len, void *old, bool owned)
{
	__cairn_shape.save_old(addr, len, old);
	return 0;
}

void crn_page_mode_merge(struct crn_page_mode *p)
{
	struct crn_sink sink = { .take = save_page };
	struct crn_rt *rt = crn_rt();

	if (!rt->paged || rt->told)
		return;
	/* As before, and more: in a log it takes the place of that. */
	if (rt->log_paged == p->merge_end)
		rt->log_paged = p->merge_begin;
	p->merge_begin = rt->log_paged;
	if (crn_inner->undo(p->inner.tracker, &sink) < 0)
		rt->lost(rt->env, 0, CAIRN_ELAYOUT);
	p->merge_end = rt->log_paged;
}

/* ---- The switch ------------------------------------------------------------------------------ */

static void refuse(struct crn_page_mode *p, const char *why)
{
	if (!p->refused)
		crn_warn("long intervals stay with store hooks: %s", why);
	p->refused = true;
}

/* Is it all there but for what was written since? */
static bool has_mirror(const struct crn_page_mode *p)
{
	return p->area_count && p->upset == maps()->upset;
}

static int arm(struct crn_page_mode *p)
{
	/* What was intact at the last switch need not be so now. */
	if (p->upset != maps()->upset || crn_inner_catch_up(&p->inner) < 0)
		drop_areas(p);
	p->upset = maps()->upset;
	CRN_TRY(find_memory(p));
	CRN_TRY(add_missing(p));
	CRN_TRY(list_spans(p));
	return crn_inner->interval_begin(p->inner.tracker);
}

/* In one mapping with variables of libraries, which must stay: all of them now, by the hooks. */
static void save_thread_variables(void)
{
	__cairn_shape.save(crn_tls_base() - maps()->tls_below, maps()->tls_size);
}

static int switch_now(struct crn_page_mode *p, const struct crn_hook_ops *hooks)
{
	struct crn_rt *rt = crn_rt();
	uint64_t start = now(p), signals = block_signals();
	bool mirrored = has_mirror(p);
	int err = arm(p);

	if (err >= 0) {
		save_thread_variables();
		rt->paged_count = p->area_count;
		rt->paged = p->spans;
		hooks->paged(true);
		rt->hooked = false;
		p->merge_begin = p->merge_end = 0;
	} else {
		drop_areas(p);
		refuse(p, cairn_strerror(err));
	}
	unblock_signals(signals);
	/* The first one says nothing of those that find a mirror. */
	if (mirrored)
		p->switch_ns = now(p) - start;
	return err;
}

int crn_page_mode_switch(struct crn_page_mode *p, const struct crn_hook_ops *hooks)
{
	struct crn_rt *rt = crn_rt();
	int err;

	if (!p->inner.session)
		return CAIRN_EUNSUPPORTED;
	if (rt->paged || !rt->active)
		return 0;
	if (maps()->overflowed)
		refuse(p, "the program has more mappings than are counted");
	err = p->refused ? CAIRN_ENOTRACK : switch_now(p, hooks);
	/* Whoever has two versions leaves the one with hooks; or all stay there. */
	rt->patience = err < 0 ? INTPTR_MAX : -1;
	if (err < 0)
		return err;
	p->figures.switches++;
	return 0;
}

void crn_page_mode_end(struct crn_page_mode *p, const struct crn_hook_ops *hooks, bool merge)
{
	struct crn_rt *rt = crn_rt();
	uint64_t signals;

	if (!p->inner.session)
		return;
	if (!rt->paged) {
		p->in_row = 0;
		return;
	}
	/* One that began in page mode was long if it lasted as long as others take to switch. */
	p->in_row = !p->at_once || now(p) - p->began >= p->long_after ? p->in_row + 1 : 0;
	signals = block_signals();
	if (merge)
		crn_page_mode_merge(p);
	hooks->paged(false);
	rt->paged = NULL;
	rt->paged_count = 0;
	rt->hooked = true;
	unblock_signals(signals);
}

/* ---- The break-even -------------------------------------------------------------------------- */

#define TRIES      4096 /* hooks */
#define PAGES      32
#define IN_ROW     2    /* so many long ones, and the next one is expected to be long */
#define LEAST      4096 /* hooks: below that nothing is worth a system call */

/* A page is copied, and another taken from the kernel: about what a first store to it will cost. */
static uint64_t measure_pages(struct crn_page_mode *p)
{
	struct crn_arena *arena = p->inner.session->arena;
	const void *from = (const void *)crn_page_down((uintptr_t)__cairn_shape.maps);
	void *frames[PAGES];
	uint64_t start = now(p);
	size_t count = 0;

	for (; count < PAGES && (frames[count] = crn_frame_alloc(arena)); count++)
		crn_copy_page(frames[count], from);
	start = (now(p) - start) / CRN_MAX(count, 1ul);
	while (count)
		crn_frame_free(arena, frames[--count]);
	return start;
}

void crn_page_mode_open(
	struct crn_page_mode *p, struct crn_track_env *env, const struct crn_hook_ops *hooks)
{
	uint64_t start;
	int err;

	if (!__cairn_shape.hybrid())
		return;
	/*
	 * With the session: what it keeps in variables of the engine's, which may lie in the
	 * program's image, is no store of an interval.
	 */
	p->inner.session = env;
	err = crn_inner_open(&p->inner, env);
	if (err < 0) {
		refuse(p, err == CAIRN_ENOTRACK ? "no asynchronous write protection (cairn doctor)"
						: cairn_strerror(err));
		return;
	}
	p->page_ns = CRN_MAX(measure_pages(p), 1ul);
	start = now(p);
	hooks->try_out(TRIES);
	p->hook_ps = CRN_MAX((now(p) - start) * 1000 / TRIES, 1ul);
	crn_debug("hybrid: a hook takes %lu ps, a page %lu ns", (unsigned long)p->hook_ps,
		(unsigned long)p->page_ns);
}

void crn_page_mode_close(struct crn_page_mode *p)
{
	struct crn_track_env *env = p->inner.session;

	if (p->inner.tracker) {
		drop_areas(p);
		crn_inner_close(&p->inner);
		crn_block_free(env->arena, p->areas, p->area_capacity * sizeof(*p->areas));
		crn_block_free(env->arena, p->spans, p->span_capacity * sizeof(*p->spans));
		crn_block_free(env->arena, p->found, p->found_capacity * sizeof(*p->found));
	}
	*p = (struct crn_page_mode){ .figures = p->figures };
}

/* Of the process: the second number of statm. */
static uint64_t resident_pages(void)
{
	char text[128];
	long n = crn_file_read("/proc/self/statm", text, sizeof(text) - 1);
	const char *s = text;
	uint64_t pages = 0;

	if (n <= 0)
		return 0;
	text[n] = 0;
	while (*s && *s != ' ')
		s++;
	for (s++; *s >= '0' && *s <= '9'; s++)
		pages = pages * 10 + (uint64_t)(*s - '0');
	return pages;
}

/* Hooks that cost as much as a switch would now. */
static uint64_t break_even(struct crn_page_mode *p)
{
	uint64_t fixed = crn_rt()->break_even, pages = 0, ns;

	if (fixed)
		return fixed;
	if (has_mirror(p)) {
		ns = p->switch_ns;
	} else {
		for (uint32_t i = 0; i < maps()->count; i++)
			pages += crn_pages(maps()->at[i].end - maps()->at[i].begin);
		ns = CRN_MIN(pages, resident_pages()) * p->page_ns;
	}
	return CRN_MAX(ns * 1000 / p->hook_ps, (uint64_t)LEAST);
}

/* The interval may have so many hooks altogether before the next look. */
static void grant(struct crn_page_mode *p, uint64_t hooks, uint64_t spent)
{
	p->granted = CRN_MIN(hooks, (uint64_t)INTPTR_MAX);
	crn_rt()->patience = (intptr_t)(p->granted - spent);
}

void crn_page_mode_consider(struct crn_page_mode *p, const struct crn_hook_ops *hooks)
{
	struct crn_rt *rt = crn_rt();
	uint64_t spent; /* run, or announced by a loop that begins */

	if (rt->paged || !rt->active || rt->patience >= 0)
		return;
	spent = p->granted - (uint64_t)rt->patience;
	p->even = break_even(p);
	if (spent < p->even) {
		grant(p, p->even, spent);
		return;
	}
	p->long_after = now(p) - p->began;
	(void)crn_page_mode_switch(p, hooks);
}

void crn_page_mode_begin(struct crn_page_mode *p, const struct crn_hook_ops *hooks)
{
	if (!p->inner.session)
		return;
	p->began = now(p);
	p->granted = 0;
	p->at_once = p->in_row >= IN_ROW;
	if (p->at_once && crn_page_mode_switch(p, hooks) >= 0)
		p->figures.begun++;
	else
		grant(p, crn_rt()->break_even ? crn_rt()->break_even : CRN_MAX(p->even, LEAST), 0);
}

uint64_t crn_page_mode_bytes(const struct crn_page_mode *p)
{
	return p->inner.tracker ? crn_inner->bytes(p->inner.tracker) : 0;
}
