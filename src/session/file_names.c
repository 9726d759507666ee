/* SPDX-License-Identifier: MIT */
/*
 * Which files the listed mappings (files.c) are of: name, number, and what tells a file from
 * another one that has been given its number.
 */
#include "session/files.h"
#include "base/copy.h"
#include "os/mapped_file.h"

#define YOUNG_MAX 64 /* files that are asked for at a checkpoint: a microsecond each */

/* Asked at most once in a look. */
static bool is_as_it_was(cairn_t *c, struct crn_file_name *n)
{
	if (n->asked == c->files_asked || !n->is.age)
		return !n->exchanged;
	n->asked = c->files_asked;
	return !n->exchanged && crn_file_is(n->text, &n->is);
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
	if (crn_file_identify(n->text, &n->is) < 0)
		n->is.age = 0; /* it has been deleted: known by its number alone */
	c->file_names[c->file_name_count++] = n;
	c->file_names_young += n->young;
	return n;
}

struct crn_file_name *crn_file_name_of(cairn_t *c, const struct crn_mapping *m)
{
	uint64_t device = crn_mapping_device(m);

	for (size_t i = c->file_name_count; i-- > 0;) {
		struct crn_file_name *n = c->file_names[i];

		if (n->inode != m->inode || n->device != device || !crn_streq(n->text, m->name))
			continue;
		if (is_as_it_was(c, n))
			return n;
		n->exchanged = n->exchanged || crn_file_replaces(n->text, &n->is);
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

/*
 * The name leads elsewhere. Only the mapping itself knows what it is of: by the name that it has
 * now. Of what has been deleted nobody can tell; that is taken for the file that it was.
 */
static bool is_exchanged(cairn_t *c, struct crn_file_name *n, uintptr_t at)
{
	struct crn_mapping m;

	if (is_as_it_was(c, n) || n->exchanged)
		return n->exchanged;
	n->exchanged = crn_maps_find(&c->maps, at, &m) > 0 && m.inode == n->inode &&
		crn_mapping_device(&m) == n->device && crn_file_replaces(m.name, &n->is);
	return n->exchanged;
}

bool crn_file_exchanged(cairn_t *c, const struct crn_piece *p)
{
	return p->file && is_exchanged(c, p->file, p->begin);
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
