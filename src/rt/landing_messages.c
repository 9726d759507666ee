/* SPDX-License-Identifier: MIT */
#include "rt/landing_messages.h"
#include "os/memory.h"
#include "rt/heap.h"
#include "rt/keep_readable.h"

/* ---- Two ways to the program's memory -------------------------------------------------------- */

static void keep_surely(void *arg, uintptr_t addr, size_t len)
{
	keep((void *)addr, len);
}

static void keep_perhaps(void *arg, uintptr_t addr, size_t len)
{
	crn_keep_readable(addr, len);
}

static int read_surely(void *dst, uintptr_t src, size_t len)
{
	memcpy(dst, (const void *)src, len);
	return 0;
}

static int read_perhaps(void *dst, uintptr_t src, size_t len)
{
	return crn_memory_peek(dst, (const void *)src, len) == (long)len ? 0 : -EFAULT;
}

static int place_surely(const struct iovec *to, const struct iovec *from, size_t count)
{
	for (size_t i = 0; i < count; i++)
		place(to[i].iov_base, from[i].iov_base, from[i].iov_len);
	return 0;
}

static bool forbidden(int err)
{
	return err == -ENOSYS || err == -EPERM;
}

/* Whose pages are closed to stores is not kept: a restore could not store there either. */
static int place_perhaps(const struct iovec *to, const struct iovec *from, size_t count)
{
	struct iovec unsure_to[CRN_PIECES], unsure_from[CRN_PIECES];
	size_t n = 0;
	int err;

	for (size_t i = 0; i < count; i++) {
		if (crn_heap_spans(to[i].iov_base, to[i].iov_len)) {
			place(to[i].iov_base, from[i].iov_base, from[i].iov_len);
		} else {
			unsure_to[n] = to[i];
			unsure_from[n++] = from[i];
		}
	}
	err = n ? crn_memory_writable(unsure_to, n) : 0;
	if (forbidden(err)) /* who may not ask believes */
		return place_surely(unsure_to, unsure_from, n);
	if (err < 0)
		return -EFAULT;
	keep_parts(unsure_to, n);
	return n && crn_memory_scatter(unsure_to, unsure_from, n) < 0 ? -EFAULT : 0;
}

static bool there_surely(const struct iovec *parts, size_t count)
{
	return true;
}

/* Each one's ends: what the kernel has handed over must find its place. */
static bool there_perhaps(const struct iovec *parts, size_t count)
{
	uintptr_t at[CRN_PROBE_MAX];
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		uintptr_t begin = (uintptr_t)parts[i].iov_base;
		size_t len = parts[i].iov_len;

		if (len && !crn_heap_spans(parts[i].iov_base, len)) {
			at[n++] = begin;
			at[n++] = begin + len - 1;
		}
		if (n + 1 < CRN_PROBE_MAX && i + 1 < count)
			continue;
		if (n && crn_memory_readable(at, n) < n)
			return false;
		n = 0;
	}
	return true;
}

const struct crn_reach crn_reach_surely = {
	{ keep_surely, read_surely, NULL }, place_surely, there_surely,
};
const struct crn_reach crn_reach_perhaps = {
	{ keep_perhaps, read_perhaps, NULL }, place_perhaps, there_perhaps,
};

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

bool land_headers(struct message_landing *l, size_t count, const struct crn_reach *how)
{
	l->how = how;
	l->count = count;
	l->pieces = 0;
	l->err = 0;
	if (!count || count > IOV_MAX)
		return false;
	l->berth = crn_berth_take();
	if (!l->berth)
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
		if (!to || (run && l->how->tell.read(to, (uintptr_t)from, run * sizeof(*to)) < 0))
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

	if (!read_parts(l, &total) || !l->how->there(l->parts, total))
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

bool land_messages(struct message_landing *l, const struct mmsghdr *messages, size_t count,
	int flags, const struct crn_reach *how)
{
	if (flags & MSG_TRUNC || !land_headers(l, count, how))
		return false;
	if (how->tell.read(l->theirs, (uintptr_t)messages, count * sizeof(*messages)) < 0) {
		crn_berth_leave(l->berth);
		return false;
	}
	return land_spread(l);
}

/* ---- After it -------------------------------------------------------------------------------- */

static void flush(struct message_landing *l)
{
	if (l->pieces && l->how->place(l->to, l->from, l->pieces) < 0)
		l->err = -EFAULT;
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
