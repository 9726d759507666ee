/* SPDX-License-Identifier: MIT */
/*
 * Private mappings of files that are not part of the surface, because the program has never been
 * able to write to them: code, constants, files that are read. They are listed, not tracked:
 *
 *	before    now                      change  a restore to before
 *	file      a piece, of the same     OPENED  drops what was written, closes it
 *	file      gone, or something else  FILE    maps the file again by its name
 *	file      same, other protection   FILE    sets the old protection
 *
 * Pages that were written and closed again before they were first seen (relocated constants of a
 * loaded object, patched code) no longer hold the file's bytes: such pages are pieces of the
 * surface. Each checkpoint that looks at the map looks for them. Pages that were opened, written
 * and closed again since the last look are found when the past is asked for: files_undo.c.
 *
 * The agent undoes calls by itself and looks at the map only after some calls. Under it the list
 * may name mappings that are gone, and only OPENED is reported.
 */
#include "session/files.h"
#include "session/map_changes.h"
#include "base/check.h"
#include "base/copy.h"
#include "os/memory.h"
#include "os/pagemap.h"

#define UNDIVIDED (1ul << 20)
#define CLOSE	  (256ul << 10) /* bytes between two parts that cost less than dividing them */

/* ---- The list ------------------------------------------------------------------------------ */

/* Index of the first that ends above addr. */
static size_t file_from(const struct crn_pieces *l, uintptr_t addr)
{
	size_t i;

	CRN_FIRST(i, l->count, l->at[i].end > addr);
	return i;
}

static bool joins(const struct crn_piece *a, const struct crn_piece *b)
{
	return a->end == b->begin && crn_same_kind(a, b) && a->prot == b->prot &&
		a->flags == b->flags && a->file == b->file && a->born == b->born &&
		a->sure == b->sure;
}

/* Nothing of [p->begin, p->end) is listed. */
static int insert(cairn_t *c, struct crn_pieces *l, const struct crn_piece *p)
{
	size_t at = file_from(l, p->begin);

	if (at && joins(&l->at[at - 1], p)) {
		l->at[at - 1].end = p->end;
		return 0;
	}
	CRN_TRY(crn_grow(c, (void **)&l->at, &l->capacity, l->count + 1, sizeof(*l->at)));
	for (size_t i = l->count++; i > at; i--)
		l->at[i] = l->at[i - 1];
	l->at[at] = *p;
	return 0;
}

static int insert_part(
	cairn_t *c, struct crn_pieces *l, struct crn_piece p, uintptr_t begin, uintptr_t end)
{
	p.begin = begin;
	p.end = end;
	return begin < end ? insert(c, l, &p) : 0;
}

static struct crn_piece file_piece_of(cairn_t *c, const struct crn_mapping *m, uint32_t flags)
{
	struct crn_piece p = crn_piece_of(m, flags);

	p.born = c->last_id + c->maps_known;
	p.sure = c->files_look;
	return p;
}

/* The number may be a file of the program's by now. */
static int open_pagemap(cairn_t *c)
{
	if (crn_likely(crn_fd_is(c->files_pagemap, &c->files_pagemap_id)))
		return 0;
	c->files_pagemap = crn_pagemap_open();
	return c->files_pagemap < 0 ? c->files_pagemap
				    : crn_fd_identify(c->files_pagemap, &c->files_pagemap_id);
}

/* The process's own copies of pages in [*cursor, end); the pagemap is open. */
static long own_pages(
	cairn_t *c, uintptr_t *cursor, uintptr_t end, struct crn_page_run *runs, size_t max)
{
	long n = crn_pagemap_own(c->files_pagemap, cursor, end, runs, max);

	/* Where nobody tells, none is taken for written. */
	if (n < 0)
		*cursor = end;
	return CRN_MAX(n, 0l);
}

