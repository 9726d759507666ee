/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include "base/bits.h"
#include "os/memory.h"
#include "os/signal.h"
#include "os/other_task.h"
#include "os/proc.h"
#include "os/sys.h"

_Static_assert(offsetof(struct crn_call, result) == 48, "the offsets below");

#define CLONE_THREAD 0x00054f00u /* VM | FS | FILES | SIGHAND | VFORK | THREAD | SYSVSEM */

int crn_store_by_kernel(volatile uint8_t *at)
{
	return (int)crn_sys3(SYS_getrandom, at, 1, 1 /* GRND_NONBLOCK */);
}

/*
 * A task that shares our memory stores a byte, makes a call (either may be NULL), and is gone. Its
 * id, or -errno.
 */
static long cloned(unsigned long flags, volatile uint8_t *at, struct crn_call *call)
{
	uint64_t mask = crn_signal_mask(SIG_SETMASK, ~0ull);
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	long ret;

	/*
	 * SAFETY: the child runs on our stack while CLONE_VFORK holds us, but uses none of it: it
	 * exits within these instructions. No signal handler can run in it.
	 */
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "test %[at], %[at]\n\t"
			 "jz 2f\n\t"
			 "movb $7, (%[at])\n"
			 "2:\ttest %[call], %[call]\n\t"
			 "jz 3f\n\t"
			 "mov (%[call]), %%rax\n\t"
			 "mov 8(%[call]), %%rdi\n\t"
			 "mov 16(%[call]), %%rsi\n\t"
			 "mov 24(%[call]), %%rdx\n\t"
			 "mov 32(%[call]), %%r10\n\t"
			 "mov 40(%[call]), %%r8\n\t"
			 "syscall\n\t"
			 "mov %%rax, 48(%[call])\n"
			 "3:\tmov %[exit], %%eax\n\t"
			 "xor %%edi, %%edi\n\t"
			 "syscall\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(ret)
			 : "a"(SYS_clone), "D"(flags), "S"(0), "d"(0), "r"(r10), "r"(r8),
			 [at] "r"(at), [call] "b"(call), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
	crn_signal_mask(SIG_SETMASK, mask);
	return ret;
}

int crn_call_by_thread(struct crn_call *call)
{
	long ret = cloned(CLONE_THREAD, NULL, call);

	call->tid = (int)CRN_MAX(ret, 0);
	return (int)CRN_MIN(ret, 0);
}

int crn_store_by_thread(volatile uint8_t *at)
{
	return (int)cloned(CLONE_THREAD, at, NULL);
}

int crn_store_by_child(volatile uint8_t *at)
{
	int status;
	long pid;

	if (crn_proc_children_elsewhere())
		return -EXDEV;
	pid = cloned(CRN_CLONE_CHILD, at, NULL);
	while (pid > 0 && crn_sys4(SYS_wait4, pid, &status, 0x40000000 /* __WALL */, 0) == -EINTR)
		;
	return (int)pid;
}

int crn_lock_by_thread(void *page)
{
	struct crn_call call = { .nr = SYS_madvise,
		.args = { (long)page, CRN_PAGE_SIZE, MADV_POPULATE_READ } };
	int err = crn_call_by_thread(&call);

	return err < 0 ? err : call.tid;
}
