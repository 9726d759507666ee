/* SPDX-License-Identifier: MIT */
/*
 * Messages taken from sockets, with their senders and control data. They are kept and given again
 * like any input, with exceptions: passed descriptors have new numbers by now, and urgent data and
 * the queue of errors are not part of the stream. Those are followed by a checkpoint.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include "base/copy.h"
#include "effects/hooks.h"
#include "effects/inherited_input.h"
#include "effects/input.h"

#ifndef SCM_PIDFD
#define SCM_PIDFD 4
#endif

/* The length of the message itself is asked for; `result` is that, whatever the buffers hold. */
static void cut(struct crn_taken *taken, long result, int flags)
{
	taken->len = (size_t)result;
	if (result <= 0 || !(flags & MSG_TRUNC))
		return;
	taken->full = (uint32_t)result;
	taken->len = CRN_MIN(taken->len, crn_buffers_space(taken->iov, taken->count));
}

/* Give again, if there is something: true, with the call's result. */
static bool give(struct crn_call *call, int fd, const struct iovec *iov, size_t count, int flags,
	struct crn_piece **piece)
{
	unsigned how = (flags & MSG_PEEK ? CRN_GIVE_PEEK : 0) |
		(flags & MSG_TRUNC ? CRN_GIVE_DISCARD : 0);
	struct crn_stream *s;

	if (!crn_fd_is_socket(crn_fd_look(fd)) || !crn_fd_pending(fd))
		return false; /* of another one the kernel says what it is */
	s = crn_stream_find(crn_fd_look(fd));
	/*
	 * Who looks for more than there was before the crash, or waits for all of it, must not be
	 * given less for ever.
	 */
	if ((flags & (MSG_PEEK | MSG_WAITALL)) && s->shape == CRN_SHAPE_BYTES &&
		crn_stream_claim(s))
		crn_stream_pull(s, fd, crn_buffers_space(iov, count));
	if (!crn_input_give(call, fd, iov, count, how, piece))
		return false;
	if (call->result >= 0 && (flags & MSG_TRUNC) && s->shape == CRN_SHAPE_MESSAGES)
		call->result = (*piece)->full;
	if (call->result > 0 && (flags & MSG_PEEK))
		crn_stream_peeked(fd, s->cursor);
	return true;
}

/* Nothing of the stream is taken: there is nothing to be given, and nothing to be kept. */
static bool is_apart(int flags)
{
	return flags & (MSG_OOB | MSG_ERRQUEUE);
}

/* What runs, when there is nothing to be given. */
static enum crn_verdict ask(struct crn_call *call, int fd, int flags)
{
	if (is_apart(flags)) {
		crn_call_raise(call);
	} else if (flags & MSG_PEEK) {
		call->effect = CRN_EFFECT_NONE;
	} else if ((flags & MSG_TRUNC) && crn_fd_look(fd)->kind == CRN_FD_STREAM) {
		crn_call_raise(call); /* bytes that nobody sees: there is no copy of them */
	}
	return CRN_CALL_RUN_THEN;
}

/*
 * Nothing was taken, unless it was an error, which comes once also to whoever only looks. Who was
 * looked at may be whose request it is. True: this is all.
 */
static bool only_looked(struct crn_call *call, int flags)
{
	if (call->effect == CRN_EFFECT_INPUT || call->effect == CRN_EFFECT_OUTPUT)
		return false;
	if (crn_is_taken_error(call->result))
		crn_stream_keep_error(call, (int)call->args[0]);
	if (call->result > 0 && (flags & MSG_PEEK))
		crn_stream_peeked((int)call->args[0], 0);
	return true;
}

/* ---- recvfrom -------------------------------------------------------------------------------- */

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

/* scratch[0]: bytes given already, of a receive that waits for all. */
static enum crn_verdict recvfrom_before(struct crn_call *call)
{
	int fd = (int)call->args[0], flags = (int)call->args[3];
	const struct iovec iov = { (void *)call->args[1],
		CRN_MIN((size_t)call->args[2], (size_t)INT_MAX) };
	enum crn_verdict verdict;
	struct crn_piece *piece;

