/* SPDX-License-Identifier: MIT */
/*
 * Has another thread run since the checkpoint, or could it run before memory is back? Its registers
 * are not in the checkpoint, so memory that it has moved on from must not be put back under it.
 *
 * A thread may stay where it is if it sleeps in a call that it began before the previous interval,
 * and that returns to its after-hook. Then it has not run since, and if it wakes up now it stops at
 * the lock that we hold. Its memory is as it left it, and what the kernel has written for its call
 * is not put back (session/store.c). A thread anywhere else runs, or may run at any moment; even a
 * write fault of the program that waits for the tracker looks like sleep.
 */
#include "effects/effects.h"
#include "recover/recover.h"

/*
 * In the interval before it may have run while the checkpoint was being taken: the copy is torn
 * between before and after it. 0: its call is older than the session.
 */
static bool sleeps_since(const struct crn_thread *t, uint32_t interval)
{
	return crn_thread_in_call(t) && (!t->interval || t->interval + 1 < interval);
}

static bool may_have_run(const struct crn_thread *t)
{
	if (t->exiting)
		return !crn_thread_is_over(t);
	/* A vfork child runs in our memory. */
	return t->in_vfork || !sleeps_since(t, crn_agent->effects->interval);
}

int crn_bystander(const struct crn_thread *self)
{
	for (const struct crn_thread *t = crn_agent->threads; t; t = t->next)
		if (t != self && t->live && may_have_run(t))
			return t->tid ? t->tid : crn_agent->pid; /* being born, without an id */
	return 0;
}
