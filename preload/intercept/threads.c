/* SPDX-License-Identifier: MIT */
/*
 * The agent's memory for each thread of the program, and the birth of threads and processes. One
 * reserved range is cut into slots:
 *
 *	slot  | struct crn_thread | xstate | guard | alternate stack | guard | stack of the hooks |
 *	      0                  32K      64K      68K              160K    164K                 512K
 *
 * A thread finds its slot through %gs. Clone and fork run with all signals blocked, from the
 * before-hook until the child and the parent have each returned, because the child has the parent's
 * %gs until it has set its own.
 */
#include <sched.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <asm/prctl.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/memory.h"
#include "os/signal.h"
#include "os/thread.h"
#include "session/session.h"
#include "intercept/actions.h"
#include "intercept/intercept.h"

#define SLOT_SIZE         (512ul << 10)
#define SLOT_XSTATE       (32ul << 10)
#define SLOT_ALTSTACK     (68ul << 10)
#define SLOT_ALTSTACK_END (160ul << 10)
#define SLOT_STACK        (164ul << 10)
#define SLOTS_MAX         4096u
#define SLOTS_MIN         64u

_Static_assert(
	sizeof(struct crn_thread) <= SLOT_XSTATE, "struct crn_thread fits its part of the slot");

static uint32_t slots_max, slots_used; /* slots below slots_used have been committed */
static uint32_t slots_lock;
static uint8_t passing[CRN_PASSING_END]; /* under slots_lock: what new threads let pass */

static struct crn_thread *slot_thread(uint32_t i)
{
	return (struct crn_thread *)(crn_here.slots + (size_t)i * SLOT_SIZE);
}

static int slot_commit(uint32_t i)
{
	uint8_t *slot = crn_here.slots + (size_t)i * SLOT_SIZE;

	if (crn_memory_commit(slot, SLOT_ALTSTACK - CRN_PAGE_SIZE) < 0 ||
		crn_memory_commit(slot + SLOT_ALTSTACK, SLOT_ALTSTACK_END - SLOT_ALTSTACK) < 0 ||
		crn_memory_commit(slot + SLOT_STACK, SLOT_SIZE - SLOT_STACK) < 0)
		return -ENOMEM;
	return 0;
}

static void slot_format(struct crn_thread *t, uint32_t index)
{
	uint8_t *slot = (uint8_t *)t;

	crn_fill(t, 0, offsetof(struct crn_thread, pending));
	t->self = t;
	t->index = index;
	t->stack_top = slot + SLOT_SIZE - 64;
	t->context.xstate = slot + SLOT_XSTATE;
	t->stacks = slot + SLOT_ALTSTACK;
	t->altstack.ss_sp = t->stacks;
	t->altstack.ss_size = SLOT_ALTSTACK_END - SLOT_ALTSTACK;
	t->program_altstack.ss_flags = SS_DISABLE;
}

int crn_threads_init(void)
{
	size_t left = crn_memory_space_left();

	slots_max = SLOTS_MAX;
	/* The program needs address space too, and the engine half of what it leaves. */
	while (slots_max > SLOTS_MIN && slots_max * SLOT_SIZE > left / 8)
		slots_max /= 4;
	for (;;) {
		long p = crn_sys6(SYS_mmap, 0, slots_max * SLOT_SIZE, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p > 0) {
			crn_here.slots = (uint8_t *)p;
			break;
		}
		if (slots_max == SLOTS_MIN)
			return (int)p;
		slots_max /= 4;
	}
	crn_memory_advise(crn_here.slots, slots_max * SLOT_SIZE, MADV_DONTDUMP);
	return 0;
}

void crn_agent_memory(struct crn_range *two)
{
	two[0] = (struct crn_range){ crn_here.image_begin, crn_here.image_end };
	two[1] = (struct crn_range){ (uintptr_t)crn_here.slots,
		(uintptr_t)crn_here.slots + slots_max * SLOT_SIZE };
}