bool crn_files_populated(cairn_t *c, uintptr_t *begin, uintptr_t *end)
{
	struct crn_page_run run;
	uintptr_t cursor = *begin;

	if (!c->host.pagemap_scan || open_pagemap(c) < 0)
		return false;
	while (cursor < *end) {
		long n = crn_pagemap_populated(c->files_pagemap, &cursor, *end, &run, 1);

		if (n > 0) {
			*begin = run.begin;
			*end = run.end;
		}
		if (n)
			return n > 0;
	}
	return false;
}

/* What a debugger has put into code is not, if the program itself can never have written to it. */
static bool is_program_s(const struct crn_piece *p, uintptr_t addr)
{
	return !(p->prot & PROT_EXEC) || crn_memory_was_writable(addr);
}

/* The pages of a run are no file's: a piece. What lies between it and *at is listed. */
static int add_written(cairn_t *c, const struct crn_mapping *m, const struct crn_piece *p,
	uintptr_t *at, const struct crn_page_run *run)
{
	if (run->begin == run->end)
		return 0;
	CRN_TRY(insert_part(c, &c->files_fresh, *p, *at, run->begin));
	*at = run->end;
	return crn_surface_add(c, m, p->flags, run->begin, run->end);
}

/*
 * [begin, end) of a mapping is new, or in doubt. Small ones are not divided: the kernel would have
 * to divide them as well, each look at the map would see them all, and each scan would take a call
 * for every part. For the same reason parts that lie close together are one: of the code of libc
 * the agent patches a page here and there, and whose they are is asked once for all.
 */
static int add_scanned(cairn_t *c, const struct crn_mapping *m, const struct crn_piece *p,
	uintptr_t begin, uintptr_t end)
{
	struct crn_page_run runs[32], written = { .begin = begin, .end = begin };
	bool program_s = false;
	uintptr_t at = begin;

	(void)open_pagemap(c);
	for (uintptr_t cursor = begin; cursor < end;) {
		long n = own_pages(c, &cursor, end, runs, CRN_ARRAY_SIZE(runs));

		if (n > 0 && !program_s && !(program_s = is_program_s(p, begin)))
			break;
		for (long i = 0; i < n; i++) {
			if (end - begin <= UNDIVIDED)
				return crn_surface_add(c, m, p->flags, begin, end);
			if (written.begin == written.end || runs[i].begin - written.end > CLOSE) {
				CRN_TRY(add_written(c, m, p, &at, &written));
				written.begin = runs[i].begin;
			}
			written.end = runs[i].end;
		}
	}
	CRN_TRY(add_written(c, m, p, &at, &written));
	return insert_part(c, &c->files_fresh, *p, at, end);
}

/* Parts of one mapping of one file, as far as that has been asked? */
static bool same_file(const struct crn_piece *known, const struct crn_piece *p)
{
	return crn_same_kind(known, p) && !(known->file && known->file->exchanged);
}

/* A part of a mapping that no area covers. */
static int add_part(cairn_t *c, const struct crn_mapping *m, struct crn_piece *p, uintptr_t at,
	uintptr_t end)
{
	for (uintptr_t stop; at < end; at = stop) {
		size_t i = file_from(&c->files, at);
		const struct crn_piece *known = i < c->files.count ? &c->files.at[i] : NULL;
		struct crn_piece new;

		stop = known ? CRN_MIN(end, known->begin <= at ? known->end : known->begin) : end;
		if (known && known->begin <= at && same_file(known, p) &&
			known->prot == p->prot && !(known->flags & CRN_PIECE_DOUBT)) {
			CRN_TRY(insert_part(c, &c->files_fresh, *known, at, stop));
			continue;
		}
		if (!p->file && !c->control->watched)
			p->file = crn_file_name_of(c, m);
		/* Nothing would tell another file in its place from it. */
		if (!c->control->watched && !crn_file_known(c, p->file)) {
			CRN_TRY(crn_surface_add(c, m, p->flags, at, stop));
			continue;
		}
		new = *p;
		if (known && known->begin <= at && same_file(known, p))
			new.born = known->born;
		CRN_TRY(add_scanned(c, m, &new, at, stop));
	}
	return 0;
}

