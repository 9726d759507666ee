/* SPDX-License-Identifier: MIT */
/*
 * RLIMIT_AS and RLIMIT_DATA, which the program may have lowered since it had the memory that the
 * engine closes, or that a restore brings back. What a process has when its limit is lowered, the
 * kernel leaves to it, and so does the engine.
 */
#ifndef CRN_LIMITS_H
#define CRN_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct crn_limit {
	uint64_t soft, hard;
};

struct crn_limits {
	struct crn_limit space, data; /* as they were */
	bool space_lifted, data_lifted;
};

/* As high as this process may raise them, until crn_limits_settle. */
void crn_limits_lift(struct crn_limits *l);
void crn_limits_settle(const struct crn_limits *l);
/* Is there an RLIMIT_DATA? */
bool crn_limits_data(void);
/* Do they leave room for so many bytes more? 0 or -ENOMEM. */
int crn_limits_leave(size_t space, size_t data);

/*
 * RLIMIT_DATA in bytes, as high as any process may raise it, UINT64_MAX if there is none; and what
 * counts against it now (0 if /proc does not tell).
 */
uint64_t crn_memory_data_limit(void);
uint64_t crn_memory_data_used(void);
/*
 * Make writable again what was before we closed it. If RLIMIT_DATA does not allow that, it is
 * lifted for a moment: a store of the program waits for it.
 */
int crn_memory_reopen(void *addr, size_t len, int prot);
/* crn_memory_commit for the engine's memory, by the same means. */
int crn_memory_commit_own(void *addr, size_t len);

#endif
