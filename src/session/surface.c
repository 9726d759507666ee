/* SPDX-License-Identifier: MIT */
/*
 * Which mappings belong to the surface. The answer is a sorted list of pieces, made anew from the
 * process's map whenever that may have changed; map_layout.c compares it with the last one.
 * surface_list.c parses the surface expression.
 */
#include "session/engine.h"
#include "session/files.h"
#include "session/surface_list.h"
#include "base/log.h"
#include "base/check.h"
#include "os/object.h"
#include "os/thread.h"

/* Of an object that has been loaded, more than any linker makes. */
#define SEGMENTS_MAX 64

static int piece_add(cairn_t *c, struct crn_pieces *l, const struct crn_mapping *m, uint32_t flags,
	uintptr_t begin, uintptr_t end)
{
	struct crn_piece *p;

	begin = CRN_MAX(begin, m->begin);
	end = CRN_MIN(end, m->end);
	if (begin >= end)
		return 0;
	CRN_TRY(crn_grow(c, (void **)&l->at, &l->capacity, l->count + 1, sizeof(*l->at)));
	/*
	 * Order is kept here: a list may name its ranges in any. Overlaps (named twice) are
	 * dropped.
	 */
	for (size_t i = 0; i < l->count && l->at[l->count - 1].end > begin; i++) {
		if (l->at[i].begin < end && l->at[i].end > begin) {
			if (l->at[i].begin <= begin && l->at[i].end >= end)
				return 0;
			if (l->at[i].begin > begin)
				CRN_TRY(piece_add(c, l, m, flags, begin, l->at[i].begin));
			if (l->at[i].end < end)
				return piece_add(c, l, m, flags, l->at[i].end, end);
			return 0;
		}
	}
	p = &l->at[l->count++];
	for (; p > l->at && p[-1].begin >= end; p--)
		*p = p[-1];
	*p = crn_piece_of(m, flags);
	p->begin = begin;
	p->end = end;
	return 0;
}

int crn_surface_add(
	cairn_t *c, const struct crn_mapping *m, uint32_t flags, uintptr_t at, uintptr_t end)
{
	uintptr_t engine, engine_end;
	size_t i;

	crn_arena_range(c->arena, &engine, &engine_end);
	if (m->begin < engine_end && m->end > engine)
		return 0;
	for (i = crn_ranges_from(&c->omitted, at);
		i < c->omitted.count && c->omitted.at[i].begin < end; i++) {
		CRN_TRY(piece_add(c, &c->fresh, m, flags, at, c->omitted.at[i].begin));
		at = c->omitted.at[i].end;
	}
	return piece_add(c, &c->fresh, m, flags, at, end);
}

/*
 * What was already tracked stays so while it is mapped, whatever its protection: it may have been
 * written before. Only that: where a tracker or the program has taken permissions away, the kernel
 * joins it with a neighbour that was never writable (.data with the read-only part before it), and
 * what is taken for a new mapping is taken away by a restore. True if it reaches the mapping's end.
 */
static int add_tracked(cairn_t *c, const struct crn_mapping *m, uint32_t flags)
{
	uintptr_t end = 0;

	for (size_t i = crn_area_from(c, m->begin);
		i < c->area_count && c->areas[i]->begin < m->end; i++) {
		const struct crn_area *a = c->areas[i];

		if (a->flags & CRN_AREA_EXPLICIT)
			continue;
		CRN_TRY(crn_surface_add(
			c, m, flags, CRN_MAX(a->begin, m->begin), CRN_MIN(a->end, m->end)));
		end = a->end;
	}
	return end >= m->end;
}

