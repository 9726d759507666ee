/* SPDX-License-Identifier: MIT */
/*
 * Functions for parts that 32-bit programs do not have, because none of their trackers needs them:
 * descriptors that must be kept alive, hot pages and strategies, traces of pages, protection of the
 * engine's memory, memory that vanishes while a signal handler waits for it, and mappings that are
 * followed.
 */
#include "base/copy.h"
#include "journal/delta.h"
#include "os/guarded.h"
#include "os/keeper.h"
#include "session/engine.h"
#include "session/run_identity.h"
#include "session/files.h"
#include "session/map_changes.h"
#include "session/prices.h"
#include "track/faults.h"
#include "track/feeds/feed.h"

int crn_keeper_open(struct crn_keeper **out)
{
	*out = NULL;
	return 0;
}

void crn_keeper_close(struct crn_keeper *k)
{
}

int crn_keeper_start(struct crn_keeper *k)
{
	return 0;
}

int crn_keeper_mend(struct crn_keeper *k)
{
	return 0;
}

bool crn_faults_after_fork_child(void)
{
	return false;
}

bool crn_feed_exists(const char *name)
{
	return crn_streq(name, "auto");
}

/* ---- No strategies: there is nothing to copy ahead ------------------------------------------- */

const char *crn_strategy_auto(const struct crn_tracker_ops *ops)
{
	return "none";
}

int crn_strategy_check(const char *spec, const char *tracker, char why[CRN_STRATEGY_WHY])
{
	if (crn_streq(spec, "auto") || crn_streq(spec, "none"))
		return 0;
	crn_copy(why, "32-bit programs have no strategy but none", 42);
	return CAIRN_ESTRATEGY;
}

int crn_strategy_open(cairn_t *c, const char *spec)
{
	crn_copy(c->strategy, "none", 5);
	c->strategy_why = "none of its trackers has hot pages";
	return 0;
}

void crn_prices_try(cairn_t *c)
{
}

void crn_strategy_forget(cairn_t *c, uintptr_t begin, uintptr_t end)
{
}

void crn_strategy_restored(cairn_t *c, uint64_t intervals)
{
}

void crn_strategy_stats(const cairn_t *c, struct cairn_stats *out)
{
	crn_copy(out->strategy, c->strategy, sizeof(out->strategy) - 1);
}

void crn_speculation_stats_reset(struct crn_speculation *s)
{
}

int cairn_context(cairn_t *c, uint64_t key)
{
	CRN_TRY(crn_lock(c));
	crn_unlock(c);
	return 0;
}

/* ---- No mapping is followed: their trackers are told of stores ------------------------------- */

int crn_files_add(cairn_t *c, const struct crn_mapping *m, uint32_t flags)
{
	return 0;
}

int crn_files_keep_outside(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	return 0;
}

void crn_files_open(cairn_t *c)
{
}

void crn_files_close(cairn_t *c)
{
}

bool crn_files_ask(cairn_t *c, bool all)
{
	return false;
}

void crn_files_look(cairn_t *c)
{
}

int crn_files_diff(cairn_t *c, struct crn_changes *to)
{
	return 0;
}

int crn_files_born(cairn_t *c, struct crn_changes *to, const struct crn_piece *n,
	uintptr_t begin, uintptr_t end)
{
	return crn_change_add(c, to, n, begin, end, CRN_CHANGE_BORN);
}

void crn_files_take(cairn_t *c)
{
}

void crn_files_protecting(cairn_t *c, uintptr_t begin, uintptr_t end)
{
}

bool crn_files_populated(cairn_t *c, uintptr_t *begin, uintptr_t *end)
{
	return false;
}

bool crn_files_younger(const cairn_t *c, uint64_t id, uintptr_t begin, uintptr_t end)
{
	return false;
}

void crn_files_give_way(cairn_t *c, uint64_t id, uintptr_t begin, uintptr_t end)
{
}

int crn_files_settle(cairn_t *c, uint64_t id)
{
	return 0;
}

int crn_file_undoable(cairn_t *c, uint64_t id, const struct crn_piece *p)
{
	return 0;
}

int crn_file_put(cairn_t *c, const struct crn_piece *p)
{
	return 0;
}

/* ---- No traces ------------------------------------------------------------------------------- */

struct crn_sink *crn_tracing_wrap(struct crn_tracing *t, struct crn_sink *inner)
{
	return inner;
}

void crn_tracing_interval(struct crn_tracing *t, uint64_t key)
{
}

int crn_tracing_close(cairn_t *c)
{
	return 0;
}

void crn_profile_close(cairn_t *c)
{
}

/* ---- CAIRN_PROTECT is for protection keys alone ---------------------------------------------- */

int crn_protect_begin(cairn_t *c)
{
	return CAIRN_EUNSUPPORTED;
}

void crn_protect_end(cairn_t *c)
{
}

int crn_protect_open(cairn_t *c)
{
	return 0;
}

int crn_protect_close(cairn_t *c)
{
	return 0;
}

/* ---- No handler to wait for: a fault is the program's ---------------------------------------- */

/* Lines are compared in plain registers here. */
uint8_t crn_guarded_registers;

int crn_delta_make_wide(struct crn_delta_run *r)
{
	return 0; /* nobody asks */
}

int crn_guarded_lines(const void *old, const void *live, uint64_t *lines)
{
	*lines = 0;
	for (size_t i = 0; i < CRN_LINES; i++)
		if (!crn_same_words((const char *)old + i * 64, (const char *)live + i * 64, 64))
			*lines |= 1ull << i;
	return 0;
}

int crn_guarded_copy_lines(void *to, const void *live, uint64_t lines)
{
	for (size_t i = 0; i < CRN_LINES; i++)
		if (lines >> i & 1)
			crn_copy((char *)to + i * 64, (const char *)live + i * 64, 64);
	return 0;
}

int crn_guarded_store(void *at)
{
	return 0;
}

int crn_guarded_copy(void *to, const void *from, size_t len)
{
	crn_copy(to, from, len);
	return 0;
}