bool crn_thread_is_over(const struct crn_thread *t)
{
	return t->exiting && crn_signal_thread(crn_getpid(), t->tid, 0) == -ESRCH;
}

struct crn_thread *crn_thread_slot(uint32_t i)
{
	return i < __atomic_load_n(&slots_used, __ATOMIC_ACQUIRE) ? slot_thread(i) : NULL;
}

static struct crn_thread *slot_take(void)
{
	for (uint32_t i = 0; i < slots_used; i++)
		if (!slot_thread(i)->live || crn_thread_is_over(slot_thread(i)))
			return slot_thread(i);
	if (slots_used == slots_max || slot_commit(slots_used) < 0)
		return NULL;
	slot_thread(slots_used)->index = slots_used;
	__atomic_store_n(&slots_used, slots_used + 1, __ATOMIC_RELEASE);
	return slot_thread(slots_used - 1);
}

static void list_remove(struct crn_thread *t)
{
	struct crn_thread **at = &crn_here.agent.threads;

	while (*at && *at != t)
		at = &(*at)->next;
	if (*at) {
		*at = t->next;
		crn_here.agent.thread_count--;
	}
}

struct crn_thread *crn_thread_new(void)
{
	struct crn_thread *t;

	crn_spin_lock(&slots_lock);
	t = slot_take();
	if (t) {
		if (t->live)
			list_remove(t);
		slot_format(t, (uint32_t)(((uint8_t *)t - crn_here.slots) / SLOT_SIZE));
		crn_copy(t->passes, passing, sizeof(t->passes));
		t->live = true;
		t->next = crn_here.agent.threads;
		crn_here.agent.threads = t;
		crn_here.agent.thread_count++;
	}
	crn_spin_unlock(&slots_lock);
	return t;
}

void crn_threads_let_pass(void)
{
	crn_spin_lock(&slots_lock);
	crn_calls_passing(passing);
	for (struct crn_thread *t = crn_here.agent.threads; t; t = t->next)
		crn_copy(t->passes, passing, sizeof(t->passes));
	crn_spin_unlock(&slots_lock);
}

static void drop(struct crn_thread *t)
{
	crn_spin_lock(&slots_lock);
	list_remove(t);
	t->live = false;
	crn_spin_unlock(&slots_lock);
}

int crn_thread_enter(struct crn_thread *t)
{
	int r;

	r = (int)crn_sys2(SYS_arch_prctl, ARCH_SET_GS, t);
	if (r < 0)
		return r;
	t->tid = crn_gettid();
	r = crn_signal_altstack(&t->altstack, NULL);
	if (r < 0)
		return r;
	return t->in_vfork ? 0 : crn_dispatch_arm();
}

/* Is the child one that only __WALL and __WCLONE find? */
static bool is_quiet(const struct crn_call *call, uint64_t flags)
{
	struct clone_args args = {0};

	if (flags & (CLONE_THREAD | CLONE_PARENT) || call->nr == SYS_fork || call->nr == SYS_vfork)
		return false;
	if (call->nr == SYS_clone)
		return (flags & CSIGNAL) != SIGCHLD;
	(void)crn_user_copy(&args, (const void *)call->args[0], CLONE_ARGS_SIZE_VER0);
	return args.exit_signal != SIGCHLD;
}

/* The kernel's answer to a clone3 whose arguments cannot be read. It looks at their size first. */
static long unreadable_clone(const struct crn_call *call)
{
	size_t size = (size_t)call->args[1];

	return size > CRN_PAGE_SIZE ? -E2BIG : size < CLONE_ARGS_SIZE_VER0 ? -EINVAL : -EFAULT;
}

/* Flags of the clone that is about to happen; false: they cannot be read. */
static bool clone_flags(const struct crn_call *call, uint64_t *flags)
{
	switch (call->nr) {
	case SYS_fork:
		*flags = 0;
		return true;
	case SYS_vfork:
		*flags = CLONE_VM | CLONE_VFORK;
		return true;
	case SYS_clone:
		*flags = (uint64_t)call->args[0];
		return true;
	default:
		return crn_user_copy(flags, (const void *)call->args[0], sizeof(*flags)) == 0;
	}
}

