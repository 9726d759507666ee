/* SPDX-License-Identifier: MIT */
/*
 * Syscall user dispatch (Linux 5.11): a system call from anywhere but the agent's own text becomes
 * a SIGSYS, which costs some 4000 cycles. It catches what no patch covers: the program's own
 * syscall instructions, sites that the decoder could not prove safe, and code that is loaded or
 * generated later. It is armed per thread, and gone after fork and exec. No selector byte is used:
 * the agent's calls are told apart by their address.
 */
#include <sys/prctl.h>
#include "base/log.h"
#include "os/sys.h"
#include "intercept/intercept.h"

#define SYS_USER_DISPATCH_CODE 2 /* si_code */
#define ARCH_X86_64            0xc000003eu

int crn_dispatch_arm(void)
{
	if (!crn_here.sud)
		return 0;
	return (int)crn_sys5(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON,
		crn_here.text_begin, crn_here.text_end - crn_here.text_begin, 0);
}

void crn_dispatch_disarm(void)
{
	crn_sys5(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
}

/* Made here, unseen by the hooks. */
static void run_unseen(ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;

	g[REG_RAX] = crn_sys6(
		g[REG_RAX], g[REG_RDI], g[REG_RSI], g[REG_RDX], g[REG_R10], g[REG_R8], g[REG_R9]);
	g[REG_RCX] = 0; /* crn_dispatch_again: it has been made */
}

/* int $0x80 in a 64-bit program: its numbers are i386's, its pointers 32 bits. */
static void run_int80(ucontext_t *uc)
{
	static uint32_t said;
	greg_t *g = uc->uc_mcontext.gregs;
	long ret = g[REG_RAX];
	register long bp __asm__("r10") = g[REG_RBP];

	if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
		crn_warn("int $0x80 at %llx is not intercepted", g[REG_RIP] - 2);
	__asm__ volatile("push %%rbp; mov %%r10, %%rbp; int $0x80; pop %%rbp"
			 : "+a"(ret), "+r"(bp)
			 : "b"(g[REG_RBX]), "c"(g[REG_RCX]), "d"(g[REG_RDX]), "S"(g[REG_RSI]),
			 "D"(g[REG_RDI])
			 : "memory", "r8", "r9", "r11");
	g[REG_RAX] = ret;
}

static void say_no_room(const greg_t *g)
{
	static uint32_t said;

	if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
		crn_warn("system call %lld at %llx is not intercepted: no room for another site",
			g[REG_RAX], g[REG_RIP] - 2);
}

/* True if the SIGSYS was a call of the program: uc now continues in its stub. */
bool crn_dispatch_signal(struct crn_thread *t, const siginfo_t *info, ucontext_t *uc)
{
	uint8_t *stub;

	if (info->si_code != SYS_USER_DISPATCH_CODE)
		return false;
	if (info->si_arch != ARCH_X86_64) {
		run_int80(uc);
		return true;
	}
	stub = crn_stub_for((uintptr_t)uc->uc_mcontext.gregs[REG_RIP] - 2);
	if (stub) {
		uc->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)(stub + CRN_STUB_AGAIN);
		return true;
	}
	say_no_room(uc->uc_mcontext.gregs);
	run_unseen(uc);
	return true;
}

/* SAFETY: takes no lock, for the thread may hold any. */
bool crn_dispatch_inside(const siginfo_t *info, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	uint8_t *stub;

	if (info->si_code != SYS_USER_DISPATCH_CODE)
		return false;
	if (info->si_arch != ARCH_X86_64) {
		run_int80(uc);
		return true;
	}
	stub = crn_stub_found((uintptr_t)g[REG_RIP] - 2);
	if (stub)
		g[REG_RIP] = (greg_t)(uintptr_t)(stub + CRN_STUB_BARE);
	else
		run_unseen(uc);
	return true;
}

/*
 * Of the SIGSYS that wait the kernel keeps the first one: where a timer's was pending, or one that
 * somebody has sent, the one that tells of a call was dropped, and the call has not been made. Then
 * %rip is behind the instruction and %rcx the same, which no way out of a stub leaves so. The
 * program goes back in front of it, before anything else is done about the signal.
 *
 * Not for a fault: its instruction was reached, so no signal was dropped in front of it, and what
 * lies there may be unreadable (a jump through a null pointer that %rcx holds).
 */
void crn_dispatch_again(const struct crn_thread *t, int sig, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	uint8_t insn[2];

	if (g[REG_RCX] != g[REG_RIP] || !crn_here.sud || t->in_vfork ||
		crn_in_own_text((uintptr_t)g[REG_RIP]))
		return;
	if (sig == SIGSEGV || sig == SIGBUS) /* sent; the look may raise another one */
		crn_signal_mask(SIG_UNBLOCK, CRN_SIG(sig));
	if (crn_user_copy(insn, (const void *)(uintptr_t)(g[REG_RIP] - 2), sizeof(insn)) == 0 &&
		insn[0] == 0x0f && insn[1] == 0x05)
		g[REG_RIP] -= 2;
}
