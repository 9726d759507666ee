/* SPDX-License-Identifier: MIT */
/*
 * Held output: `--commit hold`. What a program sends on stream sockets between two checkpoints is
 * kept here, outside every surface, and really sent when a checkpoint is about to cover it. So a
 * wake-up that answers fifty clients costs one checkpoint and not fifty.
 *
 *	program: send -> taken here, answered with the length      (crn_hold_call)
 *	...
 *	program: a call that waits, or that others can see         (crn_hold_call)
 *	      -> all of it is sent in the order of the calls, then the checkpoint (crn_hold_send)
 *	program crashes -> all of it is forgotten; the program runs and sends again (crn_hold_drop)
 *
 * The law: nobody outside sees bytes of an interval that a restore undoes. Between the sending and
 * the checkpoint this thread of the program runs no instruction, and `uncovered` refuses a restore
 * that another thread's crash might ask for.
 *
 * The program cannot tell, either. Bytes are taken only if the kernel would have taken them all at
 * once (hold_credit.c), and no call runs whose answer or effect depends on their having been sent
 * (hold_rules.c). An error of the real send is reported at the next call on the socket, as TCP
 * reports a reset that arrives a moment later.
 *
 *	held_output.c  the buffer, the real sends
 *	held_endings.c files, shutdown and close in the same list
 *	held_wakeups.c what the process writes to itself
 *	hold_credit.c  may bytes for this socket be held?
 *	hold_rules.c   which calls may run while bytes are held
 *
 * All of it runs under the effects' lock.
 */
#ifndef CRN_HOLD_H
#define CRN_HOLD_H

#include "effects/effects.h"

enum crn_held_kind {
	CRN_HELD_BYTES, /* one or more sends to one socket, in a row */
	CRN_HELD_WRITE, /* the same to a pipe or an eventfd */
	CRN_HELD_END,   /* shutdown(SHUT_WR) */
	CRN_HELD_CLOSE, /* fd is a high duplicate, which is closed */
};

/* Pieces follow each other in the buffer, 8-aligned. */
struct crn_held {
	int32_t fd;
	uint16_t kind;       /* enum crn_held_kind */
	uint16_t more;       /* send with MSG_MORE */
	uint32_t size;       /* of the bytes */
	uint32_t connection; /* crn_fd.connection */
	uint8_t bytes[] __attribute__((aligned(8)));
};

#define CRN_HOLD_SIZE (1u << 20) /* of the buffer */
#define CRN_HOLD_ONE  (256u << 10) /* no single send beyond this is held */

struct crn_hold {
	uint8_t *buffer;
	uint32_t used; /* 0: nothing is held */
	uint32_t last; /* offset of the last piece */
	uint64_t since;   /* ticks: when the first of them was taken */
	uint32_t looks;   /* how often a thread's timer has found them since */
	bool asked;       /* input was read since: a request is being served */
	uint64_t not_before; /* ticks: the kernel had no room although it said so: do not hold */
	bool uncovered; /* sent since the newest checkpoint */
	uint32_t lowat; /* net.ipv4.tcp_notsent_lowat, no more than this is held for one socket */
	uint64_t sends; /* calls that were answered so */
	uint32_t flushes; /* how often all of it was sent */
};

/* crn_fd.hold */
enum crn_fd_hold {
	CRN_FDH_UNKNOWN,
	CRN_FDH_TCP,
	CRN_FDH_LOCAL, /* a local stream socket with a name, to another process */
	CRN_FDH_OWN,   /* a pipe, a pair of nameless sockets: this process has the other end too */
	CRN_FDH_NEVER, /* or not any more: shut down, reset, failed */
};

/* ---- held_output.c --------------------------------------------------------------------------- */

