/* SPDX-License-Identifier: MIT */
/*
 * A second mapping of memory that is mapped shared, which keeps its file alive. Any context; no
 * signal.
 */
#ifndef CRN_OS_SECOND_MAPPING_H
#define CRN_OS_SECOND_MAPPING_H

#include <stdint.h>

/*
 * A page (of huge pages: one of these) of the shared mapping that begins at `addr`, mapped once
 * more: without access, not in a forked child. 0 or -errno (-EINVAL: the kernel does not allow it).
 */
int crn_second_mapping(void **out, uintptr_t addr);
void crn_second_mapping_end(void *at);

#endif