/* The child's thread pointer, if CLONE_SETTLS is given. */
static uintptr_t thread_pointer(const struct crn_call *call, uint64_t flags)
{
	struct clone_args args = { .tls = 0 };

	if (!(flags & CLONE_SETTLS))
		return 0;
	if (call->nr == SYS_clone)
		return (uintptr_t)call->args[4];
	if (crn_user_copy(&args, (const void *)call->args[0], CLONE_ARGS_SIZE_VER0) < 0)
		return 0;
	return args.tls;
}

/*
 * The new thread's slot; one that shares memory but is a process of its own is left alone for good.
 */
static struct crn_thread *child_prepare(
	const struct crn_call *call, uint64_t flags, uintptr_t descriptor)
{
	const struct crn_thread *t = call->thread;
	struct crn_thread *child = crn_thread_new();

	if (!child)
		return NULL;
	child->clone_mask = t->clone_mask;
	child->clone_r9 = t->clone_r9;
	child->clone_rdi = t->clone_rdi;
	child->clears_handlers = t->clears_handlers;
	child->program_blocked = t->program_blocked;
	child->in_vfork = !(flags & CLONE_THREAD);
	child->descriptor = descriptor;
	return child;
}

/*
 * CLONE_CLEAR_SIGHAND would take our handlers away, too, and the child would die of its first call
 * that no patch covers. The kernel is not told; crn_hook_child does it.
 */
static void keep_handlers(
	struct crn_regs *regs, const struct crn_call *call, struct crn_thread *t, uint64_t flags)
{
	size_t size = (size_t)call->args[1];

	t->clears_handlers = false;
	if (call->nr != SYS_clone3 || !(flags & CLONE_CLEAR_SIGHAND) || flags & CLONE_SIGHAND ||
		size < CLONE_ARGS_SIZE_VER0 || size > sizeof(t->clone_args) ||
		crn_user_copy(t->clone_args, (const void *)call->args[0], size) < 0)
		return;
	t->clone_args[0] &= ~CLONE_CLEAR_SIGHAND;
	regs->rdi = (uintptr_t)t->clone_args;
	t->clears_handlers = true;
}

/* src/session/surface.c asks: a thread has its rseq area long before it has a robust list. */
size_t crn_agent_descriptors(uintptr_t *out, size_t max)
{
	size_t n = 0;

	crn_spin_lock(&slots_lock);
	for (uint32_t i = 0; i < slots_used && n < max; i++) {
		struct crn_thread *t = slot_thread(i);

		if (t->live && t->descriptor && !crn_thread_is_over(t))
			out[n++] = t->descriptor;
	}
	crn_spin_unlock(&slots_lock);
	return n;
}

/*
 * Returns true if the call is not to be made now: it was answered, or signals that came in this
 * hook go first and the whole site is run again. Else even signals that are never blocked wait
 * until behind the call, or the child would be given them as well; no memory of the program is
 * touched till then.
 */
