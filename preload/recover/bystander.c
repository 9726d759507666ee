/* SPDX-License-Identifier: MIT */
/*
 * Has another thread run since the checkpoint? Its registers are not in the checkpoint, so memory
 * that it has moved on from must not be put back under it. A thread that has run has made a call
 * that we saw, or has written to its stack; one that slept through the interval is left asleep, and
 * memory is as it left it.
 */
#include "effects/effects.h"
#include "recover/recover.h"
#include "session/session.h"

/*
 * Around the stack pointer of its last call: the first thing that it does on return is to use the
 * stack there.
 */
#define STACK_BELOW 4096
#define STACK_ABOVE 512

static bool stack_written(const struct crn_thread *t)
{
	uintptr_t begin = t->stack_begin, end = t->stack_end;

	if (!begin || end <= begin) {
		if (!t->program_rsp)
			return true; /* nothing is known: assume the worst */
		begin = crn_page_down(t->program_rsp - STACK_BELOW);
		end = crn_page_up(t->program_rsp + STACK_ABOVE);
	}
	return crn_interval_dirty(crn_agent->session, begin, end - begin) != 0;
}

/*
 * A call in this interval, or in the one before: then it may have run while the checkpoint was
 * being taken, and the copy is torn between before and after it.
 */
static bool ran_lately(const struct crn_thread *t, const struct crn_effects *e)
{
	return t->interval && t->interval + 1 >= e->interval;
}

int crn_bystander(const struct crn_thread *self)
{
	const struct crn_effects *e = crn_agent->effects;

	for (const struct crn_thread *t = crn_agent->threads; t; t = t->next)
		if (t != self && t->live && (ran_lately(t, e) || stack_written(t)))
			return t->tid;
	return 0;
}
