/* SPDX-License-Identifier: MIT */
/*
 * The patch plan (plan_format.h): which system call sites of libc and ld.so may be turned into
 * jumps, proved with a decoder before the program runs; and the entries of functions that are
 * sites.
 *
 * The proof. A function is a range of .eh_frame that decodes without error from its first byte to
 * its last, so instruction boundaries are known. What is displaced must mean the same elsewhere: no
 * branch, nothing relative to %rip, no push or pop. No direct branch from anywhere in the object
 * may land inside the jump: every byte of the text is taken for the start of a branch, so none is
 * overlooked; where one stands in the way, its function is decoded to see whether it is real.
 * Indirect branches go to function entries, return addresses and jump tables: where two
 * instructions would be merged (CRN_PATCH_AFTER), the function must have no indirect jump.
 */
#ifndef CRN_PLAN_H
#define CRN_PLAN_H

#include "plan_format.h"

struct plan_builder {
	struct crn_plan_object objects[8];
	struct crn_plan_site *sites;
	struct crn_plan_function functions[16];
	uint32_t object_count, site_count, site_room, function_count;
};

/*
 * Add the sites of libc and ld.so, as this very program has them loaded. Calls of one that cannot
 * be planned go through dispatch.
 */
void plan_add_system(struct plan_builder *b);

/*
 * The entry at `offset` of the program as configured site number `site`. 0; -ENOEXEC: no code
 * there; -ENOTSUP: its first instruction is tied to its place.
 */
int plan_add_function(struct plan_builder *b, const char *program, uint32_t site, uint64_t offset);

/* Everything as one memfd, inherited on exec, at a high number. The descriptor or -errno. */
int plan_write(const struct plan_builder *b, const struct crn_config *config);

void plan_free(struct plan_builder *b);

#endif
