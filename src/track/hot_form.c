/* SPDX-License-Identifier: MIT */
#include "track/hot_form.h"
#include "base/bits.h"
#include "os/guarded.h"

/* Of a smaller part of the cost nobody can tell whether it is one. */
#define NOISE 16u

static void use(struct crn_hot_form *f, bool differences, bool trial)
{
	f->differences = differences;
	f->trial = trial;
	f->before = 0;
	f->left = trial ? CRN_HOT_FORM_TRIAL : f->rest;
}

void crn_hot_form_open(struct crn_hot_form *f)
{
	*f = (struct crn_hot_form){ .rest = CRN_HOT_FORM_REST };
	use(f, false, false);
}

bool crn_hot_form_asks(const struct crn_hot_form *f)
{
	return f->differences;
}

static void end_trial(struct crn_hot_form *f)
{
	uint32_t tried = f->cost[f->differences], other = f->cost[!f->differences];
	bool better = tried < other - other / NOISE;

	f->rest = (uint16_t)CRN_MIN(f->rest * 2u, CRN_HOT_FORM_RARE);
	if (better)
		f->rest = CRN_HOT_FORM_REST;
	use(f, better ? f->differences : !f->differences, false);
}

void crn_hot_form_note(struct crn_hot_form *f, uint32_t cost)
{
	/* The lesser of two: whatever comes between makes a checkpoint only dearer. */
	uint32_t sample = CRN_MIN(cost, f->before), *mean = &f->cost[f->differences];

	if (f->before)
		*mean = f->trial || !*mean ? sample : *mean - *mean / 4 + sample / 4;
	f->before = cost;
	if (--f->left)
		return;
	if (f->trial)
		end_trial(f);
	else
		use(f, !f->differences, true);
}

bool crn_hot_form_hashes(size_t count)
{
	return count >= CRN_HOT_FORM_MANY && crn_guarded_registers == CRN_LINES_HASHED;
}
