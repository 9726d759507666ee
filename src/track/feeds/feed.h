/* SPDX-License-Identifier: MIT */
/*
 * A feed tells the async tracker which pages were written, so that the kernel need not be asked
 * about every page of the surface. Without a feed, or when the feed doubts, the tracker scans.
 *
 *	bpf	feed_bpf.c: programs on the tracepoints of page faults and of the address space's lock
 *	bpf-images	the same, and they copy the page: images.c
 *	perf	feed_perf.c: rings of perf in which the kernel records the same
 *
 * Law: a feed is used only while it is complete. A page that is not in `written` after drain() has
 * returned 0 has not been written since the drain before, whoever writes: other threads, system
 * calls, vfork children, other processes. If a feed cannot know, drain() returns CRN_FEED_DOUBT. A
 * scan of everything is then exact, because the protection of the pages is the truth that the feed
 * merely reports.
 *
 * A fault that is reported may not be finished: its thread was interrupted between the report and
 * the moment at which the page becomes writable. Protecting that page has no lasting effect. Such
 * pages are in `open`: they are not protected, and compared with the mirror at each checkpoint,
 * until their thread is seen elsewhere. There is at most one for each thread besides the caller.
 *
 * Called with the session's lock held. No libc.
 */
#ifndef CRN_FEED_H
#define CRN_FEED_H

#include <stdbool.h>
#include <stdint.h>
#include "track/range_list.h"
#include "track/track.h"

#define CRN_FEED_DOUBT 1

struct crn_feed;

/* A page that is about to be opened, and what it held. */
struct crn_image {
	uintptr_t page;
	const void *old; /* until the call returns; NULL: there is no copy */
	bool absent;     /* because the page could not be read without a fault: it was not there */
	/* Nobody has been where he could have changed the page unseen since the interval began. */
	bool calm;
};

struct crn_feed_ops {
	const char *name;
	bool births_doubt; /* what a task does at first is not reported: there is doubt instead */

	/* A feed of the calling process's address space. 0, or why there is none. */
	int (*open)(struct crn_feed **out, struct crn_track_env *env);
	void (*close)(struct crn_feed *feed);
	/* It is going to be used: let the keeper look after its descriptors. 0 or negative. */
	int (*hold)(struct crn_feed *feed);
	/*
	 * Append the pages that have been written since the last drain, and fill `open`, both
	 * unsorted and perhaps with pages that nobody tracks. 0, CRN_FEED_DOUBT, or negative:
	 * CAIRN_EMEMORY (nothing is lost, the next drain goes on there), or the feed is broken.
	 */
	int (*drain)(struct crn_feed *feed, struct crn_range_list *written,
		struct crn_range_list *open);
	/* Would drain() answer 0, and append nothing? Or NULL. */
	bool (*idle)(const struct crn_feed *feed);
	/*
	 * Nobody stores to [begin, end) any more: what is open there is over. NULL: such a feed
	 * sees that its threads have ended.
	 */
	void (*forget)(struct crn_feed *feed, uintptr_t begin, uintptr_t end);
	/*
	 * The engine itself is about to make system calls on the address space, which are no cause
	 * for doubt; or has made them. Does not nest.
	 */
	void (*own)(struct crn_feed *feed, bool begin);
	/*
	 * The same around the calls that open and close the engine's memory (CAIRN_PROTECT), in
	 * which it can be read, not written. For calls that it cannot make out to be ours there
	 * will be doubt.
	 */
	void (*own_closed)(struct crn_feed *feed, bool begin);
	/* Has no mapping changed since this was last asked? */
	bool (*maps_quiet)(struct crn_feed *feed);
	/* Has any mapping changed since the last drain? */
	bool (*unsteady)(const struct crn_feed *feed);
	/* The next drain has to doubt. */
	void (*suspect)(struct crn_feed *feed);

	/* ---- Feeds with images; else NULL ---- */

	/*
	 * In drain's place: show each page that was written since the last one with its content
	 * from before, the first one first if there are several.
	 */
	int (*images)(struct crn_feed *feed,
		void (*show)(void *arg, const struct crn_image *image), void *arg,
		struct crn_range_list *open);
	/*
	 * Pages have been protected. Wait until no copy is under way that was begun before, and
	 * show what the next call of images() will: such an image of a page that was protected
	 * may be from before its last store. False: that cannot be told of any page.
	 */
	bool (*late)(struct crn_feed *feed,
		void (*show)(void *arg, const struct crn_image *image), void *arg);
	/* An interval begins at the last drain, whose doubt, if any, is settled. */
	void (*calm)(struct crn_feed *feed);
	/* As of the last drain: would an image of now be `calm`? */
	bool (*is_calm)(const struct crn_feed *feed);
	/* Images are of pages in this range. */
	void (*bounds)(struct crn_feed *feed, uintptr_t begin, uintptr_t end);
	uint64_t (*bytes)(const struct crn_feed *feed); /* that images may fill */
};

/* Each feed's struct begins with this. */
struct crn_feed {
	const struct crn_feed_ops *ops;
	uint64_t caller_known; /* in that call (crn_track_env.calls); 0: in none */
};

/* Is it known in this call who calls? From now on it is. */
static inline bool crn_feed_knows_caller(struct crn_feed *feed, const struct crn_track_env *env)
{
	bool known = env->calls && feed->caller_known == env->calls;

	feed->caller_known = env->calls;
	return known;
}

extern const struct crn_feed_ops crn_feed_bpf, crn_feed_bpf_images, crn_feed_perf;

/* Those of addresses, best first. NULL-terminated. */
extern const struct crn_feed_ops *const crn_feeds[];

/*
 * Open the feed of that name ("auto": the best that there is), and see it report a store, a write
 * by the kernel, one by another thread, one by a vfork child, one by process_vm_writev and dropped
 * pages, all on pages of its own that are registered with uffd. *out is NULL where the scan is the
 * feed. 0; CAIRN_ENOTRACK if that name cannot be had here.
 */
int crn_feed_choose(struct crn_feed **out, const char *name, struct crn_track_env *env, int uffd);
/* That one, likewise; with images, their content as well. 0 or CAIRN_ENOTRACK. */
int crn_feed_prove(struct crn_feed **out, const struct crn_feed_ops *ops,
	struct crn_track_env *env, int uffd, bool wanted);
/* Is it "auto", "scan" or the name of a feed? */
bool crn_feed_exists(const char *name);

#endif
