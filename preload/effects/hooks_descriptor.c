/* SPDX-License-Identifier: MIT */
/* Calls that make, copy, change and close descriptors. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include "base/copy.h"
#include "effects/hold.h"
#include "effects/hooks.h"
#include "effects/input.h"
#include "effects/planted.h"

/* ---- making ---------------------------------------------------------------------------------- */

void crn_fd_created(struct crn_call *call, int fd, bool fresh)
{
	struct crn_inverse *inv;

	crn_fd_forget(fd);
	if (crn_close_unlocks(fd)) { /* a close would take back more than this */
		crn_call_raise(call);
		return;
	}
	inv = crn_inverse_add(call, CRN_INV_CLOSE, fd);
	if (inv)
		inv->a = fresh;
}

/* An open that makes or empties a file changes what others see. scratch[0]: it makes one. */
static void judge_open(struct crn_call *call, int dirfd, uintptr_t path, uint64_t flags)
{
	struct stat st;

	call->scratch[0] = (flags & O_CREAT) && crn_sys4(SYS_newfstatat, dirfd, path, &st, 0) < 0;
	if (call->scratch[0] || (flags & O_TRUNC))
		crn_call_raise(call);
}

static enum crn_verdict open_before(struct crn_call *call)
{
	if (call->nr == SYS_open)
		judge_open(call, AT_FDCWD, (uintptr_t)call->args[0], (uint64_t)call->args[1]);
	else
		judge_open(call, (int)call->args[0], (uintptr_t)call->args[1],
			(uint64_t)call->args[2]);
	return CRN_CALL_RUN_THEN;
}

static void open_after(struct crn_call *call)
{
	int fd = (int)call->result;

	if (fd < 0)
		return;
	crn_fd_created(call, fd, true);
	crn_file_opened(fd, call->scratch[0],
		call->nr == SYS_open ? (unsigned)call->args[1]
			: call->nr == SYS_openat ? (long)(unsigned)call->args[2] : -1l);
	/* Opening a FIFO or a device can be seen from the other side. */
	if (crn_fd_is_pollable(crn_fd_look(fd)))
		crn_call_raise(call);
}
const struct crn_hook crn_hook_open = {open_before, open_after};

static enum crn_verdict openat2_before(struct crn_call *call)
{
	struct open_how how = {0};

	if (crn_user_read(&how, (uintptr_t)call->args[2],
		    CRN_MIN(sizeof(how), (size_t)call->args[3])) == 0)
		judge_open(call, (int)call->args[0], (uintptr_t)call->args[1], how.flags);
	return CRN_CALL_RUN_THEN;
}
const struct crn_hook crn_hook_openat2 = {openat2_before, open_after};

/* creat() empties. */
static void made_output_after(struct crn_call *call)
{
	if (call->result < 0)
		return;
	crn_fd_forget((int)call->result);
	crn_file_opened((int)call->result, false, -1);
}
const struct crn_hook crn_hook_creat = {NULL, made_output_after};
const struct crn_hook crn_hook_create_output = {NULL, made_output_after};

static void create_after(struct crn_call *call)
{
	if (call->result < 0)
		return;
	crn_fd_created(call, (int)call->result, false);
	if (call->nr == SYS_timerfd_create)
		crn_fd_made((int)call->result);
}
const struct crn_hook crn_hook_create = {NULL, create_after};

/* pipe, pipe2, socketpair */
static void pair_after(struct crn_call *call)
{
	const int *pair = (const int *)call->args[call->nr == SYS_socketpair ? 3 : 0];

	if (call->result < 0)
		return;
	crn_fd_created(call, pair[0], false);
	crn_fd_created(call, pair[1], false);
}
const struct crn_hook crn_hook_pair = {NULL, pair_after};

/* ---- closing --------------------------------------------------------------------------------- */

static bool is_written_program(int fd, const struct crn_fd *f)
{
	struct stat st;

	return f->kind == CRN_FD_REGULAR && !(f->flags & CRN_FDF_READONLY) &&
		crn_sys2(SYS_fstat, fd, &st) >= 0 && st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH);
}

/*
 * What can be closed quietly is kept under a high duplicate until the next checkpoint; scratch[0] =
 * the duplicate or 0, scratch[1] = its FD_CLOEXEC, scratch[3] = its number if it is a connection
 * whose close is held until the next wait. Anything else that is pollable is really closed (a
 * descriptor kept for longer would stay in epoll sets and keep the peer waiting: measured, nginx
 * deadlocks), and so is what may be locked, for the program may wait for the lock itself, and a
 * program that it has written, which nobody can execute as long as it is open. A file that was
 * opened in this interval (a server may open one for each request) needs nothing, neither is
 * undone. `freed`: nothing takes the number over. What is in a set of epoll may look like a plain
 * file (a queue of messages, a file of /proc, a pidfd of some kernels).
 */
