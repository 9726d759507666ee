/* SPDX-License-Identifier: MIT */
/*
 * Some calls wait until all their bytes are moved, and end early with a part of them when a signal
 * comes. In a program that gets no signals they never do. So a call that our timer has cut short
 * continues with the rest, and its result is the sum. If it ended early for another reason (a
 * descriptor that does not block, an end of file), the rest moves nothing, and the result stands.
 */
#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <linux/major.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include "base/bits.h"
#include "os/sys.h"
#include "intercept/intercept.h"

#define KMSG_MINOR   11
#define PTMX_MINOR   2
#define ERESTART_SYS 512 /* the kernel's own ERESTARTSYS */

/*
 * Regular files are not cut short by signals, but by limits, which would have something to say. An
 * object without a type (an eventfd) takes what it takes of a longer buffer.
 */
static bool takes_once(long fd)
{
	struct stat st;

	return crn_sys2(SYS_fstat, fd, &st) < 0 || S_ISREG(st.st_mode) || !(st.st_mode & S_IFMT);
}

/* /dev/zero and its kin, which never run dry; but /dev/kmsg gives a message at a time. */
static bool is_endless(long fd)
{
	struct stat st;

	return crn_sys2(SYS_fstat, fd, &st) >= 0 && S_ISCHR(st.st_mode) &&
		major(st.st_rdev) == MEM_MAJOR && minor(st.st_rdev) != KMSG_MINOR;
}

/*
 * A terminal or a serial line that is not read by lines gives so many bytes at least, of `count`;
 * 0: it is none, or the time between bytes counts as well. A master's settings are its slave's.
 */
static size_t line_minimum(long fd, size_t count)
{
	struct termios t;
	struct stat st;

	if (crn_sys2(SYS_fstat, fd, &st) < 0 || !S_ISCHR(st.st_mode) ||
		major(st.st_rdev) == PTY_MASTER_MAJOR ||
		(major(st.st_rdev) == TTYAUX_MAJOR && minor(st.st_rdev) == PTMX_MINOR) ||
		crn_sys3(SYS_ioctl, fd, TCGETS, &t) < 0 || t.c_lflag & ICANON || t.c_cc[VTIME])
		return 0;
	return CRN_MIN(count, (size_t)t.c_cc[VMIN]);
}

/* A message is whole, whatever its size. */
static bool is_stream(long fd)
{
	int type = 0;
	socklen_t len = sizeof(type);

	return crn_sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
		type == SOCK_STREAM;
}

/* SO_PEEK_OFF: the next look sees what comes behind this one. */
static bool looks_move(long fd)
{
	int at = -1;
	socklen_t len = sizeof(at);

	return crn_sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_PEEK_OFF, &at, &len) == 0 && at >= 0;
}

