/* SPDX-License-Identifier: MIT */
/* One strategy on one run: mispredictions, weighted by SMC's figures and by a host's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <x86intrin.h>
#include "replay_score.h"

struct replay {
	struct crn_port port;
	const struct run *run;
	uint64_t seed;
};

static void *replay_alloc(const struct crn_port *port, size_t size)
{
	return calloc(1, size);
}

static void replay_free(const struct crn_port *port, void *block, size_t size)
{
	free(block);
}

static uint64_t replay_random(const struct crn_port *port)
{
	return run_random(&((struct replay *)port->owner)->seed);
}

static void replay_log(const struct crn_port *port, const char *text)
{
	fprintf(stderr, "cairn-bench: %s\n", text);
}

static int replay_profile(
	const struct crn_port *port, uint64_t index, struct crn_profile_interval *out)
{
	const struct run *r = ((struct replay *)port->owner)->run;

	/* The last checkpoint begins an interval of which the run says nothing. */
	if (index > r->interval_count)
		return CRN_PORT_EINVAL;
	*out = (struct crn_profile_interval){ 0 };
	if (index < r->interval_count)
		*out = (struct crn_profile_interval){
			r->pages + r->intervals[index].first, r->intervals[index].count };
	return 0;
}

static void make_port(struct replay *y, const struct run *r, const struct cost_model *model,
	const struct replay_options *options)
{
	*y = (struct replay){ .run = r, .seed = options->seed };
	y->port = (struct crn_port){
		.owner = y,
		.costs = model->costs,
		.at_fault = !options->late && !model->late,
		.alloc = replay_alloc,
		.free = replay_free,
		.random = replay_random,
		.log = replay_log,
		.profile = r ? replay_profile : NULL,
	};
}

static uint64_t play(
	struct crn_speculation *s, const struct run *r, const struct replay_options *options)
{
	uint64_t cycles = 0;

	for (size_t i = 0; i < r->interval_count; i++) {
		uint64_t start, next = i + 1 < r->interval_count ? r->intervals[i + 1].key : 0;

		if (i == options->skip) {
			crn_speculation_stats_reset(s);
			cycles = 0;
		}
		if (!options->ignore_keys)
			crn_speculation_context(s, next);
		start = __rdtsc();
		crn_speculation_replay(
			s, r->pages + r->intervals[i].first, r->intervals[i].count);
		cycles += __rdtsc() - start;
	}
	return cycles;
}

static double per(uint64_t value, uint64_t by)
{
	return by ? (double)value / (double)by : 0;
}

static void print_score(const struct run *r, const struct crn_speculation *s, const char *strategy,
	const struct cost_model *model, const struct crn_speculation_stats *t, uint64_t own)
{
	uint64_t n = t->intervals, said = t->hot + t->granted, right = said - t->overcopied;
	const struct crn_costs *c = &model->costs;
	uint64_t cycles = crn_speculation_cycles(t, c);

	printf("{\"table\":\"accuracy\",\"run\":\"%s\",\"strategy\":\"%s\",\"costs\":\"%s\","
	       "\"intervals\":%llu,\"written\":%.3f,\"hot\":%.3f,\"granted\":%.3f,",
		r->name, strategy, model->name, (unsigned long long)n, per(t->written, n),
		per(t->hot, n), per(t->granted, n));
	printf("\"op\":%.3f,\"up\":%.3f,\"mp\":%.3f,\"wmp_smc\":%.3f,\"wmp_host\":%.3f,",
		per(t->overcopied, n), per(t->undercopied, n),
		per(t->overcopied + t->undercopied, n),
		per(crn_speculation_weighted(s, t, NULL), n * 100),
		per(crn_speculation_weighted(s, t, c), n * 100));
	printf("\"recall\":%.4f,\"precision\":%.4f,\"promotions\":%.3f,\"reopened\":%.3f,"
	       "\"evictions\":%.3f,",
		per(right, t->written), per(right, said), per(t->promotions, n),
		per(t->reopened, n), per(t->evictions, n));
	printf("\"cycles\":%.0f,\"to_oracle\":%.3f,\"own_cycles\":%.0f,\"known\":%llu,"
	       "\"contexts\":%llu,\"memory\":%llu}\n",
		per(cycles, n), per(cycles, t->written * c->copy), per(own, n),
		(unsigned long long)t->pages_known, (unsigned long long)t->contexts,
		(unsigned long long)t->memory);
}

