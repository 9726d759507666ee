/* SPDX-License-Identifier: MIT */
/*
 * Old content of regions to their shadow (rt.h), for the shadow's hooks: 64 bytes at a time are
 * read, then the tag, then all are written. The program has its vector registers in use: those that
 * are taken are put below the stack's end, where a leaf function may.
 */
	.macro	copy name, write
	.globl	\name
	.hidden	\name
	.type	\name, @function
	.p2align 4
\name:	/* rdi region, rsi count, rdx tag, cl saved, r8 size */
	.cfi_startproc
	movabs	$-0x100000005000, %rax	/* CRN_RT_SHADOW_BELOW */
	movups	%xmm0, -16(%rsp)
	movups	%xmm1, -32(%rsp)
	movups	%xmm2, -48(%rsp)
	movups	%xmm3, -64(%rsp)
.Lregion\@:
	lea	(%rdi,%r8), %r9
.Lpart\@:
	movups	(%rdi), %xmm0
	movups	16(%rdi), %xmm1
	movups	32(%rdi), %xmm2
	movups	48(%rdi), %xmm3
	cmp	%cl, (%rdx)
	je	.Lnext\@
	\write	%xmm0, (%rdi,%rax)
	\write	%xmm1, 16(%rdi,%rax)
	\write	%xmm2, 32(%rdi,%rax)
	\write	%xmm3, 48(%rdi,%rax)
	add	$64, %rdi
	cmp	%r9, %rdi
	jb	.Lpart\@
.Lnext\@:
	mov	%r9, %rdi
	inc	%rdx
	dec	%rsi
	jnz	.Lregion\@
	movups	-16(%rsp), %xmm0
	movups	-32(%rsp), %xmm1
	movups	-48(%rsp), %xmm2
	movups	-64(%rsp), %xmm3
	ret
	.cfi_endproc
	.size	\name, . - \name
	.endm

	.text
	copy	crn_rt_copy_clean, movups
	copy	crn_rt_stream_clean, movntps

	.section .note.GNU-stack, "", @progbits