/* Bytes that it has given do not come again, and it waits for all. */
static bool takes_all(long fd, greg_t flags)
{
	return (flags & MSG_WAITALL) && is_stream(fd) && (!(flags & MSG_PEEK) || looks_move(fd));
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

/*
 * The same for a message. What went along with its bytes has gone, and the address has come. What
 * else may come along with the rest would be lost: the kernel has overwritten how much room there
 * was for that.
 */
static bool rest_of_message(struct crn_thread *t, greg_t *g, size_t moved, bool comes)
{
	struct msghdr m;

	if (crn_user_copy(&m, (const void *)(uintptr_t)g[REG_RSI], sizeof(m)) < 0 ||
		(comes && m.msg_control))
		return false;
	m.msg_iovlen = rest_of(t, m.msg_iov, m.msg_iovlen, moved);
	m.msg_iov = t->rest_iov;
	if (comes)
		m.msg_name = NULL;
	m.msg_control = NULL;
	m.msg_controllen = 0;
	t->rest_msg = m;
	g[REG_RSI] = (greg_t)(uintptr_t)&t->rest_msg;
	return m.msg_iovlen != 0;
}

/*
 * What has ended recvmmsg the kernel keeps for the socket's next call, even if it was a signal:
 * that takes nobody's. An error of the socket's own that came with the timer is lost.
 */
static bool ended_by_signal(long fd)
{
	int error = 0;
	socklen_t len = sizeof(error);

	return crn_sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 &&
		(error == EINTR || error == ERESTART_SYS);
}

/*
 * Does it wait for more messages? With a timeout, which it looks at only when one comes, or a
 * message that waits for all of its bytes, the part stands.
 */
static bool awaits_messages(const greg_t *g)
{
	if (g[REG_R10] & (MSG_DONTWAIT | MSG_WAITFORONE | MSG_ERRQUEUE) ||
		!ended_by_signal(g[REG_RDI]))
		return false;
	return !g[REG_R8] && !((g[REG_R10] & MSG_WAITALL) && is_stream(g[REG_RDI]));
}

/* Has all of this message been sent? Of others than streams', it has. */
static bool is_whole(long fd, const struct mmsghdr *at)
{
	struct mmsghdr m;
	struct iovec v;
	size_t size = 0;

	if (!is_stream(fd))
		return true;
	if (crn_user_copy(&m, at, sizeof(m)) < 0)
		return false;
	for (size_t i = 0; i < m.msg_hdr.msg_iovlen; i++) {
		if (crn_user_copy(&v, &m.msg_hdr.msg_iov[i], sizeof(v)) < 0)
			return false;
		size += v.iov_len;
	}
	return size == m.msg_len;
}

static bool rest_of_messages(greg_t *g, size_t moved)
{
	if (moved >= (uint32_t)g[REG_RDX])
		return false;
	g[REG_RSI] += (greg_t)(moved * sizeof(struct mmsghdr));
	g[REG_RDX] = (greg_t)((uint32_t)g[REG_RDX] - moved);
	return true;
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
		n = is_endless(g[REG_RDI]) ? (size_t)g[REG_RDX]
					   : line_minimum(g[REG_RDI], (size_t)g[REG_RDX]);
		if (moved >= n)
			return false;
		g[REG_RSI] += (greg_t)moved;
		g[REG_RDX] = (greg_t)(n - moved);
		return true;
	case SYS_recvfrom:
		if (!takes_all(g[REG_RDI], g[REG_R10]) || moved >= (size_t)g[REG_RDX])
			return false;
		g[REG_R8] = 0; /* the address has come, and its room is overwritten */
		g[REG_RSI] += (greg_t)moved;
		g[REG_RDX] -= (greg_t)moved;
		return true;
	case SYS_sendto:
		if (!is_stream(g[REG_RDI]))
			return false;
		/* fall through */
	case SYS_write:
		if (moved >= (size_t)g[REG_RDX] || takes_once(g[REG_RDI]))
			return false;
		g[REG_RSI] += (greg_t)moved;
		g[REG_RDX] -= (greg_t)moved;
		return true;
	case SYS_sendfile:
		if (moved >= (size_t)g[REG_R10] || takes_once(g[REG_RDI]))
			return false;
		g[REG_R10] -= (greg_t)moved; /* the offset has moved on */
		return true;
	case SYS_writev:
		if (takes_once(g[REG_RDI]))
			return false;
		n = rest_of(t, (const struct iovec *)(uintptr_t)g[REG_RSI], (size_t)g[REG_RDX],
			moved);
		g[REG_RSI] = (greg_t)(uintptr_t)t->rest_iov;
		g[REG_RDX] = (greg_t)n;
		return n != 0;
	case SYS_recvmsg:
		return takes_all(g[REG_RDI], g[REG_RDX]) && rest_of_message(t, g, moved, true);
	case SYS_recvmmsg:
		return moved < (uint32_t)g[REG_RDX] && awaits_messages(g) &&
			rest_of_messages(g, moved);
	case SYS_sendmmsg:
		return is_whole(g[REG_RDI],
			       (const struct mmsghdr *)(uintptr_t)g[REG_RSI] + moved - 1) &&
			rest_of_messages(g, moved);
	case SYS_sendmsg:
		return is_stream(g[REG_RDI]) && rest_of_message(t, g, moved, false);
	default:
		return false;
	}
}

/* Waits for all, and takes nothing: the call for the rest is the same one. */
static bool looks(long nr, const greg_t *g, size_t seen)
{
	const long how = MSG_WAITALL | MSG_PEEK;

	return nr == SYS_recvfrom && (g[REG_R10] & how) == how && seen < (size_t)g[REG_RDX] &&
		is_stream(g[REG_RDI]) && !looks_move(g[REG_RDI]);
}

/*
 * A handler of the program ends a call that has moved a part, and SA_RESTART does not change that;
 * the call for the rest, which has moved nothing, the kernel would make again.
 */
void crn_rest_ends(const struct crn_thread *t, int sig, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	uintptr_t rip = (uintptr_t)g[REG_RIP];

	if (!crn_in_stubs(rip) || rip - (uintptr_t)crn_stub_of(rip) != CRN_STUB_CALL ||
		(t->program_blocked & CRN_SIG(sig)) ||
		crn_here.actions[sig].handler <= (uintptr_t)SIG_IGN)
		return;
	for (uint32_t i = t->pending_count; i-- > 0;) {
		const struct crn_pending *p = &t->pending[i];

		if (p->rsp != (uint64_t)g[REG_RSP])
			continue;
		if (p->after && p->moved) {
			g[REG_RIP] += 2;
			g[REG_RAX] = 0;
		}
		return;
	}
}

void crn_go_on(struct crn_thread *t, struct crn_pending *p, greg_t *g)
{
	greg_t before[] = { g[REG_RSI], g[REG_RDX], g[REG_R10] }; /* rdi changes with success */
	long moved = (long)g[REG_RAX];

	if (moved <= 0 || !p->after)
		return;
	if (looks(p->call.nr, g, (size_t)moved)) {
		g[REG_R8] = 0; /* the address has come */
		g[REG_RAX] = p->call.nr;
		g[REG_RIP] -= 2;
		return;
	}
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
