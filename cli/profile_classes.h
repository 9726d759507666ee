/* SPDX-License-Identifier: MIT */
/* What `cairn profile` found, ready to be printed. */
#ifndef CRN_PROFILE_CLASSES_H
#define CRN_PROFILE_CLASSES_H

#include "profile.h"

#define PROFILE_CLASSES_MAX 64
#define PROFILE_ROWS_MAX    16
#define PROFILE_SITES_MAX   8
#define PROFILE_SITE_RATE   20000.0 /* of a function: beyond that every N-th call is offered */

/* Threads of a class that live in the same loop. */
struct profile_row {
	const struct profile_task *task; /* one of them */
	const struct profile_wait *wait; /* its blocking call at the top of the loop */
	unsigned frame;                  /* of the wait's stack: the one that never returns */
	bool loops;                      /* false: it waited, but no turn of a loop was seen */
	bool first_thread;               /* of its process */
	bool sleeps;                     /* in that call; or it only polls */
	unsigned threads;
	uint64_t calls, ns;              /* sums over the threads, under load */
	double rate;                     /* per second, in all */
	char at[128];                    /* the site; empty: none is needed */
};

struct profile_class {
	const struct profile_process *process; /* one of them */
	unsigned processes;
	unsigned row_count;
	struct profile_row rows[PROFILE_ROWS_MAX]; /* [0]: of the processes' first thread */
};

struct profile_classes {
	unsigned count;
	struct profile_class list[PROFILE_CLASSES_MAX];
	unsigned passing;                  /* processes that came and went */
	unsigned site_count;
	const char *sites[PROFILE_SITES_MAX]; /* for the whole program */
};

void profile_classify(const struct profile *p, struct profile_classes *out);
double profile_seconds(const struct profile *p); /* under load */

#endif
