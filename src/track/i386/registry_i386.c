/* SPDX-License-Identifier: MIT */
/*
 * track/registry.c for 32-bit programs: those that are told of each store. All others are known by
 * name, and that is all.
 */
#include "base/log.h"
#include "base/status.h"
#include "track/feed.h"
#include "track/track.h"

static int not_here(const struct crn_host *host)
{
	return CAIRN_ENOTRACK;
}

#define ABSENT(id) \
	const struct crn_tracker_ops crn_tracker_##id = { .name = #id, .probe = not_here }

ABSENT(async);
ABSENT(softdirty);
ABSENT(uffd);
ABSENT(mprotect);
ABSENT(fork);
ABSENT(async_images);
const struct crn_feed_ops crn_feed_bpf_images = { .name = "none" };

const struct crn_tracker_ops *const crn_trackers[] = {
	&crn_tracker_shadow,
	&crn_tracker_undolog,
	&crn_tracker_async,
	&crn_tracker_softdirty,
	&crn_tracker_uffd,
	&crn_tracker_mprotect,
	&crn_tracker_fork,
	NULL,
};
