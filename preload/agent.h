/* SPDX-License-Identifier: MIT */
/*
 * The agent: Cairn inside an unmodified program. This header is the interface between its folders:
 *
 *	intercept/   gets every system call here, before and after it runs, and every signal
 *	effects/     knows from effects.def what each call does to the world; journals its inverse
 *	sites/       decides after which calls a checkpoint is taken
 *	recover/     goes back after a crash: memory, inverses, replayed input, the suspect's reset
 *
 * How one call flows:
 *
 *	program: syscall instruction -> stub -> crn_call_before  (agent's stack)
 *	                                     -> the real syscall (program's stack and registers)
 *	                                     -> crn_call_after   (agent's stack) -> program
 *
 * Everything here runs inside somebody else's program: no libc, no TLS variables of libc, no
 * malloc, no locks that a signal handler of the program could meet (its handlers are deferred while
 * a thread is in a hook, which is what makes a hook legal). All state lives in the engine's arena,
 * never in the surface.
 */
#ifndef CRN_AGENT_H
#define CRN_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "cairn/cairn.h"
#include "os/signal.h"
#include "intercept/layout.h"

/* General registers of a thread at a system call, as the program sees them. Order is the stub's. */
struct crn_regs {
	uint64_t r15, r14, r13, r12, rbp, rbx;
	uint64_t r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi;
	uint64_t rflags, rsp, rip;
};

/* Everything needed to run on from somewhere: a checkpoint keeps one per thread. */
struct crn_context {
	struct crn_regs regs;
	uint64_t sigmask; /* as the program believes it to be */
	stack_t altstack; /* likewise */
	uint64_t fs_base; /* where the kernel lets programs change it without a call */
	/* crn_agent->xstate_size bytes, 64-byte aligned, its owner's; NULL: not kept */
	void *xstate;
};

struct crn_thread;

/* A system call on its way. args are rdi, rsi, rdx, r10, r8, r9; a before-hook may change them. */
struct crn_call {
	long nr;
	long args[6];
	long result; /* after the call; or set by a before-hook that answers it itself */
	struct crn_thread *thread;
	uintptr_t site; /* address of the program's syscall instruction (or of its patched mov) */
	uint32_t effect;  /* enum crn_effect, filled by effects/ */
	uint8_t waits;    /* effects/: an accept: 1 it does not wait, 2 it does, 0 not asked yet */
	bool covered;     /* a checkpoint was taken at its entry: its return needs none */
	uint32_t flushes; /* crn_hold.flushes before it ran */
	/* not a call but the site config.sites[spec - 1], func or timer; 0 for calls */
	uint32_t spec;
	/* set by an after-hook: make the call once more, hooks and all; the program sees nothing */
	bool again;
	uint64_t scratch[8]; /* from the before-hook to the after-hook of the same call */
};

enum crn_verdict {
	CRN_CALL_RUN,      /* run it; no after-hook */
	CRN_CALL_RUN_THEN, /* run it, then the after-hook */
	CRN_CALL_ANSWERED, /* do not run it: `result` is the answer */
};

/* A call between its two hooks. */
struct crn_pending {
	struct crn_call call;
	uint64_t rsp;     /* the program's: tells pending calls of one thread apart */
	long original[6]; /* the argument registers as the program loaded them */
	uint64_t began_ns; /* timer.c: when its timeout began, or was found; 0: nobody asks */
	uint64_t words[2]; /* intercept/: what stands in for a mask of the program */
	long moved;     /* cut_short.c: bytes moved by the parts of the call that are done */
	bool after;     /* effects/ asked for its after-hook */
	bool waits;     /* the call waits under words[0] as its signal mask */
	bool masked;    /* words stand in for a mask with reserved signals */
	bool left;      /* a handler of the program was begun in it, and may be running */
	bool undone;    /* it began before the checkpoint that the program has gone back to */
};

/* A fault that the program's own handler was given. */
struct crn_forwarded {
	uintptr_t handler, frame, pc; /* frame: rsp at the return from it; 0: it is over */
	int32_t sig;
	bool unasked; /* no recovery had been thought of */
};

#define CRN_SITES_MAX   16
#define CRN_PENDING_MAX 24

/* What other threads may read of a call: enough to tell which memory the kernel may write. */
struct crn_in_flight {
	long nr;
	long args[6];
};
#define CRN_PUT_OFF_MAX 7 /* each of the reserved signals, and the first of the others */

/*
 * One thread of the program. The agent's %gs base points to it: libc and the compiler leave %gs
 * alone, it survives signals and rt_sigreturn, costs one prefix, and is in no memory that a restore
 * could roll back. gate.S knows the offsets of the first fields (intercept/layout.h).
 */
