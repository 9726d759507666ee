/* SPDX-License-Identifier: MIT */
/*
 * Input that does not come twice. Each object (socket, pipe, terminal, eventfd ...) that was read
 * since the checkpoint has a stream: a list of pieces in one pool.
 *
 *	first                cursor                  last
 *	  | taken by the program | to be given again  |  -> the kernel
 *	  `-- begin_at           `-- cursor_at
 *
 * A read takes from the cursor on; when there is nothing left the kernel is asked, and what it
 * gives is appended and counts as taken. A checkpoint forgets what was taken, a restore moves the
 * cursor back to the beginning. Nothing else is needed: log and replay are one structure.
 *
 * Streams are found by the object's identity, not by number, so that duplicates of a descriptor
 * share one.
 */
#include "base/copy.h"
#include "base/log.h"
#include "effects/effects.h"

struct crn_piece *crn_piece_at(uint32_t offset)
{
	return (struct crn_piece *)(crn_agent->effects->pool + offset);
}

static uint8_t *data_of(struct crn_piece *p)
{
	return p->text + (p->name_len + 7) / 8 * 8;
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
	return s && s->cursor;
}

bool crn_fd_pending(int fd)
{
	if (!crn_agent->effects->pending_count)
		return false;
	return crn_stream_pending(crn_stream_find(crn_fd_look(fd)));
}

static void count_pending(void)
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
		if (s->boundaries)
			break;
	}
	return n;
}

static struct crn_stream *stream_make(int fd)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_fd *f = crn_fd_look(fd);
	struct crn_stream *s = crn_stream_find(f);

	if (!s && e->stream_count < CRN_STREAMS_MAX) {
		s = &e->streams[e->stream_count++];
		*s = (struct crn_stream){.dev = f->dev, .ino = f->ino};
		s->boundaries = f->kind == CRN_FD_DATAGRAM || f->kind >= CRN_FD_EPOLL;
	}
	if (s)
		s->fd = fd;
	return s;
}

/*
 * Whose input was consumed last is the suspect, and loses it. An eventfd, a timer or a signalfd is
 * nobody's connection: what it lost would be a wake-up that the program never gets again.
 */
static void consumed(const struct crn_stream *s)
{
	struct crn_effects *e = crn_agent->effects;

	if (!s->dev)
		return;
	e->last_input.dev = s->dev;
	e->last_input.ino = s->ino;
	e->last_input.fd = s->fd;
}

/* A new last piece, taken already; 0 when there is no room. */
static uint32_t append(struct crn_call *call, int fd, size_t name_len, size_t size)
{
	struct crn_effects *e = crn_agent->effects;
	size_t need = sizeof(struct crn_piece) + (name_len + 7) / 8 * 8 + (size + 7) / 8 * 8;
	struct crn_stream *s = need <= CRN_POOL_SIZE - e->pool_used ? stream_make(fd) : NULL;
	struct crn_piece *p;
	uint32_t at = e->pool_used;

	/*
	 * what was taken is gone for ever: a checkpoint must follow, and until then nothing can be
	 * undone
	 */
	if (!s) {
		crn_call_raise(call);
		crn_effects_cannot_undo("more input was read than can be kept");
		return 0;
	}
	e->pool_used += (uint32_t)need;
	p = crn_piece_at(at);
	*p = (struct crn_piece){.size = (uint32_t)size, .name_len = (uint16_t)name_len};
	if (s->last)
		crn_piece_at(s->last)->next = at;
	else
		s->first = at;
	s->last = at;
	consumed(s);
	if (e->pool_used > CRN_POOL_SOFT)
		crn_call_raise(call);
	return at;
}

void crn_stream_keep(struct crn_call *call, int fd, const struct crn_taken *taken)
{
	uint32_t at = append(call, fd, taken->name_len, taken->len);
	size_t left = taken->len;
	struct crn_piece *p;
	uint8_t *to;

	if (!at)
		return;
	p = crn_piece_at(at);
	p->kind = CRN_PIECE_BYTES;
	p->flags = taken->flags;
	crn_copy(p->text, taken->name, taken->name_len);
	to = data_of(p);
	/* SAFETY: the kernel has just written these bytes, so they are there. */
	for (size_t i = 0; i < taken->count && left; i++) {
		size_t n = CRN_MIN(left, taken->iov[i].iov_len);

		crn_copy(to, taken->iov[i].iov_base, n);
		to += n;
		left -= n;
	}
}

