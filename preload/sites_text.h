/* SPDX-License-Identifier: MIT */
/* Where checkpoints are taken, in words: what `cairn run` and the agent compare with a trace. */
#ifndef CRN_SITES_TEXT_H
#define CRN_SITES_TEXT_H

#include "agent.h"
#include "base/log.h"

/* "wait/2, func:main, recover" of the command line; cut at size - 1. */
static inline void crn_sites_text(const struct crn_config *config, char *out, size_t size)
{
	size_t used = 0;

	out[0] = 0;
	for (uint32_t i = 0; i < config->site_count && used < size; i++)
		used += crn_format(out + used, size - used, "%s%s", i ? ", " : "",
			config->sites[i].text);
	/* It takes checkpoints of its own. */
	if (config->recover && used < size)
		(void)crn_format(out + used, size - used, "%srecover %s", used ? ", " : "",
			config->commit_each ? "each" : "hold");
}

#endif
