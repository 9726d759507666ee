/* SPDX-License-Identifier: MIT */
/*
 * Speculation (SMC, section 4.2): which pages to copy eagerly at the next checkpoint and to leave
 * writable, because the coming interval will write them anyway. A strategy keeps one working set
 * for each context key; this header is all that the session sees of it.
 *
 * One interval, as the session drives it:
 *
 *	program runs	write fault: crn_speculation_near() may name a run to save and open at once
 *	checkpoint	crn_speculation_written() for each cold page that was written, in order
 *			bit `slot` of crn_speculation_changed() for each hot page that has changed
 *			crn_speculation_context() if the coming interval has another key
 *			crn_speculation_checkpoint()
 *			crn_speculation_evicted(): protect these runs again; their slots are free
 *			crn_speculation_promoted(): hot from now on; remember each one's slot
 *
 * A slot is a small number that names a hot page to strategy and tracker, so that no page
 * costs a look-up at a checkpoint: the tracker keeps it beside the page and sets one bit. Evictions
 * are applied before promotions, which may use the same slots again. With N hot pages that all
 * changed and nothing else, a checkpoint costs the strategy a few cycles a page.
 *
 * Memory that cannot be had costs predictions, never correctness: a page that could not be noted is
 * simply cold. Every call but crn_speculation_near needs the caller's lock.
 */
#ifndef CRN_SPECULATE_H
#define CRN_SPECULATE_H

#include "speculate/port.h"

struct crn_speculation;

#define CRN_SLOT_NONE 0xffffffffu

struct crn_hot_run {
	uintptr_t begin, end;
};

struct crn_hot_page {
	uintptr_t page;
	uint32_t slot;
};

enum crn_strategy_flags {
	/*
	 * A cost bound, not a checkpoint: the session leaves every page open and copies
	 * crn_speculation_dummies() pages. Restore, rewind and peek must be refused.
	 */
	CRN_STRATEGY_BOUND = 1u << 0,
	/* Asks for the fault hook (port->at_fault). */
	CRN_STRATEGY_NEAR = 1u << 1,
	/* Never makes a page hot: the session needs no hot pages at all (none, meta). */
	CRN_STRATEGY_COLD = 1u << 2,
	/* Needs port->profile. */
	CRN_STRATEGY_PROFILE = 1u << 3,
	/* Has one working set whatever the context: it knows better. */
	CRN_STRATEGY_ONE_CONTEXT = 1u << 4,
	/*
	 * Looks at which hot pages have changed in this interval alone: none may be taken for
	 * changed because it has been for long.
	 */
	CRN_STRATEGY_EXACT = 1u << 5,
	/* Without the fault hook it predicts an interval late. */
	CRN_STRATEGY_LATE = 1u << 6,
};

/* Totals since open or reset. Pages are counted once per interval. */
struct crn_speculation_stats {
	uint64_t intervals;
	uint64_t hot;	      /* sum of hot pages over intervals: eager copies */
	uint64_t overcopied;  /* hot or granted by the fault hook, but not written (OP) */
	uint64_t undercopied; /* written while cold: faults (UP) */
	uint64_t written;
	uint64_t promotions, evictions;
	uint64_t reopened; /* promotions of pages that were not open because just written */
	uint64_t granted;  /* pages opened by the fault hook beside the faulting one */
	uint64_t cycles; /* the strategy's own run time, if meta or a benchmark measures it */
	uint64_t pages_known; /* now */
	uint64_t contexts;    /* now */
	uint64_t memory;      /* bytes held now */
	uint64_t alloc_failures;
	uint64_t refused; /* promotions beyond the port's hot_max */
};

/*
 * `spec` is NAME or NAME:param=value,...; a value is a whole number or a decimal fraction. 0, or
 * CRN_PORT_ENOMEM, or CRN_PORT_EINVAL; then `why` says which name or value is wrong and what would
 * be right (why_size 160 is enough for all of them). Nothing is kept on failure.
 */
int crn_speculation_open(struct crn_speculation **out, const struct crn_port *port,
	const char *spec, char *why, size_t why_size);
/* Is the spec one that could be opened? 0, or CRN_PORT_EINVAL and `why`. */
int crn_speculation_check(const char *spec, char *why, size_t why_size);
/*
 * The file that `oracle:profile=FILE` or `oracle-count:profile=FILE` names: whoever opens the
 * session reads it, and answers port->profile from it. False: the spec names none.
 */
bool crn_speculation_profile(const char *spec, char *path, size_t size);
void crn_speculation_close(struct crn_speculation *s);

const char *crn_speculation_name(const struct crn_speculation *s);
uint32_t crn_speculation_flags(const struct crn_speculation *s); /* enum crn_strategy_flags */

