/* SPDX-License-Identifier: MIT */
/*
 * Calls that take something: reads and receives, in all their shapes, and accept. What was taken is
 * kept; what was taken before a restore is given again, before the kernel is asked for more.
 */
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include "base/copy.h"
#include "effects/effects.h"
#include "effects/hooks.h"

#define IOVEC_MAX 64

/* The program's buffers, as one read names them. */
struct buffers {
	struct iovec iov[IOVEC_MAX];
	size_t count;
};

void crn_offset_journal(struct crn_call *call, int fd)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_fd *f = crn_fd_look(fd);
	struct crn_inverse *inv;
	long offset;

	if (f->seek_interval == e->interval)
		return;
	offset = crn_sys3(SYS_lseek, fd, 0, SEEK_CUR);
	if (offset < 0)
		return; /* no offset (some files of /proc): nothing moves */
	inv = crn_inverse_add(call, CRN_INV_SEEK, fd);
	if (!inv)
		return;
	inv->a = (uint64_t)offset;
	f->seek_interval = e->interval;
}

/* Is a read of this descriptor one that must be kept? If not, says what it is. */
static bool is_input(struct crn_call *call, int fd, enum crn_verdict *verdict)
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
		return false;
	case CRN_FD_OTHER:
	case CRN_FD_EPOLL:
		crn_call_raise(call);
		*verdict = CRN_CALL_RUN_THEN;
		return false;
	default:
		*verdict = CRN_CALL_RUN_THEN;
		return true;
	}
}

/* An error that is reported once and then forgotten by the kernel. */
static bool is_taken_error(long result)
{
	return result == -ECONNRESET || result == -EPIPE || result == -ETIMEDOUT ||
		result == -EHOSTUNREACH || result == -ENETUNREACH || result == -ECONNREFUSED ||
		result == -ECONNABORTED || result == -EHOSTDOWN || result == -ENETDOWN ||
		result == -EPROTO;
}

/* The read has run: keep what it brought. */
static void keep(struct crn_call *call, int fd, const struct crn_taken *taken)
{
	struct crn_fd *f = crn_fd_look(fd);

	if (call->effect == CRN_EFFECT_OUTPUT)
		return; /* a checkpoint follows anyway */
	if (call->result < 0) {
		if (is_taken_error(call->result))
			crn_stream_keep_error(call, fd);
		return;
	}
	if (call->result == 0 && f->kind != CRN_FD_DATAGRAM)
		return; /* the end of a stream comes as often as it is asked for */
	crn_stream_keep(call, fd, taken);
}

static bool load_iovec(struct buffers *b, uintptr_t addr, size_t count)
{
	if (count > IOVEC_MAX)
		return false;
	b->count = count;
	return crn_user_read(b->iov, addr, count * sizeof(struct iovec)) == 0;
}

/* Give from the stream, if there is something. */
static bool give(
	struct crn_call *call, int fd, const struct buffers *b, bool peek, struct crn_piece **piece)
{
	struct crn_stream *s;

	if (!crn_agent->effects->pending_count)
		return false;
	s = crn_stream_find(crn_fd_look(fd));
	if (!crn_stream_pending(s) || crn_stream_socket(s))
		return false;
	call->result = crn_stream_give(s, b->iov, b->count, peek, piece);
	return true;
}

/* ---- read, readv ----------------------------------------------------------------------------- */

static enum crn_verdict read_before(struct crn_call *call)
{
	int fd = (int)call->args[0];
	struct buffers b = {.count = 1};
	enum crn_verdict verdict;

	if (!is_input(call, fd, &verdict))
		return verdict;
	b.iov[0] = (struct iovec){ (void *)call->args[1],
		CRN_MIN((size_t)call->args[2], (size_t)INT_MAX) };
	return give(call, fd, &b, false, NULL) ? CRN_CALL_ANSWERED : verdict;
}

static void read_after(struct crn_call *call)
{
	struct iovec iov = {(void *)call->args[1], (size_t)call->args[2]};
	struct crn_taken taken = {.iov = &iov, .count = 1, .len = (size_t)call->result};

	if (call->effect == CRN_EFFECT_INPUT)
		keep(call, (int)call->args[0], &taken);
}
const struct crn_hook crn_hook_read = {read_before, read_after};

static enum crn_verdict readv_before(struct crn_call *call)
{
	int fd = (int)call->args[0];
	enum crn_verdict verdict;
	struct buffers b;

