/* SPDX-License-Identifier: MIT */
/*
 * Recovery from a crash of the program itself.
 *
 *	fault.c    a fatal signal came in: whether to go back, and going back
 *	ladder.c   how often, and how hard
 *	suspect.c  whose input it was, and disconnecting them
 *	local_reset.c  the same for local sockets
 *	bystander.c  has another thread run since the checkpoint?
 *	own_handler.c  faults that the program counts on, which are no crashes
 *	report.c   the one line about it
 *	symbol.c   an address as function+offset (object)
 */
#ifndef CRN_RECOVER_H
#define CRN_RECOVER_H

#include "agent.h"

#define CRN_RECOVERIES_A_SECOND 100

struct crn_recover {
	uint64_t recoveries, refused, resets;
	uint64_t recovery_ns, recovery_ns_last;
	uint64_t moments[CRN_RECOVERIES_A_SECOND]; /* of the last recoveries, ns; a ring */
	uint64_t wakeups_last;  /* completed wake-ups at the last recovery */
	uint32_t interval_last; /* the interval that it took back */
	uint64_t suspect_dev, suspect_ino; /* of the last recovery; ino 0: there was none */
	uint32_t rung_last;     /* enum crn_rung of the last recovery */
	bool split_last;        /* nothing was dropped then: it is to be read one by one */
};

/* A crash, copied out of the signal frame, which a restore overwrites. */
struct crn_crash {
	struct crn_thread *thread;
	int sig;
	uintptr_t address; /* si_addr */
	uintptr_t pc;
	uint64_t started_ns;
};

enum crn_rung {
	CRN_RUNG_AGAIN,   /* go back, give again all that was read, of a pipe or a terminal, too */
	CRN_RUNG_SUSPECT, /* go back, reset the suspect */
	CRN_RUNG_ALL,     /* go back, reset every socket that was read in the interval */
	CRN_RUNG_GIVE_UP, /* the program's own handler, or the default action */
};

/* An open descriptor and its object. fd -1: none. */
struct crn_suspect {
	int fd;
	uint64_t dev, ino;
	bool socket;
	bool connection; /* has one peer, who is reset; from others only what was read is dropped */
	bool own;        /* an end of a pair of the program's own: left as it is, with its input */
	bool peeked;     /* it was only looked at */
	uint32_t message; /* the piece that was read last, if that is a message; else 0 */
	bool several;    /* with others, by one read: nobody knows which of them it was */
};

/* ladder.c. *why is set when the answer is to give up. */
enum crn_rung crn_ladder_next(const struct crn_suspect *suspect, const char **why);
void crn_ladder_climbed(enum crn_rung rung, const struct crn_suspect *suspect);

/* suspect.c */
void crn_suspect_find(struct crn_suspect *out);
/* Disconnect it with a real reset, and forget its input. The peer's name goes to `peer`. */
void crn_suspect_reset(const struct crn_suspect *suspect, char *peer, size_t size);
/*
 * The same for every socket that was read in the interval. How many. Input of a pipe or the like is
 * dropped, too: *others.
 */
unsigned crn_suspects_reset_all(bool *others);

/* local_reset.c: true if its peer was told ECONNRESET; its numbers mean a dead socket now. */
bool crn_local_reset(int fd, uint64_t ino);

/* bystander.c: the id of a thread that has run since the checkpoint, or 0. */
int crn_bystander(const struct crn_thread *self);

/* own_handler.c: the program has gone on after such a fault before: its handler is to have it. */
bool crn_fault_is_own(const struct crn_thread *t, int sig);
/* Its code was generated, and there is a handler. Under the effects' lock. */
bool crn_fault_is_generated(const struct crn_crash *crash);

/* report.c */
void crn_report_recovery(
	const struct crn_crash *crash, uint64_t pages, uint64_t ns, const char *suspect);
/* tid 0: no thread stands in the way. */
void crn_report_refusal(const struct crn_crash *crash, const char *why, int tid);
/* The program has gone on by itself. */
void crn_report_own(int sig, uintptr_t pc);

/* symbol.c: "function+0x12 (object)", "object+0x1234" or "0x..."; never fails. */
void crn_symbol(uintptr_t address, char *out, size_t size);

#endif
