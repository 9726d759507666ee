/* SPDX-License-Identifier: MIT */
#include "track/hooked/page_areas.h"
#include "base/arena.h"
#include "base/log.h"
#include "base/status.h"
#include "rt/rt.h"

/* Of the program; absent where this is no part of one. */
extern const char __executable_start[] __attribute__((weak, visibility("hidden")));
extern const char _end[] __attribute__((weak, visibility("hidden")));

static const char zeros[CRN_PAGE_SIZE];

static bool meet(uintptr_t begin, uintptr_t end, uintptr_t from, uintptr_t to)
{
	return begin < to && end > from;
}

static struct crn_page_area *find(const struct crn_page_areas *p, uintptr_t begin, uintptr_t end)
{
	for (size_t i = 0; i < p->count; i++)
		if (meet(begin, end, p->at[i]->part.begin, p->at[i]->part.end))
			return p->at[i];
	return NULL;
}

/* ---- Adding and removing --------------------------------------------------------------------- */

static void forget(struct crn_page_areas *p, size_t i)
{
	struct crn_page_area *a = p->at[i];

	crn_inner->area_drop(p->inner.tracker, &a->part);
	p->at[i] = p->at[--p->count];
	crn_block_free(p->inner.env.arena, a, sizeof(*a));
}

int crn_page_areas_remove(struct crn_page_areas *p, uintptr_t begin, uintptr_t end)
{
	bool found = false;

	for (size_t i = p->count; i-- > 0;)
		if (p->at[i]->begin == begin && p->at[i]->end == end) {
			forget(p, i);
			found = true;
		}
	return found ? 0 : CAIRN_ENOTAREA;
}

static int open_all(struct crn_page_areas *p, struct crn_track_env *env)
{
	int err;

	if (p->maps_buffer)
		return 0;
	p->maps_buffer = crn_block_alloc(env->arena, CRN_MAPS_BUFFER);
	if (!p->maps_buffer)
		return CAIRN_EMEMORY;
	err = crn_maps_open(&p->maps, p->maps_buffer);
	if (err < 0)
		goto err_buffer;
	err = crn_inner_open(&p->inner, env);
	if (err < 0)
		goto err_maps;
	return 0;

err_maps:
	crn_maps_close(&p->maps);
err_buffer:
	crn_block_free(env->arena, p->maps_buffer, CRN_MAPS_BUFFER);
	p->maps_buffer = NULL;
	return err;
}

void crn_page_areas_close(struct crn_page_areas *p, struct crn_track_env *env)
{
	if (!p->maps_buffer)
		return;
	while (p->count)
		forget(p, p->count - 1);
	crn_inner_close(&p->inner);
	crn_maps_close(&p->maps);
	crn_block_free(env->arena, p->maps_buffer, CRN_MAPS_BUFFER);
	crn_block_free(env->arena, p->at, p->capacity * sizeof(*p->at));
	*p = (struct crn_page_areas){ 0 };
}

static int add_part(struct crn_page_areas *p, const struct crn_page_area *like)
{
	struct crn_arena *arena = p->inner.env.arena;
	struct crn_page_area *a;
	int err;

	CRN_TRY(crn_table_grow(arena, (void **)&p->at, &p->capacity, p->count, p->count + 1,
		sizeof(*p->at)));
	a = crn_block_alloc(arena, sizeof(*a));
	if (!a)
		return CAIRN_EMEMORY;
	*a = *like;
	err = crn_inner->area_add(p->inner.tracker, &a->part);
	if (err < 0) {
		crn_block_free(arena, a, sizeof(*a));
		return err;
	}
	p->at[p->count++] = a;
	return 0;
}

/*
 * The next mapping of [*at, end): 1, or 0 at its end. CAIRN_EUNMAPPED: a hole, or it cannot be read
 * and written, or is shared.
 */
static int next_part(struct crn_maps *maps, uintptr_t *at, uintptr_t end, struct crn_mapping *m)
{
	const int rw = PROT_READ | PROT_WRITE;
	int more;

	if (*at >= end)
		return 0;
	more = crn_maps_next(maps, m);
	if (more < 0)
		return more;
	if (!more || m->begin > *at || m->shared || (m->prot & rw) != rw)
		return CAIRN_EUNMAPPED;
	m->begin = *at;
	*at = m->end = m->end < end ? m->end : end;
	return 1;
}

