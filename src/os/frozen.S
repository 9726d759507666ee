/* SPDX-License-Identifier: MIT */
/*
 * long crn_frozen_clone(struct crn_frozen_control *control, long parent)
 *
 * Clone this process with no exit signal; the child sleeps until the parent dies, executes another
 * program or kills it. The child's memory is the checkpoint, so it must not write to a single byte
 * of it: after the clone it works in registers alone, and tells of its progress in the control
 * block, which is shared memory. Signals are blocked by the caller.
 *
 *	control +0	uint32_t state: 0, then 1 (frozen) or a negated errno
 *	control +8	struct pollfd { 0, POLLIN, 0 }
 *	control +16	int32_t line_fd: the waiting end of a lifeline (os/lifeline.h), or negative
 *
 * Its descriptors: 0 is what it waits for, 1 its pagemap, for whom /proc does not name it. The
 * program's are never its own: until it has a table for those two it shares the program's, whose
 * other threads run on, and what they close must be closed.
 *
 * Returns the child's pid or -errno, in the parent only.
 */
	.text
	.balign 16
	.globl crn_frozen_clone
	.hidden crn_frozen_clone
	.type crn_frozen_clone, @function
crn_frozen_clone:
	pushq	%rbx
	pushq	%r12
	pushq	%r13
	movq	%rdi, %rbx
	movq	%rsi, %r12
	movl	$56, %eax		/* clone: a copy of everything else, no SIGCHLD */
	movl	$0x400, %edi		/* CLONE_FILES */
	xorl	%esi, %esi		/* the same stack pointer; the child never uses it */
	xorl	%edx, %edx
	xorl	%r10d, %r10d
	xorl	%r8d, %r8d
	syscall
	testq	%rax, %rax
	jz	1f
	popq	%r13
	popq	%r12
	popq	%rbx
	ret

1:	movl	$112, %eax		/* setsid: no terminal, no process group of the program */
	syscall
	movl	16(%rbx), %r13d
	movl	$436, %eax		/* close_range(CLOSE_RANGE_UNSHARE): all, */
	xorl	%edi, %edi
	leal	-1(%r13), %esi		/* or those below the lifeline */
	movl	$0xffffffff, %ecx
	testl	%r13d, %r13d
	cmovsl	%ecx, %esi
	movl	$2, %edx
	syscall
	testq	%rax, %rax
	js	2f
	testl	%r13d, %r13d
	js	5f
	movl	$33, %eax		/* dup2: the lifeline becomes descriptor 0 */
	movl	%r13d, %edi
	xorl	%esi, %esi
	syscall
	testq	%rax, %rax
	js	2f
	movl	$436, %eax		/* close_range: it, and what is above it */
	movl	$1, %edi
	movl	$0xffffffff, %esi
	xorl	%edx, %edx
	syscall
	testq	%rax, %rax
	js	2f
	jmp	6f
5:	movl	$434, %eax		/* pidfd_open(parent): gets descriptor 0 */
	movq	%r12, %rdi
	xorl	%esi, %esi
	syscall
	testq	%rax, %rax
	js	2f
6:	movl	$110, %eax
	syscall
	cmpq	%rax, %r12
	jne	4f
	movl	$157, %eax		/* prctl(PR_SET_NAME) */
	movl	$15, %edi
	leaq	name(%rip), %rsi
	syscall
	/* prctl(PR_SET_DUMPABLE): a parent that has changed its user */
	movl	$157, %eax
	movl	$4, %edi		/* could not read our memory otherwise */
	movl	$1, %esi
	syscall
	movl	$257, %eax		/* openat: its own pagemap becomes descriptor 1 */
	movl	$-100, %edi
	leaq	pagemap(%rip), %rsi
	movl	$0x80000, %edx		/* O_RDONLY | O_CLOEXEC */
	syscall				/* refused: then there is none */
	movl	$1, %eax

2:	movl	%eax, %r12d
	movl	%eax, (%rbx)		/* from here on the parent may go on */
	movl	$202, %eax		/* futex(FUTEX_WAKE), not private: the page is shared */
	movq	%rbx, %rdi
	movl	$1, %esi
	movl	$0x7fffffff, %edx
	syscall
	cmpl	$1, %r12d
	jne	4f

3:	testl	%r13d, %r13d
	js	7f
	movl	$73, %eax		/* flock(LOCK_SH): ours when the parent's memory is gone */
	xorl	%edi, %edi
	movl	$1, %esi
	syscall
	jmp	8f
7:	movl	$7, %eax		/* poll(pidfd): readable when the parent has died */
	leaq	8(%rbx), %rdi
	movl	$1, %esi
	movl	$-1, %edx
	syscall
8:	cmpq	$-4, %rax		/* EINTR: stopped and continued */
	je	3b
4:	movl	$231, %eax		/* exit_group */
	xorl	%edi, %edi
	syscall
	hlt
	.size crn_frozen_clone, . - crn_frozen_clone

	.section .rodata
name:	.asciz "cairn-frozen"
pagemap:
	.asciz "/proc/self/pagemap"
	.section .note.GNU-stack, "", @progbits
