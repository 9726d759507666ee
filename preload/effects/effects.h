/* SPDX-License-Identifier: MIT */
/*
 * What the program's calls did to the world in the open interval, and how to take it back.
 *
 *	calls.c         one call: its row of effects.def, its hook, the sites that it is
 *	passing_calls.c which calls need no hook at present
 *	output_memory.c opens the memory that the kernel is about to write (signal trackers)
 *	in_flight.c     keeps it open while the call lasts
 *	descriptor_table.c  what each descriptor is
 *	both_ends.c     who has the other end of a pipe or of a local socket
 *	inverse.c       the journal of inverses
 *	record_locks.c  locks of parts of files, which any close of the file ends
 *	log_append.c    files that are cut back
 *	stream.c        bytes, datagrams, errors and sockets taken since the checkpoint, given again after a restore
 *	inherited_input.c   input to be given again, across a fork
 *	epoll_mirror.c  every epoll set's items, because the kernel tells neither disarmed masks nor data by descriptor
 *	address_space.c the program's limit of it, which the engine's does not count against
 *	reaped.c        children waited for since the checkpoint, told of again after a restore
 *	hold*.c, held*.c  what is sent, kept until a checkpoint covers it (hold.h)
 *	discarded_input.c  input that the program gets rid of without reading it
 *	hooks_*.c       one hook per kind of call
 *	interval.c      checkpoint taken / restore asked / restore done
 *
 * Life of an interval (only under --recover; the session is open):
 *
 *	crn_effects_settle -> memory checkpoint -> crn_effects_commit -> calls ...
 *	-> crn_effects_check, crn_effects_undo
 *
 * Invariants:
 *	unrecoverable != NULL  =>  no restore before the next commit
 *	every UNDO call of the interval has its inverse in `inverses`, or was raised to an OUTPUT
 *	a stream's consumed part [begin, cursor) was taken by the program in this interval
 *
 * All of it is guarded by `lock`, which nobody holds across a call of the program. The lock is
 * taken in hooks, where the program's signals wait, and in fault.c, which refuses to run when the
 * fault is in a hook.
 */
#ifndef CRN_EFFECTS_H
#define CRN_EFFECTS_H

#include <sys/resource.h>
#include "agent.h"
#include "base/bits.h"
#include "base/status.h"
#include "os/maps.h"
#include "os/sys.h"
#include "session/session.h"

enum crn_effect {
	CRN_EFFECT_NONE,
	CRN_EFFECT_UNDO,
	CRN_EFFECT_INPUT,
	CRN_EFFECT_OUTPUT,
	CRN_EFFECT_REFUSE,
	CRN_EFFECT_HELD, /* not in the table: an output that is kept until a checkpoint covers it */
};

enum crn_call_site { CRN_CALL_NONE_SITE, CRN_CALL_WAIT, CRN_CALL_SEND, CRN_CALL_MAPS };

/* ---- The table ------------------------------------------------------------------------------- */

/*
 * before may be NULL (run the call), and so may after. Both are called with the lock held, and only
 * while an interval is open. before may set call->effect; after sees call->result.
 */
struct crn_hook {
	enum crn_verdict (*before)(struct crn_call *call);
	void (*after)(struct crn_call *call);
};

struct crn_row {
	const char *name; /* NULL: not in the table */
	const struct crn_hook *hook;
	uint8_t effect;
	uint8_t site;
};
const struct crn_row *crn_row_of(long nr); /* never NULL */
/* Is it one of the event waits? accept on a listener that does not wait is none. */
bool crn_call_waits(struct crn_call *call, const struct crn_row *row);
/* Does it sleep until time has passed, a child has ended, a signal comes, or a futex is woken? */
bool crn_call_sleeps(const struct crn_call *call);
/* Does it wake whoever sleeps so, in another process? */
bool crn_call_wakes(const struct crn_call *call);

/* ---- Memory of the program, which may be anything -------------------------------------------- */

