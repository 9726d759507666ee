/* SPDX-License-Identifier: MIT */
/*
 * A page tracker inside a tracker to which the program reports its stores. page_mode.c uses it to
 * notice what long intervals write, page_areas.c to notice what code without hooks writes. It keeps
 * a mirror; what it hands over at the end of its intervals is dropped.
 */
#ifndef CRN_INNER_PAGES_H
#define CRN_INNER_PAGES_H

#include "track/track.h"

struct crn_inner_pages {
	struct crn_track_env env; /* first: its own */
	struct crn_track_env *session;
	void *tracker; /* NULL: it is not open */
};

/* The only one that notices the kernel's writes, too, and has no handlers. */
static const struct crn_tracker_ops *const crn_inner = &crn_tracker_async;

/* All are called with the session's lock. 0, CAIRN_ENOTRACK or another error. */
int crn_inner_open(struct crn_inner_pages *p, struct crn_track_env *session);
/* There are no areas any more. */
void crn_inner_close(struct crn_inner_pages *p);
/* The mirror becomes what memory is now: what was written since is copied. */
int crn_inner_catch_up(struct crn_inner_pages *p);

#endif
