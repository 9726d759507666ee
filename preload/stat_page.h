/* SPDX-License-Identifier: MIT */
/*
 * The figures that a program under `cairn run` shows to `cairn stat`: one page of a memfd named
 * "cairn-stat", found in /proc/PID/fd and mapped read-only. A forked child inherits its parent's
 * descriptor, so a reader takes the page whose `pid` is the process that it asked for.
 *
 * `sequence` is odd while the page is being written; a reader copies and tries again if it was odd
 * or has changed.
 */
#ifndef CRN_STAT_PAGE_H
#define CRN_STAT_PAGE_H

#include <stdint.h>
#include "cairn/cairn.h"

#define CRN_STAT_NAME    "cairn-stat"
#define CRN_STAT_MAGIC   0x3170617473726343ull
#define CRN_STAT_VERSION 5
#define CRN_STAT_SIZE    4096
#define CRN_STAT_RIVALS  16

/* Under strategy `meta`, one for each that it scores; sums over all intervals. */
struct crn_stat_rival {
	char name[16];
	uint64_t intervals, overcopied, undercopied;
	uint64_t weighted_smc, weighted_host; /* in hundredths of an eager copy */
	uint64_t host_cycles, own_cycles;
};

struct crn_stat_page {
	uint64_t magic;
	uint32_t version;
	uint32_t sequence;
	int32_t pid;
	uint32_t keep;
	uint32_t recover;          /* --recover was asked for */
	uint32_t site_count;
	char sites[4][96];         /* as given on the command line */
	uint64_t opened_ns;        /* CLOCK_MONOTONIC */
	uint64_t newest;           /* id of the newest checkpoint */
	uint64_t hits;             /* sites passed */
	uint64_t checkpoints;      /* taken, for whatever reason */
	uint64_t outputs;          /* of those, because of an output */
	uint64_t failed;
	uint64_t nested;           /* sites skipped because another thread was taking one */
	uint64_t recoveries;
	uint64_t refused;          /* crashes that were not recovered from */
	uint64_t resets;           /* connections disconnected */
	uint64_t recovery_ns;      /* sum */
	uint64_t recovery_ns_last;
	struct cairn_stats engine; /* at most 50 ms old while checkpoints are taken */
	uint64_t held;             /* sends that were held until a checkpoint covered them */
	uint64_t rival_count;      /* 0: the strategy is not `meta` */
	struct crn_stat_rival rivals[CRN_STAT_RIVALS]; /* as old as `engine` */
};

_Static_assert(sizeof(struct crn_stat_page) <= CRN_STAT_SIZE, "one page");

/* To scan more memory than this takes longer than the faults of another tracker. */
#define CRN_STAT_SCAN_MUCH (64ull << 20)

/* What to say behind the figures of the feed, which is one of bpf, bpf-images, perf and scan. */
static inline const char *crn_stat_feed_hint(const struct cairn_stats *s)
{
	return s->feed[0] == 's' && s->surface_bytes >= CRN_STAT_SCAN_MUCH
		? "; --tracker uffd may take less time here, and takes no mirror" : "";
}

#endif