static int add_parts(struct crn_page_areas *p, uintptr_t begin, uintptr_t end, uint64_t born)
{
	uintptr_t at = begin;
	struct crn_mapping m;
	int more;

	CRN_TRY(crn_maps_begin(&p->maps, begin, CRN_MAPS_NO_NAMES));
	while ((more = next_part(&p->maps, &at, end, &m)) > 0) {
		struct crn_page_area a = {
			.part = { .begin = m.begin, .end = m.end, .born = born },
			.begin = begin,
			.end = end,
		};

		a.part.flags = CRN_AREA_EXPLICIT | (m.inode ? CRN_AREA_FILE : 0);
		CRN_TRY(add_part(p, &a));
	}
	return more;
}

int crn_page_areas_add(struct crn_page_areas *p, struct crn_track_env *env, uintptr_t begin,
	uintptr_t end, uint64_t born)
{
	struct crn_mapping stack;
	int err;

	if (meet(begin, end, (uintptr_t)__executable_start, (uintptr_t)_end) || find(p, begin, end))
		return CAIRN_EOVERLAP;
	if (__cairn_shape.hybrid())
		return CAIRN_EUNSUPPORTED;
	CRN_TRY(open_all(p, env));
	/* A checkpoint copies the stack; the calls that put pages back run on it. */
	err = crn_maps_find(&p->maps, (uintptr_t)__builtin_frame_address(0), &stack);
	if (err < 0)
		return err;
	if (err && meet(begin, end, stack.begin, stack.end))
		return CAIRN_EOVERLAP;
	err = add_parts(p, begin, end, born);
	if (err < 0)
		(void)crn_page_areas_remove(p, begin, end);
	return err;
}

/* ---- Intervals ------------------------------------------------------------------------------- */

/* As it was added: its mappings are there, private, and can be read and written. */
static int part_whole(struct crn_page_areas *p, const struct crn_area *part)
{
	uintptr_t at = part->begin;
	struct crn_mapping m;
	int more;

	CRN_TRY(crn_maps_begin(&p->maps, at, CRN_MAPS_NO_NAMES));
	while ((more = next_part(&p->maps, &at, part->end, &m)) > 0)
		;
	return more;
}

int crn_page_areas_whole(struct crn_page_areas *p)
{
	for (size_t i = 0; i < p->count; i++) {
		if (crn_likely(part_whole(p, &p->at[i]->part) >= 0))
			continue;
		if (!p->told)
			crn_error("the area at %zx has been unmapped or closed: remove it before",
				p->at[i]->begin);
		p->told = true;
		return CAIRN_ELAYOUT;
	}
	p->told = false;
	return 0;
}

int crn_page_areas_turn(struct crn_page_areas *p)
{
	if (!p->count)
		return 0;
	CRN_TRY(crn_inner_catch_up(&p->inner));
	return crn_inner->interval_begin(p->inner.tracker);
}

bool crn_page_areas_have(const struct crn_page_areas *p, uintptr_t addr, uint64_t id)
{
	const struct crn_page_area *a = find(p, addr, addr + 1);

	return a && a->part.born <= id;
}

struct shown {
	struct crn_sink sink;
	const struct crn_page_areas *areas;
	uint64_t id;
	crn_undo_fn fn;
	void *ctx;
};

static int show(struct crn_sink *self, uintptr_t addr, size_t len, void *old, bool owned)
{
	struct shown *s = (struct shown *)self;

	for (size_t at = 0; at < len; at += CRN_PAGE_SIZE)
		if (crn_page_areas_have(s->areas, addr + at, s->id))
			CRN_TRY(s->fn(s->ctx, addr + at, old ? (const char *)old + at : zeros,
				CRN_PAGE_SIZE));
	return 0;
}

int crn_page_areas_walk(struct crn_page_areas *p, uint64_t id, crn_undo_fn fn, void *ctx)
{
	struct shown s = { .sink = { .take = show }, p, id, fn, ctx };

	return p->count ? crn_inner->undo(p->inner.tracker, &s.sink) : 0;
}

uint64_t crn_page_areas_bytes(const struct crn_page_areas *p)
{
	return p->inner.tracker ? crn_inner->bytes(p->inner.tracker) : 0;
}