bool crn_clone_before(struct crn_regs *regs, struct crn_pending *p, const uint8_t *stub)
{
	struct crn_thread *t = p->call.thread, *child = t;
	unsigned kind = CRN_CLONE_FORK;
	uintptr_t descriptor;
	uint64_t flags = 0;
	bool thread;

	if (!clone_flags(&p->call, &flags)) {
		p->call.result = unreadable_clone(&p->call);
		return true;
	}
	crn_here.agent.quiet_children |= is_quiet(&p->call, flags);
	descriptor = thread_pointer(&p->call, flags);
	thread = (flags & CLONE_VM) && !((flags & CLONE_VFORK) && !(flags & CLONE_THREAD));
	/* No handler may run in a thread before it has a slot of its own. */
	t->clone_mask = thread ? crn_signal_mask(SIG_SETMASK, ~0ull) : crn_signals_block();
	if (t->put_off) {
		crn_signal_mask(SIG_SETMASK, t->clone_mask);
		p->call.result = p->call.nr; /* %rax of the site */
		regs->rip = (uintptr_t)stub + CRN_STUB_AGAIN;
		return true;
	}
	t->clone_r9 = regs->r9;
	t->clone_rdi = regs->rdi;
	keep_handlers(regs, &p->call, t, flags);
	if (thread) {
		kind = CRN_CLONE_THREAD;
		child = child_prepare(&p->call, flags, descriptor);
		if (!child) {
			crn_signal_mask(SIG_SETMASK, t->clone_mask);
			p->call.result = -EAGAIN;
			return true;
		}
	} else if (flags & CLONE_VM) {
		kind = CRN_CLONE_VFORK;
		crn_call_vfork_begins(t);
	}
	p->words[0] = kind;
	p->words[1] = (uintptr_t)child;
	regs->r9 = (uintptr_t)child | kind;
	regs->rip = (uintptr_t)stub + CRN_STUB_CLONE;
	return false;
}

void crn_clone_after(struct crn_regs *regs, struct crn_pending *p)
{
	struct crn_thread *t = p->call.thread;

	regs->r9 = t->clone_r9;
	if (p->words[0] == CRN_CLONE_VFORK)
		t->in_vfork = 0;
	t->clears_handlers = false;
	if (p->words[0] == CRN_CLONE_THREAD && p->call.result < 0)
		drop((struct crn_thread *)p->words[1]);
	crn_signal_mask(SIG_SETMASK, t->clone_mask);
}

/* The agent of a forked child: one thread, no session; what was done to the text is inherited. */
static void forked(struct crn_thread *t)
{
	for (uint32_t i = 0; i < slots_used; i++)
		slot_thread(i)->live = slot_thread(i) == t;
	slots_lock = 0;
	crn_here.actions_lock = 0;
	crn_here.stub_lock = 0;
	crn_after_fork_child();
	t->next = NULL;
	/* The kernel has forgotten its robust list, by which the engine finds its rseq area. */
	if (!t->descriptor)
		crn_sys2(SYS_arch_prctl, ARCH_GET_FS, &t->descriptor);
	crn_here.agent.threads = t;
	crn_here.agent.thread_count = 1;
	crn_here.agent.pid = crn_getpid();
	crn_here.agent.session = NULL;
	crn_here.agent.effects = NULL;
	crn_here.agent.recover = NULL;
	crn_here.agent.sites = NULL;
	crn_here.agent.stat = NULL;
	crn_here.agent.newest = 0;
	crn_here.agent.site_lock = 0;
	crn_here.agent.opening = 0;
	crn_here.agent.maps_lock = 0;
	crn_here.agent.session_refused = false;
	crn_here.agent.frozen_children = crn_here.agent.quiet_children = false;
	t->pending_count = 0;
	t->held = 0; /* the parent's, as are all that wait */
	crn_threads_let_pass();
}

void crn_hook_child(struct crn_regs *regs, const uint8_t *stub, struct crn_thread *t, unsigned kind)
{
	crn_signal_mask(SIG_SETMASK, CRN_SIG_OWN);
	regs->rip = (uintptr_t)stub + CRN_STUB_RETURN;
	regs->r9 = t->clone_r9;
	regs->rdi = t->clone_rdi;
	if (kind == CRN_CLONE_FORK)
		forked(t);
	if (t->clears_handlers)
		crn_actions_clear(kind == CRN_CLONE_FORK);
	if (kind == CRN_CLONE_FORK)
		t->clears_handlers = false;
	if (kind == CRN_CLONE_FORK)
		crn_timer_start();
	if (kind != CRN_CLONE_VFORK && crn_thread_enter(t) < 0)
		crn_warn("thread %d: its system calls outside libc are not seen", crn_gettid());
	if (kind == CRN_CLONE_THREAD && !t->in_vfork)
		crn_call_thread_begins(t);
	crn_signal_mask(SIG_SETMASK, t->clone_mask);
}
