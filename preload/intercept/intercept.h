/* SPDX-License-Identifier: MIT */
/*
 * What the files of intercept/ share; agent.h is what the other folders use.
 *
 *	stubs.c, gate.S, layout.h   the way from a system call to the agent and back
 *	dispatch.c       calls that no patch covers
 *	hook.c           one call, before and after
 *	functions.c      sites at functions
 *	guard.c          calls that would take away what the agent needs
 *	bare_exec.c      programs that are executed without the agent
 *	signals.c, frames.c, actions.c   the program's signals and handlers
 *	threads.c        the agent's memory for each thread; births
 *	context.c        capturing and resuming registers
 *	timer.c, cut_short.c   site timer:MS, and calls that it cuts short
 *	late_timer.c     output that has been held for too long
 */
#ifndef CRN_INTERCEPT_H
#define CRN_INTERCEPT_H

#include <errno.h>
#include <ucontext.h>
#include "agent.h"
#include "plan_format.h"
#include "os/thread.h"
#include "intercept/layout.h"

/* gate.S */
extern uint8_t crn_stubs[], crn_stubs_end[];
extern const uint8_t crn_exit_begin[], crn_exit_jump[], crn_exit_undefined[];
extern const uint8_t crn_signal_end[], crn_signal_over[];
extern const uint8_t crn_user_copy_begin[], crn_user_copy_end[], crn_user_copy_failed[];
void crn_enter(void);
void crn_leave(void);
void crn_enter_function(void);
void crn_enter_interrupted(void);
void crn_clone_child(void);
_Noreturn void crn_leave_to(struct crn_regs *regs);
void crn_restorer(void);
void crn_xsave(void *area, uint64_t mask);
void crn_xsavec(void *area, uint64_t mask);
void crn_xrstor(const void *area, uint64_t mask);

/* Called by gate.S. */
void crn_hook_before(struct crn_regs *regs, const uint8_t *stub);
void crn_hook_after(struct crn_regs *regs, const uint8_t *stub);
void crn_hook_function(struct crn_regs *regs, const uint8_t *trampoline);
void crn_hook_interrupted(struct crn_regs *regs);
void crn_hook_child(
	struct crn_regs *regs, const uint8_t *stub, struct crn_thread *t, unsigned kind);
void crn_exit_trap(void);
void crn_signal_serve(int sig, siginfo_t *info, void *ucontext);
void crn_signal_ends(ucontext_t *uc);

/*
 * What a forked child has and the arena does not carry over. Static: the agent's image is outside
 * every surface, and a fork copies it.
 */
struct crn_inherited {
	struct crn_agent agent;
	struct crn_ksigaction actions[65]; /* what the program believes; [0] is unused */
	uint64_t ignored; /* signals whose action is to ignore them, but for the reserved ones */
	uint32_t actions_lock;
	uint8_t *slots; /* threads.c */
	uintptr_t text_begin,
		text_end; /* the agent's own code: syscall user dispatch lets it through */
	uintptr_t image_begin, image_end;
	bool sud;
	bool timed; /* some site is a timer */
	bool debug;
	uint32_t stub_count;
	uint32_t stub_lock;
	uint32_t sites_patched;
	int plan_fd;
};
extern struct crn_inherited crn_here;

/*
 * In the agent's own text, though no hook is open: the entry of another signal, on the alternate
 * stack, where no checkpoint can be taken; or crn_restorer.
 */
static inline bool crn_in_own_text(uintptr_t rip)
{
	return rip >= crn_here.text_begin && rip < crn_here.text_end;
}

/*
 * Nothing of the program's runs there, but for what a debugger calls while it has the thread
 * stopped in the agent.
 */
static inline bool crn_on_own_stack(const struct crn_thread *t, uintptr_t rsp)
{
	return rsp - (uintptr_t)t->stacks <= (uintptr_t)(t->stack_top - t->stacks);
}