static void prepare_close(struct crn_call *call, int fd, bool freed)
{
	struct crn_fd *f = crn_fd_look(fd);
	int high;
	bool hold;

	if (f->kind == CRN_FD_CLOSED)
		return;
	hold = freed && crn_hold_may_close(fd);
	if (!hold && (crn_fd_is_pollable(f) || f->flags & CRN_FDF_LOCKED || crn_epoll_holds(fd) ||
			     crn_close_unlocks(fd) || is_written_program(fd, f))) {
		crn_call_raise(call);
		return;
	}
	if (!hold && freed && crn_inverse_unopen(fd))
		return;
	high = hold && crn_planted(CRN_PLANT_DUPLICATE) ? -EMFILE : crn_hold_duplicate(fd);
	if (high < 0) {
		if (hold)
			crn_hold_send(); /* while the number still means the connection */
		crn_call_raise(call);
		return;
	}
	if (hold) {
		crn_hold_closing(fd, high);
		call->scratch[3] = f->connection;
		if (!crn_fd_has_twin(fd))
			crn_epoll_leave(call, fd);
	}
	call->scratch[0] = (uint64_t)high;
	call->scratch[1] = (uint64_t)crn_sys2(SYS_fcntl, fd, F_GETFD);
}

/* The number has been closed (or taken over). */
static void note_closed(struct crn_call *call, int fd)
{
	struct crn_inverse *inv;

	if (!call->scratch[0])
		return;
	inv = crn_inverse_add(call, CRN_INV_REOPEN, fd);
	if (!inv) {
		if (call->scratch[3]) {
			crn_hold_closed(call->thread, (int)call->scratch[0],
				(uint32_t)call->scratch[3]);
			crn_hold_send();
		} else {
			crn_hold_release((int)call->scratch[0]);
		}
		return;
	}
	inv->other = (int)call->scratch[0];
	inv->a = call->scratch[1] & FD_CLOEXEC;
	if (call->scratch[3])
		crn_hold_closed(call->thread, inv->other, (uint32_t)call->scratch[3]);
	else
		crn_agent->effects->keeps_files = true;
}

/* What else goes with a number, before the kernel forgets it. */
static void leave(int fd)
{
	struct crn_fd *f = crn_fd_look(fd);

	if (crn_fd_is_pollable(f) || crn_epoll_holds(fd)) {
		bool twin = crn_fd_has_twin(fd);

		if (f->kind == CRN_FD_EPOLL)
			crn_epoll_closed(fd);
		crn_stream_closed(fd);
		if (crn_fd_is_name(fd))
			crn_stream_rename(fd);
		if (!twin)
			crn_epoll_forget_fd(fd);
	}
}

static enum crn_verdict close_before(struct crn_call *call)
{
	int fd = (int)call->args[0];

	call->effect = CRN_EFFECT_UNDO;
	call->scratch[0] = call->scratch[3] = 0;
	prepare_close(call, fd, true);
	if (!call->scratch[3])
		leave(fd);
	crn_fd_forget(fd); /* now: a second thread may get the number before our after-hook runs */
	return CRN_CALL_RUN_THEN;
}

static void close_after(struct crn_call *call)
{
	if (call->result != -EBADF || !call->scratch[0]) {
		note_closed(call, (int)call->args[0]);
		return;
	}
	if (call->scratch[3])
		crn_hold_send(); /* another thread has closed it as well, and was quicker */
	crn_hold_release((int)call->scratch[0]);
}
const struct crn_hook crn_hook_close = {close_before, close_after};

static enum crn_verdict close_range_before(struct crn_call *call)
{
	struct crn_effects *e = crn_agent->effects;
	unsigned first = (unsigned)call->args[0], last = (unsigned)call->args[1];

	if ((call->args[2] & 4 /* CLOSE_RANGE_CLOEXEC */) || first > last)
		return CRN_CALL_RUN_THEN;
	for (unsigned fd = first; fd <= CRN_MIN(last, e->fd_chunks * CRN_FD_CHUNK - 1); fd++) {
		if (!e->fds[fd / CRN_FD_CHUNK]) {
			fd |= CRN_FD_CHUNK - 1;
			continue;
		}
		if (e->fds[fd / CRN_FD_CHUNK][fd % CRN_FD_CHUNK].kind != CRN_FD_UNKNOWN)
			leave((int)fd);
	}
	crn_fd_forget_range(first, last);
	return CRN_CALL_RUN_THEN;
}
const struct crn_hook crn_hook_close_range = {close_range_before, NULL};

