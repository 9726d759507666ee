/* SPDX-License-Identifier: MIT */
/*
 * The hooks as the pass calls them: with the convention preserve_all, which leaves every register
 * but r11 to the caller. The C behind them is compiled for general registers only, so those that
 * C may change are all that has to be saved.
 */
	.macro	HOOK name, target
	.globl	\name
	.type	\name, @function
	.p2align 4
\name:
	.cfi_startproc
	.irp	reg, rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11
	push	%\reg
	.cfi_adjust_cfa_offset 8
	.endr
	call	\target
	.irp	reg, r11, r10, r9, r8, rdi, rsi, rdx, rcx, rax
	pop	%\reg
	.cfi_adjust_cfa_offset -8
	.endr
	ret
	.cfi_endproc
	.size	\name, . - \name
	.endm

	.text
	HOOK	crn_hook_slow, crn_rt_slow
	.hidden	crn_hook_slow
	.weak	__cairn_slow				/* (address); shadow_slow.S has another */
	.set	__cairn_slow, crn_hook_slow
	HOOK	__cairn_range, crn_rt_range		/* (address, length) */
	HOOK	__cairn_stray, crn_rt_stray		/* (address) */
	HOOK	__cairn_long, crn_rt_long		/* () */

	.section .note.GNU-stack, "", @progbits
