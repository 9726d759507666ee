/* SPDX-License-Identifier: MIT */
/*
 * The keeper: a tiny process that holds a second reference to the engine's open files. A program
 * may close all descriptors that it does not know (close_range, closefrom), but a userfaultfd
 * protects and a BPF link feeds for as long as anybody holds it. A descriptor that was closed is
 * fetched back when a call on it fails.
 *
 *	program                                 keeper
 *	  *where --> fd 1017 --> open file <-- fd 1017, and no other
 *	  struct crn_keeper (shared memory) <--> the same; its code; nothing else of our memory
 *	  lifeline --------------------------->  sleeps until this process ends or executes another
 *
 * `owner` is a robust futex of the keeper. When the keeper dies, for whatever reason, the kernel
 * itself clears it before it closes the keeper's files. So one load, without a system call, tells
 * that nothing that was registered has gone away.
 *
 * Like frozen children (os/process.h) the keeper stays invisible: it sends no SIGCHLD, wait() does
 * not return it without __WALL, it has a session of its own, and no descriptor, directory or lock
 * of the program's. It is born as a fork of the program and gives the memory back at once, so it
 * costs one fork.
 *
 * It can also read the events of userfaultfds (struct crn_uffd_events), which make calls sleep that
 * change a mapping: one load tells whether one has. If the reader were killed, such calls would
 * sleep for ever, so there is a twin that reads events as well. The twin has memory of its own,
 * because the kernel, short of memory, kills all processes that share the victim's.
 *
 * There may be no keeper (no process to be had, pidfd_getfd refused by a sandbox, a program that
 * has unshared its PID namespace). Then `owner` is 0, and whoever needs to know asks
 * crn_keeper_mend. The agent lets nobody close the engine's descriptors, so under it there is no
 * process, and `owner` is never 0.
 *
 * Thread- and signal-safety: mend is legal in any context, write-fault handlers included, and takes
 * no memory. The other calls come with the session's lock held.
 */
#ifndef CRN_OS_KEEPER_H
#define CRN_OS_KEEPER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "os/descriptor.h"
#include "os/userfault.h"

#define CRN_KEEPER_MAX      32
#define CRN_KEEPER_FILES    2           /* whose events are read */
#define CRN_KEEPER_TID_MASK 0x3fffffffu /* FUTEX_TID_MASK */

struct crn_keeper_entry {
	int *where;           /* the holder's variable; NULL: free */
	int number;           /* of the keeper's own descriptor; -1: it has none */
	bool common;          /* the identity is that of many anonymous files */
	int (*reopen)(void);  /* makes a new one that is as good; NULL: there is none */
	struct crn_fd_identity id;
};

/* What the kernel walks when the keeper dies: struct robust_list_head, and one entry. */
struct crn_keeper_robust {
	void *first;
	int64_t offset; /* from an entry to its futex */
	void *pending;
	void *entry; /* points back to `first`: the end */
};

/* A range of memory that the keeper gives back. */
struct crn_keeper_gap {
	uint64_t begin, len;
};

/* Who reads events: two processes, each with a thread for it (keeper.S). */
struct crn_keeper_readers {
	struct crn_uffd_events events;
	_Atomic uint32_t count;      /* of those that have begun, and << 16 of those that cannot */
	uint32_t twin;               /* process id of the second one, or 0 */
	_Atomic uint32_t twin_owner; /* like `owner` below */
	struct crn_keeper_robust robust;
	char name[16]; /* of the twin's */
	struct crn_keeper_reader {
		struct crn_keeper_file { /* struct pollfd; fd is -1: none */
			int32_t fd;
			int16_t events, revents;
		} file[CRN_KEEPER_FILES];
	} reader[2];
	uint32_t begun; /* readers that will be counted in `count` */
};

/* Shared memory. */
struct crn_keeper {
	_Atomic uint32_t owner; /* the keeper's id; its low 30 bits are 0 when it is dead */
	uint32_t state;         /* handshake: 0, 1, or a negated errno */
	uint32_t light;         /* 1: the child has given back its copy of the program's memory */
	struct crn_keeper_robust robust;
	struct crn_keeper_gap gaps[5];

