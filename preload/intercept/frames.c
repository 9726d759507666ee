/* SPDX-License-Identifier: MIT */
/*
 * The signal frame that the program's handler sees. The kernel's own frame went to the agent's
 * alternate stack; here it is put where the kernel would have put it without us
 * (arch/x86/kernel/signal.c, get_sigframe and x64_setup_rt_frame), and the kernel's frame is turned
 * into the handler's first state.
 *
 *	high  ... the program's stack, red zone of 128 bytes
 *	      XSAVE area as the kernel wrote it, 64-byte aligned
 *	      siginfo
 *	      ucontext
 *	low   return address: crn_restorer              <- rsp at the handler's entry, 16n + 8
 */
#include "base/copy.h"
#include "intercept/intercept.h"

#define RED_ZONE 128
#define FLAG_DF  (1u << 10)
#define FLAG_RF  (1u << 16)
#define FLAG_TF  (1u << 8)

/* What the kernel puts behind the 464 bytes of FXSAVE in the frame. */
struct sw_bytes {
	uint32_t magic1, extended_size;
	uint64_t xfeatures;
	uint32_t xstate_size, padding[7];
};

/* The kernel's ucontext is shorter than libc's: its mask has 8 bytes. */
struct kernel_ucontext {
	unsigned long flags;
	void *link;
	stack_t stack;
	mcontext_t mcontext;
	uint64_t sigmask;
};
_Static_assert(
	offsetof(struct kernel_ucontext, sigmask) == offsetof(ucontext_t, uc_sigmask), "ucontext");

struct frame {
	uint64_t pretcode;
	struct kernel_ucontext uc;
	siginfo_t info;
};

static size_t xstate_size(const void *fpregs)
{
	const struct sw_bytes *sw = (const void *)((const uint8_t *)fpregs + 464);

	return sw->magic1 == FP_XSTATE_MAGIC1 ? sw->extended_size : 512;
}

static bool on_altstack(const struct crn_thread *t, uint64_t rsp)
{
	const stack_t *s = &t->program_altstack;

	return s->ss_size && !(s->ss_flags & SS_DISABLE) && rsp > (uintptr_t)s->ss_sp &&
		rsp - (uintptr_t)s->ss_sp <= s->ss_size;
}

bool crn_on_program_altstack(const struct crn_thread *t, uint64_t rsp)
{
	return !(t->program_altstack.ss_flags & (1 << 31)) && on_altstack(t, rsp);
}

static uint64_t frame_top(
	const struct crn_thread *t, const struct crn_ksigaction *act, uint64_t rsp)
{
	const stack_t *s = &t->program_altstack;

	if ((act->flags & SA_ONSTACK) && s->ss_size && !crn_on_program_altstack(t, rsp))
		return (uintptr_t)s->ss_sp + s->ss_size;
	return rsp - RED_ZONE;
}