static bool is_listed(const struct crn_mapping *m, uint32_t flags)
{
	return flags & CRN_AREA_FILE && !m->shared && !(m->prot & PROT_WRITE) &&
		!crn_mapping_special(m);
}

/* [at, end) of a mapping, but for what areas cover. */
static int add_outside(cairn_t *c, const struct crn_mapping *m, struct crn_piece *p, uintptr_t at,
	uintptr_t end)
{
	uintptr_t stop;

	for (size_t i = crn_area_from(c, at); at < end; at = stop) {
		const struct crn_area *a = i < c->area_count ? c->areas[i] : NULL;

		if (a && a->begin <= at) {
			stop = a->end;
			i++;
			continue;
		}
		stop = a ? CRN_MIN(end, a->begin) : end;
		CRN_TRY(add_part(c, m, p, at, stop));
	}
	return 0;
}

/* The engine's own code has pages of its own, and would be asked about at each look. */
int crn_files_add(cairn_t *c, const struct crn_mapping *m, uint32_t flags)
{
	struct crn_piece p = file_piece_of(c, m, flags & CRN_AREA_FLAGS & ~CRN_AREA_HOT);
	uintptr_t at = m->begin;

	if (!is_listed(m, flags))
		return 0;
	for (size_t i = crn_ranges_from(&c->omitted, at);
		i < c->omitted.count && c->omitted.at[i].begin < m->end; i++) {
		CRN_TRY(add_outside(c, m, &p, at, c->omitted.at[i].begin));
		at = c->omitted.at[i].end;
	}
	return add_outside(c, m, &p, at, m->end);
}

int crn_files_keep_outside(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct crn_pieces *l = &c->files_fresh;

	l->count = 0;
	for (size_t i = 0; i < c->files.count; i++) {
		const struct crn_piece *p = &c->files.at[i];

		CRN_TRY(insert_part(c, l, *p, p->begin, CRN_MIN(p->end, begin)));
		CRN_TRY(insert_part(c, l, *p, CRN_MAX(p->begin, end), p->end));
	}
	return 0;
}

void crn_files_open(cairn_t *c)
{
	c->files_pagemap = -1;
}

void crn_files_close(cairn_t *c)
{
	if (crn_fd_is(c->files_pagemap, &c->files_pagemap_id))
		crn_fd_close(c->files_pagemap);
}

void crn_files_take(cairn_t *c)
{
	struct crn_pieces old = c->files;

	c->files = c->files_fresh;
	c->files_fresh = old;
	crn_file_names_forget(c);
}

/* ---- Changes --------------------------------------------------------------------------------- */

/* [at, end) of a listed mapping is not listed any more: that is no news where it was opened. */
static int diff_unlisted(cairn_t *c, struct crn_changes *to, const struct crn_piece *f,
	uintptr_t at, uintptr_t end)
{
	for (uintptr_t stop; at < end; at = stop) {
		size_t i;
		const struct crn_piece *p;
		bool inside;

		CRN_FIRST(i, c->fresh.count, c->fresh.at[i].end > at);
		p = i < c->fresh.count ? &c->fresh.at[i] : NULL;
		inside = p && p->begin <= at;
		stop = p ? CRN_MIN(end, inside ? p->end : p->begin) : end;
		if (!inside || !same_file(f, p))
			CRN_TRY(crn_change_add(c, to, f, at, stop, CRN_CHANGE_FILE));
	}
	return 0;
}

