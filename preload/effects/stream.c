/* SPDX-License-Identifier: MIT */
/*
 * Input that does not come twice. Each object (socket, pipe, terminal, eventfd ...) that was read
 * since the checkpoint has a stream: a list of pieces in one pool.
 *
 *	first                cursor                  last
 *	  | taken by the program | to be given again  |  -> the kernel
 *	  `-- begin_at           `-- cursor_at
 *
 * A read takes from the cursor on. When nothing is left there, the kernel is asked; what it gives
 * is appended and counts as taken. A checkpoint forgets what was taken, and a restore moves the
 * cursor back to the beginning. So log and replay are one structure.
 *
 * Streams are found by the object's identity, not by number, so duplicates of a descriptor share
 * one.
 */
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/effects.h"
#include "effects/hold.h"
#include "effects/inherited_input.h"
#include "effects/input.h"

struct crn_piece *crn_piece_at(uint32_t offset)
{
	return (struct crn_piece *)(crn_agent->effects->pool + offset);
}

struct crn_stream *crn_stream_find(const struct crn_fd *f)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->stream_count; i++)
		if (e->streams[i].ino == f->ino && e->streams[i].dev == f->dev)
			return &e->streams[i];
	return NULL;
}

bool crn_stream_pending(const struct crn_stream *s)
{
	return s && s->cursor && !crn_stream_is_gone(s);
}

/* Both ends of a pipe are one object, and only one of them is read. */
static bool is_read(int fd, const struct crn_fd *f)
{
	return f->kind != CRN_FD_PIPE ||
		(crn_sys2(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) != O_WRONLY;
}

bool crn_fd_pending(int fd)
{
	const struct crn_fd *f;

	if (!crn_agent->effects->pending_count)
		return false;
	f = crn_fd_look(fd);
	return crn_stream_pending(crn_stream_find(f)) && is_read(fd, f);
}

void crn_streams_count(void)
{
	struct crn_effects *e = crn_agent->effects;

	e->pending_count = 0;
	for (uint32_t i = 0; i < e->stream_count; i++)
		e->pending_count += crn_stream_pending(&e->streams[i]);
}

size_t crn_stream_ready_bytes(const struct crn_stream *s)
{
	size_t n = 0;

	for (uint32_t at = s->cursor; at; at = crn_piece_at(at)->next) {
		if (crn_piece_at(at)->kind != CRN_PIECE_BYTES)
			break;
		n += crn_piece_at(at)->size - (at == s->cursor ? s->cursor_at : 0);
		if (s->shape == CRN_SHAPE_MESSAGES)
			break;
	}
	return n;
}

static enum crn_stream_shape shape_of(enum crn_fd_kind kind)
{
	switch (kind) {
	case CRN_FD_DATAGRAM:
		return CRN_SHAPE_MESSAGES;
	case CRN_FD_EVENT:
	case CRN_FD_TIMER:
		return CRN_SHAPE_NUMBERS;
	case CRN_FD_SIGNAL:
		return CRN_SHAPE_SIGNALS;
	case CRN_FD_INOTIFY:
		return CRN_SHAPE_EVENTS;
	case CRN_FD_TTY:
	case CRN_FD_PIPE:
		return CRN_SHAPE_PARTS;
	default:
		return CRN_SHAPE_BYTES;
	}
}

static struct crn_stream *stream_make(int fd)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_fd *f = crn_fd_look(fd);
	struct crn_stream *s = crn_stream_find(f);

	if (!s && e->stream_count < CRN_STREAMS_MAX) {
		s = &e->streams[e->stream_count++];
		*s = (struct crn_stream){.dev = f->dev, .ino = f->ino};
		s->shape = (uint8_t)shape_of((enum crn_fd_kind)f->kind);
	}
	if (s)
		s->fd = fd;
	return s;
}

