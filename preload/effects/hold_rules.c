/* SPDX-License-Identifier: MIT */
/*
 * Which calls may run while bytes are held. There are three answers:
 *
 *	NOTHING  it neither waits, nor shows anybody anything, nor asks about what was sent
 *	SEND     somebody can see it, or it asks: what is held is sent first; a checkpoint follows
 *	COMMIT   it may wait: what is held is sent, and a checkpoint is taken at its entry, because
 *		 nobody knows when it returns
 *
 * Bytes are not held for long either: intercept/late_timer.c. But they are not sent after a moment,
 * because a checkpoint in the middle of a request that goes wrong would keep what is wrong.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include "effects/hold.h"
#include "effects/hooks.h"
#include "effects/planted.h"
#include "os/clock.h"
#include "sites/sites.h"

#define NR_FUTEX_WAKE    454
#define NR_FUTEX_WAIT    455
#define NR_FUTEX_REQUEUE 456

enum due { NOTHING, SEND, COMMIT };

/* Some tenths of a second on any machine: were there no timer, or did it find nobody at home. */
#define LATE_TICKS (1ull << 29)
/*
 * So many times as long once the next request was read: a checkpoint in its midst is one that a
 * crash goes back to in vain.
 */
#define PATIENCE 8

bool crn_call_waits(struct crn_call *call, const struct crn_row *row)
{
	if (row->site != CRN_CALL_WAIT)
		return false;
	if (row->hook != &crn_hook_accept)
		return true;
	if (!call->waits)
		call->waits = crn_fd_never_waits((int)call->args[0]) ? 1 : 2;
	return call->waits == 2;
}

static bool futex_waits(const struct crn_call *call)
{
	switch (call->args[1] & FUTEX_CMD_MASK) {
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
	case FUTEX_WAIT_REQUEUE_PI:
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2:
		return true;
	}
	return false;
}

/* Opening a FIFO waits for the other side, and a device may do anything. */
static bool open_waits(const struct crn_call *call)
{
	bool at = call->nr != SYS_open;
	struct stat st;

	if (call->nr != SYS_openat2 && (call->args[at ? 2 : 1] & O_NONBLOCK))
		return false;
	if (crn_sys4(SYS_newfstatat, at ? call->args[0] : AT_FDCWD, call->args[at ? 1 : 0], &st,
		    0) < 0)
		return false;
	return !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) &&
		!(S_ISCHR(st.st_mode) && major(st.st_rdev) == 1 /* null, random ... */);
}

bool crn_call_sleeps(const struct crn_call *call)
{
	switch (call->nr) {
	case SYS_nanosleep:
	case SYS_clock_nanosleep:
	case SYS_pause:
	case SYS_rt_sigsuspend:
		return true;
	case SYS_wait4:
		return !(call->args[2] & WNOHANG);
	case SYS_waitid:
		return !(call->args[3] & WNOHANG);
	case SYS_futex:
		return futex_waits(call);
	case SYS_futex_waitv:
	case NR_FUTEX_WAIT:
		return true;
	case SYS_open:
	case SYS_openat:
	case SYS_openat2:
		return open_waits(call);
	case SYS_fcntl:
		return call->args[1] == F_SETLKW || call->args[1] == F_OFD_SETLKW;
	}
	return false;
}

bool crn_call_wakes(const struct crn_call *call)
{
	if (call->nr == SYS_futex)
		return !(call->args[1] & FUTEX_PRIVATE_FLAG) && !futex_waits(call);
	return call->nr == NR_FUTEX_WAKE || call->nr == NR_FUTEX_REQUEUE;
}

bool crn_hold_is_late(void)
{
	struct crn_hold *h = crn_agent->effects ? crn_agent->effects->hold : NULL;
	uint64_t patience;

	if (!h || !h->used)
		return false;
	patience = h->asked ? PATIENCE : 1;
	return h->looks > patience || crn_clock_ticks() - h->since > patience * LATE_TICKS;
}

void crn_hold_looked_at(void)
{
	struct crn_hold *h = crn_agent->effects ? crn_agent->effects->hold : NULL;

	if (h && h->used)
		__atomic_add_fetch(&h->looks, 1, __ATOMIC_RELAXED);
}