int crn_files_diff(cairn_t *c, struct crn_changes *to)
{
	const struct crn_pieces *now = &c->files_fresh;

	for (size_t k = 0; k < c->files.count && !c->control->watched; k++) {
		const struct crn_piece *f = &c->files.at[k], *n;

		for (uintptr_t at = f->begin, stop; at < f->end; at = stop) {
			size_t i = file_from(now, at);

			n = i < now->count ? &now->at[i] : NULL;
			if (!n || n->begin > at) {
				stop = n ? CRN_MIN(f->end, n->begin) : f->end;
				CRN_TRY(diff_unlisted(c, to, f, at, stop));
				continue;
			}
			stop = CRN_MIN(f->end, n->end);
			if (!same_file(f, n) || n->prot != f->prot)
				CRN_TRY(crn_change_add(c, to, f, at, stop, CRN_CHANGE_FILE));
		}
	}
	return 0;
}

int crn_files_born(cairn_t *c, struct crn_changes *to, const struct crn_piece *n,
	uintptr_t begin, uintptr_t end)
{
	for (uintptr_t at = begin, stop; at < end; at = stop) {
		size_t i = file_from(&c->files, at);
		const struct crn_piece *f = i < c->files.count ? &c->files.at[i] : NULL;
		struct crn_piece opened = *n;

		if (f && f->begin <= at && crn_same_kind(f, n) &&
			!(n->flags & CRN_AREA_EXPLICIT) && !crn_file_exchanged(c, f)) {
			stop = CRN_MIN(end, f->end);
			opened.prot = f->prot;
			opened.file = f->file;
			opened.born = f->born;
			opened.sure = f->sure;
			CRN_TRY(crn_change_add(c, to, &opened, at, stop, CRN_CHANGE_OPENED));
			continue;
		}
		stop = f ? CRN_MIN(end, f->begin > at ? f->begin : f->end) : end;
		CRN_TRY(crn_change_add(c, to, n, at, stop, CRN_CHANGE_BORN));
	}
	return 0;
}

/* ---- Written since -------------------------------------------------------------------------- */

/* As read just now: c->files is older while a change is only noted. */
static const struct crn_pieces *present(const cairn_t *c)
{
	return c->files_kept ? &c->files_fresh : &c->files;
}

bool crn_files_younger(const cairn_t *c, uint64_t id, uintptr_t begin, uintptr_t end)
{
	const struct crn_pieces *l = present(c);

	if (c->control->watched)
		return false; /* it may have gone */
	for (size_t i = file_from(l, begin); begin < end; begin = l->at[i++].end)
		if (i == l->count || l->at[i].begin > begin || l->at[i].born <= id)
			return false;
	return true;
}

void crn_files_give_way(cairn_t *c, uint64_t id, uintptr_t begin, uintptr_t end)
{
	const struct crn_pieces *l = present(c);

	for (size_t i = file_from(l, begin); i < l->count && l->at[i].begin < end; i++) {
		struct crn_piece part = { .begin = CRN_MAX(begin, l->at[i].begin),
			.end = CRN_MIN(end, l->at[i].end) };

		if (l->at[i].born > id && !c->control->watched && !crn_must_stay(c, &part))
			(void)crn_memory_unmap((void *)part.begin, part.end - part.begin);
	}
}

static int written_run(cairn_t *c, const struct crn_pieces *l, size_t i,
	const struct crn_page_run *run, crn_file_part_fn fn, void *arg)
{
	for (; i < l->count && l->at[i].begin < run->end; i++) {
		uintptr_t begin = CRN_MAX(l->at[i].begin, run->begin);
		uintptr_t end = CRN_MIN(l->at[i].end, run->end);

		if (begin < end && is_program_s(&l->at[i], begin))
			CRN_TRY(fn(c, &l->at[i], begin, end, arg));
	}
	return 0;
}

