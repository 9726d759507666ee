/* SPDX-License-Identifier: MIT */
/*
 * Calls that wait until all their bytes are moved end early, with a part of them, when a signal
 * comes: to a program that has no signals they never do. So one that a timer of ours has cut short
 * goes on with the rest, and its result is the sum. Where the part has another reason (a descriptor
 * that does not block, an end) the rest moves nothing, and the result stands.
 */
#include <linux/major.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include "base/bits.h"
#include "os/sys.h"
#include "intercept/intercept.h"

/* Regular files are not cut short by signals, but by limits, which would have something to say. */
static bool is_regular(long fd)
{
	struct stat st;

	return crn_sys2(SYS_fstat, fd, &st) < 0 || S_ISREG(st.st_mode);
}

/* /dev/zero and its kin, which never run dry. */
static bool is_endless(long fd)
{
	struct stat st;

	return crn_sys2(SYS_fstat, fd, &st) >= 0 && S_ISCHR(st.st_mode) &&
		major(st.st_rdev) == MEM_MAJOR;
}

/* A message is whole, whatever its size. */
static bool is_stream(long fd)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return crn_sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
		type == SOCK_STREAM;
}

/*
 * t->rest_iov becomes what is left behind the first `moved` bytes: how many, or 0 if there is
 * nothing left, or no room. `from` may be t->rest_iov itself.
 */
static size_t rest_of(struct crn_thread *t, const struct iovec *from, size_t count, size_t moved)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		struct iovec v;

		if (crn_user_copy(&v, &from[i], sizeof(v)) < 0)
			return 0;
		if (moved >= v.iov_len) {
			moved -= v.iov_len;
			continue;
		}
		if (n == CRN_ARRAY_SIZE(t->rest_iov))
			return 0;
		t->rest_iov[n].iov_base = (char *)v.iov_base + moved;
		t->rest_iov[n++].iov_len = v.iov_len - moved;
		moved = 0;
	}
	return n;
}

/* The same for a message; what went along with its bytes has gone. */
static bool rest_of_message(struct crn_thread *t, greg_t *g, size_t moved)
{
	struct msghdr m;

	if (crn_user_copy(&m, (const void *)(uintptr_t)g[REG_RSI], sizeof(m)) < 0)
		return false;
	m.msg_iovlen = rest_of(t, m.msg_iov, m.msg_iovlen, moved);
	m.msg_iov = t->rest_iov;
	m.msg_control = NULL;
	m.msg_controllen = 0;
	t->rest_msg = m;
	g[REG_RSI] = (greg_t)(uintptr_t)&t->rest_msg;
	return m.msg_iovlen != 0;
}

/* The registers become those of a call for the rest; false: there is none to be made. */
static bool go_on_with(struct crn_thread *t, long nr, greg_t *g, size_t moved)
{
	size_t n;

	switch (nr) {
	case SYS_getrandom:
		if (moved >= (size_t)g[REG_RSI])
			return false;
		g[REG_RDI] += (greg_t)moved;
		g[REG_RSI] -= (greg_t)moved;
		return true;
	case SYS_read:
		if (moved >= (size_t)g[REG_RDX] || !is_endless(g[REG_RDI]))
			return false;
		g[REG_RSI] += (greg_t)moved;
		g[REG_RDX] -= (greg_t)moved;
		return true;
	case SYS_recvfrom:
		if (!(g[REG_R10] & MSG_WAITALL))
			return false;
		/* fall through */
	case SYS_sendto:
		if (!is_stream(g[REG_RDI]))
			return false;
		/* fall through */
	case SYS_write:
		if (moved >= (size_t)g[REG_RDX] || is_regular(g[REG_RDI]))
			return false;
		g[REG_RSI] += (greg_t)moved;
		g[REG_RDX] -= (greg_t)moved;
		return true;
	case SYS_sendfile:
		if (moved >= (size_t)g[REG_R10] || is_regular(g[REG_RDI]))
			return false;
		g[REG_R10] -= (greg_t)moved; /* the offset has moved on */
		return true;
	case SYS_writev:
		if (is_regular(g[REG_RDI]))
			return false;
		n = rest_of(t, (const struct iovec *)(uintptr_t)g[REG_RSI], (size_t)g[REG_RDX],
			moved);
		g[REG_RSI] = (greg_t)(uintptr_t)t->rest_iov;
		g[REG_RDX] = (greg_t)n;
		return n != 0;
	case SYS_recvmsg:
		if (!(g[REG_RDX] & MSG_WAITALL))
			return false;
		/* fall through */
	case SYS_sendmsg:
		return is_stream(g[REG_RDI]) && rest_of_message(t, g, moved);
	default:
		return false;
	}
}

void crn_go_on(struct crn_thread *t, struct crn_pending *p, greg_t *g)
{
	greg_t before[] = { g[REG_RSI], g[REG_RDX], g[REG_R10] }; /* rdi changes with success */
	long moved = (long)g[REG_RAX];

	if (moved <= 0 || !p->after)
		return;
	if (go_on_with(t, p->call.nr, g, (size_t)moved)) {
		p->moved += moved;
		g[REG_RAX] = p->call.nr;
		g[REG_RIP] -= 2;
		return;
	}
	g[REG_RSI] = before[0];
	g[REG_RDX] = before[1];
	g[REG_R10] = before[2];
}
