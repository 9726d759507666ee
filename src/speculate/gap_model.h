/* SPDX-License-Identifier: MIT */
/*
 * How long pages stay unwritten, and how long it pays to keep one hot meanwhile: what decay knows.
 *
 * A gap is the number of intervals from one write of a page to the next. Pages are sorted by kind:
 * how long their last two gaps were. For each kind the gaps seen are counted in buckets, and fade;
 * from them comes the kind's limit, the number of idle intervals after which a page goes cold.
 *
 * A page that is written at interval i and next at i + g costs, with a limit of T:
 *
 *	g <= T		g copies
 *	g > T		T copies, a protection, and a fault
 *	never again	T copies and a protection
 *
 * The limit is the T with the least expected cost: ski rental with a known distribution. T = 0
 * means that such a page may go at once.
 *
 * Pages that come back in long runs share their fault and protection: they have kinds of their own,
 * and limits by other costs.
 */
#ifndef CRN_GAP_MODEL_H
#define CRN_GAP_MODEL_H

#include "speculate/working_set.h"

#define CRN_GAP_LEVELS	5u /* 1, 2, 3-8, 9-32, more */
#define CRN_GAP_SINGLE	(1 + CRN_GAP_LEVELS * CRN_GAP_LEVELS) /* kinds; 0: written once so far */
#define CRN_GAP_KINDS	(2 * CRN_GAP_SINGLE) /* the second half: of pages in runs */
#define CRN_GAP_BUCKETS 48u
#define CRN_GAP_STEADY	1u /* the kind of single pages that are written in each interval */

struct crn_gap_model {
	uint32_t limit[CRN_GAP_KINDS];
	uint32_t even[CRN_GAP_KINDS]; /* how many idle copies a page's way out and back costs */
	uint32_t ended[CRN_GAP_KINDS][CRN_GAP_BUCKETS]; /* gaps, by length */
	uint32_t open[CRN_GAP_KINDS][CRN_GAP_BUCKETS];	/* that had not ended at the last sweep */
	uint32_t never[CRN_GAP_KINDS]; /* pages that did not come back while remembered */
	uint32_t total[CRN_GAP_KINDS];
	uint32_t pages[CRN_GAP_KINDS], hot[CRN_GAP_KINDS]; /* known at the last sweep */
};

/* What pages cost: single ones and those in runs. */
struct crn_gap_costs {
	struct crn_costs single, run;
	uint64_t copies; /* of an idle page in an interval, in 1 / CRN_ONE */
	uint32_t hot;	 /* pages, now */
};

/* Weights of gaps: ended in a bucket, or still open in it. */
struct crn_gap_lengths {
	uint64_t ended[CRN_GAP_BUCKETS], open[CRN_GAP_BUCKETS], never;
};

struct crn_gap_scratch {
	struct crn_gap_lengths all, one;
};

/* The kind of a page of kind `before` after this gap; a single page, or one in a run. */
uint32_t crn_gap_kind(uint32_t before, uint32_t gap, bool run);
/* The kind of a page that was written for the first time. */
static inline uint32_t crn_gap_first(bool run)
{
	return run ? CRN_GAP_SINGLE : 0;
}
/* `count` pages of the kind had this gap. */
void crn_gap_note(struct crn_gap_model *m, uint32_t kind, uint32_t gap, uint32_t count);
void crn_gap_note_never(struct crn_gap_model *m, uint32_t kind);

/*
 * Look which gaps are open now, in the entries [from, to) of the working set: its `count` is not 0
 * if the page has been written, `kind` is its kind, and `last` the interval of its last write. A
 * sweep begins with from == 0, and may be spread over several intervals.
 */
void crn_gap_sweep(
	struct crn_gap_model *m, const struct crn_working_set *ws, uint32_t from, uint32_t to);

/*
 * Compute all limits. Each kind is judged by its own gaps; those of all kinds, and behind them a
 * prior, stand in as long as there are few. Its copies cost what they do when all its pages are hot
 * beside those of other kinds that are: else pages that are cheap as long as few are hot would come
 * and go together.
 */
void crn_gap_limits(struct crn_gap_model *m, const struct crn_gap_costs *costs,
	struct crn_gap_scratch *scratch);

#endif
