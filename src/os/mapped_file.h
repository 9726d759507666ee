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
 * its handle (which has a generation) or, without, the time of its birth or else of its last
 * change, if that is long enough ago to be no other file's; 0: nothing tells it from another one.
 */
struct crn_file_identity {
	uint64_t device, inode, age; /* the first two as stat shows them: not so all mappings */
	bool timed;                  /* by a time */
};
/* Which file does the name lead to? 0 or -errno. Three system calls. */
int crn_file_identify(const char *name, struct crn_file_identity *out);
/* Does it (still) lead to the file that `was`? False if that cannot be told. One system call. */
bool crn_file_is(const char *name, const struct crn_file_identity *was);
/*
 * The same of the whole mapping [begin, end), whatever names its file has: in the first user
 * namespace, with CAP_CHECKPOINT_RESTORE.
 */
int crn_mapping_identify(uintptr_t begin, uintptr_t end, struct crn_file_identity *out);
bool crn_mapping_is(uintptr_t begin, uintptr_t end, const struct crn_file_identity *was);
/* Does its name lead to the mapping's file? For file systems whose stat shows other numbers. */
bool crn_mapping_has_name(const struct crn_maps *maps, const struct crn_mapping *m);

#endif