	call->scratch[0] = 0;
	if (!crn_input_is_kept(call, fd, &verdict))
		return verdict;
	if (is_apart(flags) || !give(call, fd, &iov, 1, flags, &piece))
		return ask(call, fd, flags);
	if (call->result >= 0)
		put_name(call, (uintptr_t)call->args[4], (uintptr_t)call->args[5], piece);
	if (call->result <= 0 || (size_t)call->result >= iov.iov_len || !(flags & MSG_WAITALL) ||
		(flags & MSG_PEEK) || crn_fd_look(fd)->kind != CRN_FD_STREAM ||
		crn_fd_pending(fd) || (flags & MSG_DONTWAIT) || crn_fd_never_waits(fd))
		return CRN_CALL_ANSWERED;
	/* The kernel waits for the rest. */
	call->scratch[0] = (uint64_t)call->result;
	call->args[1] += call->result;
	call->args[2] -= call->result;
	return CRN_CALL_RUN_THEN;
}

static void recvfrom_after(struct crn_call *call)
{
	struct iovec iov = {(void *)call->args[1], (size_t)call->args[2]};
	struct crn_taken taken = {.iov = &iov, .count = 1};
	int fd = (int)call->args[0], flags = (int)call->args[3];

	/* Bytes were to be thrown away, and there were none. */
	if (flags & MSG_TRUNC && call->result == 0 && crn_fd_look(fd)->kind == CRN_FD_STREAM)
		call->effect = CRN_EFFECT_NONE;
	if (only_looked(call, flags))
		return;
	cut(&taken, call->result, flags);
	if (call->result >= 0 && call->args[4] && call->args[5]) {
		taken.name = (const void *)call->args[4];
		taken.name_len = (uint16_t)CRN_MIN(*(const uint32_t *)call->args[5], 128u);
	}
	if (call->scratch[0] && call->result < 0) {
		/* What was given is the answer; the error is the next call's. */
		if (crn_is_taken_error(call->result))
			crn_stream_owe_error(fd, call->result);
		call->result = 0;
	} else {
		crn_input_keep(call, fd, &taken);
	}
	call->result += (long)call->scratch[0];
}
const struct crn_hook crn_hook_recvfrom = {recvfrom_before, recvfrom_after};

/* ---- recvmsg --------------------------------------------------------------------------------- */

/* One message into *at: false if there is none to be given; else call->result. */
static bool give_message(struct crn_call *call, int fd, uintptr_t at, int flags)
{
	struct crn_piece *piece;
	struct crn_buffers b;
	struct msghdr msg;
	size_t room;
	bool bad;

	if (crn_user_read(&msg, at, sizeof(msg)) < 0 ||
		!crn_buffers_load(&b, (uintptr_t)msg.msg_iov, msg.msg_iovlen) ||
		!give(call, fd, b.iov, b.count, flags, &piece))
		return false;
	if (call->result < 0)
		return true;
	room = msg.msg_control ? CRN_MIN(msg.msg_controllen, (size_t)piece->control_len) : 0;
	bad = msg.msg_name && crn_user_write((uintptr_t)msg.msg_name, piece->text,
			CRN_MIN(msg.msg_namelen, (socklen_t)piece->name_len)) < 0;
	bad |= room && crn_user_write((uintptr_t)msg.msg_control, crn_piece_control(piece), room) <
			0;
	msg.msg_namelen = msg.msg_name ? piece->name_len : 0;
	msg.msg_controllen = room;
	msg.msg_flags = (int)piece->flags & ~MSG_ERRQUEUE;
	if (room < piece->control_len)
		msg.msg_flags |= MSG_CTRUNC;
	if (piece->full > crn_buffers_space(b.iov, b.count) &&
		crn_fd_look(fd)->kind == CRN_FD_DATAGRAM)
		msg.msg_flags |= MSG_TRUNC;
	if (bad || crn_user_write(at, &msg, sizeof(msg)) < 0)
		call->result = -EFAULT;
	return true;
}

/* Are there descriptors in the control data? The kernel has just written it. */
static bool carries_descriptors(const struct msghdr *msg)
{
	for (const struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR((struct msghdr *)msg,
		     (struct cmsghdr *)c))
		if (c->cmsg_level == SOL_SOCKET &&
			(c->cmsg_type == SCM_RIGHTS || c->cmsg_type == SCM_PIDFD))
			return true;
	return false;
}

/*
 * SAFETY: after a success the kernel has read and written the header; after an error it is not
 * looked at.
 */
static void keep_message(
	struct crn_call *call, int fd, const struct msghdr *msg, long result, int flags)
{
	struct crn_taken taken = {.iov = NULL};