/* Copy from or to the program. 0 or -EFAULT; a write opens the pages first. */
int crn_user_read(void *dst, uintptr_t src, size_t len);
/* In some 2000 cycles, but without a fault of ours: for checkpoints, and after a crash. */
int crn_user_peek(void *dst, uintptr_t src, size_t len);
int crn_user_write(uintptr_t dst, const void *src, size_t len);
/*
 * The kernel is about to write [addr, addr+len). Does nothing under trackers that see that by
 * themselves.
 */
void crn_output_memory(uintptr_t addr, size_t len);
/* The same for everything that a call's row names. */
void crn_output_memory_of(const struct crn_in_flight *call);
/* Tell of each range that the kernel may write for the call; lengths as the program gave them. */
void crn_output_ranges(const struct crn_in_flight *call, crn_output_fn fn, void *arg);

/* While a session is opened, and while memory is taken away: not both at once. */
void crn_maps_hold(void);
void crn_maps_release(void);

/* Around crn_session_open: RLIMIT_AS has room for what it may reserve, or has reserved. */
void crn_space_open(void);
void crn_space_settle(bool opened);

/* in_flight.c: is the tracker (or may it be, before there is a session) one that must know? */
bool crn_output_matters(void);
/* Is there a session whose pages must be opened for a call that is on its thread's list? Waits. */
bool crn_output_ready(void);
/* Is a vfork child using our memory? */
bool crn_vfork_lives(void);

/* ---- Descriptors ----------------------------------------------------------------------------- */

enum crn_fd_kind {
	CRN_FD_UNKNOWN,   /* not looked at yet */
	CRN_FD_CLOSED,    /* the number is not open */
	CRN_FD_REGULAR,
	CRN_FD_DIRECTORY,
	CRN_FD_NULL,      /* /dev/null, zero, full, random, urandom: nothing is consumed */
	CRN_FD_STREAM,    /* connected or not: a stream socket, a listening one as well */
	CRN_FD_DATAGRAM,  /* a socket that keeps boundaries */
	CRN_FD_PIPE,
	CRN_FD_TTY,
	CRN_FD_EPOLL,
	CRN_FD_EVENT,     /* eventfd */
	CRN_FD_TIMER,     /* timerfd */
	CRN_FD_SIGNAL,    /* signalfd */
	CRN_FD_INOTIFY,
	CRN_FD_OTHER,     /* anything else: reads and writes are outputs */
};

enum crn_fd_flags {
	CRN_FDF_APPEND = 1u << 0,   /* O_APPEND */
	CRN_FDF_WRITEONLY = 1u << 1,
	CRN_FDF_COPIED = 1u << 2,   /* a socket that may have another number as well */
	CRN_FDF_LOCKED = 1u << 3,   /* of a file that was locked by its description: flock */
	CRN_FDF_READONLY = 1u << 4, /* a regular file */
	CRN_FDF_EMPTY = 1u << 5,    /* one that was empty, as the kernel's own say they are */
	CRN_FDF_AWAITED = 1u << 6,  /* poll or select has said that it is ready */
	CRN_FDF_KERNEL = 1u << 7,   /* a socket at whose other end is the kernel (netlink) */
};

struct crn_fd {
	uint8_t kind;  /* enum crn_fd_kind */
	uint8_t flags; /* enum crn_fd_flags */
	uint16_t file; /* regular: index into files, 0 if none */
	uint8_t hold;  /* a stream socket, a pipe, an eventfd: enum crn_fd_hold (hold.h) */
	bool never_waits;       /* O_NONBLOCK, when it was last asked for: in `asked` */
	uint32_t asked;         /* flag_changes then, */
	uint32_t alone;         /* births when it was accepted; 0: somebody may have it as well */
	uint32_t seek_round;    /* the offset was journalled in this round */
	uint32_t credit;        /* bytes that its send buffer is known to have room for */
	uint32_t connection;    /* a number that both ends share; 0: not asked yet */
	int32_t reader;         /* hold says OWN: the number of the other end, as it was */
	/* input that a wait had announced was dropped, after so many wake-ups, plus 1; 0: none */
	uint64_t dropped;
	/* of the object; anonymous ones: 0, and the number of a descriptor or of the eventfd */
	uint64_t dev, ino;
};