	if (!is_input(call, fd, &verdict) || !crn_agent->effects->pending_count)
		return verdict;
	if (!load_iovec(&b, (uintptr_t)call->args[1], (size_t)call->args[2])) {
		if (crn_fd_pending(fd))
			crn_effects_cannot_undo(
				"a read into more buffers than can be filled again");
		return verdict;
	}
	return give(call, fd, &b, false, NULL) ? CRN_CALL_ANSWERED : verdict;
}

static void readv_after(struct crn_call *call)
{
	/* SAFETY: the kernel has read this array, so it is there. */
	struct crn_taken taken = { .iov = (const struct iovec *)call->args[1],
		.count = (size_t)call->args[2],
		.len = (size_t)call->result };

	if (call->effect == CRN_EFFECT_INPUT)
		keep(call, (int)call->args[0], &taken);
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

/* ---- recvfrom, recvmsg ----------------------------------------------------------------------- */

/*
 * Flags under which a receive either takes nothing (PEEK), takes from elsewhere (OOB, ERRQUEUE) or
 * promises what a partial answer would break (WAITALL, TRUNC): the last two kinds are followed by a
 * checkpoint.
 */
static bool odd_flags(struct crn_call *call, int flags)
{
	if (flags & (MSG_OOB | MSG_ERRQUEUE | MSG_TRUNC | MSG_WAITALL)) {
		crn_call_raise(call);
		return true;
	}
	return false;
}

static void put_name(
	struct crn_call *call, uintptr_t name, uintptr_t length, const struct crn_piece *piece)
{
	uint32_t room = 0, full = piece->name_len;

	if (!name || !length)
		return;
	if (crn_user_read(&room, length, sizeof(room)) < 0 ||
	    crn_user_write(name, piece->text, CRN_MIN(room, full)) < 0 ||
	    crn_user_write(length, &full, sizeof(full)) < 0)
		call->result = -EFAULT;
}

static enum crn_verdict recvfrom_before(struct crn_call *call)
{
	int fd = (int)call->args[0], flags = (int)call->args[3];
	struct buffers b = {.count = 1};
	enum crn_verdict verdict;
	struct crn_piece *piece;

	if (!is_input(call, fd, &verdict) || (flags & MSG_ERRQUEUE))
		return odd_flags(call, flags) ? CRN_CALL_RUN_THEN : verdict;
	b.iov[0] = (struct iovec){ (void *)call->args[1],
		CRN_MIN((size_t)call->args[2], (size_t)INT_MAX) };
	if (give(call, fd, &b, flags & MSG_PEEK, &piece)) {
		if (call->result >= 0)
			put_name(call, (uintptr_t)call->args[4], (uintptr_t)call->args[5], piece);
		return CRN_CALL_ANSWERED;
	}
	if (flags & MSG_PEEK) {
		call->effect = CRN_EFFECT_NONE;
		return CRN_CALL_RUN;
	}
	odd_flags(call, flags);
	return CRN_CALL_RUN_THEN;
}

static void recvfrom_after(struct crn_call *call)
{
	struct iovec iov = {(void *)call->args[1], (size_t)call->args[2]};
	struct crn_taken taken = {.iov = &iov, .count = 1, .len = (size_t)call->result};

	if (call->effect != CRN_EFFECT_INPUT)
		return;
	if (call->result >= 0 && call->args[4] && call->args[5]) {
		taken.name = (const void *)call->args[4];
		taken.name_len = (uint16_t)CRN_MIN(*(const uint32_t *)call->args[5], 128u);
	}
	keep(call, (int)call->args[0], &taken);
}
const struct crn_hook crn_hook_recvfrom = {recvfrom_before, recvfrom_after};

static enum crn_verdict give_message(struct crn_call *call, int fd, int flags)
{
	struct crn_piece *piece;
	struct msghdr msg;
	struct buffers b;

	if (crn_user_read(&msg, (uintptr_t)call->args[1], sizeof(msg)) < 0 ||
	    !load_iovec(&b, (uintptr_t)msg.msg_iov, msg.msg_iovlen)) {
		call->result = -EFAULT;
		return CRN_CALL_ANSWERED;
	}
	if (!give(call, fd, &b, flags & MSG_PEEK, &piece))
		return CRN_CALL_RUN_THEN;
	if (call->result < 0)
		return CRN_CALL_ANSWERED;
	if (msg.msg_name && crn_user_write((uintptr_t)msg.msg_name, piece->text,
			CRN_MIN(msg.msg_namelen, (socklen_t)piece->name_len)) < 0)
		call->result = -EFAULT;
	msg.msg_namelen = msg.msg_name ? piece->name_len : 0;
	msg.msg_controllen = 0;
	msg.msg_flags = (int)piece->flags;
	if (crn_user_write((uintptr_t)call->args[1], &msg, sizeof(msg)) < 0)
		call->result = -EFAULT;
	return CRN_CALL_ANSWERED;
}

static enum crn_verdict recvmsg_before(struct crn_call *call)
{
	int fd = (int)call->args[0], flags = (int)call->args[2];
	enum crn_verdict verdict;

	if (!is_input(call, fd, &verdict) || (flags & MSG_ERRQUEUE))
		return odd_flags(call, flags) ? CRN_CALL_RUN_THEN : verdict;
	if (crn_fd_pending(fd) && give_message(call, fd, flags) == CRN_CALL_ANSWERED)
		return CRN_CALL_ANSWERED;
	if (flags & MSG_PEEK) {
		call->effect = CRN_EFFECT_NONE;
		return CRN_CALL_RUN;
	}
	odd_flags(call, flags);
	return CRN_CALL_RUN_THEN;
}

/*
 * Descriptors that were passed have numbers of their own now, and cannot be received again: a
 * checkpoint follows.
 */
static void recvmsg_after(struct crn_call *call)
{
	const struct msghdr *msg = (const struct msghdr *)call->args[1];
	struct crn_taken taken = {.len = (size_t)call->result};

	if (call->effect != CRN_EFFECT_INPUT)
		return;
	/*
	 * SAFETY: after a success the kernel has read and written the header; after an error it is
	 * not looked at.
	 */
	if (call->result >= 0) {
		if (msg->msg_controllen)
			crn_call_raise(call);
		taken.iov = msg->msg_iov;
		taken.count = msg->msg_iovlen;
		taken.name = msg->msg_name;
		taken.name_len =
			msg->msg_name ? (uint16_t)CRN_MIN(msg->msg_namelen, (socklen_t)128) : 0;
		taken.flags = (uint32_t)msg->msg_flags;
	}
	keep(call, (int)call->args[0], &taken);
}
const struct crn_hook crn_hook_recvmsg = {recvmsg_before, recvmsg_after};

/*
 * recvmmsg is followed by a checkpoint; what a restore left to be given is given one message at a
 * time.
 */
static enum crn_verdict receive_many_before(struct crn_call *call)
{
	struct crn_call one = *call;

	if (!crn_fd_pending((int)call->args[0]) || !call->args[2])
		return CRN_CALL_RUN_THEN;
	one.args[2] = call->args[3];
	if (give_message(&one, (int)call->args[0], (int)call->args[3]) != CRN_CALL_ANSWERED)
		return CRN_CALL_RUN_THEN;
	call->effect = CRN_EFFECT_INPUT;
	call->result = one.result;
	if (one.result >= 0) {
		uint32_t len = (uint32_t)one.result;

		call->result = crn_user_write((uintptr_t)call->args[1] + sizeof(struct msghdr),
				       &len, sizeof(len)) < 0
			? -EFAULT
			: 1;
	}
	return CRN_CALL_ANSWERED;
}
const struct crn_hook crn_hook_receive_many = {receive_many_before, NULL};

/* Asking for a socket's error takes it. */
static void getsockopt_after(struct crn_call *call)
{
	if (call->result == 0 && call->args[1] == SOL_SOCKET && call->args[2] == SO_ERROR &&
	    *(const int *)call->args[3] != 0)
		crn_call_raise(call);
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

static long give_socket(struct crn_call *call, struct crn_piece *piece, int flags)
{
	uint8_t name[128];
	uint32_t len = sizeof(name), room;
	long fd = crn_sys3(
		SYS_fcntl, piece->value, flags & SOCK_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);

	if (fd < 0)
		return fd;
	crn_sys3(SYS_fcntl, fd, F_SETFL, flags & SOCK_NONBLOCK ? O_NONBLOCK | O_RDWR : O_RDWR);
	if (call->args[1] && call->args[2]) {
		if (crn_sys3(SYS_getpeername, fd, name, &len) < 0)
			len = 0; /* the peer has gone meanwhile; the next read says so */
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
	at = s ? crn_stream_socket(s) : 0;
	if (!at)
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
}
const struct crn_hook crn_hook_accept = {accept_before, accept_after};
