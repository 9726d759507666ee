/* SPDX-License-Identifier: MIT */
/* Which tracker: by name, or the best that this host can run. */
#include "base/copy.h"
#include "session/engine.h"
#include "track/feeds/feed.h"

bool crn_tracker_exists(const char *name)
{
	for (size_t i = 0; crn_trackers[i]; i++) {
		if (crn_streq(name, crn_trackers[i]->name))
			return true;
	}
	return crn_streq(name, "auto");
}

bool crn_tracker_takes_feed(const char *name, const char *feed)
{
	if (crn_streq(feed, "auto") || crn_streq(name, "auto"))
		return true;
	for (size_t i = 0; crn_trackers[i]; i++) {
		if (crn_streq(name, crn_trackers[i]->name))
			return crn_trackers[i]->feed;
	}
	return false;
}

int crn_tracker_choose(const struct crn_tracker_ops **out, const char *name, const char *feed,
	const struct crn_host *host, bool whole)
{
	bool any = crn_streq(name, "auto");

	for (size_t i = 0; crn_trackers[i]; i++) {
		const struct crn_tracker_ops *ops = crn_trackers[i];

		if (!any && !crn_streq(name, ops->name))
			continue;
		if (!crn_tracker_takes_feed(ops->name, feed))
			continue;
		if (ops == &crn_tracker_async && crn_streq(feed, crn_feed_bpf_images.name))
			ops = &crn_tracker_async_images;
		if (any && whole && crn_refuses_kernel(ops))
			continue;
		if (ops->probe(host) >= 0) {
			*out = ops;
			return 0;
		}
		if (!any)
			return CAIRN_ENOTRACK;
	}
	return any ? CAIRN_ENOTRACK : CAIRN_ETRACKER;
}

bool crn_tracker_info(size_t i, const struct crn_host *host, struct crn_tracker_info *out)
{
	const struct crn_tracker_ops *ops = crn_trackers[i];

	if (!ops)
		return false;
	out->name = ops->name;
	out->error = CRN_MIN(ops->probe(host), 0);
	out->areas_only = crn_refuses_kernel(ops);
	out->strategy = crn_strategy_auto(ops);
	return true;
}