/*
 * A spin lock for the few words that threads share. Holders are inside hooks or handlers, so never
 * interrupted by the program.
 */
static inline void crn_spin_lock(uint32_t *lock)
{
	while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE))
		while (__atomic_load_n(lock, __ATOMIC_RELAXED))
			crn_yield();
}

static inline void crn_spin_unlock(uint32_t *lock)
{
	__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
}

/* The thread's call that was made with the stack pointer there; NULL: none. */
static inline struct crn_pending *crn_pending_at(struct crn_thread *t, uint64_t rsp)
{
	for (uint32_t i = t->pending_count; i-- > 0;)
		if (t->pending[i].rsp == rsp)
			return &t->pending[i];
	return NULL;
}

/* The kernel's struct sigevent for SIGEV_THREAD_ID. */
struct crn_thread_event {
	union sigval value;
	int signo, notify, tid;
	int pad[(64 - sizeof(union sigval)) / 4 - 3];
};

/* hook.c: a handler of the program begins, in whatever call the thread is */
void crn_call_left(struct crn_thread *t);
/* With a context: the calls that handlers have interrupted, and their return to the list. */
void crn_calls_keep(struct crn_thread *t);
void crn_calls_put_back(struct crn_thread *t);
/* Is this call of the thread one that has returned so, and can be made with its hooks again? */
bool crn_call_is_undone(struct crn_thread *t, long nr, uint64_t rsp);

/* stubs.c */
uint8_t *crn_stub_for(uintptr_t syscall_insn); /* NULL when there is no room */
uint8_t *crn_stub_found(uintptr_t syscall_insn); /* NULL when there is none yet; no lock */
void crn_stubs_init(void);
/* Patch the loaded objects that the plan knows. The number of sites. */
uint32_t crn_patch_objects(const struct crn_plan *plan, const void *link_map);
bool crn_same_bytes(const uint8_t *a, const uint8_t *b, size_t n);
bool crn_has_build_id(uintptr_t base, const uint8_t *id, uint32_t size);
static inline bool crn_in_stubs(uintptr_t rip)
{
	return rip >= (uintptr_t)crn_stubs && rip < (uintptr_t)crn_stubs_end;
}
static inline const uint8_t *crn_stub_of(uintptr_t rip)
{
	return (const uint8_t *)(rip & ~(uintptr_t)(CRN_STUB_SIZE - 1));
}

/* threads.c */
int crn_threads_init(void);
struct crn_thread *crn_thread_new(void); /* NULL: no slot */
/* On the thread itself: %gs, altstack, dispatch. 0 or -errno. */
int crn_thread_enter(struct crn_thread *t);
bool crn_clone_before(struct crn_regs *regs, struct crn_pending *p, const uint8_t *stub);
void crn_clone_after(struct crn_regs *regs, struct crn_pending *p);

/* dispatch.c: syscall user dispatch */
int crn_dispatch_arm(void);
bool crn_dispatch_signal(struct crn_thread *t, const siginfo_t *info, ucontext_t *uc);
/* The same for a call from within the agent, which a debugger has made: without hooks. */
bool crn_dispatch_inside(const siginfo_t *info, ucontext_t *uc);
/* A signal that tells of no call: had one begun whose own signal was dropped, it begins again. */
void crn_dispatch_again(const struct crn_thread *t, int sig, ucontext_t *uc);

/*
 * signals.c. The signals that the kernel must never block or the process dies: faults, and SIGSYS,
 * by which calls come. The program's wish to block them is kept in program_blocked.
 */
#define CRN_SIG(n) (1ull << ((n)-1))
#define CRN_SIG_RESERVED                                                          \
	(CRN_SIG(SIGSYS) | CRN_SIG(SIGSEGV) | CRN_SIG(SIGBUS) | CRN_SIG(SIGFPE) | \
		CRN_SIG(SIGILL) | CRN_SIG(SIGTRAP))
