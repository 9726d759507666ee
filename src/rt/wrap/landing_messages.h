/* SPDX-License-Identifier: MIT */
/*
 * Receiving several messages, each into several buffers: the kernel writes to a berth (landing.h),
 * and what has arrived is copied to its place.
 */
#ifndef CRN_RT_LANDING_MESSAGES_H
#define CRN_RT_LANDING_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include "os/call_memory.h"
#include "rt/wrap/landing.h"

#define CRN_PIECES 32

/* Keeps what it is told of, as far as it is there, and reads what is. */
extern const struct crn_call_listener crn_call_keeps;

/* The lists lie in the berth. `theirs` and `parts` are the program's, as they were. */
struct message_landing {
	struct berth *berth;
	char *free;                /* of the berth, from here on */
	size_t count;
	struct mmsghdr *messages;  /* for the call, each with one buffer */
	struct iovec *bounces;     /* these */
	struct mmsghdr *theirs;
	struct iovec *parts, *next; /* of the message that is placed next */
	struct iovec to[CRN_PIECES], from[CRN_PIECES]; /* what has come, and not been placed */
	size_t pieces;
	int err;
};

/* False: there is no place, or nothing to be had; nothing has been kept. `flags` of recvmmsg. */
bool land_messages(struct message_landing *l, struct mmsghdr *messages, size_t count,
	int flags);
/* After the call: its result, or -EFAULT. errno stays. */
long landed_messages(struct message_landing *l, struct mmsghdr *messages, long got);

/*
 * The steps of these. A berth, with room for headers; the caller fills in `theirs`. Then a bounce
 * for each, and for what the kernel writes beside it (false: the berth has been left). What has
 * come for number i, as msg_len says, to its place. The end: `got`, or -EFAULT.
 */
bool land_headers(struct message_landing *l, size_t count);
bool land_spread(struct message_landing *l);
void landed_one(struct message_landing *l, size_t i);
void landed_piece(struct message_landing *l, void *to, const void *from, size_t n);
long landed_all(struct message_landing *l, long got);

#endif