/* `follows`: it continues a mapping that was named, as .bss does .data. */
static int add_listed(cairn_t *c, const struct crn_mapping *m, uint32_t flags, bool *follows)
{
	int tracked = m->prot & PROT_WRITE ? false : add_tracked(c, m, flags);
	bool before = *follows, listed = m->prot & PROT_WRITE;

	CRN_TRY(tracked);
	*follows = tracked && (flags & CRN_AREA_FILE || (before && !flags));
	for (const char *s = c->surface;; s++) {
		const char *end = crn_surface_item_end(s);
		struct crn_range r;

		if (crn_surface_item_range(s, end, &r))
			CRN_TRY(piece_add(c, &c->fresh, m, flags, r.begin, r.end));
		else if (m->prot & PROT_WRITE &&
			(crn_surface_item_names(s, end, m->name) || (before && !flags))) {
			CRN_TRY(piece_add(c, &c->fresh, m, flags, m->begin, m->end));
			*follows = flags & CRN_AREA_FILE || (before && !flags);
		} else if (!listed && crn_surface_item_names(s, end, m->name)) {
			CRN_TRY(crn_files_add(c, m, flags));
			listed = true;
		}
		s = end;
		if (!*s)
			return 0;
	}
}

/* Explicit areas in this mapping. */
static int add_explicit(cairn_t *c, const struct crn_mapping *m, uint32_t flags)
{
	flags = (flags & ~CRN_AREA_STACK) | CRN_AREA_EXPLICIT;
	for (size_t i = 0; i < c->added_count; i++) {
		struct crn_added *a = &c->added[i];

		if (a->begin >= m->end || a->end <= m->begin)
			continue;
		a->mapped = true;
		CRN_TRY(piece_add(c, &c->fresh, m, flags, a->begin, a->end));
	}
	return 0;
}

static int note_head(void *ctx, int tid)
{
	cairn_t *c = ctx;
	uintptr_t head = 0;
	size_t len = 0;

	if (crn_robust_list_of(tid, &head, &len) < 0 || !head)
		return 0;
	return crn_ranges_add(c, &c->heads, head, head + 1);
}

/* libc keeps a thread's descriptor, with its robust list head, at the top of its stack. */
static bool holds_thread(const cairn_t *c, const struct crn_mapping *m)
{
	size_t i = crn_ranges_from(&c->heads, m->begin);

	return i < c->heads.count && c->heads.at[i].begin < m->end;
}

/* `follows`: it continues .data, or a part of .bss, that is in the surface. */
static bool wanted(cairn_t *c, const struct crn_mapping *m, uint32_t flags, bool follows)
{
	/* Code that is made at run time is written before anybody can see it as writable. */
	if (c->mode == CRN_SURFACE_ALL)
		return m->prot & PROT_WRITE || (m->prot && !(flags & CRN_AREA_FILE));
	if (!(m->prot & PROT_WRITE))
		return false;
	if (flags & (CRN_AREA_FILE | CRN_AREA_STACK | CRN_PIECE_HEAP))
		return true;
	/*
	 * .bss continues .data without a file, in several mappings if something has divided it:
	 * advice, or protections of a parent. What the program maps behind it is none of it. A
	 * thread's stack is anonymous.
	 */
	return follows || holds_thread(c, m);
}

/*
 * The program opens parts of what it has reserved by mprotect, as malloc does with its arenas.
 */
static int note_reserved(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	if (begin == end)
		return 0;
	return crn_ranges_add(c, &c->reserved_fresh, begin, end);
}

/*
 * Memory without access that holds something was written before anybody looked. The rest of such a
 * mapping is a reservation: the kernel joins what is closed with what was never open.
 */
static int add_closed(cairn_t *c, const struct crn_mapping *m, uint32_t flags)
{
	int tracked = add_tracked(c, m, flags);
	uintptr_t at = m->begin, begin = at, end = m->end;

	CRN_TRY(tracked);
	while (crn_files_populated(c, &begin, &end)) {
		CRN_TRY(note_reserved(c, at, begin));
		CRN_TRY(crn_surface_add(c, m, flags, begin, end));
		at = begin = end;
		end = m->end;
	}
	CRN_TRY(note_reserved(c, at, m->end));
	return tracked;
}

