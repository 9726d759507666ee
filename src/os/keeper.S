/* SPDX-License-Identifier: MIT */
/*
 * void crn_keeper_sleep(const struct crn_keeper_gap *gaps, long lifeline_fd)
 *
 * The last thing that a keeper runs: it unmaps the gaps ({ begin, len } until len is 0), its stack
 * among them, so that it works in registers alone and lies in one page. Then it sleeps until the
 * lifeline ends.
 */
	.text
	.balign 256
	.globl crn_keeper_sleep
	.hidden crn_keeper_sleep
	.type crn_keeper_sleep, @function
crn_keeper_sleep:
	movq	%rdi, %rbx
	movq	%rsi, %r12
1:	movq	8(%rbx), %rsi
	testq	%rsi, %rsi
	jz	2f
	movl	$11, %eax		/* munmap; refused (a sealed mapping): then it stays */
	movq	(%rbx), %rdi
	syscall
	addq	$16, %rbx
	jmp	1b

2:	movl	$73, %eax		/* flock(LOCK_SH): ours when the program's memory is gone */
	movq	%r12, %rdi
	movl	$1, %esi
	syscall
	cmpq	$-4, %rax		/* EINTR */
	je	2b
	movl	$231, %eax		/* exit_group */
	xorl	%edi, %edi
	syscall
	hlt
	.size crn_keeper_sleep, . - crn_keeper_sleep
	.section .note.GNU-stack, "", @progbits
