/* SPDX-License-Identifier: MIT */
/*
 * The open interval as a whole: beginning it at a checkpoint, deciding whether it can be undone,
 * and undoing it.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "effects/hold.h"
#include "effects/hooks.h"
#include "effects/inherited_input.h"
#include "effects/planted.h"
#include "os/proc.h"
#include "os/thread.h"
#include "session/session.h"

/*
 * Held for a few microseconds at most, never across a call of the program: spinning, and giving
 * way, is enough. A thread that is alone stays so while it holds it: it needs no atomic exchange.
 */
void crn_effects_lock(void)
{
	uint32_t *lock = &crn_agent->effects->lock;

	if (crn_agent->thread_count == 1) {
		CRN_DASSERT(!*lock);
		__atomic_store_n(lock, 1, __ATOMIC_RELAXED);
		return;
	}
	for (unsigned spins = 0; __atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE); spins++)
		spins < 100 ? crn_pause() : crn_yield();
}

void crn_effects_unlock(void)
{
	__atomic_store_n(&crn_agent->effects->lock, 0, __ATOMIC_RELEASE);
}

void crn_maps_hold(void)
{
	while (__atomic_exchange_n(&crn_agent->maps_lock, 1, __ATOMIC_ACQUIRE))
		crn_yield();
}

void crn_maps_release(void)
{
	__atomic_store_n(&crn_agent->maps_lock, 0, __ATOMIC_RELEASE);
}

void *crn_effects_alloc(size_t size)
{
	return crn_session_alloc(crn_agent->session, size);
}

/*
 * Locks from before the first site, by the process or by who has forked it: the kernel tells them
 * beside the descriptors that hold them. Those of a process (POSIX) end with any close of the file.
 */
static int note_lock(void *ctx, int dir, int fd)
{
	struct crn_effects *e = ctx;
	char lock[8], second[8];
	struct stat st;

	(void)dir;
	if (crn_fd_is_engine(fd) || crn_sys2(SYS_fstat, fd, &st) < 0 ||
		!(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) ||
		crn_fdinfo(fd, "lock:\t1: ", lock, sizeof(lock)) < 0)
		return 0;
	crn_fd_locked(fd);
	if (!crn_starts_with(lock, "FLOCK") ||
		crn_fdinfo(fd, "lock:\t2: ", second, sizeof(second)) == 0)
		e->file_locks = true;
	return 0;
}

static int allocate(struct crn_effects *e)
{
	crn_fd_limit_read();
	e->fd_chunks = 1;
	e->fds = crn_effects_alloc(CRN_FD_CHUNKS_MAX * sizeof(*e->fds));
	e->files = crn_effects_alloc(CRN_FILES_MAX * sizeof(*e->files));
	e->births = e->flag_changes = 1;
	e->file_count = 1;
	e->inverses = crn_effects_alloc(CRN_INVERSES_MAX * sizeof(*e->inverses));
	e->delayed = crn_effects_alloc(CRN_DELAYED_MAX * sizeof(*e->delayed));
	e->pool = crn_effects_alloc(CRN_POOL_SIZE);
	e->pool_spare = crn_effects_alloc(CRN_POOL_SIZE);
	e->pool_used = 8;
	e->round = 1;
	e->streams = crn_effects_alloc(CRN_STREAMS_MAX * sizeof(*e->streams));
	e->epolls = crn_effects_alloc(CRN_EPOLL_SETS_MAX * sizeof(*e->epolls));
	if (!e->fds || !e->files || !e->inverses || !e->delayed || !e->pool || !e->pool_spare ||
		!e->streams || !e->epolls)
		return CAIRN_EMEMORY;
	if (!crn_agent->config.commit_each)
		CRN_TRY(crn_hold_open(e));
	crn_input_adopt();
	return crn_maps_open(&e->maps, e->maps_buffer);
}

