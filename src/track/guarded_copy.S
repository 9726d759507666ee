/* SPDX-License-Identifier: MIT */
/*
 * int crn_guarded_copy(void *dst, const void *src, size_t len)
 *
 * A copy that survives the source's unmapping or truncation: the write-fault handler knows the
 * address of the copying instruction and moves a fault there to crn_guarded_copy_failed.
 */
	.text
	.balign 16
	.globl crn_guarded_copy, crn_guarded_copy_at, crn_guarded_copy_failed
	.hidden crn_guarded_copy, crn_guarded_copy_at, crn_guarded_copy_failed
	.type crn_guarded_copy, @function
crn_guarded_copy:
	movq %rdx, %rcx
crn_guarded_copy_at:
	rep movsb
	xorl %eax, %eax
	ret
crn_guarded_copy_failed:
	movl $-14, %eax
	ret
	.size crn_guarded_copy, . - crn_guarded_copy
	.section .note.GNU-stack, "", @progbits