void crn_stream_keep_error(struct crn_call *call, int fd)
{
	uint32_t at = append(call, fd, 0, 0);

	if (!at)
		return;
	crn_piece_at(at)->kind = CRN_PIECE_ERROR;
	crn_piece_at(at)->value = (int32_t)call->result;
}

uint32_t crn_stream_keep_socket(struct crn_call *call, int listener, int fd)
{
	uint32_t at = append(call, listener, 0, 0);

	if (!at)
		return 0;
	crn_piece_at(at)->kind = CRN_PIECE_SOCKET;
	crn_piece_at(at)->value = fd;
	return at;
}

static void advance(struct crn_stream *s)
{
	s->cursor = crn_piece_at(s->cursor)->next;
	s->cursor_at = 0;
	if (!s->cursor)
		count_pending();
}

/*
 * Copy [from, from+len) of a piece to the program at `skip` bytes into its buffers. Bytes copied,
 * or -EFAULT.
 */
static long scatter(
	const struct iovec *iov, size_t count, size_t skip, const uint8_t *from, size_t len)
{
	size_t done = 0;

	for (size_t i = 0; i < count && done < len; i++) {
		size_t n;

		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		n = CRN_MIN(len - done, iov[i].iov_len - skip);
		if (crn_user_write((uintptr_t)iov[i].iov_base + skip, from + done, n) < 0)
			return -EFAULT;
		skip = 0;
		done += n;
	}
	return (long)done;
}

long crn_stream_give(struct crn_stream *s, const struct iovec *iov, size_t count, bool peek,
	struct crn_piece **out)
{
	uint32_t cursor = s->cursor, at = s->cursor_at;
	size_t given = 0, space = 0;

	if (out)
		*out = crn_piece_at(cursor);
	for (size_t i = 0; i < count; i++)
		space += iov[i].iov_len;
	while (s->cursor && crn_piece_at(s->cursor)->kind != CRN_PIECE_SOCKET) {
		struct crn_piece *p = crn_piece_at(s->cursor);
		size_t n = CRN_MIN(p->size - s->cursor_at, space - given);

		if (p->kind == CRN_PIECE_ERROR) {
			if (given)
				break;
			if (!peek)
				advance(s);
			return p->value;
		}
		if (scatter(iov, count, given, data_of(p) + s->cursor_at, n) != (long)n) {
			s->cursor = cursor;
			s->cursor_at = at;
			count_pending();
			return -EFAULT;
		}
		given += n;
		s->cursor_at += (uint32_t)n;
		if (s->cursor_at == p->size || s->boundaries)
			advance(s);
		if (s->boundaries || given == space)
			break;
	}
	if (peek) {
		s->cursor = cursor;
		s->cursor_at = at;
		count_pending();
	} else {
		consumed(s);
	}
	return (long)given;
}

uint32_t crn_stream_socket(struct crn_stream *s)
{
	return s->cursor && crn_piece_at(s->cursor)->kind == CRN_PIECE_SOCKET ? s->cursor : 0;
}

void crn_stream_skip(struct crn_stream *s)
{
	advance(s);
}

/*
 * Sockets that still wait to be accepted again go with their listener, as the kernel's own backlog
 * does.
 */
void crn_stream_drop(struct crn_stream *s)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t at = s->cursor; at; at = crn_piece_at(at)->next)
		if (crn_piece_at(at)->kind == CRN_PIECE_SOCKET)
			crn_hold_release(crn_piece_at(at)->value);
	*s = e->streams[--e->stream_count];
	count_pending();
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

		if (!at)
			continue;
		s.first = s.cursor = used;
		s.begin_at = s.cursor_at;
		while (at) {
			struct crn_piece *p = (struct crn_piece *)(old + at);
			uint32_t size = (uint32_t)sizeof(*p) + (p->name_len + 7u) / 8 * 8 +
				(p->size + 7u) / 8 * 8;

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
	count_pending();
}

void crn_streams_rewind(void)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->stream_count; i++) {
		e->streams[i].cursor = e->streams[i].first;
		e->streams[i].cursor_at = e->streams[i].begin_at;
	}
	count_pending();
}
