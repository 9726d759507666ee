/* SPDX-License-Identifier: MIT */
/*
 * session/registers.S for 32-bit programs. Offsets are those of struct crn_jump (session/engine.h),
 * whose r12 and r13 are esi and edi here.
 */
#define JUMP_SIZE 40

	.text

/* int cairn_checkpoint(cairn_t *c, uint64_t *id) */
	.globl	cairn_checkpoint
	.type	cairn_checkpoint, @function
	.p2align 4
cairn_checkpoint:
	.cfi_startproc
	sub	$(JUMP_SIZE + 20), %esp		/* keeps the stack 16-aligned at the call */
	.cfi_adjust_cfa_offset JUMP_SIZE + 20
	mov	%ebx, 16(%esp)
	mov	%ebp, 20(%esp)
	mov	%esi, 24(%esp)
	mov	%edi, 28(%esp)
	lea	(JUMP_SIZE + 20 + 4)(%esp), %eax
	mov	%eax, 40(%esp)
	mov	(JUMP_SIZE + 20)(%esp), %eax
	mov	%eax, 44(%esp)
	stmxcsr	48(%esp)
	fnstcw	52(%esp)
	mov	(JUMP_SIZE + 20 + 4)(%esp), %eax
	mov	%eax, 0(%esp)
	mov	(JUMP_SIZE + 20 + 8)(%esp), %eax
	mov	%eax, 4(%esp)
	lea	16(%esp), %eax
	mov	%eax, 8(%esp)
	call	crn_checkpoint_take
	add	$(JUMP_SIZE + 20), %esp
	.cfi_adjust_cfa_offset -(JUMP_SIZE + 20)
	ret
	.cfi_endproc
	.size	cairn_checkpoint, . - cairn_checkpoint

/* _Noreturn void crn_jump_to(const struct crn_jump *jump, int value) */
	.globl	crn_jump_to
	.hidden	crn_jump_to
	.type	crn_jump_to, @function
	.p2align 4
crn_jump_to:
	.cfi_startproc
	mov	4(%esp), %edx
	mov	8(%esp), %eax
.Ljump:	mov	0(%edx), %ebx
	mov	4(%edx), %ebp
	mov	8(%edx), %esi
	mov	12(%edx), %edi
	ldmxcsr	32(%edx)
	fldcw	36(%edx)
	cld
	mov	28(%edx), %ecx			/* `jump` may lie where a signal's frame goes now */
	mov	24(%edx), %esp
	jmp	*%ecx
	.cfi_endproc
	.size	crn_jump_to, . - crn_jump_to

/* _Noreturn void crn_jump_unlocked(cairn_t *c, const struct crn_jump *jump, int value) */
	.globl	crn_jump_unlocked
	.hidden	crn_jump_unlocked
	.type	crn_jump_unlocked, @function
	.p2align 4
crn_jump_unlocked:
	.cfi_startproc
	.cfi_undefined %eip
	mov	4(%esp), %eax
	mov	8(%esp), %esi
	mov	12(%esp), %ebp
	lea	-16(%esi), %esp
	mov	%eax, 0(%esp)
	mov	%esi, 4(%esp)
	call	crn_jump_begins
	mov	%esi, %edx
	mov	%ebp, %eax
	jmp	.Ljump
	.cfi_endproc
	.size	crn_jump_unlocked, . - crn_jump_unlocked

/* long crn_on_stack(long (*fn)(void *), void *arg, void *stack_top) */
	.globl	crn_on_stack
	.hidden	crn_on_stack
	.type	crn_on_stack, @function
	.p2align 4
crn_on_stack:
	.cfi_startproc
	push	%ebp
	.cfi_adjust_cfa_offset 4
	.cfi_rel_offset %ebp, 0
	mov	%esp, %ebp
	.cfi_def_cfa_register %ebp
	mov	16(%ebp), %esp
	sub	$16, %esp
	mov	12(%ebp), %eax
	mov	%eax, 0(%esp)
	call	*8(%ebp)
	mov	%ebp, %esp
	pop	%ebp
	.cfi_def_cfa %esp, 4
	ret
	.cfi_endproc
	.size	crn_on_stack, . - crn_on_stack

	.section .note.GNU-stack, "", @progbits
