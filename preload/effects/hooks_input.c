/* SPDX-License-Identifier: MIT */
/*
 * Calls that take input: reads, and accept. The input is kept. Input that was taken before a
 * restore is given again before the kernel is asked for more.
 */
#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include "base/copy.h"
#include "effects/hooks.h"
#include "effects/inherited_input.h"
#include "effects/input.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif
#define PACKET_STATISTICS 6

void crn_offset_journal(struct crn_call *call, int fd)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_fd *f = crn_fd_look(fd);
	struct crn_inverse *inv;
	long offset;

	if (f->seek_round == e->round)
		return;
	offset = crn_sys3(SYS_lseek, fd, 0, SEEK_CUR);
	if (offset < 0)
		return; /* no offset (some files of /proc): nothing moves */
	inv = crn_inverse_add(call, CRN_INV_SEEK, fd);
	if (!inv)
		return;
	inv->a = (uint64_t)offset;
	f->seek_round = e->round;
}

/*
 * Its input was dropped after a wait had said that there is some: a read that waits for more would
 * keep everybody waiting who was announced with it. Once, and only until the next wait.
 */
static bool is_owed_nothing(struct crn_fd *f, int fd)
{
	struct pollfd now = {.fd = fd, .events = POLLIN};
	uint64_t said = f->dropped;

	if (!said || crn_fd_pending(fd))
		return false;
	f->dropped = 0;
	return said == crn_agent->effects->wakeups + 1 && crn_sys3(SYS_poll, &now, 1, 0) == 0;
}

bool crn_input_is_kept(struct crn_call *call, int fd, enum crn_verdict *verdict)
{
	struct crn_fd *f = crn_fd_look(fd);

	*verdict = CRN_CALL_RUN;
	switch (f->kind) {
	case CRN_FD_CLOSED:
	case CRN_FD_NULL:
		call->effect = CRN_EFFECT_NONE;
		return false;
	case CRN_FD_REGULAR:
	case CRN_FD_DIRECTORY:
		call->effect = CRN_EFFECT_UNDO;
		crn_offset_journal(call, fd);
		if (f->flags & CRN_FDF_EMPTY) {
			call->scratch[1] = (uint64_t)crn_sys3(SYS_lseek, fd, 0, SEEK_CUR);
			*verdict = CRN_CALL_RUN_THEN;
		}
		return false;
	case CRN_FD_OTHER:
	case CRN_FD_EPOLL:
		crn_call_raise(call);
		*verdict = CRN_CALL_RUN_THEN;
		return false;
	}
	*verdict = CRN_CALL_RUN_THEN;
	if (!is_owed_nothing(f, fd))
		return true;
	call->effect = CRN_EFFECT_NONE;
	call->result = -EAGAIN;
	*verdict = CRN_CALL_ANSWERED;
	return false;
}

bool crn_is_taken_error(long result)
{
	return result == -ECONNRESET || result == -EPIPE || result == -ETIMEDOUT ||
		result == -EHOSTUNREACH || result == -ENETUNREACH || result == -ECONNREFUSED ||
		result == -ECONNABORTED || result == -EHOSTDOWN || result == -ENETDOWN ||
		result == -ENETRESET || result == -ENONET || result == -ENOPROTOOPT ||
		result == -EMSGSIZE || result == -ENOBUFS || result == -EPROTO;
}

/* A terminal that is read by lines tells its end once. */
static bool ends_once(int fd, const struct crn_fd *f)
{
	struct termios t;

	return f->kind == CRN_FD_TTY && crn_sys3(SYS_ioctl, fd, TCGETS, &t) >= 0 &&
		(t.c_lflag & ICANON);
}

/*
 * A file of the kernel's (/proc/kmsg, trace_pipe) that gives what does not come again: its offset
 * does not move.
 */
static void judge_file(struct crn_call *call)
{
	int fd = (int)call->args[0];

	if (call->result > 0 && (crn_fd_look(fd)->flags & CRN_FDF_EMPTY) &&
		crn_sys3(SYS_lseek, fd, 0, SEEK_CUR) == (long)call->scratch[1])
		crn_call_raise(call);
}