/*
 * What is known of regular files that the program writes: only then can an append be left as
 * written.
 */
struct crn_file {
	uint64_t dev, ino;
	bool shared_view; /* it was synced, or opened more than once: every write is an output */
	bool searched;    /* is it open by other descriptors of ours? */
	uint32_t append_round;   /* an append was journalled in this round, */
	uint32_t append_inverse; /* by this inverse */
};
#define CRN_FILES_MAX 1024

/*
 * Look (once) at a descriptor. Never NULL; kind CLOSED if it is not open. Valid until the table
 * changes.
 */
struct crn_fd *crn_fd_look(int fd);
/* It has just been made, and has no duplicates: spares asking the kernel for them. */
void crn_fd_made(int fd);
/* The number means something else from now on, or nothing. */
void crn_fd_forget(int fd);
void crn_fd_forget_range(unsigned from, unsigned to);
/* newfd is a duplicate of oldfd. */
void crn_fd_copy(int newfd, int oldfd);
bool crn_fd_is_pollable(const struct crn_fd *f);
bool crn_fd_is_socket(const struct crn_fd *f);
/* Is this number that object (not an anonymous one) right now? Any number, ours included. */
bool crn_fd_is_object(int fd, uint64_t dev, uint64_t ino);
/*
 * Do its reads never wait (O_NONBLOCK)? The kernel is asked, unless it is a connection that only
 * this process can have changed since, whose calls tell of that. (Who may debug the process may
 * take a descriptor out of it, and change that: he may do anything to it.)
 */
bool crn_fd_never_waits(int fd);
void crn_fd_accepted(int fd);
/*
 * A child gets all descriptors there are, or a message takes some along. `lasting`: and later ones.
 */
void crn_fds_shared(bool lasting);
/* The program, or a restore, changes the status flags of some descriptor. Before it and after. */
void crn_fds_changed(void);
/* Its status flags are others now, and so are those of its duplicates. */
void crn_fd_flags_changed(int fd);
/* Does another descriptor that we know of mean the same object? */
bool crn_fd_has_twin(int fd);
/* Are these duplicates? The kernel is asked. */
bool crn_fd_is_copy(int fd, int other);
/* Is it a timer or the like, known by this very number? */
bool crn_fd_is_name(int fd);
int crn_fd_rename(int fd);
/* crn_fd.hold of this object (a stream socket), by whatever number: enum crn_fd_hold. */
void crn_fd_hold_set(int fd, uint8_t hold);
/* A reading end wants a signal from now on (O_ASYNC): judge anew who may be held for. */
void crn_fd_signals(void);
/* The program locks the file by this description: closing what it has of it may unlock it. */
void crn_fd_locked(int fd);
/*
 * both_ends.c. The numbers by which a process has this `kind` ("pipe", "socket") of object: how
 * many, at most max; -errno.
 */
long crn_fd_numbers(int pid, const char *kind, uint64_t ino, int *out, long max);
/* The inode of the local socket that this one is connected to; 0: the kernel does not tell. */
uint64_t crn_local_peer(uint64_t ino);
/*
 * So many bytes may be held for this stream socket, by this number; by another one only after the
 * kernel was asked again.
 */
void crn_fd_credit_set(int fd, uint32_t credit);
/*
 * The program opened this regular file by name; `fresh`: and thereby made it. `flags` are those of
 * the call, -1: the kernel is asked.
 */
void crn_file_opened(int fd, bool fresh, long flags);
struct crn_file *crn_file_of(const struct crn_fd *f);

/* ---- Inverses -------------------------------------------------------------------------------- */