/* ---- copying --------------------------------------------------------------------------------- */

static void dup_after(struct crn_call *call)
{
	if (call->result < 0)
		return;
	crn_fd_created(call, (int)call->result, false);
	crn_fd_look((int)call->args[0]);
	crn_fd_copy((int)call->result, (int)call->args[0]);
}
const struct crn_hook crn_hook_dup = {NULL, dup_after};

/* dup2 and dup3 close what was there. */
static enum crn_verdict dup_over_before(struct crn_call *call)
{
	int from = (int)call->args[0], to = (int)call->args[1];

	call->scratch[0] = call->scratch[2] = call->scratch[3] = 0;
	if (from == to || crn_fd_look(from)->kind == CRN_FD_CLOSED)
		return CRN_CALL_RUN;
	call->scratch[2] = crn_fd_look(to)->kind != CRN_FD_CLOSED;
	if (crn_close_unlocks(from))
		crn_call_raise(call);
	prepare_close(call, to, false);
	leave(to);
	return CRN_CALL_RUN_THEN;
}

static void dup_over_after(struct crn_call *call)
{
	int from = (int)call->args[0], to = (int)call->args[1];

	if (call->result < 0) {
		if (call->scratch[0])
			crn_hold_release((int)call->scratch[0]);
		return;
	}
	crn_fd_forget(to);
	if (call->scratch[2])
		note_closed(call, to);
	else
		crn_inverse_add(call, CRN_INV_CLOSE, to);
	crn_fd_copy(to, from);
}
const struct crn_hook crn_hook_dup_over = {dup_over_before, dup_over_after};

/* ---- changing -------------------------------------------------------------------------------- */

static enum crn_verdict lseek_before(struct crn_call *call)
{
	struct crn_fd *f = crn_fd_look((int)call->args[0]);

	/* A device may have an offset as well. */
	if (f->kind == CRN_FD_REGULAR || f->kind == CRN_FD_DIRECTORY || f->kind == CRN_FD_OTHER)
		crn_offset_journal(call, (int)call->args[0]);
	return CRN_CALL_RUN;
}
const struct crn_hook crn_hook_lseek = {lseek_before, NULL};

/* Journal the present flags before they change; harmless if the call then fails. */
static void flags_journal(struct crn_call *call, int fd, enum crn_inverse_kind kind)
{
	long old = crn_sys2(SYS_fcntl, fd, kind == CRN_INV_STATUS ? F_GETFL : F_GETFD);
	struct crn_inverse *inv;

	if (old < 0)
		return;
	inv = crn_inverse_add(call, kind, fd);
	if (inv)
		inv->a = (uint64_t)old;
}

static enum crn_verdict fcntl_before(struct crn_call *call)
{
	int fd = (int)call->args[0];

	switch ((int)call->args[1]) {
	case F_DUPFD:
	case F_DUPFD_CLOEXEC:
		return CRN_CALL_RUN_THEN;
	case F_SETFL:
		if (call->args[2] & O_ASYNC)
			crn_fd_signals();
		flags_journal(call, fd, CRN_INV_STATUS);
		crn_fds_changed();
		return CRN_CALL_RUN_THEN;
	case F_SETFD:
		flags_journal(call, fd, CRN_INV_CLOEXEC);
		return CRN_CALL_RUN;
	case F_GETFD:
	case F_GETFL:
	case F_GETLK:
	case F_OFD_GETLK:
	case F_GETOWN:
	case F_GETSIG:
	case F_GETLEASE:
	case F_GETPIPE_SZ:
	case F_GET_SEALS:
	case F_GETOWN_EX:
	case F_GET_RW_HINT:
	case F_GET_FILE_RW_HINT:
		call->effect = CRN_EFFECT_NONE;
		return CRN_CALL_RUN;
	case F_ADD_SEALS:
		return crn_memory_sealed(call);
	case F_SETLK:
	case F_SETLKW:
		return crn_record_lock_before(call);
	case F_OFD_SETLK:
	case F_OFD_SETLKW:
		crn_fd_locked(fd);
		break;
	case F_SETLEASE: /* none is given for a file that is open elsewhere */
		crn_effects_let_go();
		crn_fd_locked(fd);
		break;
	}
	crn_call_raise(call);
	return CRN_CALL_RUN_THEN;
}