bool replay_score(const struct run *r, const char *strategy, const struct cost_model *model,
	const struct replay_options *options, char *why, size_t why_size)
{
	struct crn_speculation_stats stats;
	struct crn_speculation *s;
	struct replay y;
	uint64_t own;

	make_port(&y, r, model, options);
	if (crn_speculation_open(&s, &y.port, strategy, why, why_size) < 0)
		return false;
	own = play(s, r, options);
	crn_speculation_stats(s, &stats);
	if (!crn_speculation_rival(s, 0))
		print_score(r, s, strategy, model, &stats, own);
	for (size_t i = 0; crn_speculation_rival(s, i); i++) {
		struct crn_speculation *rival = crn_speculation_rival(s, i);

		crn_speculation_stats(rival, &stats);
		print_score(r, rival, crn_speculation_name(rival), model, &stats, stats.cycles);
	}
	crn_speculation_close(s);
	return true;
}

struct writing {
	uintptr_t page;
	size_t interval;
};

static int by_page_and_time(const void *a, const void *b)
{
	const struct writing *x = a, *y = b;

	if (x->page != y->page)
		return x->page < y->page ? -1 : 1;
	return x->interval < y->interval ? -1 : x->interval > y->interval;
}

/*
 * A cold page is written: a fault, or an opening in time, which needs a checkpoint before. What was
 * done before interval `skip` does not count.
 */
static uint64_t back(const struct writing *w, const struct crn_costs *c, size_t skip)
{
	uint64_t opening = (uint64_t)(w->interval > skip ? c->open : 0) + c->copy;

	return w->interval && opening < c->fault ? opening : c->fault;
}

/*
 * After a write of a page, staying hot until the next one takes a copy for each interval; going
 * cold takes a protection and the way back.
 */
static uint64_t cheapest(const struct writing *w, const struct crn_costs *c, size_t skip)
{
	bool before = w[0].interval < skip;
	uint64_t hot = (uint64_t)(w[1].interval - (before ? skip - 1 : w[0].interval)) * c->copy;
	uint64_t cold = (before ? 0 : c->protect) + back(&w[1], c, skip);

	return hot < cold ? hot : cold;
}

void replay_bound(const struct run *r, const struct cost_model *model, size_t skip)
{
	struct writing *w = calloc(r->page_count + 1, sizeof(*w));
	uint64_t cycles = 0, written = 0, n = r->interval_count - skip;
	size_t count = 0;

	if (!w || skip >= r->interval_count) {
		free(w);
		return;
	}
	for (size_t i = 0; i < r->interval_count; i++)
		for (size_t k = 0; k < r->intervals[i].count; k++)
			w[count++] = (struct writing){ r->pages[r->intervals[i].first + k], i };
	qsort(w, count, sizeof(*w), by_page_and_time);
	for (size_t i = 0; i < count; i++) {
		if (w[i].interval < skip)
			continue;
		written++;
		if (!i || w[i - 1].page != w[i].page)
			cycles += back(&w[i], &model->costs, skip);
		else
			cycles += cheapest(&w[i - 1], &model->costs, skip);
	}
	printf("{\"table\":\"accuracy\",\"run\":\"%s\",\"strategy\":\"bound\",\"costs\":\"%s\","
	       "\"intervals\":%llu,\"written\":%.3f,\"cycles\":%.0f,\"to_oracle\":%.3f}\n",
		r->name, model->name, (unsigned long long)n, per(written, n), per(cycles, n),
		per(cycles, written * model->costs.copy));
	free(w);
}

bool replay_turn(const char *strategy, const struct cost_model *model, unsigned hot, char *why,
	size_t why_size)
{
	struct replay_options options = { .seed = 1 };
	uint64_t least = UINT64_MAX;
	struct crn_speculation *s;
	struct replay y;

	make_port(&y, NULL, model, &options);
	if (crn_speculation_open(&s, &y.port, strategy, why, why_size) < 0)
		return false;
	for (unsigned turn = 0; turn < 20000; turn++) {
		uint64_t *changed = crn_speculation_changed(s), start;
		size_t slots = crn_speculation_slots(s);

		for (unsigned i = 0; i < hot; i++)
			if (!crn_speculation_is_hot(s, 0x10000000ul + i * 3 * 4096ul))
				crn_speculation_written(s, 0x10000000ul + i * 3 * 4096ul);
		for (size_t i = 0; i < slots; i++)
			changed[i / 64] |= 1ull << i % 64;
		start = __rdtsc();
		crn_speculation_checkpoint(s);
		start = __rdtsc() - start;
		if (turn > 1000 && start < least)
			least = start;
	}
	printf("{\"table\":\"turn\",\"strategy\":\"%s\",\"hot\":%u,\"held\":%zu,\"cycles\":%llu}\n",
		strategy, hot, crn_speculation_hot(s), (unsigned long long)least);
	crn_speculation_close(s);
	return true;
}
