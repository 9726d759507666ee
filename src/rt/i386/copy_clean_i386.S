/* SPDX-License-Identifier: MIT */
/*
 * rt/copy_clean.S for 32-bit programs, where hooks are called as any function is: vector registers
 * are theirs. Processors that run a 64-bit kernel have them.
 */
#define SHADOW -0x80000000 /* CRN_RT_SHADOW_BELOW */

	.macro	copy name, write
	.globl	\name
	.hidden	\name
	.type	\name, @function
	.p2align 4
\name:	/* region, count, tag, saved, size */
	.cfi_startproc
	.irp	reg, ebp, edi, esi, ebx
	push	%\reg
	.cfi_adjust_cfa_offset 4
	.cfi_rel_offset \reg, 0
	.endr
	mov	20(%esp), %edi
	mov	24(%esp), %esi
	mov	28(%esp), %edx
	mov	32(%esp), %ecx
	mov	36(%esp), %ebx
.Lregion\@:
	lea	(%edi,%ebx), %ebp
.Lpart\@:
	movups	(%edi), %xmm0
	movups	16(%edi), %xmm1
	movups	32(%edi), %xmm2
	movups	48(%edi), %xmm3
	cmp	%cl, (%edx)
	je	.Lnext\@
	\write	%xmm0, SHADOW(%edi)
	\write	%xmm1, SHADOW+16(%edi)
	\write	%xmm2, SHADOW+32(%edi)
	\write	%xmm3, SHADOW+48(%edi)
	add	$64, %edi
	cmp	%ebp, %edi
	jb	.Lpart\@
.Lnext\@:
	mov	%ebp, %edi
	inc	%edx
	dec	%esi
	jnz	.Lregion\@
	.irp	reg, ebx, esi, edi, ebp
	pop	%\reg
	.cfi_adjust_cfa_offset -4
	.cfi_restore \reg
	.endr
	ret
	.cfi_endproc
	.size	\name, . - \name
	.endm

	.text
	copy	crn_rt_copy_clean, movups
	copy	crn_rt_stream_clean, movntps

	.section .note.GNU-stack, "", @progbits