void crn_input_keep(struct crn_call *call, int fd, const struct crn_taken *taken)
{
	struct crn_fd *f = crn_fd_look(fd);

	if (call->effect == CRN_EFFECT_OUTPUT) { /* a checkpoint follows anyway */
		if (call->result > 0 && crn_fd_is_socket(f))
			crn_stream_consumed(fd);
		return;
	}
	if (call->result < 0) {
		if (crn_is_taken_error(call->result))
			crn_stream_keep_error(call, fd);
		return;
	}
	if (call->result == 0 && f->kind != CRN_FD_DATAGRAM && !ends_once(fd, f))
		return; /* the end of a stream comes as often as it is asked for */
	crn_stream_keep(call, fd, taken);
}

bool crn_buffers_load(struct crn_buffers *b, uintptr_t addr, size_t count)
{
	if (count > IOV_MAX)
		return false;
	b->count = count;
	return crn_user_read(b->iov, addr, count * sizeof(struct iovec)) == 0;
}

size_t crn_buffers_space(const struct iovec *iov, size_t count)
{
	size_t space = 0;

	for (size_t i = 0; i < count; i++)
		space += iov[i].iov_len;
	return space;
}

bool crn_input_give(struct crn_call *call, int fd, const struct iovec *iov, size_t count,
	unsigned how, struct crn_piece **piece)
{
	struct crn_stream *s;

	if (!crn_fd_pending(fd))
		return false;
	s = crn_stream_find(crn_fd_look(fd));
	if (crn_stream_socket(s) || !crn_stream_claim(s))
		return false;
	call->result = crn_stream_give(s, iov, count, how, piece);
	return true;
}

/* ---- read, readv ----------------------------------------------------------------------------- */

static enum crn_verdict read_before(struct crn_call *call)
{
	const struct iovec iov = { (void *)call->args[1],
		CRN_MIN((size_t)call->args[2], (size_t)INT_MAX) };
	int fd = (int)call->args[0];
	enum crn_verdict verdict;

	if (!crn_input_is_kept(call, fd, &verdict))
		return verdict;
	return iov.iov_len && crn_input_give(call, fd, &iov, 1, 0, NULL) ? CRN_CALL_ANSWERED
									 : verdict;
}

/* One that asks for no bytes takes none, not even an empty message. */
static void keep_read(struct crn_call *call, const struct crn_taken *taken)
{
	if (call->effect == CRN_EFFECT_UNDO)
		judge_file(call);
	else if (call->effect != CRN_EFFECT_NONE && (call->result ||
			crn_buffers_space(taken->iov, taken->count)))
		crn_input_keep(call, (int)call->args[0], taken);
}

static void read_after(struct crn_call *call)
{
	struct iovec iov = {(void *)call->args[1], (size_t)call->args[2]};

	keep_read(call, &(struct crn_taken){
		.iov = &iov, .count = 1, .len = (size_t)call->result });
}
const struct crn_hook crn_hook_read = {read_before, read_after};

static enum crn_verdict readv_before(struct crn_call *call)
{
	int fd = (int)call->args[0];
	enum crn_verdict verdict;
	struct crn_buffers b;

	if (!crn_input_is_kept(call, fd, &verdict) || !crn_fd_pending(fd) ||
		!crn_buffers_load(&b, (uintptr_t)call->args[1], (size_t)call->args[2]))
		return verdict; /* if they cannot be read the kernel says so, and takes nothing */
	return crn_buffers_space(b.iov, b.count) &&
			crn_input_give(call, fd, b.iov, b.count, 0, NULL)
		? CRN_CALL_ANSWERED : verdict;
}

static void readv_after(struct crn_call *call)
{
	/* SAFETY: the kernel has read this array, so it is there; not if there was an error. */
	keep_read(call, &(struct crn_taken){ .iov = (const struct iovec *)call->args[1],
		.count = (size_t)call->args[2], .len = (size_t)call->result });
}
const struct crn_hook crn_hook_readv = {readv_before, readv_after};

/* preadv2 with offset -1 is a readv; with any other it is a pread and takes nothing. */
static enum crn_verdict readv2_before(struct crn_call *call)
{
	if (call->args[3] == -1)
		return readv_before(call);
	call->effect = CRN_EFFECT_NONE;
	return CRN_CALL_RUN;
}
const struct crn_hook crn_hook_readv2 = {readv2_before, readv_after};