/*
 * Whose input was consumed last is the suspect, and loses it. An eventfd, a timer or a signalfd is
 * nobody's connection: what it lost would be a wake-up that the program never gets again. Nor is a
 * question to the kernel, whose answer the program would wait for for ever.
 */
static void consumed(uint64_t dev, uint64_t ino, int fd, bool since)
{
	const struct crn_fd *f = crn_fd_look(fd);
	struct crn_effects *e = crn_agent->effects;

	if (!dev || (f->flags & CRN_FDF_KERNEL && f->dev == dev && f->ino == ino))
		return;
	e->last_input.dev = dev;
	e->last_input.ino = ino;
	e->last_input.fd = fd;
	e->last_peek.ino = 0;
	e->last_input.since |= since;
	if (e->hold && e->hold->used)
		e->hold->asked = true;
}

void crn_stream_consumed(int fd)
{
	const struct crn_fd *f = crn_fd_look(fd);

	if (crn_fd_is_pollable(f))
		consumed(f->dev, f->ino, fd, true);
}

void crn_stream_peeked(int fd, uint32_t piece)
{
	struct crn_effects *e = crn_agent->effects;
	const struct crn_fd *f = crn_fd_look(fd);

	if (!f->dev || f->flags & CRN_FDF_KERNEL)
		return;
	e->last_peek.dev = f->dev;
	e->last_peek.ino = f->ino;
	e->last_peek.fd = fd;
	e->last_peek.interval = e->interval;
	e->last_peek.piece = piece;
	e->last_input.since |= !piece;
}

/* What a piece takes of the pool. */
static uint32_t piece_bytes(const struct crn_piece *p)
{
	return (uint32_t)sizeof(*p) + (p->name_len + 7u) / 8 * 8 + (p->control_len + 7) / 8 * 8 +
		(p->size + 7) / 8 * 8;
}

/* A new last piece of these sizes; 0 when there is no room. */
static uint32_t piece_make(int fd, const struct crn_piece *sizes, struct crn_stream **out)
{
	struct crn_effects *e = crn_agent->effects;
	uint32_t at = e->pool_used, need = piece_bytes(sizes);
	struct crn_stream *s =
		sizes->size < CRN_POOL_SIZE && sizes->control_len < CRN_POOL_SIZE / 2 &&
			need <= CRN_POOL_SIZE - e->pool_used ? stream_make(fd) : NULL;

	if (!s)
		return 0;
	e->pool_used += need;
	*crn_piece_at(at) = *sizes;
	if (s->last)
		crn_piece_at(s->last)->next = at;
	else
		s->first = at;
	s->last = at;
	*out = s;
	return at;
}

/* The same for what the program has taken already. */
static uint32_t append(struct crn_call *call, int fd, const struct crn_piece *sizes)
{
	struct crn_stream *s;
	uint32_t at = piece_make(fd, sizes, &s);

	/*
	 * what was taken is gone for ever: a checkpoint must follow, and until then nothing can be
	 * undone
	 */
	if (!at) {
		crn_call_raise(call);
		crn_effects_cannot_undo("more input was read than can be kept");
		return 0;
	}
	s->newest = at;
	consumed(s->dev, s->ino, fd, true);
	if (crn_agent->effects->pool_used > CRN_POOL_SOFT)
		crn_call_raise(call);
	return at;
}

void crn_stream_owe_error(int fd, long error)
{
	const struct crn_piece piece = {.kind = CRN_PIECE_ERROR, .value = (int32_t)error};
	struct crn_stream *s;
	uint32_t at = piece_make(fd, &piece, &s);

	if (!at)
		return; /* the kernel tells the end of the stream, if not why */
	if (!s->cursor) {
		s->cursor = at;
		s->cursor_at = 0;
	}
	crn_streams_count();
}

