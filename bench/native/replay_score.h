/* SPDX-License-Identifier: MIT */
/* What cairn-bench computes from a run, each as one JSON line on stdout. */
#ifndef BENCH_REPLAY_SCORE_H
#define BENCH_REPLAY_SCORE_H

#include "recorded_run.h"
#include "speculate/speculate.h"

struct replay_options {
	uint64_t seed;
	size_t skip;	  /* intervals that teach but do not count */
	bool late;	  /* writes are only known at the checkpoint */
	bool ignore_keys; /* one context for all */
};

struct cost_model {
	const char *name;
	struct crn_costs costs;
	bool late; /* this tracker never knows of a write before the checkpoint */
};

/* False: the strategy is not one, and *why says so. */
bool replay_score(const struct run *r, const char *strategy, const struct cost_model *model,
	const struct replay_options *options, char *why, size_t why_size);
/*
 * The least that any strategy can cost by this model, even one that knows the future: for each page
 * and each gap between its writes the cheaper of staying hot and going cold.
 */
void replay_bound(const struct run *r, const struct cost_model *model, size_t skip);
/* HBFT Figures 4 to 6. */
void replay_figures(const struct run *r);
/* What a checkpoint costs the strategy alone while `hot` pages are hot and all change. */
bool replay_turn(const char *strategy, const struct cost_model *model, unsigned hot, char *why,
	size_t why_size);

#endif
