/* SPDX-License-Identifier: MIT */
/*
 * How a restore undoes the changes that files.c has found. A mapping that has stayed in place only
 * needs its old protection, and its written pages are dropped. A mapping that is gone is mapped
 * again by its name, if the name still leads to the same file.
 *
 * Nobody reports a mapping that was opened, written and closed between two looks. Each listed
 * mapping is known to have held the file's bytes at some checkpoint (`sure`); the process's own
 * pages in it were written after that. If `sure` is not older than the restore's target, these
 * pages are dropped. Otherwise the restore is refused, and the interval cannot be undone; the next
 * checkpoint holds the pages.
 */
#include <errno.h>
#include "session/files.h"
#include "session/map_changes.h"
#include "base/log.h"
#include "os/mapped_file.h"
#include "os/memory.h"

static struct crn_mapping mapping_of(const struct crn_piece *p)
{
	return (struct crn_mapping){
		.begin = p->begin,
		.end = p->end,
		.offset = p->base + p->begin,
		.inode = p->inode,
		.dev_major = (uint32_t)(p->device >> 32),
		.dev_minor = (uint32_t)p->device,
		.prot = p->prot,
		.name = p->file ? p->file->text : NULL,
	};
}

static const char *name_in_log(const struct crn_piece *p)
{
	return p->file ? p->file->text : "a file";
}

/* ---- Written and closed between two looks ---------------------------------------------------- */

static bool is_known(const struct crn_changes *l, uintptr_t begin, uintptr_t end)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->at[i].kind == CRN_CHANGE_OPENED && l->at[i].piece.begin == begin &&
			l->at[i].piece.end == end)
			return true;
	return false;
}

struct settling {
	uint64_t id;
	bool any, late;
};

static int settle_part(
	cairn_t *c, const struct crn_piece *f, uintptr_t begin, uintptr_t end, void *arg)
{
	struct crn_changes *l = &crn_mark_newest(c)->changes;
	uint64_t sure = CRN_MAX(f->sure, c->files_sure);
	struct settling *s = arg;

	s->any = true;
	if (sure >= s->id)
		return is_known(l, begin, end)
			? 0
			: crn_change_add(c, l, f, begin, end, CRN_CHANGE_OPENED);
	crn_error("%s, mapped at %zx, was written and closed again after checkpoint %lu: there is "
		  "no telling when", name_in_log(f), begin, (unsigned long)sure);
	s->late = true;
	crn_files_doubt(c, begin, end);
	return 0;
}

int crn_files_settle(cairn_t *c, uint64_t id)
{
	struct settling s = { .id = id };
	int err = 0;

	if (c->control->watched || c->mode == CRN_SURFACE_NONE)
		return 0;
	if (c->files_doubt) {
		crn_own_calls(c, true);
		err = crn_files_written(c, settle_part, &s);
		crn_own_calls(c, false);
	}
	CRN_TRY(err);
	if (!s.any) {
		c->files_sure = crn_mark_newest(c)->id;
		c->files_doubt = false;
	}
	if (s.late)
		crn_lost(&c->env, 0, CAIRN_ELAYOUT);
	return s.late ? CAIRN_ELAYOUT : 0;
}

/* ---- Can it be undone? ----------------------------------------------------------------------- */

/* Has something of the surface been mapped there since, or gone? */
static bool was_replaced(const cairn_t *c, uint64_t id, const struct crn_piece *p)
{
	for (size_t k = c->marks.count; k-- > 0 && crn_mark_at(c, k)->id >= id;) {
		const struct crn_changes *l = &crn_mark_at(c, k)->changes;

		for (size_t i = 0; i < l->count; i++) {
			const struct crn_piece *q = &l->at[i].piece;

			if ((l->at[i].kind == CRN_CHANGE_BORN ||
				    l->at[i].kind == CRN_CHANGE_GONE) &&
				q->begin < p->end && q->end > p->begin)
				return true;
		}
	}
	return false;
}

