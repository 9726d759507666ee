/* SPDX-License-Identifier: MIT */
/*
 * What the feature probe means for a person: each feature with what it gives, what its absence
 * costs here and how to have it. doctor.c prints it.
 */
#ifndef CRN_FINDINGS_H
#define CRN_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include "os/host.h"

struct finding {
	const char *name; /* stable: the key in JSON */
	bool works;
	int error;          /* 0, or the negative errno that said no */
	char detail[160];   /* how it works, or why not */
	const char *cost;   /* of its absence */
	const char *enable; /* how to have it; NULL: nothing can be done here */
};

#define FINDINGS_MAX 16

/* Fills at most FINDINGS_MAX; returns how many. */
size_t find_features(struct finding *out, const struct crn_host *host);

struct tracker_finding {
	const char *name;
	bool works;
	bool areas_only;  /* explicit areas only, unless the agent is there */
	const char *strategy; /* that `auto` takes under it */
	char detail[160]; /* what it costs here, or why it does not work */
};

/* One for each tracker that Cairn has, best first. */
size_t find_trackers(struct tracker_finding *out, size_t max, const struct crn_host *host);

/* How async can learn of writes. */
struct feed_finding {
	const char *name;
	bool works;
	bool by_auto;       /* `auto` takes it, if none before it works */
	char detail[160];   /* what it costs, or why it does not work */
	const char *enable; /* how to have it; NULL: it is there */
};

#define FEEDS_MAX 4

/* Fills FEEDS_MAX, those that `auto` tries in their order. */
size_t find_feeds(struct feed_finding *out, const struct crn_host *host);
/* The one that `auto` takes; NULL if none works. */
const char *auto_feed(const struct feed_finding *feeds, size_t count);

/*
 * The tracker that `auto` takes, for explicit areas and under `cairn run` or for all of a program
 * that opens a session of its own; NULL if none works.
 */
const char *auto_tracker(const struct tracker_finding *trackers, size_t count, bool explicit_areas);

#endif
