/* SPDX-License-Identifier: MIT */
/*
 * CAIRN_PROTECT: a stray store of the program must not reach the memory that brings it back.
 *
 *	control page	always open: the lock
 *	open blocks	open where somebody writes to them between calls: a write-fault handler, the agent
 *	blocks		opened as a whole for each call, by mprotect
 *	frames		as blocks; but one by one where a tracker keeps a mirror, of which a call writes little
 *
 * "One by one" means userfaultfd, whose refusal is a SIGBUS; mprotect would split a mapping for
 * each frame, at four times the price. If a protection key does all of this, there is nothing to do
 * here.
 */
#include <errno.h>
#include "os/keeper.h"
#include "os/memory.h"
#include "os/userfault.h"
#include "session/engine.h"

#define FEATURES (CRN_UFFD_PAGEFAULT_FLAG_WP | CRN_UFFD_WP_UNPOPULATED | CRN_UFFD_SIGBUS)

/* ---- Frames ---------------------------------------------------------------------------- */

/*
 * SAFETY: from write-fault handlers. While a call is in progress all frames are open, and stay so.
 */
static void seal_frame(struct crn_track_env *env, void *frame, bool closed)
{
	if (!((cairn_t *)env)->control->opened)
		(void)crn_memory_protect(
			frame, CRN_PAGE_SIZE, closed ? PROT_READ : PROT_READ | PROT_WRITE);
}

static int guard_frames(cairn_t *c, uintptr_t at, size_t len, bool closed)
{
	int err = crn_uffd_protect(c->frame_guard, at, len, closed);

	if (crn_unlikely(err == -ENOENT && closed)) { /* new ones */
		CRN_TRY(crn_uffd_register(c->frame_guard, at, len));
		err = crn_uffd_protect(c->frame_guard, at, len, closed);
	}
	return err;
}

/*
 * Nobody can open what is closed any more; but whoever has the last reference ends, and all is open
 * then: a keeper that is just dying, or does not give it to us (the program has changed its user).
 */
static void lose_guard(cairn_t *c)
{
	if (c->env.keeper->pid)
		crn_keeper_end(c->env.keeper);
}

/*
 * For the arena, within calls. What the program has closed is fetched from the keeper; if that has
 * gone too nothing is closed any more.
 */
static int seal_frames(void *arg, void *at, size_t len, bool closed)
{
	cairn_t *c = arg;
	int err = 0;

	crn_own_calls(c, true);
	if (crn_likely(c->frame_guard >= 0))
		err = guard_frames(c, (uintptr_t)at, len, closed);
	if (crn_unlikely(err < 0)) {
		(void)crn_keeper_mend(c->env.keeper);
		err = c->frame_guard < 0 ? 0 : guard_frames(c, (uintptr_t)at, len, closed);
	}
	crn_own_calls(c, false);
	if (crn_unlikely(c->frame_guard < 0)) /* other calls mend, too */
		lose_guard(c);
	return err;
}

/* ---- All of it ------------------------------------------------------------------------- */

static int protect_parts(cairn_t *c, int prot)
{
	uintptr_t begin, end, header_end;
	int err;

	crn_arena_part(c->arena, CRN_ARENA_BLOCKS, &begin, &end);
	if (!c->apart)
		crn_arena_part(c->arena, CRN_ARENA_OPEN, &begin, &header_end); /* right before */
	if (c->ops->own_closed)
		c->ops->own_closed(c->tracker, true);
	err = crn_memory_protect((void *)begin, end - begin, prot);
	crn_arena_part(c->arena, CRN_ARENA_FRAMES, &begin, &end);
	if (err >= 0 && c->env.seal && begin < end)
		err = crn_memory_protect((void *)begin, end - begin, prot);
	if (c->ops->own_closed)
		c->ops->own_closed(c->tracker, false);
	return err;
}

/* Handlers stay out meanwhile: each then knows all the time whether a call is in progress. */
static int protect(cairn_t *c, bool closed)
{
	int err;

	if (c->ops->hold)
		c->ops->hold(c->tracker, true);
	err = protect_parts(c, closed ? PROT_READ : PROT_READ | PROT_WRITE);
	c->control->opened = !closed;
	if (c->ops->hold)
		c->ops->hold(c->tracker, false);
	return err;
}

int crn_protect_open(cairn_t *c)
{
	return crn_likely(!c->closes) ? 0 : protect(c, false);
}

int crn_protect_close(cairn_t *c)
{
	if (crn_likely(!c->closes))
		return 0;
	crn_own_calls(c, true);
	crn_frames_close(c->arena);
	crn_own_calls(c, false);
	return protect(c, true);
}

/* The mirror's: without userfaultfd all frames are opened and closed. */
static int open_guard(cairn_t *c)
{
	int fd = c->ops->caps & CRN_TRACK_MIRROR ? crn_uffd_open(FEATURES, NULL) : -ENOSYS;

	CRN_TRY(fd);
	c->frame_guard = fd;
	return crn_keeper_hold(c->env.keeper, &c->frame_guard, NULL);
}

int crn_protect_begin(cairn_t *c)
{
	if (open_guard(c) >= 0) {
		CRN_TRY(crn_frames_seal(c->arena, seal_frames, c));
	} else {
		crn_protect_end(c);
		c->env.seal = seal_frame;
	}
	c->closes = true;
	return 0;
}

void crn_protect_end(cairn_t *c)
{
	crn_frames_unseal(c->arena);
	if (c->frame_guard >= 0)
		crn_keeper_drop(c->env.keeper, &c->frame_guard);
	c->frame_guard = -1;
}
