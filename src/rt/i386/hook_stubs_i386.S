/* SPDX-License-Identifier: MIT */
/*
 * The hooks as the pass calls them in 32-bit code: arguments in eax and edx; eax, ecx and edx are
 * lost, as in any call (LLVM has no convention there that spares them).
 */
	.macro	HOOK name, target
	.globl	\name
	.type	\name, @function
	.p2align 4
\name:
	.cfi_startproc
	push	%edx
	.cfi_adjust_cfa_offset 4
	push	%eax
	.cfi_adjust_cfa_offset 4
	call	\target
	add	$8, %esp
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size	\name, . - \name
	.endm

	.text
	HOOK	__cairn_slow, crn_rt_slow		/* (address) */
	HOOK	__cairn_range, crn_rt_range		/* (address, length) */
	HOOK	__cairn_stray, crn_rt_stray		/* (address) */

	.section .note.GNU-stack, "", @progbits