/* ---- by effect ------------------------------------------------------------------------------- */

static enum due due_output(const struct crn_call *call, const struct crn_row *row)
{
	const struct crn_fd *f;

	if (row->hook == &crn_hook_close || row->hook == &crn_hook_write) {
		f = crn_fd_look((int)call->args[0]);
		if (f->kind == CRN_FD_NULL || f->kind == CRN_FD_CLOSED)
			return NOTHING;
		if (row->hook == &crn_hook_write)
			return crn_is_log_write(call) ? NOTHING : SEND;
		return f->kind == CRN_FD_REGULAR || f->kind == CRN_FD_DIRECTORY ||
			crn_hold_may_close((int)call->args[0]) ? NOTHING : SEND;
	}
	if (row->hook == &crn_hook_take_signal || row->hook == &crn_hook_file_lock ||
		row->hook == &crn_hook_birth)
		return COMMIT;
	switch (call->nr) {
	case SYS_wait4:
	case SYS_waitid:
		return crn_call_sleeps(call) ? COMMIT : NOTHING;
	case SYS_ioctl:
		switch ((unsigned)call->args[1]) {
		case FIONBIO:
		case FIOCLEX:
		case FIONCLEX:
		case 0x5401: /* TCGETS */
		case TIOCGWINSZ:
			return NOTHING;
		}
		return SEND;
	case SYS_splice:
	case SYS_tee:
	case SYS_vmsplice:
		return call->args[call->nr == SYS_splice ? 5 : 3] & SPLICE_F_NONBLOCK ? SEND
										     : COMMIT;
	case SYS_connect:
	case SYS_msgsnd:
	case SYS_msgrcv:
	case SYS_semop:
	case SYS_semtimedop:
	case SYS_mq_timedsend:
	case SYS_mq_timedreceive:
		return COMMIT;
	}
	return SEND;
}

static enum due due_input(const struct crn_call *call)
{
	int fd = (int)call->args[0], flags = 0;
	struct crn_fd *f = crn_fd_look(fd);

	if (f->kind == CRN_FD_REGULAR || f->kind == CRN_FD_DIRECTORY ||
		f->kind == CRN_FD_NULL || f->kind == CRN_FD_CLOSED)
		return NOTHING;
	if (call->nr == SYS_recvfrom)
		flags = (int)call->args[3];
	else if (call->nr == SYS_recvmsg)
		flags = (int)call->args[2];
	else if (call->nr == SYS_recvmmsg)
		flags = (int)call->args[3];
	if (flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_PEEK | MSG_CMSG_CLOEXEC | MSG_TRUNC |
		MSG_WAITFORONE))
		return COMMIT;
	if (!(flags & MSG_DONTWAIT) && !crn_fd_never_waits(fd))
		return COMMIT;
	return crn_hold_wakes(fd, f) ? SEND : NOTHING;
}

/* Options that change nothing of what is held: when segments leave, how long calls wait. */
static bool is_idle_option(const struct crn_call *call)
{
	if (call->args[1] == IPPROTO_TCP)
		return call->args[2] == TCP_NODELAY || call->args[2] == TCP_CORK ||
			call->args[2] == TCP_QUICKACK || call->args[2] == TCP_KEEPIDLE ||
			call->args[2] == TCP_KEEPINTVL || call->args[2] == TCP_KEEPCNT;
	return call->args[1] == SOL_SOCKET &&
		(call->args[2] == SO_KEEPALIVE || call->args[2] == SO_RCVTIMEO ||
			call->args[2] == SO_SNDTIMEO || call->args[2] == SO_RCVBUF);
}

