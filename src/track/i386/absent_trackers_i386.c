/* SPDX-License-Identifier: MIT */
/* The trackers that 32-bit programs do not have: registry.c knows only their names. */
#include "base/log.h"
#include "base/status.h"
#include "track/feeds/feed.h"
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