static void fcntl_after(struct crn_call *call)
{
	int command = (int)call->args[1];

	if (command == F_SETFL)
		crn_fds_changed();
	if (call->result < 0)
		return;
	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
		dup_after(call);
	else if (command == F_SETLK || command == F_SETLKW)
		crn_record_lock_after(call);
	else if (command == F_SETFL) /* O_APPEND may have changed */
		crn_fd_flags_changed((int)call->args[0]);
}
const struct crn_hook crn_hook_fcntl = {fcntl_before, fcntl_after};

static enum crn_verdict ioctl_before(struct crn_call *call)
{
	int fd = (int)call->args[0];
	unsigned request = (unsigned)call->args[1];

	switch (request) {
	case FIOASYNC:
		crn_fd_signals();
		flags_journal(call, fd, CRN_INV_STATUS);
		break;
	case FIONBIO:
		flags_journal(call, fd, CRN_INV_STATUS);
		crn_fds_changed();
		call->effect = CRN_EFFECT_UNDO;
		return CRN_CALL_RUN_THEN;
	case FIOCLEX:
	case FIONCLEX:
		flags_journal(call, fd, CRN_INV_CLOEXEC);
		break;
	case FIONREAD:
		call->effect = CRN_EFFECT_NONE;
		return crn_fd_pending(fd) ? CRN_CALL_RUN_THEN : CRN_CALL_RUN;
	case 0x5401 /* TCGETS */:
	case TIOCGWINSZ:
	case TIOCGPGRP:
	case TIOCOUTQ:
	case TIOCGSID:
	case 0x802c542a /* TCGETS2 */:
	case SIOCGIFNAME: /* questions about interfaces; those that set lie between */
	case SIOCGIFCONF:
	case SIOCGIFFLAGS:
	case SIOCGIFADDR:
	case SIOCGIFDSTADDR:
	case SIOCGIFBRDADDR:
	case SIOCGIFNETMASK:
	case SIOCGIFMETRIC:
	case SIOCGIFMTU:
	case SIOCGIFHWADDR:
	case SIOCGIFINDEX:
	case SIOCGIFTXQLEN:
		call->effect = CRN_EFFECT_NONE;
		return CRN_CALL_RUN;
	case SIOCATMARK:
		call->effect = CRN_EFFECT_NONE;
		return CRN_CALL_RUN_THEN;
	default:
		return CRN_CALL_RUN_THEN;
	}
	call->effect = CRN_EFFECT_UNDO;
	return CRN_CALL_RUN;
}

/*
 * A read stops at the urgent mark. There a checkpoint keeps the bytes before it apart from those
 * behind it; and as long as there are bytes to be given again, it is not reached.
 */
static void at_mark(struct crn_call *call)
{
	int at = 0, fd = (int)call->args[0];

	if (crn_user_read(&at, (uintptr_t)call->args[2], sizeof(at)) < 0 || !at)
		return;
	if (!crn_fd_pending(fd))
		return crn_call_raise(call);
	at = 0;
	(void)!crn_user_write((uintptr_t)call->args[2], &at, sizeof(at));
}

/* Is what a terminal has for its reader thrown away? */
static bool flushes(const struct crn_call *call)
{
	switch ((unsigned)call->args[1]) {
	case TCFLSH:
		return call->args[2] != TCOFLUSH;
	case TCSETSF:
	case TCSETAF:
	case 0x402c542d /* TCSETSF2 */:
		return true;
	}
	return false;
}

/* FIONREAD: what is to be given again counts too. */
static void ioctl_after(struct crn_call *call)
{
	struct crn_stream *s;
	int bytes;

	if (call->result >= 0 && flushes(call) &&
		crn_fd_look((int)call->args[0])->kind == CRN_FD_TTY)
		crn_stream_pass((int)call->args[0]);
	if ((unsigned)call->args[1] == FIONBIO)
		crn_fds_changed();
	if ((unsigned)call->args[1] == SIOCATMARK && call->result >= 0)
		at_mark(call);
	if ((unsigned)call->args[1] != FIONREAD || call->result < 0)
		return;
	s = crn_stream_find(crn_fd_look((int)call->args[0]));
	if (!crn_stream_pending(s) ||
		crn_user_read(&bytes, (uintptr_t)call->args[2], sizeof(bytes)) < 0)
		return;
	bytes = s->shape == CRN_SHAPE_MESSAGES ? (int)crn_stream_ready_bytes(s)
			      : bytes + (int)crn_stream_ready_bytes(s);
	(void)!crn_user_write((uintptr_t)call->args[2], &bytes, sizeof(bytes));
}
const struct crn_hook crn_hook_ioctl = {ioctl_before, ioctl_after};
