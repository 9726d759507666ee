/* SPDX-License-Identifier: MIT */
/* Mapping a file again where it has been mapped. Any context; no signal is raised. */
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

#endif
