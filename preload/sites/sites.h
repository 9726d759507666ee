/* SPDX-License-Identifier: MIT */
/*
 * Sites: where checkpoints are taken. A session is opened at the first one (with --recover, at the
 * latest before the first request is read), so that start-up costs nothing and the program's memory
 * is laid out by then. One checkpoint is taken at a time. A site that is reached while another
 * thread takes one is skipped and counted; an output waits for its turn, because a checkpoint must
 * follow it.
 *
 * Lock order: the sites' lock, then the effects' lock, then the session's.
 */
#ifndef CRN_SITES_H
#define CRN_SITES_H

#include "agent.h"

struct crn_sites {
	uint64_t hits[CRN_SITES_MAX];  /* by index in the configuration */
	uint64_t taken;     /* checkpoints, for whatever reason */
	uint64_t outputs, failed, nested;
	uint64_t stat_tsc;  /* when the engine's figures were last copied */
};

/* Checkpoints taken so far. */
uint64_t crn_sites_taken(void);
/* Without the effects' tables: does this SEND call go to something else than a regular file? */
bool crn_site_is_outgoing(const struct crn_call *call);
/* The process ends: print the summary if that was asked for. */
void crn_sites_exit(void);

/*
 * No more checkpoints in this process, `why` in one line: called when the program takes away what
 * they need. Memory, descriptors and input are left as the program has them. While that cannot be,
 * checkpoints go on, and the line says what comes of it.
 */
void crn_sites_end(const char *why, const char *else_what);
/* Whoever traces this process is told of every signal: no more checkpoints, and no dispatch. */
void crn_sites_traced(void);
/* Without /proc nothing can be restored: no more checkpoints. */
void crn_sites_root_changed(void);

/* context_key.c: the key of the interval that the checkpoint after this call begins. */
uint64_t crn_context_key(const struct crn_call *call);

/* stat_memory.c */
int crn_stat_open(struct crn_sites *sites);
void crn_stat_update(struct crn_sites *sites, bool all);
/* Bring the engine's figures up to date and print them all. */
void crn_stat_summary(void);

#endif