	int pid;        /* or 0 */
	void *lifeline; /* mapping, or NULL */
	uint32_t births_left;
	_Atomic uint32_t busy; /* somebody mends */
	/* Userfaultfds whose events are read; NULL behind the last. */
	const int *events_of[CRN_KEEPER_FILES];
	struct crn_keeper_readers readers;
	struct crn_keeper_entry entries[CRN_KEEPER_MAX];
	struct crn_uffd_event log[CRN_UFFD_LOG];
};
_Static_assert(offsetof(struct crn_keeper, light) == offsetof(struct crn_keeper, state) + 4,
	"keeper.S");

/* No process yet. 0 or -errno. */
int crn_keeper_open(struct crn_keeper **out);
/* End the process. Entries are forgotten, their descriptors stay. NULL is fine. */
void crn_keeper_close(struct crn_keeper *k);

/*
 * From now on *where is one of ours: mend looks after it and may give it another number. It is read
 * by whoever uses the descriptor, in any thread. With `reopen` no process is needed for it. A
 * keeper that is alive is replaced by one that holds this as well. 0, or -ENOSPC.
 */
int crn_keeper_hold(struct crn_keeper *k, int *where, int (*reopen)(void));
/* Close *where if it is still ours, and set it to -1. In the keeper it stays until its end. */
void crn_keeper_drop(struct crn_keeper *k, int *where);

/*
 * From crn_keeper_start on events of this userfaultfd, which is held, are read, by the process and
 * by its twin, until it is dropped: whoever causes one waits for that, for ever if there is nobody
 * left. CRN_KEEPER_FILES at most.
 */
void crn_keeper_read_events(struct crn_keeper *k, const int *where);

/*
 * Make the process, if an entry needs one. 0, or -errno: then all goes on without. Must come before
 * somebody may close descriptors.
 */
int crn_keeper_start(struct crn_keeper *k);

/* Nothing that is registered can have gone away. */
static inline bool crn_keeper_lives(const struct crn_keeper *k)
{
	uint32_t owner = atomic_load_explicit(
		&((struct crn_keeper *)k)->owner, memory_order_acquire);

	return (owner & CRN_KEEPER_TID_MASK) != 0;
}

/* There is none, or it shares no pages with the program any more. */
static inline bool crn_keeper_is_light(const struct crn_keeper *k)
{
	return !k->pid || __atomic_load_n(&k->light, __ATOMIC_ACQUIRE) || !crn_keeper_lives(k);
}

/* Events are read, and twice, so that they are when one of the two has been killed. */
static inline bool crn_keeper_reads(const struct crn_keeper *k)
{
	const struct crn_keeper_readers *r = &k->readers;

	return crn_keeper_lives(k) && (r->twin_owner & CRN_KEEPER_TID_MASK) &&
		(r->count & 0xffff) == 2;
}

/*
 * Wait until all that readers have counted is in the log and done. Two seconds at most if one of
 * them has been killed; five more, if one has been stopped: both are ended then. The count so far.
 * Any context.
 */
uint32_t crn_keeper_await_log(const struct crn_keeper *k);

/*
 * Look at each entry and bring back what is no longer there. 0: all was as it should be; 1:
 * something was brought back, so what failed may be tried again; -EBADF: something that cannot be
 * reopened is lost, and with it perhaps what has happened since. What is not there is -1 in *where.
 */
int crn_keeper_mend(struct crn_keeper *k);

/*
 * At a checkpoint: 0 if everything has been there all the time. No system call while the keeper
 * lives; else mend, and a new keeper if possible. -EBADF as above.
 */
int crn_keeper_renew(struct crn_keeper *k);
static inline int crn_keeper_check(struct crn_keeper *k)
{
	bool all = k->events_of[0] ? crn_keeper_reads(k) : crn_keeper_lives(k);

	return __builtin_expect(all, 1) ? 0 : crn_keeper_renew(k);
}

/*
 * End the process, and wait for that: what it alone holds has ended then. Entries stay. For calls
 * that hold the session's lock.
 */
void crn_keeper_end(struct crn_keeper *k);

/*
 * Nothing can be fetched from the keeper any more: let it go, so that what it alone holds (a
 * protection that nobody could lift) ends with it. Any context.
 */
void crn_keeper_dismiss(struct crn_keeper *k);

#endif
