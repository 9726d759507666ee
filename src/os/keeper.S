/* SPDX-License-Identifier: MIT */
/*
 * The code of a keeper once it has no stack any more. All of it lies in one page.
 *
 *	void crn_keeper_sleep(const struct crn_keeper_gap *gaps, long lifeline_fd,
 *		uint32_t *state, struct crn_keeper_readers *readers)
 *
 * This is the last function that a keeper runs. It unmaps the gaps ({ begin, len } until len is 0),
 * among them its stack, so it works in registers only; then `light`, behind `state`, is 1. With
 * `readers` it then starts a thread that reads events, and a twin: another process, which sleeps
 * like the keeper and has such a thread as well. If one of them is killed, a reader is left. By now
 * there is little memory to copy for the twin. It has memory of its own, so if the kernel, short of
 * memory, kills all users of some memory, it kills only one of the two. `state` is 1 then, and
 * readers->begun says how many readers will report whether they work. Then it sleeps until the
 * lifeline ends.
 */
	.set SEEN, 0 /* struct crn_keeper_readers */
	.set DONE, 4
	.set DROPPED, 8
	.set LOG, 16
	.set LOG_MASK, 1023
	.set COUNT, 24
	.set TWIN, 28
	.set TWIN_OWNER, 32
	.set ROBUST, 40
	.set NAME, 72
	.set FIRST, 88
	.set SECOND, 104
	.set FILES, 2
	.set FILE, 8 /* struct crn_keeper_file */
	.set REVENTS, 6
	.set BEGUN, 120
	.set LIGHT, 4 /* behind `state` */

	/* clone(flags in edi); the child goes on at \child, on no stack */
	.macro	BEGIN child
	movl	$56, %eax
	xorl	%esi, %esi
	xorl	%edx, %edx
	xorl	%r10d, %r10d
	xorl	%r8d, %r8d
	syscall
	testq	%rax, %rax
	jz	\child
	.endm
	.set THREAD, 0x50f00		/* VM, FS, FILES, SIGHAND, THREAD, SYSVSEM */
	.set PROCESS, 0x8000		/* PARENT */

	.text
	.balign 1024
	.globl crn_keeper_sleep
	.hidden crn_keeper_sleep
	.type crn_keeper_sleep, @function
crn_keeper_sleep:
	movq	%rdi, %rbx
	movq	%rsi, %r12
	movq	%rcx, %r13
	movq	%rdx, %r14
2:	movq	8(%rbx), %rsi
	testq	%rsi, %rsi
	jz	begin
	movl	$11, %eax		/* munmap; refused (a sealed mapping): then it stays */
	movq	(%rbx), %rdi
	syscall
	addq	$16, %rbx
	jmp	2b

begin:	movl	$1, LIGHT(%r14)
	testq	%r13, %r13
	jz	sleep
	leaq	FIRST(%r13), %rbx
	movl	$THREAD, %edi
	BEGIN	reader
	js	1f
	incl	BEGUN(%r13)
	movl	$PROCESS, %edi
	BEGIN	twin
	js	1f
	movl	%eax, TWIN(%r13)
	incl	BEGUN(%r13)
1:	movl	$1, (%r14)		/* the program goes on */
	movl	$202, %eax		/* futex(FUTEX_WAKE), not private */
	movq	%r14, %rdi
	movl	$1, %esi
	movl	$0x7fffffff, %edx
	syscall

sleep:	movl	$73, %eax		/* flock(LOCK_SH): ours when the program's memory is gone */
	movq	%r12, %rdi
	movl	$1, %esi
	syscall
	cmpq	$-4, %rax		/* EINTR */
	je	sleep
	movl	$231, %eax		/* exit_group */
	xorl	%edi, %edi
	syscall
	hlt

twin:	movl	$157, %eax		/* prctl(PR_SET_NAME) */
	movl	$15, %edi
	leaq	NAME(%r13), %rsi
	syscall
	movl	$273, %eax		/* set_robust_list: the kernel tells of our death */
	leaq	ROBUST(%r13), %rdi
	movl	$24, %esi
	syscall
	movl	$186, %eax		/* gettid */
	syscall
	movl	%eax, TWIN_OWNER(%r13)
	leaq	SECOND(%r13), %rbx
	movl	$THREAD, %edi
	BEGIN	reader
	jns	sleep
	lock addl $0x10000, COUNT(%r13)
	jmp	sleep

	/* Once in vain, to see whether it may: there is room for no event. */
reader:	xorl	%eax, %eax		/* read */
	movslq	(%rbx), %rdi
	movq	LOG(%r13), %rsi
	xorl	%edx, %edx
	syscall
	cmpq	$-22, %rax		/* EINVAL */
	jne	4f
	movl	$7, %eax		/* poll */
	movq	%rbx, %rdi
	movl	$FILES, %esi
	xorl	%edx, %edx
	syscall
	testq	%rax, %rax
	js	4f
	lock incl COUNT(%r13)

1:	movl	$7, %eax		/* poll */
	movq	%rbx, %rdi
	movl	$FILES, %esi
	movq	$-1, %rdx
	syscall
	cmpq	$-4, %rax		/* EINTR */
	je	1b
	testq	%rax, %rax
	jle	5f
	movq	%rbx, %r15

	/* Of each file one event, so that none waits for the other's causers to end */
2:	cmpw	$0, REVENTS(%r15)
	je	3f
	cmpw	$1, REVENTS(%r15)	/* POLLIN, and no error */
	jne	5f
	/* read() into the place of the log that the count before names, which is empty till then */
	movl	$1, %r14d
	lock xaddl %r14d, SEEN(%r13)
	andl	$LOG_MASK, %r14d
	shll	$5, %r14d
	addq	LOG(%r13), %r14
	movb	$0, (%r14)
	xorl	%eax, %eax
	movslq	(%r15), %rdi
	movq	%r14, %rsi
	movl	$32, %edx
	syscall
	testq	%rax, %rax
	jle	8f
	cmpb	$0x15, (%r14)		/* UFFD_EVENT_REMOVE */
	jb	6f
	ja	8f
	movl	$1, DROPPED(%r13)
	jmp	8f
	/* Remapped: what has moved is registered, and as protected as it was */
6:	movl	$16, %eax		/* ioctl */
	movslq	(%r15), %rdi
	movl	$0x8010aa01, %esi	/* UFFDIO_UNREGISTER */
	leaq	16(%r14), %rdx
	syscall
8:	lock incl DONE(%r13)
3:	addq	$FILE, %r15
	leaq	(FILES * FILE)(%rbx), %rax
	cmpq	%rax, %r15
	jb	2b
	jmp	1b

5:	lock decl COUNT(%r13)
	jmp	7f
4:	lock addl $0x10000, COUNT(%r13)
7:	movl	$60, %eax		/* exit */
	xorl	%edi, %edi
	syscall
	hlt
	.size crn_keeper_sleep, . - crn_keeper_sleep
	.org	crn_keeper_sleep + 1024 /* refused if it is too long for one page */
	.section .note.GNU-stack, "", @progbits