/* What of a mapping belongs to surface "all" or "program". True if its end does. */
static int add_chosen(cairn_t *c, const struct crn_mapping *m, uint32_t flags, bool follows)
{
	if (m->shared || crn_mapping_special(m))
		return false;
	if (c->mode == CRN_SURFACE_ALL && crn_mapping_closed(m))
		return add_closed(c, m, flags);
	if (!wanted(c, m, flags, follows)) {
		CRN_TRY(crn_files_add(c, m, flags));
		return add_tracked(c, m, flags);
	}
	CRN_TRY(crn_surface_add(c, m, flags, m->begin, m->end));
	return true;
}

static int read_range(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct crn_mapping m = { .end = 0 };
	int more = 0;

	CRN_TRY(crn_maps_begin(&c->maps, begin, 0));
	/* Who asks beyond the end pays for one system call more. */
	while (m.end < end && (more = crn_maps_next(&c->maps, &m)) > 0 && m.begin < end) {
		uint32_t flags = (crn_mapping_flags(&m) & ~CRN_AREA_STACK) | CRN_AREA_EXPLICIT;

		CRN_TRY(piece_add(c, &c->fresh, &m, flags, begin, end));
	}
	return more;
}

int crn_surface_read_range(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	c->fresh.count = 0;
	return read_range(c, begin, end);
}

/* With explicit areas only, the rest of the address space is of no interest. */
static int read_explicit(cairn_t *c)
{
	for (size_t i = 0; i < c->added_count; i++) {
		struct crn_added *a = &c->added[i];
		size_t before = c->fresh.count;

		CRN_TRY(read_range(c, a->begin, a->end));
		a->mapped = c->fresh.count > before;
	}
	return 0;
}

static bool continues(const struct crn_piece *p, const struct crn_piece *q)
{
	return p->end == q->begin && p->flags == q->flags && p->prot == q->prot &&
		p->inode == q->inode && p->base == q->base && p->device == q->device;
}

/* Append [begin, end) of a piece; room has been made. */
static void append_part(struct crn_pieces *l, const struct crn_piece *piece, uintptr_t begin,
	uintptr_t end, int prot)
{
	struct crn_piece part = *piece;

	part.begin = begin;
	part.end = end;
	part.prot = prot;
	if (l->count && continues(&l->at[l->count - 1], &part))
		l->at[l->count - 1].end = end;
	else
		l->at[l->count++] = part;
}

/*
 * Under a tracker that takes write permissions away, the map shows its own doing inside areas,
 * split at every page that is open. What an area was tracked for is memory that the program may
 * write.
 */
static int tell_truth(cairn_t *c)
{
	const int rw = PROT_READ | PROT_WRITE;
	struct crn_pieces *l = &c->truthful, swap;

	CRN_TRY(crn_grow(c, (void **)&l->at, &l->capacity, c->fresh.count + 2 * c->area_count,
		sizeof(*l->at)));
	l->count = 0;
	for (size_t i = 0; i < c->fresh.count; i++) {
		const struct crn_piece *p = &c->fresh.at[i];
		uintptr_t at = p->begin, stop;

		for (size_t k = crn_area_from(c, at); at < p->end; at = stop) {
			const struct crn_area *a = k < c->area_count ? c->areas[k] : NULL;
			bool inside = a && a->begin <= at;

			stop = CRN_MIN(p->end, !a ? p->end : inside ? a->end : a->begin);
			append_part(l, p, at, stop,
				inside && p->prot & PROT_READ ? p->prot | rw : p->prot);
			k += inside && stop == a->end;
		}
	}
	swap = c->fresh;
	c->fresh = *l;
	*l = swap;
	return 0;
}

uint32_t crn_surface_hot(const cairn_t *c, uintptr_t begin, uintptr_t end)
{
	const struct crn_mapping m = { .begin = begin, .end = end };

	return crn_refuses_kernel(c->ops) && holds_thread(c, &m) ? CRN_AREA_HOT : 0;
}

/* Those that cannot be asked for their robust lists yet. */
static int note_births(cairn_t *c)
{
	uintptr_t at[128];
	size_t n = crn_agent_descriptors ? crn_agent_descriptors(at, CRN_ARRAY_SIZE(at)) : 0;

	for (size_t i = 0; i < n; i++)
		CRN_TRY(crn_ranges_add(c, &c->heads, at[i], at[i] + 1));
	for (uint32_t i = 0; i < c->birth_count; i++)
		CRN_TRY(crn_ranges_add(c, &c->heads, c->births[i], c->births[i] + 1));
	return 0;
}