int crn_hold_open(struct crn_effects *e);
/* Take the bytes of this call, if they may be held: true, with its result. */
bool crn_hold_take(struct crn_call *call);
/* Send everything. Afterwards `uncovered` is set, if there was anything. */
void crn_hold_send(void);
/* The same, from without the lock; the process ends. */
void crn_hold_flush(void);
/* A restore: nobody has seen it, and nobody will. */
void crn_hold_drop(void);
/* The piece that what comes next for this descriptor goes to: the last one, or a new one. */
struct crn_held *crn_held_add(struct crn_hold *h, int fd, enum crn_held_kind kind, bool more);
/* `n` bytes were added to it: they are this call's answer. `first`: nothing was held before. */
void crn_held_taken(struct crn_call *call, struct crn_held *p, long n, bool first);
static inline struct crn_held *crn_held_at(const struct crn_hold *h, uint32_t at)
{
	return (struct crn_held *)(h->buffer + at);
}
static inline uint32_t crn_held_next(const struct crn_hold *h, uint32_t at)
{
	return (at + (uint32_t)sizeof(struct crn_held) + crn_held_at(h, at)->size + 7) & ~7u;
}
/* Are there bytes for this descriptor's object, by whatever number? */
bool crn_hold_has(int fd);
/* Are there bytes on their way to this very descriptor: is it the other end of one of them? */
bool crn_hold_is_for(int fd);

/* The checkpoint failed: nothing can be undone until the next, and no call asks for one sooner. */
static inline void crn_hold_not_covered(void)
{
	if (crn_agent->effects->hold)
		crn_agent->effects->hold->uncovered = false;
}
/* How many calls were answered so. */
static inline uint64_t crn_hold_sends(void)
{
	const struct crn_effects *e = crn_agent->effects;

	return e && e->hold ? e->hold->sends : 0;
}

/* ---- held_endings.c -------------------------------------------------------------------------- */

/* Hold this sendfile, this shutdown: true, with its result. */
bool crn_hold_file(struct crn_call *call);
bool crn_hold_shutdown(struct crn_call *call);
/* Can the close of this descriptor be held? */
bool crn_hold_may_close(int fd);
/* It is about to be closed: `high` is the connection's number from here on. */
void crn_hold_closing(int fd, int high);
/* It was closed; its connection lives on under `high`. */
void crn_hold_closed(struct crn_thread *t, int high, uint32_t connection);

/* ---- held_wakeups.c -------------------------------------------------------------------------- */

/* May `n` bytes for this pipe or eventfd be held? */
bool crn_hold_may_wake(int fd, struct crn_fd *f, size_t n);
/* Is the other end of this nameless local socket ours as well, and wants no signal? */
bool crn_hold_is_pair(int fd, struct crn_fd *f);
/* Has the process's own other end asked for SIGIO, which must have come when the call returns? */
bool crn_hold_signals(const struct crn_fd *f);
/* Would a read of this descriptor find what is held? */
bool crn_hold_wakes(int fd, struct crn_fd *f);
/* Really write it: CRN_HELD_WRITE. */
void crn_hold_write(const struct crn_held *p);

/* ---- hold_credit.c --------------------------------------------------------------------------- */

/* May `n` bytes for this stream socket be held, and is there room? */
bool crn_hold_may_take(int fd, struct crn_fd *f, size_t n);
/* Does its close wait for the peer (SO_LINGER)? Then it cannot be made later, in a hook. */
bool crn_hold_lingers(int fd);
/* Bytes were given to the kernel past us: ask again how much room there is. */
void crn_hold_spent(int fd);
/* An option was set: ask again for everything. */
void crn_hold_doubt(int fd);
/* The two ends of a connection have the same number (others rarely): 0 if it is not known. */
uint32_t crn_hold_connection(int fd, struct crn_fd *f);

/* ---- hold_rules.c ---------------------------------------------------------------------------- */

/* Is there anything to be done before this call? Without the lock. */
static inline bool crn_hold_concerns(const struct crn_call *call, const struct crn_row *row)
{
	const struct crn_hold *h = crn_agent->effects->hold;

	return h && (h->used || row->site == CRN_CALL_SEND || call->nr == SYS_setsockopt ||
		call->nr == SYS_shutdown || call->nr == SYS_connect);
}
/*
 * Before a call of the program: hold its bytes (true: it is answered), or see to what is held.
 * Without the lock.
 */
bool crn_hold_call(struct crn_call *call, const struct crn_row *row);
/* After it: true if it must be made again, because what it found missing has only now been sent. */
bool crn_hold_missed(struct crn_call *call, const struct crn_row *row);

#endif
