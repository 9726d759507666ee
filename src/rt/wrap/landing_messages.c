/* SPDX-License-Identifier: MIT */
#include "rt/wrap/landing_messages.h"

/* ---- The program's memory -------------------------------------------------------------------- */

static void keep_there(void *arg, uintptr_t addr, size_t len)
{
	crn_reach_keep((void *)addr, len);
}

static int read_there(void *dst, uintptr_t src, size_t len)
{
	if (!crn_reach_there((void *)src, len))
		return -EFAULT;
	memcpy(dst, (void *)src, len);
	return 0;
}

const struct crn_call_listener crn_call_keeps = { keep_there, read_there, NULL };

/* ---- Before the call ------------------------------------------------------------------------- */

/* NULL: the berth is too small. */
static void *room(struct message_landing *l, size_t size)
{
	size_t left = (size_t)(crn_berth_memory(l->berth) + BERTH_SIZE - l->free);
	void *at = l->free;

	if (size > left)
		return NULL;
	l->free += CRN_MIN((size + 15) & ~15ul, left);
	return at;
}

bool land_headers(struct message_landing *l, size_t count)
{
	l->count = count;
	l->pieces = 0;
	l->err = 0;
	if (!count || count > IOV_MAX)
		return false;
	if (!crn_berth_take(&l->berth))
		return false;
	l->free = crn_berth_memory(l->berth);
	l->messages = room(l, count * sizeof(*l->messages));
	l->bounces = room(l, count * sizeof(*l->bounces));
	l->theirs = room(l, count * sizeof(*l->theirs));
	return true;
}

/* The lists of parts of all messages, which lie behind each other as a rule. */
static bool read_parts(struct message_landing *l, size_t *total)
{
	size_t n = 0, end;

	l->parts = l->next = (struct iovec *)l->free;
	for (size_t i = 0; i < l->count; i = end) {
		const struct iovec *from = l->theirs[i].msg_hdr.msg_iov;
		struct iovec *to;
		size_t run = 0;

		for (end = i; end < l->count; end++) {
			const struct msghdr *m = &l->theirs[end].msg_hdr;

			if (m->msg_iovlen > IOV_MAX)
				return false;
			if (m->msg_iov != from + run && end > i)
				break;
			run += m->msg_iovlen;
		}
		to = room(l, run * sizeof(*to));
		if (!to || (run && read_there(to, (uintptr_t)from, run * sizeof(*to)) < 0))
			return false;
		n += run;
	}
	*total = n;
	return true;
}

/* The header of a message with bounces for its buffers, name and control. */
static bool bounce(struct message_landing *l, size_t i, size_t len)
{
	const struct msghdr *to = &l->theirs[i].msg_hdr;
	struct msghdr *m = &l->messages[i].msg_hdr;

	/* Direct I/O is by whole blocks, to where one may begin; several messages are no such. */
	if (l->count == 1 && len && len % BLOCK == 0)
		l->free = (char *)crn_page_up((uintptr_t)l->free);
	l->bounces[i] = (struct iovec){ room(l, len), len };
	l->messages[i] = l->theirs[i];
	m->msg_iov = &l->bounces[i];
	m->msg_iovlen = 1;
	if (to->msg_name)
		m->msg_name = room(l, to->msg_namelen);
	if (to->msg_control)
		m->msg_control = room(l, to->msg_controllen);
	return l->bounces[i].iov_base && !m->msg_name == !to->msg_name &&
		!m->msg_control == !to->msg_control;
}

static bool spread(struct message_landing *l)
{
	const struct iovec *parts;
	size_t total;

	if (!read_parts(l, &total) || !crn_reach_all_open(l->parts, total))
		return false;
	parts = l->parts;
	for (size_t i = 0; i < l->count; i++) {
		size_t count = l->theirs[i].msg_hdr.msg_iovlen;

		if (!bounce(l, i, parts_length(parts, count)))
			return false;
		parts += count;
	}
	return true;
}

bool land_spread(struct message_landing *l)
{
	if (spread(l))
		return true;
	crn_berth_leave(l->berth);
	return false;
}

bool land_messages(struct message_landing *l, struct mmsghdr *messages, size_t count,
	int flags)
{
	size_t size = count * sizeof(*messages);

	if (flags & MSG_TRUNC || !land_headers(l, count))
		return false;
	if (!crn_reach_open(messages, size) || read_there(l->theirs, (uintptr_t)messages, size)) {
		crn_berth_leave(l->berth);
		return false;
	}
	return land_spread(l);
}

/* ---- After it -------------------------------------------------------------------------------- */

/* Names and control messages may have no place, buffers have. */
static void flush(struct message_landing *l)
{
	bool all = crn_reach_all_open(l->to, l->pieces);

	for (size_t i = 0; i < l->pieces; i++) {
		if (all || crn_reach_open(l->to[i].iov_base, l->to[i].iov_len))
			place(l->to[i].iov_base, l->from[i].iov_base, l->to[i].iov_len);
		else
			l->err = -EFAULT;
	}
	l->pieces = 0;
}

void landed_piece(struct message_landing *l, void *to, const void *from, size_t n)
{
	if (!n || !to)
		return;
	if (l->pieces == CRN_PIECES)
		flush(l);
	l->to[l->pieces] = (struct iovec){ to, n };
	l->from[l->pieces++] = (struct iovec){ (void *)from, n };
}

void landed_one(struct message_landing *l, size_t i)
{
	const struct msghdr *to = &l->theirs[i].msg_hdr;
	struct msghdr *m = &l->messages[i].msg_hdr;
	size_t left = CRN_MIN(l->messages[i].msg_len, l->bounces[i].iov_len), n;
	const char *from = l->bounces[i].iov_base;

	for (size_t k = to->msg_iovlen; k; k--, l->next++, from += n, left -= n) {
		n = CRN_MIN(left, l->next->iov_len);
		landed_piece(l, l->next->iov_base, from, n);
	}
	landed_piece(l, to->msg_name, m->msg_name, CRN_MIN(m->msg_namelen, to->msg_namelen));
	landed_piece(l, to->msg_control, m->msg_control,
		CRN_MIN(m->msg_controllen, to->msg_controllen));
	m->msg_name = to->msg_name;
	m->msg_control = to->msg_control;
	m->msg_iov = to->msg_iov;
	m->msg_iovlen = to->msg_iovlen;
}

long landed_all(struct message_landing *l, long got)
{
	flush(l);
	crn_berth_leave(l->berth);
	return l->err < 0 ? l->err : got;
}

long landed_messages(struct message_landing *l, struct mmsghdr *messages, long got)
{
	for (long i = 0; i < got; i++) {
		landed_one(l, (size_t)i);
		landed_piece(l, &messages[i], &l->messages[i], sizeof(*messages));
	}
	return landed_all(l, got);
}