enum crn_inverse_kind {
	CRN_INV_CLOSE,      /* close fd; a: when it was opened there was no other number for it */
	CRN_INV_REOPEN,     /* fd comes back from the high duplicate `other`; a = FD_CLOEXEC or 0 */
	CRN_INV_UNACCEPT,   /* fd goes back to the listening socket `other`; text = its address */
	CRN_INV_SEEK,       /* fd to offset a */
	CRN_INV_STATUS,     /* fd's file status flags to a */
	CRN_INV_CLOEXEC,    /* fd's descriptor flags to a */
	/* set fd: item `other` back to events a, data b; c: EPOLL_CTL_* to do */
	CRN_INV_EPOLL,
	CRN_INV_UNMAP,      /* munmap [a, a+b) */
	CRN_INV_KEEP,       /* the delayed munmap [a, a+b) is not wanted any more */
	CRN_INV_BREAK,      /* the kernel's program break to a */
	CRN_INV_BREAK_KEPT, /* break_put_off to a */
	CRN_INV_PROTECT,    /* [a, a+b) to protection c */
	CRN_INV_ACTION,     /* signal fd: text = struct crn_ksigaction */
	/* a: so many signals of the interval came before; b: its own was pending (ITIMER) */
	CRN_INV_ITIMER,     /* interval timer fd: text = struct itimerval */
	CRN_INV_TIMER,      /* POSIX timer fd: text = struct itimerspec */
	CRN_INV_TIMERFD,    /* timerfd fd: text likewise; a: where the pool ended */
	CRN_INV_OPTION,     /* socket fd, level a, option b: text, c bytes */
	CRN_INV_UMASK,      /* a */
	CRN_INV_FOLDER,     /* the working directory to the high descriptor `other` */
	/* fd was a long, is b longer by what was appended, its offset was c (log_append.c) */
	CRN_INV_APPEND,
	CRN_INV_UNLOCK,     /* file fd: b bytes from a on (0: up to the end), a record lock */
};

#define CRN_INVERSE_TEXT 128
struct crn_inverse {
	uint32_t kind; /* enum crn_inverse_kind */
	int32_t fd, other;
	uint32_t pad;
	uint64_t a, b, c;
	uint8_t text[CRN_INVERSE_TEXT];
};
#define CRN_INVERSES_MAX 8192

/*
 * Room for one more, with kind and fd set and the rest zero; NULL when the journal is full: the
 * call (NULL: none) is then raised to an output here. Only after the call has succeeded.
 */
struct crn_inverse *crn_inverse_add(struct crn_call *call, enum crn_inverse_kind kind, int fd);

/*
 * The descriptor is about to be closed. If the last thing to be undone is that it was opened, or
 * how far it was read since, that is forgotten: true, nothing is left of it.
 */
bool crn_inverse_unopen(int fd);

/* What setitimer's timer `which` sends. */
int crn_itimer_signal(int which);

/* The inverse that holds this high duplicate is void: the duplicate is closed now. */
void crn_inverse_void(enum crn_inverse_kind kind, int other);

/* ---- Streams: input taken, and input to give again ------------------------------------------- */

enum crn_piece_kind { CRN_PIECE_BYTES, CRN_PIECE_ERROR, CRN_PIECE_SOCKET };

/* One read's worth. Lies in the pool; name, control data and data follow. */
struct crn_piece {
	uint32_t next;  /* offset in the pool, 0: last */
	uint32_t size;  /* of data */
	uint16_t kind;  /* enum crn_piece_kind */
	uint16_t name_len;
	/*
	 * ERROR: the (negative) result; SOCKET: its high descriptor, or its number while accepted
	 */
	int32_t value;
	uint32_t flags; /* msg_flags */
	uint32_t control_len;
	uint32_t full; /* what the message was before it was cut to the buffers (MSG_TRUNC) */
	/* name, control data, data: each from a multiple of 8 on */
	uint8_t text[] __attribute__((aligned(8)));
};

/* How much of it one read takes. */
enum crn_stream_shape {
	CRN_SHAPE_BYTES,    /* any part, of several pieces */
	CRN_SHAPE_PARTS,    /* any part of one piece: a line of a terminal, a packet of a pipe */
	CRN_SHAPE_MESSAGES, /* one piece; what does not fit is lost */
	CRN_SHAPE_NUMBERS,  /* one piece, which is a number of 8 bytes: eventfd, timerfd */
	CRN_SHAPE_SIGNALS,  /* whole records of a signalfd */
	CRN_SHAPE_EVENTS,   /* whole events of inotify */
};

