/* SPDX-License-Identifier: MIT */
/*
 * Saving and loading a caller's registers. Offsets are those of struct crn_jump (session/engine.h).
 *
 * Only what the ABI lets a function preserve is saved: cairn_checkpoint is an ordinary call for its
 * caller, both times that it returns.
 */
#define JUMP_SIZE 72

	.text

/* int cairn_checkpoint(cairn_t *c, uint64_t *id) */
	.globl	cairn_checkpoint
	.type	cairn_checkpoint, @function
	.p2align 4
cairn_checkpoint:
	.cfi_startproc
	sub	$(JUMP_SIZE + 16), %rsp		/* keeps the stack 16-aligned at the call */
	.cfi_adjust_cfa_offset JUMP_SIZE + 16
	mov	%rbx, 0(%rsp)
	mov	%rbp, 8(%rsp)
	mov	%r12, 16(%rsp)
	mov	%r13, 24(%rsp)
	mov	%r14, 32(%rsp)
	mov	%r15, 40(%rsp)
	lea	(JUMP_SIZE + 16 + 8)(%rsp), %rax
	mov	%rax, 48(%rsp)
	mov	(JUMP_SIZE + 16)(%rsp), %rax
	mov	%rax, 56(%rsp)
	stmxcsr	64(%rsp)
	fnstcw	68(%rsp)
	mov	%rsp, %rdx
	call	crn_checkpoint_take
	add	$(JUMP_SIZE + 16), %rsp
	.cfi_adjust_cfa_offset -(JUMP_SIZE + 16)
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
	mov	%esi, %eax
	mov	0(%rdi), %rbx
	mov	8(%rdi), %rbp
	mov	16(%rdi), %r12
	mov	24(%rdi), %r13
	mov	32(%rdi), %r14
	mov	40(%rdi), %r15
	ldmxcsr	64(%rdi)
	fldcw	68(%rdi)
	cld
	mov	56(%rdi), %rcx			/* `jump` may lie where a signal's frame goes now */
	mov	48(%rdi), %rsp
	jmp	*%rcx
	.cfi_endproc
	.size	crn_jump_to, . - crn_jump_to

/* _Noreturn void crn_jump_unlocked(cairn_t *c, const struct crn_jump *jump, int value) */
	.globl	crn_jump_unlocked
	.hidden	crn_jump_unlocked
	.type	crn_jump_unlocked, @function
	.p2align 4
crn_jump_unlocked:
	.cfi_startproc
	.cfi_undefined %rip
	mov	%rsi, %rsp
	mov	%rsi, %rbx
	mov	%edx, %ebp
	call	crn_jump_begins
	mov	%rbx, %rdi
	mov	%ebp, %esi
	jmp	crn_jump_to
	.cfi_endproc
	.size	crn_jump_unlocked, . - crn_jump_unlocked

/* long crn_on_stack(long (*fn)(void *), void *arg, void *stack_top) */
	.globl	crn_on_stack
	.hidden	crn_on_stack
	.type	crn_on_stack, @function
	.p2align 4
crn_on_stack:
	.cfi_startproc
	push	%rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	mov	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	mov	%rdi, %rax
	mov	%rsi, %rdi
	mov	%rdx, %rsp
	call	*%rax
	mov	%rbp, %rsp
	pop	%rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	crn_on_stack, . - crn_on_stack

	.section .note.GNU-stack, "", @progbits