#define CRN_SIG_ALL (~CRN_SIG_RESERVED)
/*
 * Who blocks signals for work of his own, in a hook, blocks SIGSYS as well. Such a mask is none of
 * the program's, and he puts the former one back himself.
 */
#define CRN_SIG_OWN (CRN_SIG_ALL | CRN_SIG(SIGSYS))
/* In put_off_mask: the program's mask is the one in force; there was no other to be remembered. */
#define CRN_MASK_IN_FORCE (~0ull)

/* After program_blocked has changed: give what was held back for it. In a hook. */
void crn_signals_release(struct crn_thread *t);
/* Take one of `set` for this thread: its number and *info, or 0. */
int crn_signals_take(struct crn_thread *t, uint64_t set, siginfo_t *info);
/* gate.S: what the kernel calls */
void crn_signal_entry(int sig, siginfo_t *info, void *ucontext);

/* actions.c */
void crn_signals_init(void);
/* What is blocked while a handler or a hook is to be left alone: all that could disturb it. */
uint64_t crn_signals_all(void);
/* The system calls about signals. True if it answered: call->result. */
bool crn_signal_call(struct crn_regs *regs, struct crn_pending *p);
void crn_signal_call_after(struct crn_regs *regs, struct crn_pending *p);

/* frames.c: put a frame for the program's handler on its stack and make uc continue there */
bool crn_frame_push(struct crn_thread *t, int sig, const siginfo_t *info, ucontext_t *uc,
	const struct crn_ksigaction *act, uint64_t mask_base);
void crn_uc_from_regs(ucontext_t *uc, const struct crn_regs *regs, uint64_t rip);
void crn_uc_to_regs(struct crn_regs *regs, const ucontext_t *uc);

/* functions.c: entries of functions that are sites */
void crn_functions_init(const struct crn_plan *plan, const void *link_map);
bool crn_function_trap(struct crn_thread *t, const siginfo_t *info, ucontext_t *uc);
/*
 * From a handler that interrupted the program: leave it into a hook for this site (0: to send what
 * is held); the program continues at uc.
 */
void crn_interrupt(struct crn_thread *t, ucontext_t *uc, uint32_t spec);

/* late_timer.c: true if the signal is of a thread's own timer for output held for too long */
bool crn_late_signal(struct crn_thread *t, const siginfo_t *info, ucontext_t *uc);

/* timer.c: the site of every so many milliseconds */
void crn_timer_start(void); /* for the calling thread, at start and after fork */
bool crn_timer_signal(struct crn_thread *t, const siginfo_t *info, ucontext_t *uc);
/* In a hook: the site is hit in this thread, which holds the timer from now on. */
void crn_timer_hit(struct crn_thread *t, uint32_t index);
/* Behind that hit, still in the hook. */
void crn_timer_rest(struct crn_thread *t, uint32_t index);
/* Now, if the call has a timeout that has to be shortened should a timer cut it short; else 0. */
uint64_t crn_timer_began_ns(const struct crn_call *call);
/* A call that our signal cut short before it slept: make it again, nobody has noticed. */
void crn_undo_interrupt(ucontext_t *uc, struct crn_thread *t);
/* cut_short.c: a call has just returned, perhaps too early: make one for the rest. */
void crn_go_on(struct crn_thread *t, struct crn_pending *p, greg_t *g);
/* A signal of the program's comes: before the call for the rest, it is over. */
void crn_rest_ends(const struct crn_thread *t, int sig, ucontext_t *uc);

/* context.c: sizes of the images; `fs_base`: the kernel lets programs load the base of %fs */
void crn_context_init(bool fs_base);

/* guard.c: descriptors, exec, exit, seccomp, prctl */
bool crn_guard_call(struct crn_regs *regs, struct crn_pending *p);

/* bare_exec.c: an exec is about to be made: say so if the agent will not be in the new program */
void crn_exec_look(const struct crn_call *call);

#endif