static enum due due_undo(const struct crn_call *call)
{
	if (crn_call_sleeps(call))
		return COMMIT;
	switch (call->nr) {
	case SYS_setsockopt:
		return !is_idle_option(call) && crn_hold_has((int)call->args[0]) ? SEND : NOTHING;
	case SYS_dup2:
	case SYS_dup3:
		return crn_fd_is_pollable(crn_fd_look((int)call->args[1])) ? SEND : NOTHING;
	case SYS_fcntl:
		switch ((int)call->args[1]) {
		case F_DUPFD:
		case F_DUPFD_CLOEXEC:
		case F_GETFD:
		case F_SETFD:
		case F_GETFL:
			return NOTHING;
		case F_SETFL: /* no signal comes for what was written before */
			return call->args[2] & O_ASYNC ? SEND : NOTHING;
		}
		return SEND;
	}
	return NOTHING;
}

static enum due due_none(const struct crn_call *call)
{
	if (crn_call_sleeps(call))
		return COMMIT;
	if (crn_call_wakes(call))
		return SEND; /* it may be told to look for what was sent */
	switch (call->nr) {
	case SYS_execve:
	case SYS_execveat:
		return COMMIT;
	case SYS_rt_sigreturn:
		/* It may wait for what the handler has written to its own process. */
		return crn_call_resumes_call(call) ? COMMIT : NOTHING;
	case SYS_getsockopt:
		return crn_hold_has((int)call->args[0]) ? SEND : NOTHING;
	}
	return NOTHING;
}

static enum due due_of(struct crn_call *call, const struct crn_row *row)
{
	enum due due = NOTHING;

	if (crn_call_waits(call, row))
		return COMMIT;
	switch (row->effect) {
	case CRN_EFFECT_OUTPUT:
		due = due_output(call, row);
		break;
	case CRN_EFFECT_INPUT:
		due = due_input(call);
		break;
	case CRN_EFFECT_UNDO:
		due = due_undo(call);
		break;
	case CRN_EFFECT_NONE:
		due = due_none(call);
		break;
	}
	return due == NOTHING && crn_hold_is_late() ? COMMIT : due;
}

/* ---- a call ---------------------------------------------------------------------------------- */

/* What this call does to the sockets that bytes are held for, whatever is held now. */
static void note(const struct crn_call *call)
{
	switch (call->nr) {
	case SYS_shutdown:
		crn_fd_hold_set((int)call->args[0], CRN_FDH_NEVER);
		break;
	case SYS_setsockopt:
		if (!is_idle_option(call))
			crn_hold_doubt((int)call->args[0]);
		break;
	case SYS_connect:
		crn_hold_doubt((int)call->args[0]);
		break;
	case SYS_sendfile:
	case SYS_sendmmsg:
		crn_hold_spent((int)call->args[0]);
		break;
	case SYS_splice:
		crn_hold_spent((int)call->args[2]);
		break;
	}
}

bool crn_hold_call(struct crn_call *call, const struct crn_row *row)
{
	struct crn_hold *h = crn_agent->effects->hold;
	enum due due = NOTHING;
	bool held = false;

	crn_effects_lock();
	call->thread->interval = crn_agent->effects->interval;
	if (row->site == CRN_CALL_SEND)
		held = crn_hold_take(call);
	else if (call->nr == SYS_shutdown)
		held = crn_hold_shutdown(call);
	if (!held && h->used)
		due = due_of(call, row);
	if (due == SEND && !crn_planted(CRN_PLANT_RULES))
		crn_hold_send();
	if (!held)
		note(call);
	crn_effects_unlock();
	if (due == COMMIT)
		crn_site_commit(call);
	return held;
}

/*
 * A read that does not wait found nothing, but the bytes that it looks for are held here, or
 * another thread has sent them meanwhile: the process talks to itself.
 */
bool crn_hold_missed(struct crn_call *call, const struct crn_row *row)
{
	struct crn_hold *h = crn_agent->effects->hold;
	bool missed;

	if (call->result != -EAGAIN || row->effect != CRN_EFFECT_INPUT ||
		crn_planted(CRN_PLANT_SELF))
		return false;
	/* Who sends counts first, and then forgets: in this order nothing slips between. */
	if (!__atomic_load_n(&h->used, __ATOMIC_ACQUIRE) && call->flushes == h->flushes)
		return false;
	crn_effects_lock();
	missed = call->flushes != h->flushes || crn_hold_is_for((int)call->args[0]);
	if (missed)
		crn_hold_send();
	crn_effects_unlock();
	return missed;
}