struct crn_stream {
	uint64_t dev, ino; /* of the object */
	int32_t fd;        /* the number that it was last read by */
	uint32_t first, last; /* pieces, by offset; 0: none */
	uint32_t cursor;   /* piece to be given next, 0: all have been taken */
	uint32_t cursor_at; /* bytes of it that have been taken */
	uint32_t begin_at;  /* bytes of the first piece that had been taken at the checkpoint */
	uint8_t shape;     /* enum crn_stream_shape */
	/* messages: only one at a time is given again, for one of those read at once was a crash */
	bool singly;
	uint32_t newest;   /* messages: the first piece that the last read took */
	uint32_t dropped;  /* messages: the piece that the last restore has taken out */
	uint32_t *claim;   /* NULL: nobody else may be given it (inherited_input.c) */
};
#define CRN_STREAMS_MAX 4096
#define CRN_POOL_SIZE   (2u << 20)
#define CRN_POOL_SOFT   (1u << 20) /* past this a checkpoint is taken */

/* The stream of a descriptor, or NULL. */
struct crn_stream *crn_stream_find(const struct crn_fd *f);
/* Is there something to be given before the kernel is asked? */
bool crn_stream_pending(const struct crn_stream *s);
bool crn_fd_pending(int fd);
/* Bytes that a read could be given now. */
size_t crn_stream_ready_bytes(const struct crn_stream *s);

/* What one read has brought: `len` bytes in the program's buffers, who sent them, and what with. */
struct crn_taken {
	const struct iovec *iov;
	size_t count, len;
	const void *name, *control;
	uint16_t name_len;
	uint32_t control_len, flags;
	uint32_t full; /* 0: len */
};
/* Keep it (the cursor moves past it). Raises the call to an output when there is no room. */
void crn_stream_keep(struct crn_call *call, int fd, const struct crn_taken *taken);
void crn_stream_keep_error(struct crn_call *call, int fd);
/* An error that the next read is to get, though nobody has read yet. */
void crn_stream_owe_error(int fd, long error);
/* An accepted socket; its offset in the pool, 0 if there was no room. */
uint32_t crn_stream_keep_socket(struct crn_call *call, int listener, int fd);
enum crn_give {
	CRN_GIVE_PEEK = 1u << 0,    /* the cursor stays */
	CRN_GIVE_DISCARD = 1u << 1, /* a buffer of NULL throws away */
};
/*
 * Give what fits into the program's buffers. The read's result. `how`: enum crn_give; *out (may be
 * NULL) is the first piece.
 */
long crn_stream_give(struct crn_stream *s, const struct iovec *iov, size_t count, unsigned how,
	struct crn_piece **out);
/*
 * A stream socket with something to give, of which the program wants `want` bytes at once: what the
 * kernel has is put behind it, without waiting, as if nobody had read it yet.
 */
void crn_stream_pull(struct crn_stream *s, int fd, size_t want);
/* Whose input was consumed last is the suspect: this descriptor's. */
void crn_stream_consumed(int fd);
static inline uint8_t *crn_piece_control(struct crn_piece *p)
{
	return p->text + (p->name_len + 7) / 8 * 8;
}
static inline uint8_t *crn_piece_data(struct crn_piece *p)
{
	return crn_piece_control(p) + (p->control_len + 7) / 8 * 8;
}
/*
 * The accepted socket to be given next, as an offset in the pool, or 0; crn_stream_skip moves past
 * it.
 */
uint32_t crn_stream_socket(struct crn_stream *s);
void crn_stream_skip(struct crn_stream *s);
struct crn_piece *crn_piece_at(uint32_t offset);
/*
 * A descriptor is about to be closed: if it is the last one of its object, what was kept is of no
 * use any more.
 */
void crn_stream_closed(int fd);
/* The number is closed by which duplicates that stay are known, too. */
void crn_stream_rename(int fd);
/* Interval ended: drop what was taken. Restore: everything kept is to be given again. */
void crn_streams_commit(void);
/* After streams have come from elsewhere. */
void crn_streams_count(void);
void crn_streams_rewind(void);
/* The suspect's: nothing of it is given again. */
void crn_stream_drop(struct crn_stream *s);
/* These are the messages, from the piece `first` on, that one read has taken. */
void crn_stream_read_at_once(int fd, uint32_t first);
/* The message that was read last; 0: there is none. *several: others came by the same read. */
uint32_t crn_stream_last_message(const struct crn_stream *s, bool *several);
/* After the rewind: this one is not given again. False: there is no other one. */
bool crn_stream_take_out(struct crn_stream *s, uint32_t message);
/* The program has looked at what it will read; piece 0: the kernel has it. */
void crn_stream_peeked(int fd, uint32_t piece);

