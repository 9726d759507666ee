/* SPDX-License-Identifier: MIT */
/*
 * Handlers of first stores in processes that use the session's memory without being threads of its
 * process: children of vfork. Unlike a thread, such a process can be killed alone, in the middle of
 * a service, and would leave behind what others wait for. So it records where it is, and the kernel
 * records that it has died: `owner` is a robust futex.
 *
 *	owner 0 -> tid -> bit in `present` -> the handler -> no bit -> 0
 *	             \_________________________|_________/
 *	              killed: CRN_GUEST_DIED is set; with a bit, until somebody has repaired
 */
#ifndef CRN_GUESTS_H
#define CRN_GUESTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "os/thread.h"

#define CRN_GUESTS_MAX 16          /* at once; more are not told from threads */
#define CRN_GUEST_DIED 0x40000000u /* FUTEX_OWNER_DIED */

enum crn_guest_note {
	CRN_GUEST_PAGE,  /* what it is at */
	CRN_GUEST_FRAME, /* what it has taken */
	CRN_GUEST_NEXT,  /* the word that it is about to write */
	CRN_GUEST_OPENS, /* what it is at with everybody else kept out, and perhaps pages beside */
	CRN_GUEST_NOTES,
};

struct crn_guest {
	_Atomic uint32_t owner;
	_Atomic uint32_t inside; /* the tracker's gate */
	uintptr_t list;          /* its robust list, for as long as it is here */
	_Atomic uintptr_t notes[CRN_GUEST_NOTES]; /* the tracker's */
};

struct crn_guests {
	/*
	 * Process id of the session's, where stores are served. Else 0: nobody is asked who he is,
	 * which takes a call that a filter of the program's may forbid.
	 */
	int host;
	_Atomic uint32_t present; /* one bit for each */
	struct crn_guest at[CRN_GUESTS_MAX];
};

static inline bool crn_guest_died(const struct crn_guest *g)
{
	return atomic_load(&((struct crn_guest *)g)->owner) & CRN_GUEST_DIED;
}

/* Does the caller only use the session's memory? Not for forked children, who have zeros here. */
static inline bool crn_guest_calls(const struct crn_guests *guests)
{
	return guests->host && guests->host != crn_getpid();
}

/* Is any of those that are present alive? */
static inline bool crn_guests_live(const struct crn_guests *guests)
{
	uint32_t present = atomic_load(&((struct crn_guests *)guests)->present);

	for (unsigned i = 0; present >> i; i++)
		if (present >> i & 1 && !crn_guest_died(&guests->at[i]))
			return true;
	return false;
}

/* Is any of those that are present dead? */
static inline bool crn_guests_died(const struct crn_guests *guests)
{
	uint32_t present = atomic_load(&((struct crn_guests *)guests)->present);

	for (unsigned i = 0; present >> i; i++)
		if (present >> i & 1 && crn_guest_died(&guests->at[i]))
			return true;
	return false;
}

/* On the guest's stack: what the kernel reads when it dies (struct robust_list_head). */
struct crn_guest_visit {
	struct {
		void *first;
		int64_t offset;
		void *pending;
	} list;
	uintptr_t before;
	struct crn_guest *guest;
	bool nested; /* it is here already, in the handler that this one interrupts */
};

/*
 * The calling task becomes a guest. NULL: there is no room. SAFETY: any context; three system
 * calls.
 */
struct crn_guest *crn_guest_enter(struct crn_guests *guests, struct crn_guest_visit *v);
void crn_guest_leave(struct crn_guests *guests, struct crn_guest_visit *v);
/* Forget a dead one; of what it has left behind nothing is left. */
void crn_guest_bury(struct crn_guests *guests, struct crn_guest *g);

#endif
