/* SPDX-License-Identifier: MIT */
/* Files whose shared memory is in the surface keep their numbers. With the session's lock held. */
#ifndef CRN_HELD_FILES_H
#define CRN_HELD_FILES_H

#include <stddef.h>
#include <stdint.h>
#include "cairn/cairn.h"

struct crn_pieces;

struct crn_held {
	uint64_t inode, device;
	uintptr_t at; /* a page of it, without access */
};

struct crn_held_files {
	struct crn_held *at;
	size_t count, capacity;
};

/*
 * The file of the shared mapping at `addr`, or of each shared piece, keeps its number as long as
 * the layout or a name has memory of it. Before the tracker has the mapping. 0 or CAIRN_EMEMORY.
 */
int crn_held_file_take(cairn_t *c, uintptr_t addr, uint64_t inode, uint64_t device);
int crn_held_files_take(cairn_t *c, const struct crn_pieces *l);
void crn_held_files_drop(cairn_t *c); /* those of which there is none any more */
void crn_held_files_close(cairn_t *c);

#endif