/* ---- Children that were waited for (reaped.c) ------------------------------------------------ */

/* Is it to be told of again? pid -1: any. */
bool crn_reaped_pending(int pid);
/* Interval ended: forget those that were told of. Restore: all are to be told of again. */
void crn_reaped_commit(void);
void crn_reaped_rewind(void);

/* ---- epoll ----------------------------------------------------------------------------------- */

struct crn_epoll_item {
	int32_t fd; /* -1: free, -2: was used */
	uint32_t events;
	uint64_t data;
	uint32_t fired;     /* one-shot: the interval in which it fired; 0: it is armed */
	bool edge;          /* edge-triggered: a replayed edge is still to be reported */
};

struct crn_epoll_set {
	uint64_t dev, ino;
	int32_t fd;
	bool live;
	uint32_t delivered;         /* the interval in which events were last handed out */
	uint32_t oneshots;          /* items that were ever one-shot */
	/* open addressing; size: a power of two, used: includes removed ones */
	uint32_t count, used, size;
	struct crn_epoll_item *items;
};
#define CRN_EPOLL_SETS_MAX 256

struct crn_epoll_set *crn_epoll_look(int epfd);
struct crn_epoll_item *crn_epoll_find(struct crn_epoll_set *set, int fd);
/* epoll_ctl on the kernel's set and on the mirror. 0 or -errno. */
int crn_epoll_put(int epfd, int op, int fd, uint32_t events, uint64_t data);
/* The same on the mirror alone. */
void crn_epoll_note(int epfd, int op, int fd, uint32_t events, uint64_t data);
/* A wait of this interval returned these events. */
void crn_epoll_delivered(const struct crn_call *call);
void crn_epoll_forget_fd(int fd); /* closed: the kernel drops it from every set */
bool crn_epoll_holds(int fd); /* is it in any? */
/* Take it out of every set, as the kernel would if it were really closed; with inverses. */
void crn_epoll_leave(struct crn_call *call, int fd);
/* The number means another object, which is watched as the old one was. */
void crn_epoll_join_again(int fd);
void crn_epoll_closed(int epfd);
void crn_epoll_rearm(void);       /* after a restore */

/* ---- The state ------------------------------------------------------------------------------- */

struct crn_delayed {
	uint64_t addr, len;
};
#define CRN_DELAYED_MAX 1024
#define CRN_DELAYED_BYTES (256ul << 20)

struct crn_signal_log {
	int32_t sig, tid; /* sig 0: not to be raised again */
	siginfo_t info;
};
#define CRN_SIGNALS_MAX 64

/* A child that has ended, and was waited for. */
struct crn_reaped {
	int32_t pid, status; /* as from wait4 */
	int32_t group;       /* 0: not known */
	uint32_t uid;
	bool taken;          /* in this interval; else it is to be told of again */
	struct rusage usage; /* zeros if nobody asked */
};
#define CRN_REAPED_MAX 64

#define CRN_FD_CHUNK 256
#define CRN_FD_CHUNKS_MAX 4096
struct crn_effects {
	uint32_t lock;
	uint32_t interval;          /* number of the open interval; from 1 */
	bool open;                  /* an interval is open: --recover and at least one checkpoint */
	/* the tracker's pages must be opened before the kernel writes them */
	bool kernel_needs_open_pages;
	/* the tracker loses what MADV_DONTNEED drops unless it is told first */
	bool drops_need_saving;
	char unrecoverable[128];    /* why the open interval cannot be undone; "" if it can */
	struct crn_thread *owner;   /* took the newest checkpoint */
	bool at_wait;               /* the newest checkpoint lies at the entry of a wait ... */
	bool waits_again;           /* ... which is about to be made again: no new wake-up */
	bool waited;                /* the program is one that waits for events */

