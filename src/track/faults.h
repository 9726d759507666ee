/* SPDX-License-Identifier: MIT */
/*
 * SIGSEGV and SIGBUS, for a tracker: they serve first stores to protected pages, and let the
 * engine's own reads of memory that has vanished fail (os/guarded.h). There is one tracker at a
 * time per process. All other signals of these kinds belong to the program: its earlier handlers
 * are called for them.
 */
#ifndef CRN_FAULTS_H
#define CRN_FAULTS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "track/undo/guests.h"

struct crn_faults;
struct crn_track_env;

/*
 * Was it a first store to a protected page? Then it is open now, and true is answered: the store
 * runs again. Any thread, any instruction. `guest`: the caller, if it may die in the middle of it.
 */
typedef bool crn_store_fault(
	void *tracker, int sig, const siginfo_t *info, struct crn_guest *guest);

/*
 * Begin to handle faults, with handlers of our own in front of the program's unless
 * env->faults_forwarded. `store` may be NULL: nothing is protected. 0, CAIRN_EMEMORY, CAIRN_EBUSY.
 */
int crn_faults_open(struct crn_faults **out, struct crn_track_env *env, crn_store_fault *store,
	void *tracker);
void crn_faults_close(struct crn_faults *f);
/*
 * Would a fault of the calling thread come to us, as things are? Not if the program has blocked
 * these signals, or taken them back, behind our back. Three system calls at most.
 */
bool crn_faults_reach_us(const struct crn_faults *f);
struct crn_guests *crn_faults_guests(struct crn_faults *f);

/*
 * What a forked child must open again: ranges protected with mprotect, and their protection then. 0
 * or CAIRN_EMEMORY.
 */
int crn_faults_inherit(struct crn_faults *f, uintptr_t begin, uintptr_t end, int prot);
void crn_faults_disinherit(struct crn_faults *f, uintptr_t begin, uintptr_t end);

/*
 * A SIGSEGV or SIGBUS has come: is it served? The agent calls this before anything else; the
 * library's own handler does, and hands what is not ours to the program's. Legal on any stack that
 * is not itself protected. In a child after fork it opens what that has inherited protected.
 */
bool crn_faults_serve(int sig, siginfo_t *info, void *ucontext);

/*
 * While the calling thread is at something that no handler of the program's may leave, SIGSEGV and
 * SIGBUS that somebody sends it are held back, as others are by its signal mask. False: it is
 * already, or that cannot be. Else crn_faults_release, after which the mask from before is put back
 * (its signals are blocked by then). Not for the agent, which does that itself. f may be NULL.
 */
bool crn_faults_hold(struct crn_faults *f);
void crn_faults_release(struct crn_faults *f);

/*
 * In a forked child: give every page that it inherited protected its protection back, and its
 * signals to the program. Must come before the arena of the parent is unmapped there. In any other
 * process nothing is opened. Not in a handler. True: other threads may still come to our handler,
 * there or after crn_faults_close, and crn_arena_fault_pages must stay mapped.
 */
bool crn_faults_after_fork_child(void);

#endif