void crn_stream_keep(struct crn_call *call, int fd, const struct crn_taken *taken)
{
	const struct crn_piece piece = {
		.kind = CRN_PIECE_BYTES,
		.size = (uint32_t)CRN_MIN(taken->len, (size_t)CRN_POOL_SIZE),
		.name_len = taken->name_len,
		.control_len = taken->control_len,
		.flags = taken->flags,
		.full = taken->full ? taken->full : (uint32_t)taken->len,
	};
	uint32_t at = append(call, fd, &piece);
	size_t left = taken->len;
	struct crn_piece *p;
	uint8_t *to;

	if (!at)
		return;
	p = crn_piece_at(at);
	/* SAFETY: the kernel has just written all these bytes, so they are there. */
	crn_copy_short(p->text, taken->name, taken->name_len);
	crn_copy_short(crn_piece_control(p), taken->control, taken->control_len);
	to = crn_piece_data(p);
	for (size_t i = 0; i < taken->count && left; i++) {
		size_t n = CRN_MIN(left, taken->iov[i].iov_len);

		crn_copy_short(to, taken->iov[i].iov_base, n);
		to += n;
		left -= n;
	}
}

void crn_stream_keep_error(struct crn_call *call, int fd)
{
	const struct crn_piece piece = {
		.kind = CRN_PIECE_ERROR, .value = (int32_t)call->result};

	(void)append(call, fd, &piece);
}

/* SAFETY: the kernel has just written the length; the name may be longer than its buffer. */
uint32_t crn_stream_keep_socket(struct crn_call *call, int listener, int fd)
{
	const uint32_t *len = (const uint32_t *)(call->args[1] ? call->args[2] : 0);
	const struct crn_piece piece = { .kind = CRN_PIECE_SOCKET,
		.value = fd,
		.name_len = len ? (uint16_t)CRN_MIN(*len, 128u) : 0 };
	uint32_t at = append(call, listener, &piece);

	if (at && crn_user_copy(crn_piece_at(at)->text, (const void *)call->args[1],
			  piece.name_len) < 0)
		crn_piece_at(at)->name_len = 0;
	return at;
}

/* Not if more than bytes come with it, descriptors above all, which would be lost. */
static long take_plain(int fd, uint8_t *to, size_t size)
{
	struct iovec iov = {to, size};
	struct msghdr look = {.msg_iov = &iov, .msg_iovlen = 1};
	long n = crn_sys3(SYS_recvmsg, fd, &look, MSG_PEEK | MSG_DONTWAIT);

	return n > 0 && look.msg_flags & MSG_CTRUNC ? 0
		: crn_sys6(SYS_recvfrom, fd, (long)to, size, MSG_DONTWAIT, 0, 0);
}

/* An empty piece is made, the kernel asked, and the piece cut to what it had. */
void crn_stream_pull(struct crn_stream *s, int fd, size_t want)
{
	struct crn_effects *e = crn_agent->effects;
	size_t have = crn_stream_ready_bytes(s);
	struct crn_piece *p, piece = {.kind = CRN_PIECE_BYTES};
	uint32_t last = s->last, at;
	long n;

	/* The second half of the pool is for what the program reads by itself. */
	if (have >= want || e->pool_used >= CRN_POOL_SOFT ||
		crn_piece_at(last)->kind != CRN_PIECE_BYTES)
		return;
	piece.size = (uint32_t)CRN_MIN(want - have, (size_t)(CRN_POOL_SOFT - e->pool_used));
	at = piece_make(fd, &piece, &s);
	if (!at)
		return;
	p = crn_piece_at(at);
	n = take_plain(fd, crn_piece_data(p), p->size);
	if (n <= 0) {
		crn_piece_at(last)->next = 0;
		s->last = last;
		e->pool_used = at;
		if (n < 0 && crn_is_taken_error(n))
			crn_stream_owe_error(fd, n);
		return;
	}
	p->size = p->full = (uint32_t)n;
	e->pool_used = at + piece_bytes(p);
}

static void advance(struct crn_stream *s)
{
	s->cursor = crn_piece_at(s->cursor)->next;
	s->cursor_at = 0;
	if (!s->cursor)
		crn_streams_count();
}