	uint32_t births;       /* of processes with our descriptors, plus 1; 0: some share all */
	uint32_t flag_changes; /* plus 1 */
	struct crn_fd **fds;        /* CRN_FD_CHUNKS_MAX chunks of CRN_FD_CHUNK, or NULL */
	uint32_t fd_chunks;         /* none but NULL from here on; at least 1 */
	struct crn_fd strangers[2];
	struct crn_file *files;     /* [0] is not used */
	uint32_t file_count;
	bool keeps_files; /* that the program has closed, until the next checkpoint */
	bool let_go;      /* those are really closed: a checkpoint must follow */
	bool file_locks; /* by F_SETLK, or earlier: closing a descriptor may unlock one */
	int rlimit_nofile; /* as it was last read */

	struct crn_inverse *inverses;
	uint32_t inverse_count;
	uint32_t round; /* changes when the journal is emptied: at a commit and by a restore */
	uint32_t restores; /* so many */
	uint32_t folder_round; /* in which the working directory was journalled */
	struct crn_delayed *delayed;
	uint32_t delayed_count;
	uint64_t delayed_bytes;
	uintptr_t break_put_off; /* the program's break; 0: the kernel's (hooks_break.c) */

	uint8_t *pool, *pool_spare;
	uint32_t pool_used;         /* starts at 8: offset 0 means none */
	struct crn_stream *streams;
	uint32_t stream_count;
	/* upper bound of streams with something to give; 0: fast path */
	uint32_t pending_count;
	/* whose input was consumed last; `since` the last recovery, something new */
	struct { uint64_t dev, ino; int32_t fd; bool since; } last_input;
	/*
	 * whose input was looked at later than that, without reading it; ino 0: nobody's; piece 0:
	 * the kernel has it
	 */
	struct { uint64_t dev, ino; int32_t fd; uint32_t interval, piece; } last_peek;

	struct crn_epoll_set *epolls;
	uint32_t epolls_used; /* none was ever live from here on */

	struct crn_hold *hold;      /* NULL: each output is followed by a checkpoint of its own */
	struct crn_signal_log signals[CRN_SIGNALS_MAX];
	uint32_t signal_count;

	struct crn_reaped reaped[CRN_REAPED_MAX];
	uint32_t reaped_count;

	uint64_t wakeups;           /* completed: a wait has been entered again */
	struct crn_maps maps;       /* kept open for protections; fd -1: not open */
	char maps_buffer[CRN_MAPS_BUFFER];
};

void crn_effects_lock(void);
void crn_effects_unlock(void);

/* Before memory: open what the program has made read-only since, where the engine would not. */
void crn_inverses_open_memory(void);
/* After it: take the program's interval back, in reverse order. */
void crn_inverses_run(void);
/* Forget the inverses; the files that were held open may go. */
void crn_inverses_drop(void);
/* Let these files go alone, so that nothing of the interval can be undone. Were there any? */
bool crn_inverses_close(void);

/* Make the state; the session is open. 0 or a negative code. */
int crn_effects_open(void);
/* Before a checkpoint: do what was delayed, so that it does not contain that. Was there any? */
bool crn_effects_settle(void);
/* The same with what it has closed: a child that is about to be forked would have it for good. */
void crn_effects_let_go(void);
bool crn_effects_close_kept(void); /* only what it has closed; was there anything? */
/* The open interval cannot be undone; the first reason stays until the next checkpoint. */
void crn_effects_cannot_undo(const char *why);
/* This one call is an output after all. */
static inline void crn_call_raise(struct crn_call *call)
{
	call->effect = CRN_EFFECT_OUTPUT;
}

/* Blocks of the engine's arena, zeroed; none can be given back, so tables grow by doubling. */
void *crn_effects_alloc(size_t size);

/* The program's limit of descriptors, as it is now. */
void crn_fd_limit_read(void);
int crn_hold_duplicate(int fd); /* by a number that the program does not use; -errno */
void crn_hold_release(int high);

#endif