/* False: the program's stack cannot be written. Nothing but stack below rsp has changed then. */
bool crn_frame_push(struct crn_thread *t, int sig, const siginfo_t *info, ucontext_t *uc,
	const struct crn_ksigaction *act, uint64_t mask_base)
{
	greg_t *g = uc->uc_mcontext.gregs;
	uint64_t sp = frame_top(t, act, (uint64_t)g[REG_RSP]), fp = 0;
	bool nested = crn_on_program_altstack(t, (uint64_t)g[REG_RSP]);
	struct frame *at, f;
	uint64_t mask = mask_base | act->mask;

	if (uc->uc_mcontext.fpregs) {
		size_t size = xstate_size(uc->uc_mcontext.fpregs);

		sp = fp = (sp - size) & ~63ul;
		if (crn_user_copy((void *)fp, uc->uc_mcontext.fpregs, size) < 0)
			return false;
	}
	at = (struct frame *)(((sp - sizeof(f)) & ~15ul) - 8);
	if (nested && !crn_on_program_altstack(t, (uintptr_t)at))
		return false; /* the kernel, too, will not run off an alternate stack */
	f.pretcode = (uintptr_t)crn_restorer;
	crn_copy(&f.uc, uc, sizeof(f.uc));
	crn_copy(&f.info, info, sizeof(f.info));
	f.uc.mcontext.fpregs = (void *)fp;
	f.uc.stack = t->program_altstack;
	f.uc.sigmask |= t->program_blocked;
	if (crn_user_copy(at, &f, sizeof(f)) < 0)
		return false;
	if (t->program_altstack.ss_flags & (1 << 31)) { /* SS_AUTODISARM */
		crn_fill(&t->program_altstack, 0, sizeof(stack_t));
		t->program_altstack.ss_flags = SS_DISABLE;
	}
	if (!(act->flags & SA_NODEFER))
		mask |= CRN_SIG(sig);
	t->program_blocked |= mask & CRN_SIG_RESERVED;
	*(uint64_t *)&uc->uc_sigmask = mask & CRN_SIG_ALL;
	uc->uc_mcontext.fpregs = NULL; /* handlers start with the initial state, as in the kernel */
	g[REG_RIP] = (greg_t)act->handler;
	g[REG_RSP] = (greg_t)(uintptr_t)at;
	g[REG_RDI] = sig;
	g[REG_RSI] = (greg_t)(uintptr_t)&at->info;
	g[REG_RDX] = (greg_t)(uintptr_t)&at->uc;
	g[REG_RAX] = 0;
	g[REG_EFL] &= ~(greg_t)(FLAG_DF | FLAG_RF | FLAG_TF);
	return true;
}

void crn_uc_from_regs(ucontext_t *uc, const struct crn_regs *r, uint64_t rip)
{
	greg_t *g = uc->uc_mcontext.gregs;

	g[REG_R15] = (greg_t)r->r15;
	g[REG_R14] = (greg_t)r->r14;
	g[REG_R13] = (greg_t)r->r13;
	g[REG_R12] = (greg_t)r->r12;
	g[REG_RBP] = (greg_t)r->rbp;
	g[REG_RBX] = (greg_t)r->rbx;
	g[REG_R11] = (greg_t)r->r11;
	g[REG_R10] = (greg_t)r->r10;
	g[REG_R9] = (greg_t)r->r9;
	g[REG_R8] = (greg_t)r->r8;
	g[REG_RAX] = (greg_t)r->rax;
	g[REG_RCX] = (greg_t)r->rcx;
	g[REG_RDX] = (greg_t)r->rdx;
	g[REG_RSI] = (greg_t)r->rsi;
	g[REG_RDI] = (greg_t)r->rdi;
	g[REG_EFL] = (greg_t)r->rflags;
	g[REG_RSP] = (greg_t)r->rsp;
	g[REG_RIP] = (greg_t)rip;
}

void crn_uc_to_regs(struct crn_regs *r, const ucontext_t *uc)
{
	const greg_t *g = uc->uc_mcontext.gregs;

	*r = (struct crn_regs){
		.r15 = (uint64_t)g[REG_R15],
		.r14 = (uint64_t)g[REG_R14],
		.r13 = (uint64_t)g[REG_R13],
		.r12 = (uint64_t)g[REG_R12],
		.rbp = (uint64_t)g[REG_RBP],
		.rbx = (uint64_t)g[REG_RBX],
		.r11 = (uint64_t)g[REG_R11],
		.r10 = (uint64_t)g[REG_R10],
		.r9 = (uint64_t)g[REG_R9],
		.r8 = (uint64_t)g[REG_R8],
		.rax = (uint64_t)g[REG_RAX],
		.rcx = (uint64_t)g[REG_RCX],
		.rdx = (uint64_t)g[REG_RDX],
		.rsi = (uint64_t)g[REG_RSI],
		.rdi = (uint64_t)g[REG_RDI],
		.rflags = (uint64_t)g[REG_EFL],
		.rsp = (uint64_t)g[REG_RSP],
		.rip = (uint64_t)g[REG_RIP],
	};
}
