/* SPDX-License-Identifier: MIT */
#include "os/second_mapping.h"
#include <errno.h>
#include "base/bits.h"
#include "os/memory.h"
#include "os/sys.h"

/* A part of a huge page cannot be closed or unmapped: -EINVAL. */
#define HUGE_STEP 512ul
#define HUGE_MAX  (1ul << 30)

int crn_second_mapping(void **out, uintptr_t addr)
{
	/* Of no length: that is what makes it another mapping of the same. */
	long at = crn_sys4(SYS_mremap, addr, 0, CRN_PAGE_SIZE, MREMAP_MAYMOVE);
	size_t len = CRN_PAGE_SIZE;
	int err;

	if (at < 0 && at > -4096)
		return (int)at;
	do
		err = crn_memory_protect((void *)at, len, PROT_NONE);
	while (err == -EINVAL && (len *= HUGE_STEP) <= HUGE_MAX);
	(void)crn_memory_advise((void *)at, len, MADV_DONTFORK);
	*out = (void *)at;
	if (err < 0)
		crn_second_mapping_end(*out);
	return err;
}

void crn_second_mapping_end(void *at)
{
	for (size_t len = CRN_PAGE_SIZE; len <= HUGE_MAX; len *= HUGE_STEP)
		if (crn_memory_unmap(at, len) != -EINVAL)
			return;
}
