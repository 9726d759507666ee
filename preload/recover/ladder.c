/* SPDX-License-Identifier: MIT */
/*
 * How hard to try. The first crash goes back to the checkpoint and resets the suspect. A crash is a
 * repetition only if the program has neither completed a wake-up nor reached a checkpoint since the
 * last recovery. Then it goes back once more, and every socket that was read in the interval is
 * reset; after that it is given up. At a checkpoint the crash has been passed, because no restore
 * leads to before it any more; a program that never waits shows nothing else. (Counting crashes at
 * one place would stop a healthy server: all crashes by one command share their pc.)
 *
 * Within one wake-up several clients may each send a crash. As long as each recovery disconnects
 * somebody new, that is progress and not a repetition; it ends when nobody is left. The same holds
 * where nobody can be disconnected (datagrams, a pipe): what was read has been dropped, and what
 * has been read since is new. If one call has read several datagrams, all of them are suspect. They
 * are given again one by one, and then only the one that was read last is dropped.
 *
 * Whoever wrote to a pipe or a terminal cannot be told that something is gone, and the client to
 * whom it is passed on takes what has a hole for the whole. So a crash that does not come again
 * must cost nothing there: it is dropped only by the next crash of the same interval, whatever that
 * is, for otherwise two pipes could take turns for ever.
 *
 * A socket pair that the program has made for itself is never disconnected. A crash that comes
 * again then ends the program as it would have, and not because of what it finds there.
 */
#include "effects/effects.h"
#include "os/clock.h"
#include "recover/recover.h"

static bool is_repetition(const struct crn_suspect *suspect)
{
	const struct crn_recover *r = crn_agent->recover;

	if (!r->recoveries || crn_agent->effects->wakeups != r->wakeups_last ||
		crn_agent->effects->interval != r->interval_last)
		return false;
	if (r->split_last)
		return false;
	if (suspect->fd >= 0 && !suspect->connection && crn_agent->effects->last_input.since)
		return false;
	if (r->rung_last == CRN_RUNG_ALL)
		return true;
	return suspect->fd < 0 || !suspect->socket || suspect->own ||
		(suspect->ino == r->suspect_ino && suspect->dev == r->suspect_dev);
}

/* Nothing was dropped by the last recovery, and it has not come to a checkpoint since. */
static bool given_again(const struct crn_recover *r)
{
	return r->recoveries && r->rung_last == CRN_RUNG_AGAIN &&
		crn_agent->effects->interval == r->interval_last;
}

enum crn_rung crn_ladder_next(const struct crn_suspect *suspect, const char **why)
{
	const struct crn_recover *r = crn_agent->recover;
	uint64_t oldest = r->moments[r->recoveries % CRN_RECOVERIES_A_SECOND];

	if (oldest && crn_clock_kernel_ns() - oldest < 1000000000ull) {
		*why = "100 recoveries in the last second";
		return CRN_RUNG_GIVE_UP;
	}
	if (given_again(r))
		return CRN_RUNG_SUSPECT;
	if (!is_repetition(suspect))
		return suspect->fd >= 0 && !suspect->socket ? CRN_RUNG_AGAIN : CRN_RUNG_SUSPECT;
	if (r->rung_last == CRN_RUNG_SUSPECT)
		return CRN_RUNG_ALL;
	*why = "it crashed again although every connection that was read had been reset";
	return CRN_RUNG_GIVE_UP;
}

void crn_ladder_climbed(enum crn_rung rung, const struct crn_suspect *suspect)
{
	struct crn_recover *r = crn_agent->recover;

	r->moments[r->recoveries % CRN_RECOVERIES_A_SECOND] = crn_clock_kernel_ns();
	r->recoveries++;
	r->rung_last = rung;
	r->split_last = rung == CRN_RUNG_SUSPECT && suspect->several;
	r->interval_last = crn_agent->effects->interval;
	r->wakeups_last = crn_agent->effects->wakeups;
	crn_agent->effects->last_input.since = false;
	r->suspect_dev = suspect->fd >= 0 ? suspect->dev : 0;
	r->suspect_ino = suspect->fd >= 0 ? suspect->ino : 0;
}
