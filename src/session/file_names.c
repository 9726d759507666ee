/* SPDX-License-Identifier: MIT */
/*
 * Which files the listed mappings (files.c) belong to: name, number, and what tells a file from
 * another one that was given its number.
 */
#include "session/files.h"
#include "base/copy.h"
#include "os/mapped_file.h"

#define YOUNG_MAX 64 /* files that are asked for at a checkpoint: a microsecond each */

/* All of the mapping that holds m->begin, of which *m may be a part. */
static struct crn_mapping whole_of(const cairn_t *c, const struct crn_mapping *m)
{
	struct crn_mapping all;

	return crn_maps_ask(&c->maps, m->begin, &all) > 0 ? all : *m;
}

static bool shows_number(const struct crn_mapping *m, const struct crn_file_name *n)
{
	return m->inode == n->inode && crn_mapping_device(m) == n->device;
}

/* Frozen children have all that was mapped: nobody else is given a number of these. */
static bool numbers_tell(const cairn_t *c)
{
	return c->ops->caps & CRN_TRACK_KEEPS;
}

bool crn_file_known(const cairn_t *c, const struct crn_file_name *n)
{
	return n && (n->is.age || numbers_tell(c));
}

bool crn_file_named(const cairn_t *c, const struct crn_file_name *n)
{
	return numbers_tell(c) || crn_file_is(n->text, &n->is);
}

/*
 * Is the mapping, which shows its number, of that file? Asked at most once in a look. The name that
 * it had may lead elsewhere, and to nothing if the file has been deleted: the mapping itself may
 * tell. What cannot be told counts as another file: its number may have been given to that.
 */
static bool is_of(cairn_t *c, struct crn_file_name *n, const struct crn_mapping *m)
{
	struct crn_mapping all;

	if (n->exchanged || n->asked == c->files_asked)
		return !n->exchanged;
	n->asked = c->files_asked;
	if (crn_file_named(c, n) || crn_file_is(m->name, &n->is))
		return true;
	all = whole_of(c, m);
	n->exchanged = !crn_mapping_is(all.begin, all.end, &n->is);
	return !n->exchanged;
}

static void identify(cairn_t *c, const struct crn_mapping *m, struct crn_file_name *n)
{
	struct crn_mapping all;

	/* A name may lead to another file that lies over it, or ends in " (deleted)". */
	if (crn_file_identify(n->text, &n->is) >= 0 &&
		(n->is.inode == m->inode || crn_mapping_has_name(&c->maps, m)))
		return;
	all = whole_of(c, m);
	if (crn_mapping_identify(all.begin, all.end, &n->is) < 0)
		n->is.age = 0;
}

static struct crn_file_name *new_name(cairn_t *c, const struct crn_mapping *m)
{
	size_t length = crn_strlen(m->name) + 1, size = sizeof(struct crn_file_name) + length;
	struct crn_file_name *n;

	/* Without memory for its name it cannot be mapped again: such a restore is refused. */
	if (crn_grow(c, (void **)&c->file_names, &c->file_name_capacity, c->file_name_count + 1,
		    sizeof(*c->file_names)) < 0)
		return NULL;
	n = crn_block_alloc(c->arena, size);
	if (!n)
		return NULL;
	*n = (struct crn_file_name){ .size = size,
		.inode = m->inode,
		.device = crn_mapping_device(m),
		.asked = c->files_asked,
		.young = c->maps_known };
	crn_copy(n->text, m->name, length);
	identify(c, m, n);
	c->file_names[c->file_name_count++] = n;
	c->file_names_young += n->young;
	return n;
}

struct crn_file_name *crn_file_name_of(cairn_t *c, const struct crn_mapping *m)
{
	for (size_t i = c->file_name_count; i-- > 0;) {
		struct crn_file_name *n = c->file_names[i];

		if (shows_number(m, n) && crn_streq(n->text, m->name) && is_of(c, n, m))
			return n;
	}
	return new_name(c, m);
}

static void use_name(struct crn_file_name *n)
{
	if (n)
		n->used = true;
}

/* Programs may map file after file. */
void crn_file_names_forget(cairn_t *c)
{
	size_t left = 0;

	if (c->file_name_count < 2 * c->file_names_kept + 64)
		return;
	for (size_t i = 0; i < c->files.count; i++)
		use_name(c->files.at[i].file);
	for (size_t k = 0; k < c->marks.count; k++) {
		const struct crn_changes *l = &crn_mark_at(c, k)->changes;

		for (size_t i = 0; i < l->count; i++)
			use_name(l->at[i].piece.file);
	}
	for (size_t i = 0; i < c->file_name_count; i++) {
		struct crn_file_name *n = c->file_names[i];

		if (n->used) {
			n->used = false;
			c->file_names[left++] = n;
		} else {
			c->file_names_young -= n->young;
			crn_block_free(c->arena, n, n->size);
		}
	}
	c->file_name_count = c->file_names_kept = left;
}

bool crn_file_shown(cairn_t *c, const struct crn_piece *p, const struct crn_mapping *m)
{
	bool is;

	crn_own_calls(c, true);
	is = !p->file || is_of(c, p->file, m);
	crn_own_calls(c, false);
	return is;
}

/* What of [begin, end) shows its number: is it another file's? Else nothing has been found out. */
static bool shows_another(cairn_t *c, struct crn_file_name *n, uintptr_t begin, uintptr_t end)
{
	struct crn_mapping m;

	if (crn_maps_begin(&c->maps, begin, 0) < 0)
		return false;
	while (crn_maps_next(&c->maps, &m) > 0 && m.begin < end)
		if (shows_number(&m, n))
			return !is_of(c, n, &m);
	return false;
}

bool crn_file_exchanged(cairn_t *c, const struct crn_piece *p)
{
	struct crn_file_name *n = p->file;
	bool another;

	if (!n || n->exchanged || n->asked == c->files_asked)
		return n && n->exchanged;
	if (crn_file_named(c, n)) {
		n->asked = c->files_asked;
		return false;
	}
	/* They take the lock of the address space, as a writer might. */
	crn_own_calls(c, true);
	another = shows_another(c, n, p->begin, p->end);
	crn_own_calls(c, false);
	return another;
}

bool crn_files_ask(cairn_t *c, bool all)
{
	size_t left = all ? SIZE_MAX : CRN_MIN(c->file_names_young, (size_t)YOUNG_MAX);
	bool any = false;

	c->files_asked++;
	c->files_unasked = !all;
	for (size_t i = 0; i < c->files.count && left; i++) {
		const struct crn_piece *p = &c->files.at[i];

		if (!p->file || !(all || p->file->young) || p->file->asked == c->files_asked)
			continue;
		any |= crn_file_exchanged(c, p);
		left--;
	}
	return any;
}