struct crn_thread {
	struct crn_thread *self;
	uint8_t *stack_top;       /* the agent's stack for this thread */
	uint64_t program_rsp;
	uint64_t target;          /* where the program runs on after the hook */
	struct crn_regs *regs;    /* the program's registers while in a hook */
	uint32_t in_agent;        /* inside a hook: the program's signal handlers are deferred */
	uint32_t put_off;         /* signals deferred, delivered when the hook is left */
	/* signals that the kernel never blocks, and the program believes blocked */
	uint64_t program_blocked;
	/* sent at a bad time; given when the program unblocks them or the agent's handler ends */
	uint64_t held;
	uint8_t *stacks; /* the agent's, for signals and hooks, lie from here to stack_top */
	long last_nr; /* of the last system call that was begun */
	uint8_t passes[CRN_PASSING_END]; /* by number: 1: such a call is made without its hooks */

	/* The rest is C's. */
	int32_t tid;
	uint32_t index;
	bool live;
	uint32_t in_vfork;        /* a vfork child runs in our memory: everything passes through */
	struct crn_forwarded fault; /* recover/: the last one */
	bool fault_unasked;         /* recover/: for the next one */
	/* of the newest checkpoint that this thread took; xstate is there */
	struct crn_context context;
	/* what the program believes; the kernel always has the agent's */
	stack_t program_altstack;
	siginfo_t held_info[6];     /* by intercept/signals.c, held_slot */
	stack_t altstack;           /* the agent's */
	/* the program's mask from before all signals were blocked for the deferred ones */
	uint64_t put_off_mask;
	siginfo_t put_off_info[CRN_PUT_OFF_MAX];
	/* the next SIGSYS is ours: it delivers deferred signals */
	uint32_t trapping;
	/* across clone and fork, for which all signals are blocked */
	uint64_t clone_mask, clone_r9, clone_rdi;
	uint64_t clone_args[11]; /* a struct clone_args in the program's place */
	/* CLONE_CLEAR_SIGHAND of the present clone; of a vfork child: no handler is its own */
	bool clears_handlers;
	/* in an after-hook: the call, whose result the context will hold */
	struct crn_call *call;
	uintptr_t descriptor; /* the thread pointer it was born with; 0: the first thread */
	/* about to end; the slot is free when the kernel no longer knows tid */
	bool exiting;
	uint64_t r11;                /* of the program, at the entry of a function that is a site */
	uint32_t interrupted_spec;   /* the site at which crn_enter_interrupted runs */
	int32_t timers[CRN_SITES_MAX]; /* timer.c: its timers by site, plus 1; 0: none */
	uint64_t rest[2];   /* timer.c: a struct timespec, what is left of a timeout */
	/* cut_short.c: what is left of a call */
	struct iovec rest_iov[64];
	struct msghdr rest_msg;
	int32_t late_timer, late_timer_pid; /* late_timer.c; of which process: 0 there is none */
	/* effects/: the last interval in which a call of this thread was seen */
	uint32_t interval;
	/* effects/: of a vfork child that borrows this slot */
	struct crn_in_flight borrowed;
	uint32_t child_is_traced; /* it would stop at each fault */
	/* odd while pending[] is being changed: other threads then read it again */
	uint32_t pending_turn;
	uint32_t pending_count;
	uint32_t kept_count;
	struct crn_pending pending[CRN_PENDING_MAX];
	/* with `context`: the calls that handlers had interrupted then */
	struct crn_pending kept[CRN_PENDING_MAX];
	struct crn_thread *next;
};

static inline struct crn_thread *crn_thread_self(void)
{
	struct crn_thread *t;

	__asm__ volatile("movq %%gs:0, %0" : "=r"(t));
	return t;
}

/*
 * intercept/: the calls of a thread that may be running now, outermost first; any thread may ask.
 * At most CRN_PENDING_MAX + 1.
 */
uint32_t crn_calls_in_flight(const struct crn_thread *t, struct crn_in_flight *out);
/*
 * Is this other thread in a call that returns to its after-hook? Then it runs no code of the
 * program before that hook has had the lock of effects/.
 */
bool crn_thread_in_call(const struct crn_thread *t);
/* The i-th slot of all that were ever used, or NULL; it may be dead (`live`). */
struct crn_thread *crn_thread_slot(uint32_t i);
/* Is the thread gone for the kernel, too, and not only about to end? Asks the kernel. */
bool crn_thread_is_over(const struct crn_thread *t);

/* effects/passing_calls.c: which calls need no hook as things stand, as in struct crn_thread. */
void crn_calls_passing(uint8_t *out);
/* intercept/threads.c: that has changed; all threads obey from their next call on. */
void crn_threads_let_pass(void);

