/* SPDX-License-Identifier: MIT */
/*
 * Calls that move bytes from one descriptor to another without showing them to the program. What
 * they take cannot be kept, so a checkpoint follows. But bytes that a restore has left to be given
 * again come first, and are carried over here.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include "effects/hooks.h"
#include "effects/input.h"

/* A pipe that has room at all has room for so much. */
#define CARRY_MAX 4096u

static long carry(int to, const uint8_t *bytes, size_t n)
{
	struct pollfd room = {.fd = to, .events = POLLOUT};
	long ret = crn_sys6(SYS_sendto, to, (long)bytes, n, MSG_DONTWAIT, 0, 0);

	if (ret != -ENOTSOCK)
		return ret;
	/* SAFETY: a hook must not wait. Where there is no room the program asks again. */
	if (crn_sys3(SYS_poll, &room, 1, 0) == 1 && !(room.revents & POLLOUT))
		return crn_sys3(SYS_write, to, bytes, n); /* the kernel says why */
	return room.revents ? crn_sys3(SYS_write, to, bytes, n) : -EAGAIN;
}

/*
 * Up to `wanted` bytes that are to be given by `from` go to `to`; a tee leaves them. False: there
 * are none.
 */
static bool carry_pending(struct crn_call *call, int from, int to, size_t wanted, bool tee)
{
	uint8_t bytes[CARRY_MAX];
	struct iovec iov = {bytes, CRN_MIN(wanted, sizeof(bytes))};

	if (!iov.iov_len || !crn_fd_pending(from) ||
		!crn_input_give(call, from, &iov, 1, CRN_GIVE_PEEK, NULL))
		return false;
	if (call->result > 0)
		call->result = carry(to, bytes, (size_t)call->result);
	if (call->result > 0 && !tee) {
		long moved = call->result;

		iov.iov_len = (size_t)moved;
		(void)crn_input_give(call, from, &iov, 1, 0, NULL);
		call->result = moved;
	}
	return true;
}

/* splice, tee, sendfile: the number of bytes is in the same place in none of them. */
static enum crn_verdict splice_before(struct crn_call *call)
{
	bool file = call->nr == SYS_sendfile, tee = call->nr == SYS_tee;
	int from = (int)call->args[file], to = (int)call->args[file ? 0 : tee ? 1 : 2];
	size_t wanted = (size_t)call->args[file ? 3 : tee ? 2 : 4];

	return carry_pending(call, from, to, wanted, tee) ? CRN_CALL_ANSWERED : CRN_CALL_RUN_THEN;
}

static void splice_after(struct crn_call *call)
{
	int from = (int)call->args[call->nr == SYS_sendfile];

	if (call->result > 0 && crn_fd_is_socket(crn_fd_look(from)))
		crn_stream_consumed(from);
}
const struct crn_hook crn_hook_splice = {splice_before, splice_after};

/* The reading end of a pipe fills the buffers, the writing end takes them. */
static enum crn_verdict vmsplice_before(struct crn_call *call)
{
	int fd = (int)call->args[0];
	struct crn_buffers b;

	if (!crn_fd_pending(fd) ||
		!crn_buffers_load(&b, (uintptr_t)call->args[1], (size_t)call->args[2]) ||
		!crn_input_give(call, fd, b.iov, b.count, 0, NULL))
		return CRN_CALL_RUN_THEN;
	call->effect = CRN_EFFECT_INPUT;
	return CRN_CALL_ANSWERED;
}
const struct crn_hook crn_hook_vmsplice = {vmsplice_before, NULL};