	if (result >= 0) {
		if (carries_descriptors(msg))
			crn_call_raise(call);
		taken.iov = msg->msg_iov;
		taken.count = msg->msg_iovlen;
		taken.name = msg->msg_name;
		taken.name_len =
			msg->msg_name ? (uint16_t)CRN_MIN(msg->msg_namelen, (socklen_t)128) : 0;
		taken.control = msg->msg_control;
		taken.control_len = (uint32_t)CRN_MIN(msg->msg_controllen, (size_t)CRN_POOL_SIZE);
		taken.flags = (uint32_t)msg->msg_flags;
		cut(&taken, result, flags);
	}
	crn_input_keep(call, fd, &taken);
}

static enum crn_verdict recvmsg_before(struct crn_call *call)
{
	int fd = (int)call->args[0], flags = (int)call->args[2];
	enum crn_verdict verdict;

	if (!crn_input_is_kept(call, fd, &verdict))
		return verdict;
	if (!is_apart(flags) && crn_fd_pending(fd) &&
		give_message(call, fd, (uintptr_t)call->args[1], flags))
		return CRN_CALL_ANSWERED;
	return ask(call, fd, flags);
}

/* Descriptors are made for whoever only looks as well. */
static void judge_look(struct crn_call *call, const struct msghdr *msg)
{
	if (call->effect == CRN_EFFECT_NONE && carries_descriptors(msg))
		crn_call_raise(call);
}

static void recvmsg_after(struct crn_call *call)
{
	if (call->result >= 0)
		judge_look(call, (const struct msghdr *)call->args[1]);
	if (!only_looked(call, (int)call->args[2]))
		keep_message(call, (int)call->args[0], (const struct msghdr *)call->args[1],
			call->result, (int)call->args[2]);
}
const struct crn_hook crn_hook_recvmsg = {recvmsg_before, recvmsg_after};

/* ---- recvmmsg -------------------------------------------------------------------------------- */

/* As many as there are, up to an error, which the next call is told; who wants more asks again. */
static enum crn_verdict receive_many_before(struct crn_call *call)
{
	int fd = (int)call->args[0], flags = (int)call->args[3];
	uintptr_t at = (uintptr_t)call->args[1];
	unsigned wanted = (unsigned)call->args[2], n = 0;
	uint32_t len, first = 0;
	enum crn_verdict verdict;
	unsigned once = wanted;

	if (!crn_input_is_kept(call, fd, &verdict))
		return verdict;
	if (crn_fd_pending(fd)) {
		const struct crn_stream *s = crn_stream_find(crn_fd_look(fd));

		once = (flags & MSG_PEEK) || s->singly ? CRN_MIN(wanted, 1u) : wanted;
		first = s->cursor;
	}
	while (!is_apart(flags) && n < once && crn_fd_pending(fd)) {
		const struct crn_stream *s = crn_stream_find(crn_fd_look(fd));

		if (n && crn_piece_at(s->cursor)->kind == CRN_PIECE_ERROR)
			break;
		if (!give_message(call, fd, at, flags))
			break;
		if (call->result < 0)
			return CRN_CALL_ANSWERED;
		len = (uint32_t)call->result;
		(void)!crn_user_write(at + offsetof(struct mmsghdr, msg_len), &len, sizeof(len));
		at += sizeof(struct mmsghdr);
		n++;
	}
	if (n > 1)
		crn_stream_read_at_once(fd, first);
	call->result = n;
	return n ? CRN_CALL_ANSWERED : ask(call, fd, flags);
}

static void receive_many_after(struct crn_call *call)
{
	const struct mmsghdr *messages = (const struct mmsghdr *)call->args[1];
	const uint32_t first = crn_agent->effects->pool_used;
	long count = call->result;

	for (long i = 0; i < count; i++)
		judge_look(call, &messages[i].msg_hdr);
	if (only_looked(call, (int)call->args[3]))
		return;
	if (count < 0)
		keep_message(call, (int)call->args[0], NULL, count, 0);
	for (long i = 0; i < count; i++) {
		call->result = messages[i].msg_len; /* which says whether it is one at all */
		keep_message(call, (int)call->args[0], &messages[i].msg_hdr, messages[i].msg_len,
			(int)call->args[3]);
	}
	if (count > 1 && call->effect == CRN_EFFECT_INPUT)
		crn_stream_read_at_once((int)call->args[0], first);
	call->result = count;
}
const struct crn_hook crn_hook_receive_many = {receive_many_before, receive_many_after};