static enum crn_verdict read_offset_before(struct crn_call *call)
{
	crn_offset_journal(call, (int)call->args[0]);
	return CRN_CALL_RUN;
}
const struct crn_hook crn_hook_read_offset = {read_offset_before, NULL};

/* To ask for it takes a socket's error, or what began it; statistics of packets begin anew. */
static void getsockopt_after(struct crn_call *call)
{
	int level = (int)call->args[1], option = (int)call->args[2];
	const int *value = (const int *)call->args[3];

	if (call->result < 0)
		return;
	if ((level == SOL_SOCKET && option == SO_ERROR && *value != 0) ||
		(level == SOL_PACKET && option == PACKET_STATISTICS) ||
		(level == SOL_TCP && option == TCP_SAVED_SYN))
		crn_call_raise(call);
	else if (level == SOL_SOCKET && option == SO_PEERPIDFD)
		crn_fd_created(call, *value, false);
}
const struct crn_hook crn_hook_getsockopt = {NULL, getsockopt_after};

/* ---- accept ---------------------------------------------------------------------------------- */

static void accepted(struct crn_call *call, int listener, int fd, uint32_t piece)
{
	struct crn_inverse *inv = crn_inverse_add(call, CRN_INV_UNACCEPT, fd);

	crn_fd_forget(fd);
	if (!inv)
		return;
	inv->other = listener;
	inv->a = piece;
}

/* As it was accepted, or, if nobody has asked for the name then, as the kernel tells it now. */
static long give_socket(struct crn_call *call, struct crn_piece *piece, int flags)
{
	const uint8_t *name = piece->text;
	uint8_t asked[128];
	uint32_t len = piece->name_len, room;
	long fd = crn_sys3(
		SYS_fcntl, piece->value, flags & SOCK_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);

	if (fd < 0)
		return fd;
	crn_sys3(SYS_fcntl, fd, F_SETFL, flags & SOCK_NONBLOCK ? O_NONBLOCK | O_RDWR : O_RDWR);
	if (call->args[1] && call->args[2]) {
		if (!len) {
			name = asked;
			len = sizeof(asked);
			if (crn_sys3(SYS_getpeername, fd, asked, &len) < 0)
				len = 0; /* the peer has gone meanwhile; the next read says so */
		}
		if (crn_user_read(&room, (uintptr_t)call->args[2], sizeof(room)) < 0 ||
		    crn_user_write((uintptr_t)call->args[1], name, CRN_MIN(room, len)) < 0 ||
		    crn_user_write((uintptr_t)call->args[2], &len, sizeof(len)) < 0) {
			crn_sys1(SYS_close, fd);
			return -EFAULT;
		}
	}
	crn_hold_release(piece->value);
	piece->value = (int32_t)fd;
	return fd;
}

static enum crn_verdict accept_before(struct crn_call *call)
{
	struct crn_stream *s;
	uint32_t at;

	if (!crn_agent->effects->pending_count)
		return CRN_CALL_RUN_THEN;
	s = crn_stream_find(crn_fd_look((int)call->args[0]));
	at = crn_stream_pending(s) ? crn_stream_socket(s) : 0;
	if (!at || !crn_stream_claim(s))
		return CRN_CALL_RUN_THEN;
	call->result = give_socket(
		call, crn_piece_at(at), call->nr == SYS_accept4 ? (int)call->args[3] : 0);
	if (call->result >= 0) {
		crn_stream_skip(s);
		accepted(call, (int)call->args[0], (int)call->result, at);
	}
	return CRN_CALL_ANSWERED;
}

static void accept_after(struct crn_call *call)
{
	uint32_t at;

	if (call->result < 0)
		return;
	crn_fd_forget((int)call->result);
	at = crn_stream_keep_socket(call, (int)call->args[0], (int)call->result);
	if (at)
		accepted(call, (int)call->args[0], (int)call->result, at);
	crn_fd_accepted((int)call->result);
}
const struct crn_hook crn_hook_accept = {accept_before, accept_after};