/* ---- The map --------------------------------------------------------------------------------- */

/* The mapping before the one that is read, and the object that it is a part of. */
struct behind {
	uintptr_t end;
	uint64_t inode;
	bool code;  /* it, or what of the file lies before it without a gap, can be executed */
	bool named; /* its end is in the surface, and of a file or what continues one */
	uintptr_t header; /* where the first mapping of the file `object` begins */
	uint64_t object;
	uintptr_t limit; /* where .bss ends; 0: not asked yet; 1: there is none */
};

static bool follows_file(const struct behind *b, const struct crn_mapping *m)
{
	return m->inode && m->inode == b->inode && m->begin == b->end;
}

/*
 * Of an object, its code and what follows that are segments. A file of data may be mapped in
 * several parts, too, and be cut short: it has no code.
 */
static uint32_t flags_after(const struct crn_mapping *m, const struct behind *b)
{
	uint32_t flags = crn_mapping_flags(m);

	if (flags & CRN_AREA_FILE && !m->shared && follows_file(b, m) &&
		(b->code || m->prot & PROT_EXEC))
		flags |= CRN_AREA_UNCUT;
	return flags;
}

static void now_behind(struct behind *b, const struct crn_mapping *m)
{
	b->code = m->inode && (m->prot & PROT_EXEC || (b->code && follows_file(b, m)));
	b->end = m->end;
	b->inode = m->inode;
	if (m->inode && !m->offset) {
		b->header = m->begin;
		b->object = m->inode;
	}
	/* Without its header nobody knows of a .bss: what lies behind is somebody else's. */
	if (m->inode)
		b->limit = b->object == m->inode ? 0 : 1;
}

/* Where what continues the mapping before ends: m->begin if nothing does. */
static uintptr_t continued_until(
	const cairn_t *c, const struct crn_mapping *m, uint32_t flags, struct behind *b)
{
	if (c->mode == CRN_SURFACE_ALL || !b->named || b->end != m->begin ||
		flags & (CRN_AREA_STACK | CRN_PIECE_HEAP))
		return m->begin;
	if (m->inode)
		return m->end;
	if (!b->limit)
		b->limit = CRN_MAX(crn_object_end(b->header), 1ul);
	return CRN_MAX(m->begin, CRN_MIN(m->end, b->limit));
}

/* `follows`: it continues .data, or a part of .bss, that is in the surface. */
static int add_mapping(
	cairn_t *c, const struct crn_mapping *m, uint32_t flags, bool follows, struct behind *b)
{
	int added;

	/*
	 * The kernel writes a thread's rseq area and the signal frames on its stack, and kills who
	 * forbids it.
	 */
	if (crn_refuses_kernel(c->ops) && (flags & CRN_AREA_STACK || holds_thread(c, m)))
		flags |= CRN_AREA_HOT;
	CRN_TRY(add_explicit(c, m, flags));
	if (c->mode == CRN_SURFACE_LIST) {
		b->named = follows;
		return add_listed(c, m, flags, &b->named);
	}
	added = add_chosen(c, m, flags, follows);
	b->named = added > 0 && (follows || flags & CRN_AREA_FILE);
	return CRN_MIN(added, 0);
}

