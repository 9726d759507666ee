/* SPDX-License-Identifier: MIT */
/*
 * Reading into a buffer of which only the first bytes may come to be written: the kernel writes to
 * a bounce on the stack, and what has come goes to its place.
 *
 *	char bounce[BOUNCE_MAX(to, n)];
 *	if (!land(&l, bounce, sizeof(bounce), to, n))
 *		call(to, n);                            all of it is kept
 *	else
 *		return landed(&l, call(l.part, l.parts));
 *
 * A buffer that looks as for direct I/O, which asks for alignment, is kept and used itself.
 */
#ifndef CRN_RT_LANDING_H
#define CRN_RT_LANDING_H

#include <sys/types.h>
#include <sys/uio.h>
#include "rt/wrap.h"

#define BOUNCE_LIMIT ((size_t)16384)
#define BLOCK        512ul

static inline bool looks_direct(const void *to, size_t n)
{
	return !(((uintptr_t)to | n) & (BLOCK - 1));
}

/* At least one, for an array may not be empty. */
#define BOUNCE_MAX(to, n) \
	(((to) && looks_direct(to, n)) || !(n) ? 1 : CRN_MIN((size_t)(n), BOUNCE_LIMIT))

struct landing {
	struct iovec part[2]; /* the bounce, and what of the buffer is beyond */
	int parts;
	char *to;
};

/* False: the whole buffer is kept, and the call may write there. */
static inline bool land(struct landing *l, char *bounce, size_t size, void *to, size_t n)
{
	if (!to || looks_direct(to, n)) {
		keep(to, n);
		return false;
	}
	l->to = to;
	l->parts = n > size ? 2 : 1;
	l->part[0] = (struct iovec){ bounce, CRN_MIN(n, size) };
	l->part[1] = (struct iovec){ (char *)to + size, n > size ? n - size : 0 };
	if (l->parts == 2)
		keep(l->part[1].iov_base, l->part[1].iov_len);
	return true;
}

/* After the call, whose result this passes on. errno stays. */
static inline ssize_t landed(const struct landing *l, ssize_t got)
{
	if (got > 0)
		place(l->to, l->part[0].iov_base, CRN_MIN((size_t)got, l->part[0].iov_len));
	return got;
}

static inline size_t parts_length(const struct iovec *to, size_t count)
{
	size_t n = 0;

	for (size_t i = 0; i < count && i < 1024; i++)
		n = CRN_MIN(n + CRN_MIN(to[i].iov_len, BOUNCE_LIMIT), BOUNCE_LIMIT + 1);
	return n;
}

static inline void keep_parts(const struct iovec *to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		keep(to[i].iov_base, to[i].iov_len);
}

static inline ssize_t landed_parts(const struct iovec *to, size_t count, const char *bounce,
	ssize_t got)
{
	size_t left = got > 0 ? (size_t)got : 0;

	for (size_t i = 0; i < count && left; i++) {
		size_t n = CRN_MIN(left, to[i].iov_len);

		place(to[i].iov_base, bounce, n);
		bounce += n;
		left -= n;
	}
	return got;
}

#endif