static int refuse(const struct crn_piece *p, const char *why)
{
	crn_error("%s was mapped at %zx-%zx and cannot be mapped there again: %s",
		name_in_log(p), p->begin, p->end, why);
	return CAIRN_ELAYOUT;
}

static int find_again(cairn_t *c, const struct crn_piece *p)
{
	struct crn_mapping was = mapping_of(p);
	int err;

	if (!p->file || !p->inode)
		return refuse(p, "it has no name");
	crn_own_calls(c, true);
	err = crn_mapped_file_try(&c->maps, &was);
	if (err >= 0 && !crn_file_named(c, p->file))
		err = -ESTALE;
	crn_own_calls(c, false);
	return err < 0 ? refuse(p, err == -ESTALE ? "the name is another file's"
				: err == -ENODATA ? "it has been cut short"
						  : cairn_strerror(err))
		       : 0;
}

int crn_file_undoable(cairn_t *c, uint64_t id, const struct crn_piece *p)
{
	struct crn_mapping m, was = mapping_of(p);
	bool gone = was_replaced(c, id, p);
	uintptr_t at = p->begin;
	int more = 1;

	CRN_TRY(crn_maps_begin(&c->maps, at, 0));
	for (; at < p->end && (more = crn_maps_next(&c->maps, &m)) > 0; at = m.end) {
		uintptr_t from = CRN_MAX(at, m.begin), to = CRN_MIN(p->end, m.end);

		gone |= m.begin > at;
		if (from >= to)
			continue;
		if (crn_mapped_file_same(&m, &was)) {
			if (!crn_file_shown(c, p, &m))
				return refuse(p, "its number may be another file's");
			continue;
		}
		/* All that is tracked there is younger, or stands for what was. */
		if (crn_must_stay(c, p) || !(crn_place_frees(c, id, from, to) ||
			crn_areas_cover(c, from, to)))
			return refuse(p, "something else is there");
		gone = true;
	}
	CRN_TRY(more);
	return gone || at < p->end ? find_again(c, p) : 0;
}

/* ---- Undoing --------------------------------------------------------------------------------- */

/* The file's bytes are back, whatever was written over them. */
static int drop_pages(uintptr_t begin, uintptr_t end)
{
	int err = crn_memory_advise((void *)begin, end - begin, MADV_DONTNEED);

	if (err == -EINVAL) /* mlock */
		err = crn_memory_advise((void *)begin, end - begin, MADV_DONTNEED_LOCKED);
	return err;
}

/* [begin, end) is mapped, but not as it was: what mapped it there again is ours. */
static int make_room(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	CRN_TRY(crn_area_forget(c, begin, end));
	return crn_memory_unmap((void *)begin, end - begin);
}

static int map_part(cairn_t *c, const struct crn_mapping *was, uintptr_t begin, uintptr_t end)
{
	struct crn_mapping part = *was;

	part.begin = begin;
	part.end = end;
	part.offset += begin - was->begin;
	return crn_mapped_file_put(&c->maps, &part);
}

int crn_file_put(cairn_t *c, const struct crn_piece *p)
{
	struct crn_mapping m, was = mapping_of(p);

	for (uintptr_t at = p->begin, stop; at < p->end; at = stop) {
		int more;

		CRN_TRY(crn_maps_begin(&c->maps, at, CRN_MAPS_NO_NAMES));
		CRN_TRY(more = crn_maps_next(&c->maps, &m));
		stop = !more ? p->end : CRN_MIN(p->end, m.begin > at ? m.begin : m.end);
		if (more && m.begin <= at && crn_mapped_file_same(&m, &was)) {
			CRN_TRY(crn_area_forget(c, at, stop));
			CRN_TRY(drop_pages(at, stop));
			continue;
		}
		if (more && m.begin <= at)
			CRN_TRY(make_room(c, at, stop));
		CRN_TRY(map_part(c, &was, at, stop));
	}
	CRN_TRY(crn_memory_protect((void *)p->begin, p->end - p->begin, p->prot));
	return crn_files_list(c, p);
}
