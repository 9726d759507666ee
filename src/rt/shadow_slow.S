/* SPDX-License-Identifier: MIT */
/*
 * The shadow's hook for the first store to a region, in the plain case: crn_rt_slow has all others,
 * and says why each step is where it is. Most of what a checkpoint costs a program is spent here,
 * so most registers stay as they are. For one thread, regions of 1 << CRN_SHIFT bytes, 64 to 256.
 */
	.set	REGION, 1 << CRN_SHIFT
	.set	PLAIN, __cairn_rt + 48		/* struct crn_rt */
	.set	DIRTY_CUR, __cairn_rt + 56
	.set	DIRTY_END, __cairn_rt + 64

	.macro	SAVE reg
	push	%\reg
	.cfi_adjust_cfa_offset 8
	.endm
	.macro	BACK reg
	pop	%\reg
	.cfi_adjust_cfa_offset -8
	.endm

	.text
	.globl	__cairn_slow
	.type	__cairn_slow, @function
	.p2align 6
__cairn_slow:	/* (address), as hook_stubs.S has it */
	.cfi_startproc
	cmpq	$0, PLAIN(%rip)
	je	crn_hook_slow
	lea	__cairn_rt(%rip), %r11
	sub	%rdi, %r11
	neg	%r11
	cmp	$4096, %r11		/* a stray store */
	jb	crn_hook_slow
	SAVE	rax
	SAVE	rcx
	SAVE	rdx
	mov	%rdi, %rdx
	mov	%rdi, %rcx
	and	$-REGION, %rdx
	shr	$CRN_SHIFT, %rcx	/* its tag's address */
	movabs	$-0x100000005000, %r11	/* CRN_RT_SHADOW_BELOW */
	movups	%xmm0, -16(%rsp)
	movups	%xmm1, -32(%rsp)
	movups	%xmm2, -48(%rsp)
	movups	%xmm3, -64(%rsp)
	.set	at, 0
	.rept	REGION / 64
	movaps	at(%rdx), %xmm0
	movaps	at + 16(%rdx), %xmm1
	movaps	at + 32(%rdx), %xmm2
	movaps	at + 48(%rdx), %xmm3
	cmpb	$1, (%rcx)
	je	.Lout
	movaps	%xmm0, at(%rdx,%r11)
	movaps	%xmm1, at + 16(%rdx,%r11)
	movaps	%xmm2, at + 32(%rdx,%r11)
	movaps	%xmm3, at + 48(%rdx,%r11)
	.set	at, at + 64
	.endr
	cmpq	$0, PLAIN(%rip)		/* a handler has changed that meanwhile */
	je	.Lother
.Ltake:
	mov	DIRTY_CUR(%rip), %rax
	cmp	DIRTY_END(%rip), %rax
	jae	.Lother
	lea	8(%rax), %r11
	cmpxchg	%r11, DIRTY_CUR(%rip)	/* crn_rt_take */
	jne	.Ltake
	mov	%rdx, (%rax)
	movb	$1, (%rcx)
.Lout:
	movups	-16(%rsp), %xmm0
	movups	-32(%rsp), %xmm1
	movups	-48(%rsp), %xmm2
	movups	-64(%rsp), %xmm3
	.cfi_remember_state
	BACK	rdx
	BACK	rcx
	BACK	rax
	ret
.Lother:
	.cfi_restore_state
	movups	-16(%rsp), %xmm0
	movups	-32(%rsp), %xmm1
	movups	-48(%rsp), %xmm2
	movups	-64(%rsp), %xmm3
	BACK	rdx
	BACK	rcx
	BACK	rax
	jmp	crn_hook_slow
	.cfi_endproc
	.size	__cairn_slow, . - __cairn_slow

	.section .note.GNU-stack, "", @progbits
