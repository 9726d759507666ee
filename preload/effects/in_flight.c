/* SPDX-License-Identifier: MIT */
/*
 * System calls that the kernel is working on. Under "uffd" and "mprotect" a checkpoint must know
 * them: it closes the pages that were written in the interval, and the kernel's next write into
 * such a page would fail or come back short. So memory that these calls may write stays open, and
 * its pages are copied at the checkpoint instead of being protected.
 *
 * When a call begins, only the call itself is noted (intercept/hook.c); its buffers are worked out
 * when somebody takes a checkpoint. The order makes this safe. A call is on its thread's list
 * before its buffers are opened, and both opening and checkpoint hold the session's lock. So a
 * checkpoint that misses the call comes before the opening.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sys/ptrace.h>
#include "base/copy.h"
#include "effects/effects.h"
#include "os/thread.h"
#include "session/session.h"

/* As the kernel: it follows no more of a list than this. */
#define ROBUST_MAX 2048

bool crn_output_matters(void)
{
	const struct crn_effects *e = crn_agent->effects;
	const char *tracker = crn_agent->config.tracker;

	if (e)
		return e->kernel_needs_open_pages;
	/* Calls that sleep when the session is opened: which tracker it will have may be open. */
	return crn_agent->config.site_count && !crn_agent->session_refused &&
		!crn_streq(tracker, "async") && !crn_streq(tracker, "softdirty") &&
		!crn_streq(tracker, "fork");
}

/*
 * A session that is being opened has asked for the calls in flight at some moment: one that came
 * later must wait for its end, and open its own buffers. Either that walk has seen the call, or we
 * see that it is under way.
 */
bool crn_output_ready(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	while (__atomic_load_n(&crn_agent->opening, __ATOMIC_SEQ_CST))
		crn_yield();
	return __atomic_load_n(&crn_agent->session, __ATOMIC_ACQUIRE) && crn_agent->effects;
}

/*
 * Until its exec a vfork child stores to our pages, with a descriptor table that was copied when it
 * was born: what a session opens later is not in it, so the child could not open a page that the
 * session has closed. Either the session that is being opened sees the child, or we see that it is
 * under way.
 */
void crn_call_vfork_begins(struct crn_thread *t)
{
	t->child_is_traced = 0;
	__atomic_store_n(&t->in_vfork, 1, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	while (crn_agent && __atomic_load_n(&crn_agent->opening, __ATOMIC_SEQ_CST))
		crn_yield();
}

/* A process that shares our memory for good has a slot of its own, in which no call is pending. */
bool crn_vfork_lives(void)
{
	const struct crn_thread *t;

	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint32_t i = 0; (t = crn_thread_slot(i)); i++)
		if (t->live && t->pending_count && __atomic_load_n(&t->in_vfork, __ATOMIC_SEQ_CST))
			return true;
	return false;
}

static void tell_robust(uintptr_t entry, long offset, crn_output_fn fn, void *arg)
{
	entry &= ~1ul; /* the mark of a mutex with priority inheritance */
	if (entry)
		fn(arg, entry + (uintptr_t)offset, sizeof(int));
}

/* When a thread ends, the kernel writes "owner died" into every robust mutex that it holds. */
static void tell_robust_list(int tid, crn_output_fn fn, void *arg)
{
	struct robust_list_head head;
	uintptr_t at = 0, entry;
	size_t size = 0;

	if (crn_sys3(SYS_get_robust_list, tid, &at, &size) < 0 || !at ||
		crn_user_peek(&head, at, sizeof(head)) < 0)
		return;
	entry = (uintptr_t)head.list.next;
	for (unsigned i = 0; i < ROBUST_MAX && entry && (entry & ~1ul) != at; i++) {
		tell_robust(entry, head.futex_offset, fn, arg);
		if (crn_user_peek(&entry, entry & ~1ul, sizeof(entry)) < 0)
			break;
	}
	tell_robust((uintptr_t)head.list_op_pending, head.futex_offset, fn, arg);
}

void crn_agent_in_flight(bool others, crn_output_fn fn, void *arg)
{
	struct crn_in_flight calls[CRN_PENDING_MAX + 1];
	struct crn_thread *t;

	for (uint32_t i = 0; (t = crn_thread_slot(i)); i++) {
		uint32_t n;

		if (!__atomic_load_n(&t->live, __ATOMIC_ACQUIRE) ||
			(others && t == crn_thread_self()))
			continue;
		if (t->exiting) {
			if (!crn_thread_is_over(t))
				tell_robust_list(t->tid, fn, arg);
			continue;
		}
		if (t->in_vfork && __atomic_load_n(&t->child_is_traced, __ATOMIC_SEQ_CST))
			fn(arg, 0, SIZE_MAX);
		n = crn_calls_in_flight(t, calls);
		for (uint32_t k = 0; k < n; k++)
			crn_output_ranges(&calls[k], fn, arg);
	}
}

static void open_range(void *arg, uintptr_t addr, size_t len)
{
	crn_output_memory(addr, len);
}

void crn_call_thread_ends(struct crn_thread *t)
{
	if (crn_agent && crn_output_matters() && crn_output_ready())
		tell_robust_list(t->tid, open_range, NULL);
}

/*
 * A child that is traced stops at every signal, also at our faults, and its tracer may be the very
 * thread that waits for its exec. So from here on nothing may be closed to it.
 */
static bool open_to_traced(struct crn_call *call)
{
	__atomic_store_n(&call->thread->child_is_traced, 1, __ATOMIC_SEQ_CST);
	if (!crn_output_ready() || crn_touch_all(crn_agent->session) >= 0)
		return true;
	__atomic_store_n(&call->thread->child_is_traced, 0, __ATOMIC_SEQ_CST);
	call->result = -EPERM;
	return false;
}

bool crn_call_borrowed(struct crn_call *call)
{
	struct crn_in_flight *out = &call->thread->borrowed;

	if (!crn_agent || !crn_output_matters())
		return true;
	out->nr = -1; /* never half of one call and half of another */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	crn_copy(out->args, call->args, sizeof(out->args));
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	out->nr = call->nr;
	if (call->nr == SYS_ptrace && call->args[0] == PTRACE_TRACEME)
		return open_to_traced(call);
	if (crn_output_ready())
		crn_output_ranges(out, open_range, NULL);
	return true;
}
