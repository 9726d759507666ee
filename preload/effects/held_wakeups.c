/* SPDX-License-Identifier: MIT */
/*
 * What a process writes to itself: to a pipe or a pair of sockets of which it has the other end, or
 * to an eventfd. Most often a signal handler does this to wake the event loop, in the middle of
 * whatever it has interrupted. If such a write were an output, a checkpoint would follow right
 * there. And if that is between the read of a request and the crash that the request causes, no
 * restore could get back to before the read, whatever is reset. So the write is held like an
 * answer, until the next wait. A crash before that discards it; the signal is raised again, and the
 * handler writes again.
 *
 * The law holds: whoever reads at the other end sees nothing of it before a checkpoint covers it.
 * The reader may be the process itself, or a child that has inherited both ends. That the process
 * has the other end only makes holding worthwhile; nothing relies on others not having it, nor on
 * the process still having it.
 *
 * The program cannot tell. The write is held only if the kernel has room for all of it now (a pipe
 * with any room takes a page at once, and no more than that is held for one). Before the process
 * reads from such an end itself, what is held is sent.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include "base/log.h"
#include "effects/hold.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/proc.h"

#define PIPE_ATOMIC 4096 /* PIPE_BUF: also what one slot of a pipe holds */
#define NUMBERS_MAX 64
#define PATIENCE_MS 1000

/* ---- taking ---------------------------------------------------------------------------------- */

/* The number is closed: nobody has asked for a signal by it. */
static bool has_flag(int fd, int flag)
{
	long flags = crn_sys2(SYS_fcntl, fd, F_GETFL);

	return flags >= 0 && (flags & flag);
}

/* Does this process have the reading end of the pipe, and no signal is sent for what comes? */
static bool reads_pipe(struct crn_fd *f)
{
	int numbers[NUMBERS_MAX];
	long count = crn_fd_numbers(crn_agent->pid, "pipe", f->ino, numbers, NUMBERS_MAX);
	bool reads = false;

	for (long i = 0; i < count; i++) {
		if (has_flag(numbers[i], O_WRONLY))
			continue;
		if (has_flag(numbers[i], O_ASYNC))
			return false;
		f->reader = numbers[i];
		reads = true;
	}
	return reads;
}

bool crn_hold_is_pair(int fd, struct crn_fd *f)
{
	uint64_t peer;
	struct stat st;

	if (crn_sys2(SYS_fstat, fd, &st) < 0)
		return false;
	peer = crn_local_peer(st.st_ino);
	return peer && crn_fd_numbers(crn_agent->pid, "socket", peer, &f->reader, 1) > 0 &&
		!has_flag(f->reader, O_ASYNC);
}

bool crn_hold_signals(const struct crn_fd *f)
{
	return f->hold == CRN_FDH_OWN && has_flag(f->reader, O_ASYNC);
}

/* Bytes held for this pipe, by whatever number. */
static size_t held_for(const struct crn_fd *f)
{
	const struct crn_hold *h = crn_agent->effects->hold;
	size_t n = 0;

	for (uint32_t at = 0; at < h->used; at = crn_held_next(h, at)) {
		const struct crn_held *p = crn_held_at(h, at);

		if (p->kind == CRN_HELD_WRITE && crn_fd_look(p->fd)->ino == f->ino)
			n += p->size;
	}
	return n;
}

/* Now, and somebody may read it. */
static bool has_room(int fd)
{
	struct pollfd now = {.fd = fd, .events = POLLOUT};

	return crn_sys3(SYS_poll, &now, 1, 0) == 1 && now.revents == POLLOUT;
}

/*
 * What is held is less than 2^32 for each 8 bytes of the buffer: that fits, unless the count is
 * near its end. It is printed in 16 columns, so a blank one says that it is below 2^60.
 */
static bool counts_little(int fd)
{
	struct pollfd now = {.fd = fd, .events = POLLIN};
	char count[24];

	return crn_sys3(SYS_poll, &now, 1, 0) == 0 ||
		(crn_fdinfo(fd, "eventfd-count: ", count, sizeof(count)) == 0 && count[0] == ' ');
}

