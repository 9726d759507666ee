/* SPDX-License-Identifier: MIT */
/*
 * Events of the kernel's perf in rings that we map: page faults, the birth and end of tasks, and
 * any tracepoint. No descriptor need stay open: the mapping of a ring keeps its event. Events are
 * not inherited on fork. No event is owned by a thread of the program, which could switch its own
 * events off (PR_TASK_PERF_EVENTS_DISABLE); short-lived threads open them.
 *
 * A record is a header and 8-byte words. Each event has a ring of its own (it could share one, but
 * then a descriptor would have to stay). The records of one thread are ordered by their times only
 * where that matters, because reading the clock takes an eighth of the cost of a fault.
 *
 * Results are >= 0 or -errno.
 */
#ifndef CRN_OS_PERF_H
#define CRN_OS_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a ring holds. */
enum {
	CRN_PERF_LOST = 2,
	CRN_PERF_EXIT = 4,
	CRN_PERF_FORK = 7,
	CRN_PERF_SAMPLE = 9,
};

struct crn_perf_record {
	uint32_t type;
	uint16_t misc;
	uint16_t size; /* bytes, this header included; a multiple of 8 */
};

/* Longer than any record that is asked for here. */
#define CRN_PERF_RECORD_MAX 64u

/* Tracepoints of the kernel, by the numbers that it has given them. */
struct crn_perf_points {
	int acquired; /* the lock of an address space */
	int hotplug;  /* a processor comes or goes */
};
/*
 * Find them in tracefs, mounted or not (then CAP_SYS_ADMIN is needed: it is looked at without
 * mounting it anywhere). 0 or -errno.
 */
int crn_perf_points(struct crn_perf_points *out);

enum crn_perf_kind {
	/* Before the fault is served, in user or in kernel mode. */
	CRN_PERF_USER_FAULTS,   /* samples: address */
	CRN_PERF_KERNEL_FAULTS, /* samples: time, address */
	CRN_PERF_POINT,      /* samples: time */
	CRN_PERF_POINT_TASK, /* samples: process and thread id, 4 bytes each, of our namespace */
	CRN_PERF_POINT_RAW,  /* samples: 4 bytes of length, then the tracepoint's own record */
	CRN_PERF_TASKS, /* FORK and EXIT records: process, parent, thread, parent's thread */
	CRN_PERF_USER_TIME, /* samples, empty: now and then while it runs in user mode */
	/*
	 * A record for each mapping that an mmap, brk or mprotect has made or changed, before it
	 * returns, and those of CRN_PERF_TASKS. For the head alone: the ring is read-only to us, so
	 * it is written over and never full.
	 */
	CRN_PERF_CHANGES,
};

struct crn_perf_event {
	enum crn_perf_kind kind;
	int point;          /* the tracepoint's number */
	const char *filter; /* or NULL */
	int tid, cpu;       /* one of them is -1: any */
	int by;             /* out: the thread that was there for a moment to open it */
	bool keep;          /* its descriptor, at a high number */
	int fd;             /* out, if so */
	uint64_t id;        /* likewise, for crn_perf_mute */
};

/*
 * Open it, and map its ring of 2^n pages, behind a page that is the kernel's, at `at` (in a
 * reserve). 0 or -errno.
 */
int crn_perf_open(struct crn_perf_event *e, void *at, size_t pages);

/*
 * Let it record nothing for a while, in the calling thread. 0, or -errno: the descriptor leads
 * somewhere else by now, and nothing has changed.
 */
int crn_perf_mute(int fd, uint64_t id, bool mute);

/* Address space for rings: nothing is there, nor in a child. 0 or -errno. */
int crn_perf_reserve(void **out, size_t len);
/* What was mapped there ends, with its events. */
void crn_perf_unmap(void *at, size_t len);

/* How far the kernel has written, and we have read. */
uint64_t crn_perf_head(const void *ring);
void crn_perf_free_until(void *ring, uint64_t tail);
uint64_t crn_perf_freed(const void *ring);
/* Word i of the record at `at`, in a ring of that many pages. */
uint64_t crn_perf_word(const void *ring, size_t pages, uint64_t at, size_t i);
struct crn_perf_record crn_perf_header(const void *ring, size_t pages, uint64_t at);

#endif