/*
 * Copy [from, from+len) of a piece to the program at `skip` bytes into its buffers. Bytes copied,
 * or -EFAULT.
 */
static long scatter(const struct iovec *iov, size_t count, size_t skip, const uint8_t *from,
	size_t len, unsigned how)
{
	size_t done = 0;

	for (size_t i = 0; i < count && done < len; i++) {
		uintptr_t to = (uintptr_t)iov[i].iov_base + skip;
		size_t n;

		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		n = CRN_MIN(len - done, iov[i].iov_len - skip);
		if ((iov[i].iov_base || !(how & CRN_GIVE_DISCARD)) &&
			crn_user_write(to, from + done, n) < 0)
			return -EFAULT;
		skip = 0;
		done += n;
	}
	return (long)done;
}

/* Whole events of inotify in the first `size` bytes. */
static size_t events_in(const uint8_t *from, size_t size)
{
	struct inotify_event event;
	size_t n = 0;

	while (size - n >= sizeof(event)) {
		crn_copy(&event, from + n, sizeof(event));
		if (event.len > size - n - sizeof(event))
			break;
		n += sizeof(event) + event.len;
	}
	return n;
}

/* How many of `size` bytes a read takes at once; -EINVAL if not even one record fits. */
static long share(const struct crn_stream *s, const uint8_t *from, size_t size, size_t space)
{
	size_t n = CRN_MIN(size, space);

	switch ((enum crn_stream_shape)s->shape) {
	case CRN_SHAPE_BYTES:
	case CRN_SHAPE_PARTS:
	case CRN_SHAPE_MESSAGES:
		return (long)n;
	case CRN_SHAPE_NUMBERS:
		n -= n % sizeof(uint64_t);
		break;
	case CRN_SHAPE_SIGNALS:
		n -= n % sizeof(struct signalfd_siginfo);
		break;
	case CRN_SHAPE_EVENTS:
		n = events_in(from, n);
		break;
	}
	return n ? (long)n : -EINVAL;
}

/* From the cursor on; bytes given, or an error if there are none. */
static long give(struct crn_stream *s, const struct iovec *iov, size_t count, unsigned how)
{
	size_t given = 0, space = 0;
	bool more = true;

	for (size_t i = 0; i < count; i++)
		space += iov[i].iov_len;
	while (more && s->cursor && crn_piece_at(s->cursor)->kind != CRN_PIECE_SOCKET) {
		struct crn_piece *p = crn_piece_at(s->cursor);
		const uint8_t *from = crn_piece_data(p) + s->cursor_at;
		long n;

		if (p->kind == CRN_PIECE_ERROR && !given)
			advance(s);
		if (p->kind == CRN_PIECE_ERROR)
			return given ? (long)given : p->value;
		if (given && p->control_len)
			break; /* whose bytes these are is told at the next read */
		n = share(s, from, p->size - s->cursor_at, space - given);
		if (n >= 0)
			n = scatter(iov, count, given, from, (size_t)n, how);
		if (n < 0)
			return n;
		given += (size_t)n;
		s->cursor_at += (uint32_t)n;
		more = s->shape == CRN_SHAPE_BYTES && given < space && !p->control_len;
		if (s->cursor_at == p->size || s->shape == CRN_SHAPE_MESSAGES)
			advance(s);
	}
	return (long)given;
}

long crn_stream_give(struct crn_stream *s, const struct iovec *iov, size_t count, unsigned how,
	struct crn_piece **out)
{
	uint32_t cursor = s->cursor, at = s->cursor_at;
	long ret;

	if (out)
		*out = crn_piece_at(cursor);
	ret = give(s, iov, count, how);
	if (crn_piece_at(cursor)->kind != CRN_PIECE_ERROR &&
		((how & CRN_GIVE_PEEK) || ret == -EFAULT || ret == -EINVAL)) {
		s->cursor = cursor;
		s->cursor_at = at;
		crn_streams_count();
	} else {
		s->newest = cursor;
		/* of what lay before the one that was taken out nothing is new */
		consumed(s->dev, s->ino, s->fd, cursor > s->dropped);
	}
	return ret;
}

