/* SPDX-License-Identifier: MIT */
/*
 * int crn_delta_make_wide(struct crn_delta_run *r): as crn_delta_make, by whole lines, where there
 * are registers for them (AVX-512F, DQ and BW; with them come BMI1 and POPCNT). Only registers that
 * no legacy instruction reaches are used (os/guarded.S).
 *
 * Of each page all lines are compared first, which takes as long as the pages take to come from the
 * second-level cache. Then those that differ are read once more: what is stored to a line meanwhile
 * is in both, the frame and the delta, or in neither. The words that differ are squeezed together
 * and stored with what is behind them, which the next line overwrites: at most 64 bytes per line.
 *
 * If a line cannot be read then, it and those after it get no words, so that the delta says what
 * has been done to the frame, and the result is -EINTR.
 */
#include "os/guarded_asm.h"

/* In struct crn_delta_run: delta.c */
#define RUN_OUT	    0
#define RUN_ROOM    8
#define RUN_LONGEST 16
#define RUN_PAGE    24
#define RUN_STEP    32
#define RUN_LEFT    40

	.text
	GUARDED_PLACE crn_delta_line
	GUARDED crn_delta_make_wide
	pushq %rbx
	pushq %rbp
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	subq $136, %rsp
	vmovdqu64 %zmm16, (%rsp)
	vmovdqu64 %zmm17, 64(%rsp)
	kmovq %k1, %r11
	movq RUN_OUT(%rdi), %rbx
	movq RUN_ROOM(%rdi), %r12
	addq %rbx, %r12 /* the end of the room */
	movq RUN_LONGEST(%rdi), %rbp
	movq RUN_PAGE(%rdi), %r13
	movq RUN_STEP(%rdi), %r14
	movq RUN_LEFT(%rdi), %r15
0:	movq (%r13), %rdx /* the frame */
	movq 8(%r13), %rcx /* the page */
	COMPARE_LINES crn_delta_make_wide, %rdx, %rcx, %r10, %r10d, %rsi
	popcntq %rsi, %r8
	leal 7(%r8), %r9d
	andl $-8, %r9d /* the words' bytes, padded with zeros */
	shll $6, %r8d
	leal 8(%r8,%r9), %eax
	cmpq %rbp, %rax
	ja 4f
	addq %rbx, %rax
	cmpq %r12, %rax
	ja 4f
	movq %rsi, (%rbx)
	leaq 8(%rbx), %r8 /* which words differ, a byte for each line */
	addq %r8, %r9
	movq %r9, %r10 /* the differences */
	testq %rsi, %rsi
	jz 3f
	movq $0, -8(%r9)
2:	tzcntq %rsi, %rax
	blsrq %rsi, %rsi
	shll $6, %eax
crn_delta_line_begin:
	vmovdqa64 (%rcx,%rax), %zmm16
crn_delta_line_end:
	vpxorq (%rdx,%rax), %zmm16, %zmm17
	vmovdqa64 %zmm16, (%rdx,%rax)
	vptestmq %zmm17, %zmm17, %k1
	vpcompressq %zmm17, %zmm17{%k1}{z}
	vmovdqu64 %zmm17, (%r10)
	kmovb %k1, %eax
	movb %al, (%r8)
	incq %r8
	popcntl %eax, %eax
	leaq (%r10,%rax,8), %r10
	testq %rsi, %rsi
	jnz 2b
3:	movq %rbx, (%r13)
	movq %r10, %rbx
	addq %r14, %r13
	decq %r15
	jnz 0b
	xorl %eax, %eax
	jmp 5f
4:	movl $-28, %eax /* -ENOSPC */
5:	movq %rbx, RUN_OUT(%rdi)
	subq %rbx, %r12
	movq %r12, RUN_ROOM(%rdi)
	movq %r13, RUN_PAGE(%rdi)
	movq %r15, RUN_LEFT(%rdi)
	kmovq %r11, %k1
	vmovdqu64 (%rsp), %zmm16
	vmovdqu64 64(%rsp), %zmm17
	addq $136, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbp
	popq %rbx
	ret
crn_delta_make_wide_failed:
	movl $-14, %eax /* -EFAULT */
	jmp 5b
crn_delta_line_failed:
	movb $0, (%r8)
	incq %r8
	cmpq %r9, %r8
	jb crn_delta_line_failed
	movl $-4, %eax /* -EINTR */
	jmp 5b
	.size crn_delta_make_wide, . - crn_delta_make_wide
	.section .note.GNU-stack, "", @progbits
