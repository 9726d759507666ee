/* SPDX-License-Identifier: MIT */
/* A session of tracker async on explicit areas, told by one feed. */
#ifndef FED_SESSION_H
#define FED_SESSION_H

#include "../lib/harness.h"

/* Keeps 4 checkpoints. Skips the test where there is no such feed. */
static inline cairn_t *open_fed(const char *feed, const char *strategy)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;
	int rc;

	o.tracker = "async";
	o.feed = feed;
	o.strategy = strategy;
	o.keep = 4;
	o.surface = "none";
	rc = cairn_open(&c, &o);
	if (rc == CAIRN_ENOTRACK)
		test_skip("this feed, or userfaultfd with WP_ASYNC");
	CHECK_OK(rc);
	return c;
}

#endif
