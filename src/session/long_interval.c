/* SPDX-License-Identifier: MIT */
/* Intervals that turn out long: whoever notices, the tracker decides (track/hooked/page_mode.h). */
#include "session/engine.h"

int cairn_interval_long(cairn_t *c)
{
	int err = 0;

	CRN_TRY(crn_lock(c));
	if (c->paused)
		err = CAIRN_EPAUSED;
	else if (c->ops->interval_long)
		err = c->ops->interval_long(c->tracker);
	crn_unlock(c);
	return err;
}

/*
 * SAFETY: anywhere in the program, in its signal handlers too. Inside of a call of the library the
 * lock is the thread's own, and hooks are asked again later.
 */
void crn_grows_long(struct crn_track_env *env)
{
	cairn_t *c = (cairn_t *)env;

	if (crn_lock(c) < 0)
		return;
	if (!c->paused && c->ops->interval_grows)
		c->ops->interval_grows(c->tracker);
	crn_unlock(c);
}
