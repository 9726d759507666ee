/* SPDX-License-Identifier: MIT */
/*
 * Before and after a system call by number. What it reads into buffers goes through bounce buffers;
 * everything else that the kernel writes (os/call_memory.def) is kept.
 */
#include "rt/wrap/wrap_call.h"
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include "base/status.h"

#define LEAST 1024 /* bytes: what is less is kept as a whole */

enum shape { OTHER, BUFFER, PARTS, HEADER };

static enum shape shape_of(long nr, const long args[6])
{
	switch (nr) {
	case SYS_recvfrom:
		return args[3] & MSG_TRUNC ? OTHER : BUFFER;
	case SYS_read:
	case SYS_pread64:
	case SYS_getdents64:
		return BUFFER;
	case SYS_readv:
	case SYS_preadv:
	case SYS_preadv2:
		return PARTS;
	case SYS_recvmsg:
		return args[2] & MSG_TRUNC ? OTHER : HEADER;
	default:
		return OTHER;
	}
}

static bool land_one(struct message_landing *l, enum shape shape, long args[6])
{
	if (shape == OTHER || (shape == BUFFER && (size_t)args[2] <= LEAST) || !land_headers(l, 1))
		return false;

	struct iovec buffer = { (void *)args[1], (size_t)args[2] };
	struct msghdr *m = &l->theirs->msg_hdr;

	*m = (struct msghdr){ .msg_iov = &buffer, .msg_iovlen = 1 };
	if (shape == PARTS) {
		m->msg_iov = (struct iovec *)args[1];
		m->msg_iovlen = (size_t)args[2];
	}
	if (shape == HEADER &&
		(!crn_reach_open((void *)args[1], sizeof(*m)) ||
			crn_call_keeps.read(m, (uintptr_t)args[1], sizeof(*m)) < 0)) {
		crn_berth_leave(l->berth);
		return false;
	}
	if (!land_spread(l))
		return false;
	args[1] = shape == BUFFER ? (long)l->bounces->iov_base
		: shape == PARTS  ? (long)l->bounces
				  : (long)&l->messages->msg_hdr;
	if (shape == PARTS)
		args[2] = 1;
	return true;
}

static bool land_call(struct message_landing *l, long nr, long args[6])
{
	if (nr != SYS_recvmmsg)
		return land_one(l, shape_of(nr, args), args);
	if (!land_messages(l, (struct mmsghdr *)args[1], (unsigned)args[2], (int)args[3]))
		return false;
	args[1] = (long)l->messages;
	return true;
}

/* They write later, or to memory that their arguments only describe, or make what does. */
static bool writes_unseen(long nr)
{
	switch (nr) {
	case SYS_io_setup:
	case SYS_io_submit:
	case SYS_io_uring_setup:
	case SYS_io_uring_enter:
	case SYS_io_uring_register:
	case SYS_process_vm_writev:
	case SYS_clone3:
		return true;
	}
	return nr > CRN_CALLS_KNOWN;
}

void crn_call_begin(struct crn_call *c, long nr, const long args[6])
{
	memcpy(c->args, args, sizeof(c->args));
	c->lands = false;
	if (!__cairn_rt.active)
		return;
	if (writes_unseen(nr))
		crn_rt_give_up(0, CAIRN_EUNSUPPORTED);
	if (nr == SYS_clone && args[0] & (CLONE_PARENT_SETTID | CLONE_PIDFD))
		crn_reach_keep((void *)args[2], sizeof(int));
	c->lands = land_call(&c->landing, nr, c->args);
	if (!c->lands)
		crn_call_memory(nr, args, &crn_call_keeps);
	else if (nr == SYS_recvmmsg)
		crn_reach_keep((void *)args[4], sizeof(struct timespec));
	else if (nr == SYS_recvfrom)
		crn_call_memory(nr, (const long[6]){ [4] = args[4], args[5] }, &crn_call_keeps);
}

long crn_call_end(struct crn_call *c, long nr, const long args[6], long got)
{
	struct message_landing *l = &c->landing;

	if (!c->lands)
		return got;
	if (nr == SYS_recvmmsg)
		return landed_messages(l, (struct mmsghdr *)args[1], got);
	if (got >= 0) {
		l->messages->msg_len = (unsigned)got;
		landed_one(l, 0);
		if (nr == SYS_recvmsg)
			landed_piece(l, (void *)args[1], &l->messages->msg_hdr,
				sizeof(struct msghdr));
	}
	return landed_all(l, got);
}
