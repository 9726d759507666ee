/* SPDX-License-Identifier: MIT */
/*
 * A paused session keeps no checkpoint and takes none, and programs that report their stores need
 * not report them (LMC, V-B). Page trackers go on. Without checkpoints they cost at most one fault
 * per page, while stopping them would mean closing or copying all of the surface again at the
 * resume.
 *
 *	paused:  one mark is left, for what is noted of mappings; it can no longer be named
 */
#include "session/engine.h"
#include "base/log.h"

static int pause_locked(cairn_t *c)
{
	if (c->paused)
		return 0;
	if (c->agent || c->control->users > 1) {
		crn_error("no pause: %s", c->agent ? "the agent takes checkpoints, too"
						   : "the session has been opened twice");
		return CAIRN_EBUSY;
	}
	/* The newest mark goes with the checkpoint that ends the pause. */
	crn_past_forget(c, 1);
	if (c->ops->pause)
		c->ops->pause(c->tracker);
	c->paused = true;
	return 0;
}

static int resume_locked(cairn_t *c)
{
	uint64_t id;
	int err;

	if (!c->paused)
		return 0;
	if (c->ops->resume)
		CRN_TRY(c->ops->resume(c->tracker));
	/* What was stored meanwhile cannot be undone: no older mark outlives this checkpoint. */
	c->control->lost = CAIRN_EPAUSED;
	err = crn_checkpoint_timed(c, &id, NULL);
	if (err < 0 && c->ops->pause)
		c->ops->pause(c->tracker);
	if (err >= 0)
		c->paused = false;
	return err;
}

int cairn_pause(cairn_t *c)
{
	int err;

	CRN_TRY(crn_lock(c));
	err = pause_locked(c);
	crn_unlock(c);
	return err;
}

int cairn_resume(cairn_t *c)
{
	int err;

	CRN_TRY(crn_lock(c));
	err = resume_locked(c);
	crn_unlock(c);
	return err;
}
