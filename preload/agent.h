/* SPDX-License-Identifier: MIT */
/*
 * The agent: Cairn inside an unmodified program. This header is the seam between its rooms:
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
#include "cairn/cairn.h"

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
	uint64_t words[2]; /* intercept/: what stands in for a mask of the program */
	bool after;     /* effects/ asked for its after-hook */
	bool waits;     /* the call waits under words[0] as its signal mask */
	bool masked;    /* words stand in for a mask with reserved signals */
};
#define CRN_PENDING_MAX 24
#define CRN_PUT_OFF_MAX 4

/*
 * One thread of the program. The agent's %gs base points to it: libc and the compiler leave %gs
 * alone, it survives signals and rt_sigreturn, costs one prefix, and is in no memory that a restore
 * could turn back. The first fields are known to gate.S by their offsets (intercept/layout.h).
 */
struct crn_thread {
	struct crn_thread *self;
	uint8_t *stack_top;       /* the agent's stack for this thread */
	uint64_t program_rsp;
	uint64_t target;          /* where the program runs on after the hook */
	struct crn_regs *regs;    /* the program's registers while in a hook */
	uint32_t in_agent;        /* inside a hook: the program's signal handlers are put off */
	uint32_t put_off;         /* signals put off, delivered when the hook is left */

	/* The rest is C's. */
	int32_t tid;
	uint32_t index;
	bool live;
	uint32_t in_vfork;        /* a vfork child runs in our memory: everything passes through */
	/* the thread's own stack mapping, if known (0: unknown) */
	uintptr_t stack_begin, stack_end;
	/* of the newest checkpoint that this thread took; xstate is there */
	struct crn_context context;
	/* what the program believes; the kernel always has the agent's */
	stack_t program_altstack;
	/* signals that the kernel never blocks, and the program believes blocked */
	uint64_t program_blocked;
	/* sent while in program_blocked: given when the program unblocks them */
	uint64_t held;
	siginfo_t held_info[6];     /* by intercept/signals.c, held_slot */
	stack_t altstack;           /* the agent's */
	/* the program's mask from before the first signal was put off */
	uint64_t put_off_mask;
	siginfo_t put_off_info[CRN_PUT_OFF_MAX];
	/* the next SIGSYS is ours: put-off signals are to be delivered */
	uint32_t trapping;
	/* across clone and fork, for which all signals are blocked */
	uint64_t clone_mask, clone_r9;
	/* in an after-hook: the call, whose result the context will hold */
	struct crn_call *call;
	/* about to end; the slot is free when the kernel knows tid no more */
	uintptr_t descriptor; /* the thread pointer it was born with; 0: the first thread */
	bool exiting;
	/* effects/: calls made again because a page was closed meanwhile */
	uint32_t faults_in_row;
	long last_nr;                /* of the last system call that was begun */
	uint64_t r11;                /* of the program, at the entry of a function that is a site */
	uint32_t interrupted_spec;   /* the site at which crn_enter_interrupted runs */
	/* effects/: the last interval in which a call of this thread was seen */
	uint32_t interval;
	uint32_t pending_count;
	struct crn_pending pending[CRN_PENDING_MAX];
	struct crn_thread *next;
};

static inline struct crn_thread *crn_thread_self(void)
{
	struct crn_thread *t;

	__asm__ volatile("movq %%gs:0, %0" : "=r"(t));
	return t;
}

/* effects/calls.c. Called by intercept/ for every system call of the program. */
enum crn_verdict crn_call_before(struct crn_call *call);
void crn_call_after(struct crn_call *call);

/* intercept/signals.c tells effects/ which signals the program has been given in this interval. */
void crn_signal_delivered(struct crn_thread *t, int sig, const siginfo_t *info);

/*
 * recover/fault.c. A SIGSEGV, SIGBUS, SIGFPE or SIGILL that the program raised itself. Runs on an
 * alternate stack. Does not return if it recovers (crn_resume); returns false if the program's own
 * handler or the default action must have it.
 */
bool crn_fault(struct crn_thread *t, int sig, siginfo_t *info, void *ucontext);

/*
 * intercept/: take the calling thread's context as it will be when the current hook returns
 * (call->result in rax); run on from a context; neither allocates.
 */
void crn_context_capture(struct crn_thread *t, struct crn_context *out);
_Noreturn void crn_resume(struct crn_thread *t, const struct crn_context *ctx);

/* What the program believes its action for a signal is (intercept/signals.c keeps the truth). */
struct crn_sigaction { /* the kernel's layout */
	uintptr_t handler;
	unsigned long flags;
	uintptr_t restorer;
	uint64_t mask;
};
void crn_sigaction_get(int sig, struct crn_sigaction *out);
void crn_sigaction_put(int sig, const struct crn_sigaction *in); /* undo of rt_sigaction */
/*
 * Give the signal to the program's own handler, or let the default action happen; from a fault
 * handler.
 */
void crn_signal_forward(struct crn_thread *t, int sig, siginfo_t *info, void *ucontext);

/* What `cairn run` asked for; parsed once at start from the environment. */
struct crn_config {
	char tracker[16];
	char strategy[16];
	char surface[256];
	uint32_t keep;
	uint32_t flags;        /* enum cairn_flags */
	uint64_t memory_max;
	bool recover;
	bool stats;            /* summary at exit */
	bool stats_json;
	uint32_t site_count;
	struct crn_site_spec {
		uint32_t kind;      /* enum crn_site_kind */
		uint32_t every;     /* a checkpoint at every N-th hit */
		uint64_t argument;  /* func: address; timer: milliseconds */
		char text[96];      /* as given, for messages */
	} sites[16];
};
enum crn_site_kind { CRN_SITE_WAIT, CRN_SITE_OUTPUT, CRN_SITE_FUNC, CRN_SITE_TIMER };

/*
 * Copy between the program's memory and ours. 0, or -EFAULT after any number of bytes: the
 * program's pointers may be anything. From hooks and handlers.
 */
int crn_user_copy(void *dst, const void *src, size_t n);

/*
 * Is this descriptor one of the engine's? To the program it does not exist: intercept/ answers
 * close, dup2, dup3, close_range and fcntl on it with EBADF or leaves it out.
 */
bool crn_fd_is_engine(int fd);
/* Tell of one that was opened or is about to be closed; os/descriptor.h tells by itself. */
void crn_fd_engine(int fd, bool open);

/* intercept/: the agent's image and its threads' slots, which are no part of any surface. */
struct crn_range;
void crn_agent_memory(struct crn_range *two);

/*
 * The agent of this process. In memory of the agent's own, outside every surface; NULL when the
 * program runs bare. In a forked child session, effects, recover, sites and stat are NULL again.
 */
struct crn_agent {
	struct crn_config config;
	cairn_t *session;      /* opened at the first site hit */
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
	uint32_t refused_said;       /* effects/: refusals that have been reported */
	uint32_t site_lock;          /* sites/: one checkpoint at a time */
	bool session_refused;        /* sites/: it could not be opened; not tried again */
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

/* effects/: a checkpoint was taken: forget inverses, settle delayed closes and munmaps. */
void crn_effects_commit(void);
/* effects/: before a restore's memory is put back (nothing may fail after), and after it. */
int crn_effects_check(void);
void crn_effects_undo(void);

#endif
