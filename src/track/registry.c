/* SPDX-License-Identifier: MIT */
/* All trackers, best first: "auto" takes the first that the host can run. */
#include "track/track.h"

const struct crn_tracker_ops *const crn_trackers[] = {
	&crn_tracker_shadow, /* these two run in programs that cairn-cc has built for them */
	&crn_tracker_undolog,
	&crn_tracker_async,
	&crn_tracker_softdirty,
	&crn_tracker_uffd,
	&crn_tracker_mprotect,
	&crn_tracker_fork,
	NULL,
};
