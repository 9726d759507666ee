/* SPDX-License-Identifier: MIT */
/* os/host.c for 32-bit programs, whose trackers ask nothing of the kernel. */
#include <sys/sysinfo.h>
#include "base/bits.h"
#include "base/copy.h"
#include "os/host.h"
#include "os/maps.h"
#include "os/sys.h"

/* More than the program can have, and no limit takes it for 0. */
#define MEMORY_MAX (3ull << 30)

void crn_host_probe(struct crn_host *out)
{
	struct sysinfo info;

	crn_fill(out, 0, sizeof(*out));
	if (crn_sys1(SYS_sysinfo, &info) >= 0)
		out->memory_bytes = CRN_MIN((uint64_t)info.totalram * info.mem_unit, MEMORY_MAX);
	out->procmap_query = crn_maps_has_query();
	crn_clock_init(&out->clock);
}
