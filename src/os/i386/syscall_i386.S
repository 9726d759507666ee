/* SPDX-License-Identifier: MIT */
/* long crn_sys6(long nr, long a, long b, long c, long d, long e, long f) */
	.text
	.globl	crn_sys6
	.hidden	crn_sys6
	.type	crn_sys6, @function
	.p2align 4
crn_sys6:
	.cfi_startproc
	.irp	reg, ebp, edi, esi, ebx
	push	%\reg
	.cfi_adjust_cfa_offset 4
	.cfi_rel_offset \reg, 0
	.endr
	mov	20(%esp), %eax
	mov	24(%esp), %ebx
	mov	28(%esp), %ecx
	mov	32(%esp), %edx
	mov	36(%esp), %esi
	mov	40(%esp), %edi
	mov	44(%esp), %ebp
	int	$0x80
	.irp	reg, ebx, esi, edi, ebp
	pop	%\reg
	.cfi_adjust_cfa_offset -4
	.cfi_restore \reg
	.endr
	ret
	.cfi_endproc
	.size	crn_sys6, . - crn_sys6

/* The end of a signal frame of ours, rt_sigreturn: exactly these bytes, for gdb and unwinders. */
	.globl	crn_sigreturn
	.hidden	crn_sigreturn
	.type	crn_sigreturn, @function
	.p2align 4
crn_sigreturn:
	mov	$173, %eax
	int	$0x80
	.size	crn_sigreturn, . - crn_sigreturn
	.section .note.GNU-stack, "", @progbits
