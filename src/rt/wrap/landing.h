/* SPDX-License-Identifier: MIT */
/*
 * Reading into a buffer of which perhaps only the first bytes will be written. The kernel writes to
 * a bounce buffer, and what has arrived is then copied to its place, where only that much is kept.
 *
 *	char bounce[BOUNCE_MAX(n)];
 *	if (!land(&l, bounce, sizeof(bounce), to, n))
 *		call(to, n);                            all of it that is there is kept
 *	else
 *		return landed(&l, call(l.part, l.parts));
 *
 * Small bounces lie on the stack. Large ones, and those for buffers that look as if they were for
 * direct I/O, which needs alignment, are berths (landing.c).
 */
#ifndef CRN_RT_LANDING_H
#define CRN_RT_LANDING_H

#include <limits.h>
#include <sys/types.h>
#include <sys/uio.h>
#include "rt/wrap/reach.h"
#include "rt/wrap/wrap.h"

#define BOUNCE_LIMIT ((size_t)1024) /* stacks for handlers may have 8 KiB */
#define BERTH_SIZE   ((size_t)2 << 20)
#define BLOCK        512ul

/* At least one, for an array may not be empty. */
#define BOUNCE_MAX(n) (!(n) || (size_t)(n) > BOUNCE_LIMIT ? 1 : (size_t)(n))

struct berth;

/*
 * BERTH_SIZE bytes, aligned to pages, that no restore turns back. *holder, on the caller's stack,
 * names it from then on until it is left: by that those are told whose call will never return (a
 * handler has left it, or its thread was cancelled), which are given to others. NULL, as *holder:
 * all are taken. Legal in signal handlers. Leaving one does not touch errno.
 */
struct berth *crn_berth_take(struct berth **holder);
char *crn_berth_memory(const struct berth *b);
void crn_berth_leave(struct berth *b);

struct landing {
	struct iovec part[2]; /* the bounce, and what of the buffer is beyond */
	int parts;
	char *to;
	struct berth *berth; /* NULL: the bounce is the caller's */
};

/*
 * False: the whole buffer is kept, and the call may write there. So it is with one of which not all
 * can be written: how much the kernel writes there, and takes for it, is its business.
 */
bool land(struct landing *l, char *bounce, size_t size, void *to, size_t n);
/* After the call, whose result this passes on. errno stays. */
ssize_t landed(const struct landing *l, ssize_t got);

/* The same of several buffers, for which there is one bounce: part[0]. */
bool land_parts(struct landing *l, char *bounce, size_t size, const struct iovec *to, size_t count);
ssize_t landed_parts(const struct landing *l, const struct iovec *to, size_t count, ssize_t got);

/* Bytes of all buffers together; SIZE_MAX: more than anybody may ask for, or there is no list. */
size_t parts_length(const struct iovec *to, size_t count);
void keep_parts(const struct iovec *to, size_t count);

#endif