/* The key of the interval that the next checkpoint begins; it stays until changed. First: 0. */
void crn_speculation_context(struct crn_speculation *s, uint64_t key);

/*
 * The interval that is about to end has written this page (its address), which was cold. Once per
 * page, in the order of the writes where that is known. Pages that the fault hook granted are told
 * by crn_speculation_granted instead, with whether they differ from their saved copy.
 */
void crn_speculation_written(struct crn_speculation *s, uintptr_t page);
void crn_speculation_granted(struct crn_speculation *s, uintptr_t page, bool changed);

/*
 * At a write fault: the run [*begin, *end) around `page` shall be saved and opened with it. false:
 * the page alone. The caller leaves out pages of other areas and those the program may not write.
 * Any thread, signal handlers included: no lock, no allocation, bounded.
 */
bool crn_speculation_near(
	const struct crn_speculation *s, uintptr_t page, uintptr_t *begin, uintptr_t *end);

/*
 * The map of changed hot pages, one bit per slot. It moves when pages are promoted: ask again after
 * each checkpoint. All bits are zero after a checkpoint, a restore, or at first.
 */
uint64_t *crn_speculation_changed(struct crn_speculation *s);
size_t crn_speculation_slots(const struct crn_speculation *s); /* slots below this one are in use */

/* The interval is over: learn from it, and decide for the next one. */
void crn_speculation_checkpoint(struct crn_speculation *s);

/* What that decided; valid until the next call. Runs are sorted and disjoint; so are pages. */
const struct crn_hot_run *crn_speculation_evicted(const struct crn_speculation *s, size_t *count);
const struct crn_hot_page *crn_speculation_promoted(const struct crn_speculation *s, size_t *count);

size_t crn_speculation_hot(const struct crn_speculation *s); /* hot pages now */
/* Under CRN_STRATEGY_BOUND: how many pages to copy at this checkpoint. */
size_t crn_speculation_dummies(const struct crn_speculation *s);

/*
 * Memory went back: the open interval counts for nothing, and `intervals` whole ones before it were
 * undone as well. Hot pages stay hot.
 */
void crn_speculation_restore(struct crn_speculation *s, uint64_t intervals);

/*
 * [begin, end) is not tracked any more, or the tracker could not make it hot: the working sets
 * forget it. Hot pages in it are cold and their slots free, without being listed as evicted.
 */
void crn_speculation_area_removed(struct crn_speculation *s, uintptr_t begin, uintptr_t end);

/*
 * Make every page cold at once, e.g. for lack of memory: evicted() lists them. What the last
 * checkpoint decided must have been applied before.
 */
void crn_speculation_cool(struct crn_speculation *s);

void crn_speculation_stats(const struct crn_speculation *s, struct crn_speculation_stats *out);
void crn_speculation_stats_reset(struct crn_speculation *s);

/* What those figures cost by the host's own charges: the whole of tracking and copying. */
uint64_t crn_speculation_cycles(
	const struct crn_speculation_stats *stats, const struct crn_costs *costs);

/*
 * Their mispredicted pages, weighted (SMC 7.3), in hundredths of an eager copy: an undercopied page
 * counts 8, an overcopied one 1, or 2.5 where a checksum comes with it. With `costs`, by this
 * host's charges: an undercopied page is a fault and a protection.
 */
uint64_t crn_speculation_weighted(const struct crn_speculation *s,
	const struct crn_speculation_stats *stats, const struct crn_costs *costs);

/* Under meta: the strategies that it scores; NULL after the last, and under any other strategy. */
struct crn_speculation *crn_speculation_rival(const struct crn_speculation *s, size_t index);

/*
 * A sentence, if the strategy has given up (an oracle whose profile does not match the run); it
 * then behaves like none. NULL: all is well. For tests: it is logged, too.
 */
const char *crn_speculation_trouble(const struct crn_speculation *s);

/* Is the page hot in the open interval? For tests and replays: a look-up. */
bool crn_speculation_is_hot(const struct crn_speculation *s, uintptr_t page);

/*
 * The whole interval at once, for replays and for meta: these pages, in this order, were written,
 * and nothing else. Stands for near, written, changed and checkpoint; promotions and evictions are
 * taken as done.
 */
void crn_speculation_replay(struct crn_speculation *s, const uintptr_t *pages, size_t count);

/* Names and one-line descriptions, and each parameter, for help texts; false after the last. */
bool crn_strategy_describe(size_t index, const char **name, const char **summary);
bool crn_strategy_parameter(size_t index, size_t parameter, char *text, size_t size);

#endif