static int read_maps(cairn_t *c)
{
	struct behind b = { .limit = 1 };
	struct crn_mapping m;
	int more;

	c->fresh.count = c->heads.count = c->reserved_fresh.count = c->files_fresh.count = 0;
	if (c->mode == CRN_SURFACE_NONE)
		return read_explicit(c);
	for (size_t i = 0; i < c->added_count; i++)
		c->added[i].mapped = false;
	if (c->mode == CRN_SURFACE_PROGRAM || crn_refuses_kernel(c->ops)) {
		CRN_TRY(note_births(c));
		CRN_TRY(crn_thread_each(note_head, c));
	}
	CRN_TRY(crn_maps_begin(&c->maps, 0, 0));
	while ((more = crn_maps_next(&c->maps, &m)) > 0) {
		uint32_t flags = flags_after(&m, &b);
		uintptr_t end = m.end, until = continued_until(c, &m, flags, &b);

		if (c->mode != CRN_SURFACE_ALL && crn_mapping_closed(&m))
			CRN_TRY(note_reserved(c, m.begin, m.end));
		if (until > m.begin && until < end) {
			m.end = until;
			CRN_TRY(add_mapping(c, &m, flags, true, &b));
			m.begin = until;
			m.end = end;
			until = 0;
		}
		CRN_TRY(add_mapping(c, &m, flags, until == end, &b));
		now_behind(&b, &m);
	}
	if (more == 0)
		c->birth_count = 0;
	return more;
}

int crn_surface_read(cairn_t *c)
{
	CRN_TRY(read_maps(c));
	return c->ops->caps & CRN_TRACK_PROTECTS ? tell_truth(c) : 0;
}

/* Elsewhere a mapping's place in the surface depends on others, or on what the tracker has done. */
bool crn_surface_has_parts(const cairn_t *c)
{
	return c->mode == CRN_SURFACE_ALL && !c->added_count && !crn_refuses_kernel(c->ops) &&
		!(c->ops->caps & CRN_TRACK_PROTECTS);
}

/* The pieces of the layout, and what is reserved, that lie outside [begin, end). */
static int keep_outside(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct crn_pieces *l = &c->fresh;

	l->count = 0;
	CRN_TRY(crn_grow(c, (void **)&l->at, &l->capacity, c->layout.count + 1, sizeof(*l->at)));
	for (size_t i = 0; i < c->layout.count; i++) {
		const struct crn_piece *p = &c->layout.at[i];

		if (p->begin < begin)
			append_part(l, p, p->begin, CRN_MIN(p->end, begin), p->prot);
		if (p->end > end)
			append_part(l, p, CRN_MAX(p->begin, end), p->end, p->prot);
	}
	c->reserved_fresh.count = 0;
	for (size_t i = 0; i < c->reserved.count; i++) {
		const struct crn_range *r = &c->reserved.at[i];

		if (r->begin < begin)
			CRN_TRY(note_reserved(c, r->begin, CRN_MIN(r->end, begin)));
		if (r->end > end)
			CRN_TRY(note_reserved(c, CRN_MAX(r->begin, end), r->end));
	}
	return 0;
}

/*
 * Where a walk has to begin that judges the mapping at `at` as a walk of everything does: with the
 * code of its object. One of more parts is only slower.
 */
static uintptr_t code_before(const cairn_t *c, uintptr_t at)
{
	struct crn_mapping m = { .begin = at };
	uintptr_t from = at;
	uint64_t inode = 0;

	for (int left = SEGMENTS_MAX; left && !(m.prot & PROT_EXEC); left--) {
		int got = crn_maps_ask(&c->maps, at, &m);

		if (got < 0)
			return 0;
		if (!got || !m.inode || (inode && m.inode != inode))
			break;
		inode = m.inode;
		from = m.begin;
		at = from - 1;
	}
	return from;
}

int crn_surface_read_part(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct behind b = { .limit = 1 };
	struct crn_mapping m;
	int more;

	CRN_TRY(keep_outside(c, begin, end));
	CRN_TRY(crn_files_keep_outside(c, begin, end));
	CRN_TRY(crn_maps_begin(&c->maps, code_before(c, begin), 0));
	while ((more = crn_maps_next(&c->maps, &m)) > 0 && m.begin < end) {
		uint32_t flags = flags_after(&m, &b);

		now_behind(&b, &m);
		if (m.end <= begin)
			continue;
		if (m.begin < begin) {
			m.offset += begin - m.begin;
			m.begin = begin;
		}
		m.end = CRN_MIN(m.end, end);
		CRN_TRY(add_chosen(c, &m, flags, false));
	}
	return CRN_MIN(more, 0);
}