void crn_stream_read_at_once(int fd, uint32_t first)
{
	struct crn_stream *s = crn_stream_find(crn_fd_look(fd));

	if (s)
		s->newest = first;
}

uint32_t crn_stream_last_message(const struct crn_stream *s, bool *several)
{
	*several = false;
	if (!s || s->shape != CRN_SHAPE_MESSAGES || !s->newest)
		return 0;
	*several = crn_piece_at(s->newest)->next != s->cursor;
	return s->newest;
}

uint32_t crn_stream_socket(struct crn_stream *s)
{
	return s->cursor && crn_piece_at(s->cursor)->kind == CRN_PIECE_SOCKET ? s->cursor : 0;
}

void crn_stream_skip(struct crn_stream *s)
{
	advance(s);
}

static void release_sockets(const struct crn_stream *s)
{
	for (uint32_t at = s->cursor; at; at = crn_piece_at(at)->next)
		if (crn_piece_at(at)->kind == CRN_PIECE_SOCKET)
			crn_hold_release(crn_piece_at(at)->value);
}

/*
 * Sockets that still wait to be accepted again go with their listener, as the kernel's own backlog
 * does.
 */
void crn_stream_drop(struct crn_stream *s)
{
	struct crn_effects *e = crn_agent->effects;

	release_sockets(s);
	*s = e->streams[--e->stream_count];
	crn_streams_count();
}

void crn_stream_closed(int fd)
{
	struct crn_fd *f = crn_fd_look(fd);
	struct crn_stream *s;

	if (!crn_agent->effects->stream_count || !crn_fd_is_pollable(f))
		return;
	s = crn_stream_find(f);
	if (s && !crn_fd_has_twin(fd))
		crn_stream_drop(s);
}

void crn_stream_rename(int fd)
{
	struct crn_stream *s = crn_stream_find(crn_fd_look(fd));
	int name = crn_fd_rename(fd);

	if (s && name >= 0)
		s->ino = (uint64_t)name;
}

/*
 * Move what is still to be given into the spare pool. Only after a restore is there anything at
 * all.
 */
static void compact(void)
{
	struct crn_effects *e = crn_agent->effects;
	uint8_t *old = e->pool;
	uint32_t used = 8, kept = 0;

	for (uint32_t i = 0; i < e->stream_count; i++) {
		struct crn_stream s = e->streams[i];
		uint32_t at = s.cursor, last = 0;

		if (!crn_stream_pending(&s)) {
			release_sockets(&s); /* another process's now */
			continue;
		}
		s.newest = s.dropped = 0;
		s.first = s.cursor = used;
		s.begin_at = s.cursor_at;
		while (at) {
			struct crn_piece *p = (struct crn_piece *)(old + at);
			uint32_t size = piece_bytes(p);

			at = p->next;
			crn_copy(e->pool_spare + used, p, size);
			last = used;
			used += size;
			((struct crn_piece *)(e->pool_spare + last))->next = at ? used : 0;
		}
		s.last = last;
		e->streams[kept++] = s;
	}
	e->stream_count = kept;
	e->pool = e->pool_spare;
	e->pool_spare = old;
	e->pool_used = used;
}

void crn_streams_commit(void)
{
	struct crn_effects *e = crn_agent->effects;

	if (e->pending_count)
		compact();
	else {
		e->stream_count = 0;
		e->pool_used = 8;
	}
	crn_streams_count();
}

void crn_streams_rewind(void)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->stream_count; i++) {
		e->streams[i].cursor = e->streams[i].first;
		e->streams[i].cursor_at = e->streams[i].begin_at;
	}
	crn_streams_count();
}