/* Little is in it, so that what others write meanwhile does not fill it. Not in packets. */
static bool pipe_takes(int fd, const struct crn_fd *f, size_t n)
{
	long flags = crn_sys2(SYS_fcntl, fd, F_GETFL);
	int unread = 0;

	return flags >= 0 && !(flags & O_DIRECT) && n + held_for(f) <= PIPE_ATOMIC &&
		crn_sys3(SYS_ioctl, fd, FIONREAD, &unread) >= 0 && unread <= PIPE_ATOMIC;
}

bool crn_hold_may_wake(int fd, struct crn_fd *f, size_t n)
{
	const struct crn_hold *h = crn_agent->effects->hold;

	if (!n || h->used + n + 2 * sizeof(struct crn_held) >= CRN_HOLD_SIZE)
		return false;
	if (f->kind == CRN_FD_EVENT)
		return n == sizeof(uint64_t) && has_room(fd) && counts_little(fd);
	if (f->hold == CRN_FDH_UNKNOWN)
		f->hold = reads_pipe(f) ? CRN_FDH_OWN : CRN_FDH_NEVER;
	return f->hold == CRN_FDH_OWN && !crn_hold_signals(f) && pipe_takes(fd, f, n) &&
		has_room(fd);
}

bool crn_hold_wakes(int fd, struct crn_fd *f)
{
	const struct crn_hold *h = crn_agent->effects->hold;

	for (uint32_t at = 0; at < h->used; at = crn_held_next(h, at)) {
		const struct crn_fd *to = crn_fd_look(crn_held_at(h, at)->fd);

		if (to->kind != f->kind)
			continue;
		/* Duplicates of an eventfd cannot be told apart. */
		if (f->kind == CRN_FD_EVENT || (f->kind == CRN_FD_PIPE && to->ino == f->ino) ||
			(to->hold == CRN_FDH_OWN && crn_hold_connection(fd, f) == 1 &&
				crn_local_peer(to->ino) == f->ino))
			return true;
	}
	return false;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* It never waits, whatever the descriptor's flags. */
static long write_some(const struct crn_held *p, uint32_t done, size_t n)
{
	struct iovec iov = {(void *)(p->bytes + done), n};
	long ret = crn_sys6(SYS_pwritev2, p->fd, (long)&iov, 1, -1, -1, RWF_NOWAIT);

	if (ret != -EOPNOTSUPP)
		return ret;
	return has_room(p->fd) ? crn_sys3(SYS_write, p->fd, p->bytes + done, n) : -EAGAIN;
}

/* Others have filled it meanwhile, and we may be the only one who reads: it is made larger. */
static void wait_for_room(int fd, uint64_t left_ns)
{
	struct pollfd poll = {.fd = fd, .events = POLLOUT};
	long size = crn_sys2(SYS_fcntl, fd, F_GETPIPE_SZ);

	if (size > 0 && crn_sys3(SYS_fcntl, fd, F_SETPIPE_SZ, 2 * size) > size)
		return;
	crn_sys3(SYS_poll, &poll, 1, left_ns / 1000000 + 1);
}

void crn_hold_write(const struct crn_held *p)
{
	size_t unit = crn_fd_look(p->fd)->kind == CRN_FD_EVENT ? sizeof(uint64_t) : p->size;
	uint64_t end = crn_clock_kernel_ns() + PATIENCE_MS * 1000000ull, now;
	struct crn_hushed hushed;
	long n;

	for (uint32_t done = 0; done < p->size;) {
		crn_write_signals_hush(&hushed);
		n = write_some(p, done, CRN_MIN(unit, (size_t)p->size - done));
		crn_write_signals_restore(&hushed, n);
		if (n > 0) {
			done += (uint32_t)n;
			continue;
		}
		now = crn_clock_kernel_ns();
		if (n == -EPIPE)
			return; /* whoever could read it went after the program had written it */
		if ((n != -EAGAIN && n != -EINTR && n != -ENOMEM) || now >= end) {
			crn_error("descriptor %d took no more bytes for a second (%ld): %u that "
				  "the program wrote to itself are lost", p->fd, n, p->size - done);
			return;
		}
		wait_for_room(p->fd, end - now);
	}
}