/* effects/calls.c. Called by intercept/ for every other system call of the program. */
enum crn_verdict crn_call_before(struct crn_call *call);
void crn_call_after(struct crn_call *call);
/* Instead of it, for a call that the before-hook has answered; the registers are past it. */
void crn_call_answered(struct crn_call *call);
/*
 * intercept/actions.c: does this sigreturn lead to a call that the kernel will make (again)? No
 * hook runs before that call.
 */
bool crn_call_resumes_call(const struct crn_call *call);
/* intercept/timer.c, in a hook: take the checkpoint of a timer for which no thread was free. */
void crn_timer_turn(struct crn_call *call);
/*
 * Instead of both, for a call of a vfork child, which runs in our memory. False: the call has its
 * result and is not made.
 */
bool crn_call_borrowed(struct crn_call *call);
/* A signal is about to end the process. */
void crn_call_process_dies(void);
/* On a new thread, before anything of the program runs there. */
void crn_call_thread_begins(const struct crn_thread *t);
/* Before the thread's slot and memory are lent to a vfork child: sets in_vfork. */
void crn_call_vfork_begins(struct crn_thread *t);
/* The thread is about to end: the kernel then marks the robust mutexes that it holds. */
void crn_call_thread_ends(struct crn_thread *t);

/* intercept/signals.c: which signals the program is given in this interval, by which action. */
void crn_signal_delivered(struct crn_thread *t, int sig, const siginfo_t *info,
	const struct crn_ksigaction *act);

/*
 * recover/fault.c. A SIGSEGV, SIGBUS, SIGFPE or SIGILL that the program raised itself. Runs on an
 * alternate stack. Does not return if it recovers (crn_resume). Returns false if the program's own
 * handler or the default action has to take it.
 */
bool crn_fault(struct crn_thread *t, int sig, siginfo_t *info, void *ucontext);

/*
 * recover/own_handler.c. Called when such a fault was given to the program's handler, when the
 * handler returns from its frame to pc, and when the thread takes a checkpoint.
 */
void crn_fault_forwarded(
	struct crn_thread *t, int sig, uintptr_t handler, uintptr_t pc, uintptr_t frame);
void crn_fault_returns(struct crn_thread *t, uintptr_t frame, uintptr_t pc);
void crn_fault_passed(struct crn_thread *t, uintptr_t rsp);
/* Does the thread, with its stack there, still handle a fault of its own? */
bool crn_fault_handled_at(const struct crn_thread *t, uintptr_t rsp);

/*
 * intercept/: capture the calling thread's context as it will be when the current hook returns
 * (call->result in rax); run on from a context. Neither allocates.
 */
void crn_context_capture(struct crn_thread *t, struct crn_context *out);
_Noreturn void crn_resume(struct crn_thread *t, const struct crn_context *ctx);

/* What the program believes its action for a signal is (intercept/actions.c keeps the truth). */
void crn_sigaction_get(int sig, struct crn_ksigaction *out);
void crn_sigaction_put(int sig, const struct crn_ksigaction *in); /* undo of rt_sigaction */
bool crn_on_program_altstack(const struct crn_thread *t, uint64_t rsp);

/* --context: where the number comes from that tells one kind of work from another. */
enum crn_context_kind {
	CRN_CONTEXT_NONE,
	CRN_CONTEXT_SITE,     /* the system call, or which of the sites */
	CRN_CONTEXT_RESULT,   /* what the call returned */
	CRN_CONTEXT_EVENTS,   /* which kinds of descriptors are ready */
	CRN_CONTEXT_FD,       /* the first one that is */
	CRN_CONTEXT_REGISTER, /* of the program, at the site */
	CRN_CONTEXT_WORD,     /* 8 bytes at register + offset */
};

struct crn_context_spec {
	uint32_t kind;  /* enum crn_context_kind */
	uint32_t index; /* of the register in struct crn_regs */
	int64_t offset;
};

/* What `cairn run` asked for; parsed once at start from the environment. */
struct crn_config {
	char tracker[16];
	char feed[16];
	char strategy[128];
	struct crn_context_spec context;
	char surface[256];
	uint32_t keep;
	uint32_t flags;        /* enum cairn_flags */
	uint64_t memory_max;
	bool recover;
	bool commit_each;      /* a checkpoint for each output; else outputs are held (hold.h) */
	bool stats;            /* summary at exit */
	char trace[256];       /* file for the pages that each interval writes; "": none */
	int32_t trace_pid;     /* who writes that file; others add .PID to its name */
	bool stats_json;
	uint32_t site_count;
	struct crn_site_spec {
		uint32_t kind;      /* enum crn_site_kind */
		uint32_t every;     /* a checkpoint at every N-th hit */
		uint64_t argument;  /* func: address; timer: nanoseconds */
		char text[96];      /* as given, for messages */
	} sites[CRN_SITES_MAX];
};
enum crn_site_kind { CRN_SITE_WAIT, CRN_SITE_OUTPUT, CRN_SITE_FUNC, CRN_SITE_TIMER };

