/* SPDX-License-Identifier: MIT */
/* Mapping a file again where it has been mapped, and which file it is. Any context; no signal. */
#ifndef CRN_OS_MAPPED_FILE_H
#define CRN_OS_MAPPED_FILE_H

#include "os/maps.h"

/*
 * Map the file that `was->name` names, private, as *was had it, at its place, where nothing is
 * mapped. 0, or: -ESTALE (it is another file by now), -ENODATA (it has become shorter), -EEXIST
 * (the place is not free) and what the kernel says. `maps` is for looking: a walk of it ends.
 */
int crn_mapped_file_put(struct crn_maps *maps, const struct crn_mapping *was);
/* Could that be done, but for the place? A page of it is mapped elsewhere for a moment. */
int crn_mapped_file_try(struct crn_maps *maps, const struct crn_mapping *was);
/* Does the mapping show the same bytes of the same file at the same addresses, private? */
bool crn_mapped_file_same(const struct crn_mapping *m, const struct crn_mapping *was);

/*
 * A file by more than its number, which a new one may be given when it has been deleted. `age`: of
 * its handle (which has a generation) or, without, its birth time, which is too coarse for files
 * that are made at once; 0 if the file system tells neither.
 */
struct crn_file_identity {
	uint64_t device, inode, age; /* the first two as stat shows them: not so all mappings */
	bool timed;                  /* by its birth time */
};
/* Which file does the name lead to? 0 or -errno. Three system calls. */
int crn_file_identify(const char *name, struct crn_file_identity *out);
/* Does it (still) lead to the file that `was`, of known age? One system call if so. */
bool crn_file_is(const char *name, const struct crn_file_identity *was);
/* Does it lead to one of the same number that is another file? Then `was` exists no more. */
bool crn_file_replaces(const char *name, const struct crn_file_identity *was);

#endif
