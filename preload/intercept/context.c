/* SPDX-License-Identifier: MIT */
/* A thread's registers: taken in a hook, and run on from. */
#include <cpuid.h>
#include "base/copy.h"
#include "os/signal.h"
#include "intercept/intercept.h"

#define XCR0_PKRU (1ull << 9)
#define XCR0_AMX  (3ull << 17) /* tile data: 8 KiB that a thread must ask for; kept out */

static bool have_xsavec, have_fs_base;

void crn_context_init(bool fs_base)
{
	uint32_t a, b, c, d, lo, hi;

	__asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	crn_here.agent.xstate_mask = ((uint64_t)hi << 32 | lo) & ~(XCR0_PKRU | XCR0_AMX);
	__cpuid_count(0xd, 1, a, b, c, d);
	have_xsavec = a & 2;
	have_fs_base = fs_base;
	__cpuid_count(0xd, 0, a, b, c, d);
	/* The standard form's size bounds the compact one's, and is the same for all threads. */
	crn_here.agent.xstate_size = (b + 63) & ~63u;
}

void crn_context_capture(struct crn_thread *t, struct crn_context *out)
{
	/* First of all: what is put off from here on blocks all, and says what was before. */
	uint64_t mask = crn_signal_mask_get();

	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	out->regs = *t->regs;
	if (t->call)
		out->regs.rax = (uint64_t)t->call->result;
	if (t->put_off && t->put_off_mask != CRN_MASK_IN_FORCE)
		mask = t->put_off_mask;
	out->sigmask = mask | t->program_blocked;
	out->altstack = t->program_altstack;
	if (have_fs_base)
		__asm__ volatile("rdfsbase %0" : "=r"(out->fs_base));
	crn_calls_keep(t);
	if (!out->xstate)
		return;
	if (have_xsavec) {
		crn_xsavec(out->xstate, crn_here.agent.xstate_mask);
	} else {
		crn_fill((uint8_t *)out->xstate + 512, 0, 64); /* XSAVE leaves bits of the header */
		crn_xsave(out->xstate, crn_here.agent.xstate_mask);
	}
}

/*
 * SAFETY: legal in a hook and in a fault's handler. From here on the thread counts as inside a
 * hook, so a signal that the new mask lets in is put off and delivered to the state that is run on
 * from. The image is copied to the top of the hooks' stack last: whatever lies there belongs to a
 * hook that is given up.
 */
_Noreturn void crn_resume(struct crn_thread *t, const struct crn_context *ctx)
{
	struct crn_regs *top = (struct crn_regs *)(t->stack_top - sizeof(*top));

	t->regs = top;
	t->in_agent = 1;
	t->call = NULL;
	t->trapping = 0;
	crn_calls_put_back(t);
	t->program_altstack = ctx->altstack;
	t->program_blocked = ctx->sigmask & CRN_SIG_RESERVED;
	/* What was put off under the recovery's mask, or is now, is delivered under this one. */
	t->put_off_mask = CRN_MASK_IN_FORCE;
	crn_signal_mask(SIG_SETMASK, ctx->sigmask & ~CRN_SIG_RESERVED);
	crn_signals_release(t); /* held in the middle of the crash's entry, which ends here */
	if (have_fs_base)
		__asm__ volatile("wrfsbase %0" : : "r"(ctx->fs_base));
	if (ctx->xstate)
		crn_xrstor(ctx->xstate, crn_here.agent.xstate_mask);
	*top = ctx->regs;
	crn_leave_to(top);
}
