/* SPDX-License-Identifier: MIT */
/*
 * The list of held output, and sending it. The real sends never wait in the kernel, so a peer that
 * does not read cannot stop the program here. The kernel has room, because it was asked before the
 * bytes were taken. If it has none all the same (it is short of memory), it gets a second; then the
 * connection is reset. Bytes may be lost with a connection, but never out of the middle of one.
 */
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/hold.h"
#include "effects/planted.h"
#include "os/clock.h"
#include "os/descriptor.h"

#define IOVEC_MAX   64
#define PATIENCE_MS 1000
/* About a second of ticks: how long nothing is held after the kernel had no room. */
#define PAUSE_TICKS (1ull << 31)

int crn_hold_open(struct crn_effects *e)
{
	struct crn_hold *h = crn_effects_alloc(sizeof(*h));
	int64_t lowat = 0;

	if (!h)
		return CAIRN_EMEMORY;
	h->buffer = crn_effects_alloc(CRN_HOLD_SIZE);
	if (!h->buffer)
		return CAIRN_EMEMORY;
	h->lowat = CRN_HOLD_SIZE;
	if (crn_file_number("/proc/sys/net/ipv4/tcp_notsent_lowat", &lowat) == 0 && lowat > 0)
		h->lowat = (uint32_t)CRN_MIN(lowat, (int64_t)CRN_HOLD_SIZE);
	e->hold = h;
	return 0;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* The bytes of one call. */
struct bytes {
	struct iovec iov[IOVEC_MAX];
	size_t count, size;
	unsigned flags;
};

static bool load(struct bytes *b, uintptr_t iov, size_t count)
{
	if (count == 0 || count > IOVEC_MAX ||
		crn_user_copy(b->iov, (const void *)iov, count * sizeof(struct iovec)) < 0)
		return false;
	b->count = count;
	for (size_t i = 0; i < count; i++) {
		if (b->iov[i].iov_len > CRN_HOLD_ONE)
			return false;
		b->size += b->iov[i].iov_len;
	}
	return true;
}

/* What the call would send; false if it is more than a plain send. */
static bool describe(const struct crn_call *call, struct bytes *b)
{
	struct msghdr msg;

	b->count = 1;
	b->size = 0;
	b->flags = 0;
	b->iov[0] = (struct iovec){ (void *)call->args[1], (size_t)call->args[2] };
	switch (call->nr) {
	case SYS_write:
		b->size = b->iov[0].iov_len;
		return true;
	case SYS_writev:
		return load(b, (uintptr_t)call->args[1], (size_t)call->args[2]);
	case SYS_sendto:
		b->size = b->iov[0].iov_len;
		b->flags = (unsigned)call->args[3];
		return !call->args[4];
	case SYS_sendmsg:
		b->flags = (unsigned)call->args[2];
		return crn_user_copy(&msg, (const void *)call->args[1], sizeof(msg)) == 0 &&
			!msg.msg_name && !msg.msg_controllen &&
			load(b, (uintptr_t)msg.msg_iov, msg.msg_iovlen);
	}
	return false;
}

struct crn_held *crn_held_add(struct crn_hold *h, int fd, enum crn_held_kind kind, bool more)
{
	struct crn_held *p = crn_held_at(h, h->last);

	if (h->used && (kind == CRN_HELD_BYTES || kind == CRN_HELD_WRITE) && p->kind == kind &&
		p->fd == fd && p->more == more)
		return p;
	h->last = (h->used + 7) & ~7u;
	p = crn_held_at(h, h->last);
	*p = (struct crn_held){.fd = fd, .kind = (uint16_t)kind, .more = more};
	return p;
}

void crn_held_taken(struct crn_call *call, struct crn_held *p, long n, bool first)
{
	struct crn_hold *h = crn_agent->effects->hold;

	h->used = (uint32_t)(p->bytes + p->size - h->buffer);
	if (first)
		h->since = crn_clock_ticks();
	h->sends++;
	crn_late_timer_start(call->thread);
	if (crn_planted(CRN_PLANT_EARLY)) {
		crn_hold_send();
		h->uncovered = false;
		crn_agent->effects->unrecoverable[0] = '\0';
	}
	call->result = n;
	call->effect = CRN_EFFECT_HELD;
}

static bool copy_in(struct crn_held *p, const struct bytes *b)
{
	uint8_t *to = p->bytes + p->size;

	for (size_t i = 0; i < b->count; i++) {
		if (crn_user_copy(to, b->iov[i].iov_base, b->iov[i].iov_len) < 0)
			return false;
		to += b->iov[i].iov_len;
	}
	p->size += (uint32_t)b->size;
	return true;
}

/* An error that the real send met is told here once, if no read has taken it. */
static bool owes_error(struct crn_call *call, int fd)
{
	struct crn_stream *s = crn_fd_pending(fd) ? crn_stream_find(crn_fd_look(fd)) : NULL;
	struct iovec none = {0};

	if (!s || crn_piece_at(s->cursor)->kind != CRN_PIECE_ERROR)
		return false;
	call->result = crn_stream_give(s, &none, 1, 0, NULL);
	call->effect = CRN_EFFECT_INPUT;
	return true;
}

/* An eventfd is not added to beyond its end. */
static bool is_count(const struct bytes *b)
{
	uint64_t value;

	return b->iov[0].iov_len == sizeof(value) &&
		crn_user_copy(&value, b->iov[0].iov_base, sizeof(value)) == 0 &&
		value <= UINT32_MAX;
}

/* What the process writes to itself. */
static bool take_wakeup(struct crn_call *call, struct crn_fd *f, const struct bytes *b)
{
	struct crn_hold *h = crn_agent->effects->hold;
	const struct crn_hold before = *h;
	struct crn_held *p;

	if ((call->nr != SYS_write && call->nr != SYS_writev) ||
		(f->kind == CRN_FD_EVENT && !is_count(b)) ||
		!crn_hold_may_wake((int)call->args[0], f, b->size))
		return false;
	p = crn_held_add(h, (int)call->args[0], CRN_HELD_WRITE, false);
	if (!copy_in(p, b)) {
		*h = before;
		return false;
	}
	crn_held_taken(call, p, (long)b->size, !before.used);
	return true;
}

bool crn_hold_take(struct crn_call *call)
{
	struct crn_hold *h = crn_agent->effects->hold;
	int fd = (int)call->args[0];
	struct crn_fd *f = crn_fd_look(fd);
	const struct crn_hold before = *h;
	struct crn_held *p;
	struct bytes b;

	if (call->nr == SYS_sendfile)
		return crn_hold_file(call);
	if (f->kind != CRN_FD_STREAM && f->kind != CRN_FD_PIPE && f->kind != CRN_FD_EVENT)
		return false;
	if (!describe(call, &b))
		return false;
	if (f->kind != CRN_FD_STREAM)
		return take_wakeup(call, f, &b);
	if (f->hold == CRN_FDH_NEVER)
		return owes_error(call, fd);
	if ((b.flags & ~(unsigned)(MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE)) ||
		crn_hold_signals(f) || !crn_hold_may_take(fd, f, b.size)) {
		crn_hold_spent(fd);
		return false;
	}
	p = crn_held_add(h, fd, CRN_HELD_BYTES, b.flags & MSG_MORE);
	p->connection = crn_hold_connection(fd, f);
	if (!copy_in(p, &b)) {
		*h = before;
		return false; /* the kernel knows what to say of such a pointer */
	}
	crn_held_taken(call, p, (long)b.size, !before.used);
	return true;
}

/* ---- sending --------------------------------------------------------------------------------- */

static long send_some(const struct crn_held *p, uint32_t done)
{
	return crn_sys6(SYS_sendto, p->fd, (long)(p->bytes + done), p->size - done,
		(p->more ? MSG_MORE : 0) | MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
}

/* The kernel took less than it had room for. Bytes sent in the end, or -errno. */
static long insist(const struct crn_held *p, uint32_t done)
{
	uint64_t end = crn_clock_kernel_ns() + PATIENCE_MS * 1000000ull, now;
	struct pollfd poll = {.fd = p->fd, .events = POLLOUT};
	long n = -EAGAIN;

	crn_agent->effects->hold->not_before = crn_clock_ticks() + PAUSE_TICKS;
	while (done < p->size) {
		n = send_some(p, done);
		if (n > 0) {
			done += (uint32_t)n;
			continue;
		}
		now = crn_clock_kernel_ns();
		if ((n != -EAGAIN && n != -ENOBUFS && n != -ENOMEM && n != -EINTR) || now >= end)
			return n;
		crn_sys3(SYS_poll, &poll, 1, (end - now) / 1000000 + 1);
	}
	return done;
}

/* The program believes its bytes sent: it learns at its next call that the connection is gone. */
static void failed(const struct crn_held *p, long error)
{
	struct sockaddr nobody = {.sa_family = AF_UNSPEC};

	if (crn_fd_is_engine(p->fd))
		return; /* closed meanwhile */
	crn_fd_hold_set(p->fd, CRN_FDH_NEVER);
	if (error == -EPIPE)
		return; /* the kernel says so again */
	if (error == -EAGAIN || error == -ENOBUFS || error == -ENOMEM) {
		crn_warn("descriptor %d: the kernel took no more bytes for a second: the "
			 "connection is reset", p->fd);
		if (crn_sys3(SYS_connect, p->fd, &nobody, sizeof(nobody)) < 0)
			crn_sys2(SYS_shutdown, p->fd, SHUT_RDWR);
		error = -ECONNRESET;
	}
	crn_stream_owe_error(p->fd, error);
}

static void send_bytes(const struct crn_held *p)
{
	long n = send_some(p, 0);

	if (n != p->size && (n >= 0 || n == -EAGAIN || n == -ENOBUFS || n == -ENOMEM))
		n = insist(p, n < 0 ? 0 : (uint32_t)n);
	if (n < 0)
		failed(p, n);
}

static void forget(struct crn_hold *h)
{
	h->used = h->last = h->looks = 0;
	h->asked = false;
}

void crn_hold_send(void)
{
	struct crn_hold *h = crn_agent->effects->hold;

	if (!h || !h->used)
		return;
	h->flushes++;
	for (uint32_t at = 0; at < h->used; at = crn_held_next(h, at)) {
		const struct crn_held *p = crn_held_at(h, at);

		switch ((enum crn_held_kind)p->kind) {
		case CRN_HELD_BYTES:
			send_bytes(p);
			break;
		case CRN_HELD_WRITE:
			crn_hold_write(p);
			break;
		case CRN_HELD_END:
			crn_sys2(SYS_shutdown, p->fd, SHUT_WR);
			break;
		case CRN_HELD_CLOSE:
			crn_inverse_void(CRN_INV_REOPEN, p->fd);
			crn_hold_release(p->fd);
			break;
		}
	}
	forget(h);
	h->uncovered = true;
	crn_effects_cannot_undo("what was sent is not covered by a checkpoint yet");
}

void crn_hold_flush(void)
{
	if (!crn_agent->session || !crn_agent->effects || !crn_agent->effects->hold)
		return;
	crn_effects_lock();
	crn_hold_send();
	crn_effects_unlock();
}

void crn_hold_drop(void)
{
	struct crn_hold *h = crn_agent->effects->hold;

	if (!h || crn_planted(CRN_PLANT_HELD))
		return;
	for (uint32_t at = 0; at < h->used; at = crn_held_next(h, at))
		if (crn_held_at(h, at)->kind == CRN_HELD_END)
			crn_fd_hold_set(crn_held_at(h, at)->fd, CRN_FDH_UNKNOWN);
	forget(h);
}

bool crn_hold_has(int fd)
{
	struct crn_hold *h = crn_agent->effects->hold;
	const struct crn_fd *f = crn_fd_look(fd), *g;

	for (uint32_t at = 0; at < h->used; at = crn_held_next(h, at)) {
		g = crn_fd_look(crn_held_at(h, at)->fd);
		if (crn_held_at(h, at)->fd == fd || (g->dev == f->dev && g->ino == f->ino))
			return true;
	}
	return false;
}

bool crn_hold_is_for(int fd)
{
	struct crn_hold *h = crn_agent->effects->hold;
	struct crn_fd *f = crn_fd_look(fd);
	uint32_t connection;

	if (f->kind != CRN_FD_STREAM)
		return false;
	connection = crn_hold_connection(fd, f);
	for (uint32_t at = 0; at < h->used; at = crn_held_next(h, at))
		if (crn_held_at(h, at)->connection == connection && crn_held_at(h, at)->fd != fd)
			return true;
	return false;
}