int crn_effects_open(void)
{
	struct crn_effects *e = crn_effects_alloc(sizeof(*e));
	struct cairn_stats stats = {.size = sizeof(stats)};
	bool signals;

	if (!e)
		return CAIRN_EMEMORY;
	CRN_TRY(cairn_stats(crn_agent->session, &stats));
	signals = crn_streq(stats.tracker, "uffd") || crn_streq(stats.tracker, "mprotect");
	crn_agent->frozen_children = crn_streq(stats.tracker, "fork");
	e->kernel_needs_open_pages = signals;
	e->drops_need_saving = signals;
	e->maps.fd = -1;
	crn_agent->effects = e;
	if (crn_agent->config.recover) {
		int ret = allocate(e);

		if (ret < 0) {
			crn_agent->effects = NULL;
			return ret;
		}
		(void)crn_proc_numbers("/proc/self/fd", note_lock, e);
	}
	return 0;
}

void crn_effects_cannot_undo(const char *why)
{
	struct crn_effects *e = crn_agent->effects;

	if (!e->unrecoverable[0])
		crn_format(e->unrecoverable, sizeof(e->unrecoverable), "%s", why);
}

/*
 * The checkpoint that is about to be taken must not contain what the program has given up. From
 * here to the commit nothing can be undone; if the checkpoint fails it stays so until one succeeds.
 */
bool crn_effects_settle(void)
{
	struct crn_effects *e = crn_agent->effects;

	if (!e->delayed_count && !e->break_put_off)
		return false;
	crn_break_settle();
	for (uint32_t i = 0; i < e->delayed_count; i++) {
		const struct crn_delayed *d = &e->delayed[i];
		const struct crn_range ends[2] = { { d->addr, d->addr + d->len } };
		long args[6] = { (long)d->addr, (long)d->len };

		(void)crn_maps_call(crn_agent->session, SYS_munmap, args, CRN_MAPS_UNMAPS, ends);
	}
	e->delayed_count = 0;
	e->delayed_bytes = 0;
	crn_effects_cannot_undo("memory was given back to the kernel");
	return true;
}

void crn_effects_let_go(void)
{
	crn_effects_settle();
	crn_effects_close_kept();
}

bool crn_effects_close_kept(void)
{
	struct crn_effects *e = crn_agent->effects;

	crn_hold_send(); /* what is held for a connection goes before its close */
	if (!crn_inverses_close())
		return false;
	crn_effects_cannot_undo("what was closed has been closed for good");
	e->let_go = true;
	return true;
}

void crn_effects_commit(void)
{
	struct crn_effects *e = crn_agent->effects;

	if (!crn_agent->config.recover)
		return;
	crn_inverses_drop();
	crn_streams_commit();
	crn_reaped_commit();
	e->signal_count = 0;
	e->unrecoverable[0] = '\0';
	e->let_go = false;
	if (e->hold)
		e->hold->uncovered = false;
	e->interval++;
	e->open = true;
}

int crn_effects_check(void)
{
	struct crn_effects *e = crn_agent->effects;

	return e && e->open && !e->unrecoverable[0] ? 0 : CAIRN_EFAILED;
}

/* Its handler was one for one signal: it is the handler again when that comes again. */
static void note_reset(int sig, const struct crn_ksigaction *act)
{
	struct crn_inverse *inv = crn_inverse_add(NULL, CRN_INV_ACTION, sig);

	if (inv)
		crn_copy(inv->text, act, sizeof(*act));
}

void crn_signal_delivered(struct crn_thread *t, int sig, const siginfo_t *info,
	const struct crn_ksigaction *act)
{
	struct crn_effects *e = crn_agent ? crn_agent->effects : NULL;
	bool resets = act->flags & SA_RESETHAND, own = crn_signal_is_own_fault(sig, info);

	if (!e || !e->open || (own && !resets))
		return;
	crn_effects_lock();
	t->interval = e->interval;
	if (resets)
		note_reset(sig, act);
	if (own)
		; /* nothing of it is to come again */
	else if (e->signal_count == CRN_SIGNALS_MAX)
		crn_effects_cannot_undo("more signals were delivered than can be raised again");
	else
		e->signals[e->signal_count++] =
			(struct crn_signal_log){ .sig = sig, .tid = t->tid, .info = *info };
	crn_effects_unlock();
}

void crn_effects_undo(void)
{
	crn_agent->effects->restores++;
	crn_hold_drop();
	crn_inverses_run();
	crn_fds_changed();
	if (!crn_planted(CRN_PLANT_STREAMS))
		crn_streams_rewind();
	if (!crn_planted(CRN_PLANT_REAPED))
		crn_reaped_rewind();
	crn_maps_changed(crn_agent->session);
}
