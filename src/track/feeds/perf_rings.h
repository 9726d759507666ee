/* SPDX-License-Identifier: MIT */
/*
 * What the files of feed perf share. feed_perf.c is the feed, perf_threads.c has the rings of our
 * threads, and perf_others.c the rings that show what other processes do to our address space.
 *
 *	of a thread	its page faults in user mode; those in kernel mode; its takings of the lock
 *			of an address space; its births of others, and its own end
 *	of a processor	takings of our lock by anybody; processors that come and go
 *
 * A ring of faults is read twice. `noted` says how far its faults in kernel mode have been put in
 * order with locks, `drained` how far pages have been handed out. drained <= noted <= the kernel's
 * head.
 */
#ifndef CRN_PERF_RINGS_H
#define CRN_PERF_RINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "os/perf.h"
#include "track/feeds/births.h"
#include "track/feeds/feed.h"

#define CRN_PERF_FAULT_PAGES 16u /* 4096 faults in user mode, 2730 in kernel mode */
#define CRN_PERF_LOCK_PAGES  8u  /* 2048 takings, or 819 births */
#define CRN_PERF_THREADS     256u
#define CRN_PERF_ENDED       32u

enum crn_perf_rings {
	CRN_RING_USER, /* faults in user mode */
	CRN_RING_KERNEL,
	CRN_RING_TAKEN,
	CRN_RING_TASKS,
	CRN_RINGS
};
#define CRN_FAULT_RINGS CRN_RING_TAKEN /* the first ones */


struct crn_perf_thread {
	int tid;
	size_t slot; /* of the reserve */
	uint8_t *at;
	uint64_t noted[CRN_RINGS], drained[CRN_FAULT_RINGS];
	bool settled; /* it is in the middle of no fault that its rings do not show */
	bool watched; /* until then: it is recorded that it runs in user mode */
	bool kernel_fault; /* the lock that it takes next is for that */
	bool lost;  /* something, since its rings were looked at last */
	bool ended;
	/* Pages of faults that may not be over: the last one of each ring. 0: none, or it is. */
	uintptr_t open[CRN_FAULT_RINGS];
};

struct crn_perf_other {
	uint8_t *taken, *hotplug;
	uint64_t noted;
};

struct crn_perf_feed {
	struct crn_feed feed;
	struct crn_track_env *env;
	struct crn_perf_points points;
	uint8_t *reserve;

	struct crn_perf_thread threads[CRN_PERF_THREADS];
	size_t thread_count;
	bool slot_used[CRN_PERF_THREADS];
	bool own; /* `self` is in a call of the engine's */
	int self; /* the caller's tid */
	/*
	 * The thread that opened the session takes most checkpoints. Its takings are muted in our
	 * calls where they are many, by a descriptor, and the rings of the processors do not have
	 * them.
	 */
	int opener;
	int lock_fd; /* or -1 */
	uint64_t lock_id;
	bool held; /* by the keeper */
	bool muted;
	uint32_t own_takings, own_count; /* of the last calls that were not muted; and how many */

	/* Totals of what was noted. */
	uint64_t takings; /* of the lock that no fault explains, and whatever may hide one */
	struct crn_births births;
	bool inside;     /* who has taken it may be inside still */
	bool broken;     /* it cannot be complete any more */
	uint32_t failures; /* to make rings, in a row */

	struct crn_perf_other *others; /* one for each processor; NULL: we do not see them */
	uint8_t *others_memory;
	size_t other_count;
	int ended[CRN_PERF_ENDED]; /* short-lived threads of ours, whose end takes the lock */
	size_t ended_count;

	/* As of the last drain; and of the last question about mappings. */
	uint64_t drained_takings, asked;
	bool doubt_again;
};

/* ---- perf_threads.c ---- */
struct crn_perf_thread *crn_perf_thread_find(struct crn_perf_feed *f, int tid);
/* Give it a ring. 0 (also if it has one), -ESRCH (it is gone), or negative. */
int crn_perf_thread_add(struct crn_perf_feed *f, int tid, bool settled);
/* Its rings are empty for ever: let go of them. */
void crn_perf_thread_drop(struct crn_perf_feed *f, struct crn_perf_thread *t);
/* Of all. */
void crn_perf_threads_close(struct crn_perf_feed *f);
/* Take note of what is new in its rings. */
void crn_perf_thread_note(struct crn_perf_feed *f, struct crn_perf_thread *t);
/*
 * Look whether a thread that is not settled is: it has been seen to rest, or in user mode. If not,
 * look again later.
 */
void crn_perf_thread_settle(struct crn_perf_feed *f, struct crn_perf_thread *t);
/* The births that it has noted last were ours. */
void crn_perf_thread_forget_births(struct crn_perf_thread *t);
/* Append the pages of the faults noted. 0 or CAIRN_EMEMORY: what was not is still there. */
int crn_perf_thread_drain(struct crn_perf_thread *t, struct crn_range_list *written);
/* That thread was there for a moment, to open a ring: not to be taken for a stranger. */
void crn_perf_opened_by(struct crn_perf_feed *f, int tid);

/* ---- perf_others.c ---- */
/* 0, or -errno: not permitted. */
int crn_perf_others_open(struct crn_perf_feed *f);
void crn_perf_others_close(struct crn_perf_feed *f);
void crn_perf_others_note(struct crn_perf_feed *f);
#endif