/*
 * Copy between the program's memory and ours. The program's pointers may be anything: 0, or -EFAULT
 * after any number of bytes. Legal in hooks and handlers.
 */
int crn_user_copy(void *dst, const void *src, size_t n);

/*
 * Is this descriptor one of the engine's? To the program it does not exist: intercept/ answers
 * close, dup2, dup3, close_range and fcntl on it with EBADF or leaves it out.
 */
bool crn_fd_is_engine(int fd);
/* Report one that was opened or will be closed now; os/descriptor.h does so by itself. */
void crn_fd_engine(int fd, bool open);

/* intercept/: the agent's image and its threads' slots, which are in no surface. */
struct crn_range;
void crn_agent_memory(struct crn_range *two);

/*
 * The agent of this process. In memory of the agent's own, outside every surface; NULL when the
 * program runs bare. In a forked child session, effects, recover, sites and stat are NULL again.
 */
struct crn_agent {
	struct crn_config config;
	cairn_t *session;      /* opened at the first site, read, or loss of privileges */
	uint64_t newest;       /* id of the newest checkpoint */
	size_t xstate_size;
	uint64_t xstate_mask;
	struct crn_thread *threads;
	uint32_t thread_count;
	int32_t pid;
	struct crn_effects *effects; /* effects/ */
	struct crn_recover *recover; /* recover/ */
	struct crn_sites *sites;     /* sites/ */
	struct crn_stat_page *stat;  /* shared with `cairn stat` */
	uint64_t space_added[2];     /* effects/: what RLIMIT_AS has for us, in soft, hard */
	uintptr_t break_begin;       /* effects/: the program break at the start */
	uint32_t refused_said;       /* effects/: refusals that have been reported */
	/* recover/: handlers from which the program has gone on; their faults are no crashes */
	uintptr_t resuming[4];
	uint32_t site_lock;          /* sites/: one checkpoint at a time */
	uint32_t maps_lock;          /* effects/: memory is being taken away, or a session opened */
	uint32_t opening;            /* sites/: a session is being opened; see in_flight.c */
	bool memory_marked;          /* effects/: see crn_memory_marked */
	bool session_refused;        /* sites/: it could not be opened; not tried again */
	bool frozen_children;        /* intercept/: the engine has children: tracker fork */
	bool quiet_children;         /* intercept/: the program has some that send no SIGCHLD */
	/* effects/: of a forked child, until its session is open */
	struct crn_left_input *left_input;
};
extern struct crn_agent *crn_agent __attribute__((visibility("hidden")));

/*
 * sites/: called by crn_call_after when the call is a site, or an output under --recover. Opens the
 * session at the first hit, takes the memory checkpoint, captures the context, starts a new effects
 * interval.
 */
void crn_site_hit(struct crn_call *call, enum crn_site_kind kind);
/* Take a checkpoint here and now because an output has been done. */
void crn_site_output(struct crn_call *call);
/*
 * Take a checkpoint at the entry of a call that may wait: a restore to it makes the call again.
 * Held output is sent with it.
 */
void crn_site_commit(struct crn_call *call);
/*
 * The program is about to give up privileges that feeds need (a worker that becomes another user):
 * open the session now, and not at the first site.
 */
void crn_site_rights_end(void);
/*
 * A read before the first checkpoint: if it may bring somebody's request, take one at its entry. A
 * process that always finds its next request waiting never reaches a wait.
 */
void crn_site_first_input(struct crn_call *call);

/* Output has been held for too long, and no call comes: send it and take a checkpoint. */
void crn_site_late(struct crn_call *call);
/* effects/: has output been held for too long? Asked when the thread's timer fires. */
bool crn_hold_is_late(void);
void crn_hold_looked_at(void);
/* intercept/: watch this thread's held output while it computes; from a hook. */
void crn_late_timer_start(struct crn_thread *t);
void crn_late_timer_stop(struct crn_thread *t);
/* intercept/dispatch.c: the thread's calls that no patch covers are not seen from here on. */
void crn_dispatch_disarm(void);
/* intercept/timer.c: another thread has the timers of sites from now on. */
void crn_timer_thread_ends(struct crn_thread *t);
/* The program is on its own from here on: the timers of all threads are gone. */
void crn_timer_end(void);

/* effects/: a checkpoint was taken: forget inverses, settle delayed closes and munmaps. */
void crn_effects_commit(void);
/* effects/: before a restore's memory is put back (nothing may fail after), and after it. */
int crn_effects_check(void);
void crn_effects_undo(void);

#endif