static int each_written(
	cairn_t *c, const struct crn_pieces *l, crn_file_part_fn fn, void *arg)
{
	struct crn_page_run runs[32];
	int err = 0;

	(void)open_pagemap(c);
	for (size_t i = 0, next; i < l->count && err >= 0; i = next) {
		uintptr_t cursor = l->at[i].begin, end = l->at[i].end;

		/* A call for all parts of an object. */
		for (next = i + 1; next < l->count && l->at[next].begin == end; next++)
			end = l->at[next].end;
		while (cursor < end && err >= 0) {
			long n = own_pages(c, &cursor, end, runs, CRN_ARRAY_SIZE(runs));

			for (long k = 0; k < n && err >= 0; k++)
				err = written_run(c, l, i, &runs[k], fn, arg);
		}
	}
	return err;
}

int crn_files_written(cairn_t *c, crn_file_part_fn fn, void *arg)
{
	return each_written(c, present(c), fn, arg);
}

static int doubt_part(
	cairn_t *c, const struct crn_piece *file, uintptr_t begin, uintptr_t end, void *arg)
{
	crn_files_doubt(c, begin, end);
	return 0;
}

/* Whoever has written to a page of a file has had a fault for his own copy of it. */
void crn_files_look(cairn_t *c)
{
	uint64_t faults;

	if (c->mode == CRN_SURFACE_NONE)
		return; /* none is listed */
	faults = crn_memory_faults();
	if (faults != c->files_faults || !c->maps_known)
		(void)each_written(c, &c->files, doubt_part, NULL);
	c->files_faults = faults;
}

void crn_files_doubt(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	for (size_t i = file_from(&c->files, begin);
		i < c->files.count && c->files.at[i].begin < end; i++)
		c->files.at[i].flags |= CRN_PIECE_DOUBT;
}

int crn_files_list(cairn_t *c, const struct crn_piece *p)
{
	struct crn_piece file = *p;

	file.flags &= CRN_AREA_FILE | CRN_AREA_UNCUT | CRN_PIECE_DOUBT;
	CRN_TRY(crn_grow(c, (void **)&c->files.at, &c->files.capacity, c->files.count + 1,
		sizeof(*c->files.at)));
	crn_pieces_cut(&c->files, p->begin, p->end);
	return insert(c, &c->files, &file);
}

/* ---- Told by the agent ----------------------------------------------------------------------- */

/* A part of a mapping, as it is before the call. */
static int tell(cairn_t *c, const struct crn_piece *p, uintptr_t at, uintptr_t end)
{
	for (uintptr_t stop; at < end; at = stop) {
		size_t i = file_from(&c->files, at);
		struct crn_piece *known = i < c->files.count ? &c->files.at[i] : NULL, part;

		stop = known ? CRN_MIN(end, known->begin <= at ? known->end : known->begin) : end;
		if (known && known->begin <= at && crn_same_kind(known, p)) {
			known->flags |= CRN_PIECE_DOUBT; /* as it was at first */
			continue;
		}
		/* What is listed there has gone: nobody told. */
		part = *p;
		part.begin = at;
		part.end = stop;
		CRN_TRY(crn_files_list(c, &part));
	}
	return 0;
}

static int protecting(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct crn_mapping m;
	int more;

	CRN_TRY(crn_maps_begin(&c->maps, begin, CRN_MAPS_NO_NAMES));
	while ((more = crn_maps_next(&c->maps, &m)) > 0 && m.begin < end) {
		struct crn_piece p = file_piece_of(c, &m, CRN_AREA_FILE | CRN_PIECE_DOUBT);

		p.born = 0; /* if it is younger, the agent unmaps it by itself */
		if (m.inode && is_listed(&m, CRN_AREA_FILE))
			CRN_TRY(tell(c, &p, CRN_MAX(begin, m.begin), CRN_MIN(end, m.end)));
		if (m.end >= end)
			break;
	}
	return CRN_MIN(more, 0);
}

void crn_files_protecting(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	if (c->mode == CRN_SURFACE_NONE || begin >= end || crn_areas_cover(c, begin, end))
		return;
	/* Without memory for it a restore would take it for something new. */
	if (protecting(c, begin, end) < 0)
		crn_lost(&c->env, begin, CAIRN_EMEMORY);
}
