/* SPDX-License-Identifier: MIT */
/*
 * Private mappings of files that are not part of the surface: files.c lists them, files_undo.c
 * undoes their changes in a restore. Called with the session's lock held.
 */
#ifndef CRN_FILES_H
#define CRN_FILES_H

#include "os/mapped_file.h"
#include "session/engine.h"

/* ---- file_names.c */
struct crn_file_name {
	size_t size;               /* of this block */
	uint64_t inode, device;    /* as mappings show them */
	struct crn_file_identity is;
	uint64_t asked; /* of c->files_asked, the last time */
	bool used;
	bool young;     /* such files are the ones that programs replace */
	bool exchanged; /* its number is another file's, for all that can be told */
	char text[];
};
/* Asks for the file at most once in a look. NULL: no memory. */
struct crn_file_name *crn_file_name_of(cairn_t *c, const struct crn_mapping *m);
/* Will it be told from another file of its number? */
bool crn_file_known(const cairn_t *c, const struct crn_file_name *n);
/* Does its name lead to it, of what has its number? */
bool crn_file_named(const cairn_t *c, const struct crn_file_name *n);
/* Those that nobody needs any more, if there are many. */
void crn_file_names_forget(cairn_t *c);
/*
 * Before maps are read: is what is listed still what it was? While a file is mapped its number is
 * its own; afterwards another may have that, and be mapped in its place. Before a restore all are
 * asked, else the young ones: of the others that is found out then. True if one is not.
 */
bool crn_files_ask(cairn_t *c, bool all);
/* What is mapped there may be of another file of that number. */
bool crn_file_exchanged(cairn_t *c, const struct crn_piece *p);
/* Is the mapping, which shows the number of the piece's file, of that file? */
bool crn_file_shown(cairn_t *c, const struct crn_piece *p, const struct crn_mapping *m);

/* ---- files.c */
void crn_files_open(cairn_t *c);
void crn_files_close(cairn_t *c);
/*
 * While maps are read: a mapping that is no part of the surface. What it has of the program's own
 * copies of pages becomes pieces, the rest is listed. 0 or negative.
 */
int crn_files_add(cairn_t *c, const struct crn_mapping *m, uint32_t flags);
int crn_files_keep_outside(cairn_t *c, uintptr_t begin, uintptr_t end);
/* What was listed when last looked at and is not any more, but for what has been opened. */
int crn_files_diff(cairn_t *c, struct crn_changes *to);
/* A piece is new: CRN_CHANGE_OPENED where it was listed, else CRN_CHANGE_BORN. */
int crn_files_born(cairn_t *c, struct crn_changes *to, const struct crn_piece *n,
	uintptr_t begin, uintptr_t end);
/* What was read belongs to the layout from now on. */
void crn_files_take(cairn_t *c);
/* The program will change the protection of [begin, end): they are known from then on. */
void crn_files_protecting(cairn_t *c, uintptr_t begin, uintptr_t end);
/*
 * Tell fn of the process's own copies of pages that the mappings have which were listed just now. 0
 * or what fn has failed with.
 */
typedef int (*crn_file_part_fn)(
	cairn_t *c, const struct crn_piece *file, uintptr_t begin, uintptr_t end, void *arg);
int crn_files_written(cairn_t *c, crn_file_part_fn fn, void *arg);
/* Is all that is mapped there listed, and younger than `id`? Then it may give way to what was. */
bool crn_files_younger(const cairn_t *c, uint64_t id, uintptr_t begin, uintptr_t end);
void crn_files_give_way(cairn_t *c, uint64_t id, uintptr_t begin, uintptr_t end);
/* It is listed again as it was. 0 or CAIRN_EMEMORY. */
int crn_files_list(cairn_t *c, const struct crn_piece *p);
/*
 * The first run of the process's own pages in [*begin, *end) of anonymous memory; false if there is
 * none, or where the kernel cannot tell soon.
 */
bool crn_files_populated(cairn_t *c, uintptr_t *begin, uintptr_t *end);
/*
 * Before maps are read at a checkpoint: what has been written of what is listed, and closed again,
 * becomes pieces by that look.
 */
void crn_files_look(cairn_t *c);
/* The next look scans what is listed there. */
void crn_files_doubt(cairn_t *c, uintptr_t begin, uintptr_t end);

/* ---- files_undo.c */
/*
 * Before a restore to `id`: pages that were written and closed again between two looks become
 * changes. 0, or CAIRN_ELAYOUT: nobody can tell whether that was before `id`.
 */
int crn_files_settle(cairn_t *c, uint64_t id);
/* Can it be undone? 0, CAIRN_ELAYOUT (the log says why) or negative. */
int crn_file_undoable(cairn_t *c, uint64_t id, const struct crn_piece *p);
/* The mapping is there again, with the file's bytes and its protection, and is listed. */
int crn_file_put(cairn_t *c, const struct crn_piece *p);

#endif
