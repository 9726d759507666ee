/* SPDX-License-Identifier: MIT */
/*
 * The ways between the program and the agent. All of it runs with the program's vector registers,
 * which no hook touches, and with %gs pointing to the thread's struct crn_thread.
 *
 * A signal may come at any instruction. Its kernel frame always goes to the agent's alternate
 * stack, never over anything here. crn_signal_entry then looks at where it came:
 *
 *	where                          in_agent  what is in the registers           what the entry does
 *	stub, before crn_enter         0         the program's (rcx free)           delivers: a signal before the call
 *	crn_enter, up to save          0         the same, but %rax is in %r11      likewise
 *	crn_enter ... crn_exit         1         the agent's                        puts off, blocks all signals
 *	crn_exit_begin..crn_exit_jump  1         half restored; t->regs is whole    takes registers from t->regs, rip
 *	                                                                            from t->target, and delivers there
 *	crn_exit_jump                  0         the program's                      takes rip from t->target, delivers
 *	stub, syscall not begun        0         the program's                      delivers; the kernel's own race
 *	stub, in the syscall           0         EINTR or rip put back to syscall   delivers; native restart
 *	stub, after it                 0         the program's (rcx free)           delivers, or puts off until the
 *	                                                                            after-hook has run, if there is one
 *
 *	crn_signal_entry, or what it    any       another signal's                  holds it (below)
 *	calls, up to crn_signal_end
 *	from there to rt_sigreturn      any       another signal's                  holds it, and gives it back at once
 *
 * The first instruction of crn_exit looks for signals that were put off; a signal that comes after
 * it finds rip in the third row. So none has to wait for the next call. crn_exit_trap raises SIGSYS
 * (or, where a filter forbids that, SIGILL), whose handler does the third row's work for the first
 * signal that was put off, with the program's mask.
 */
#include "intercept/layout.h"

	.macro	function name
	.balign	16
	.globl	\name
	.hidden	\name
	.type	\name, @function
\name:
	.endm

	.set	ALIGNMENT_CHECK, 0x40000

	/* Compiled code relies on it. */
	.macro	allow_unaligned
	pushfq
	andl	$~ALIGNMENT_CHECK, (%rsp)
	popfq
	.endm

	/* %rsp: struct crn_regs, with the program's flags. */
	.macro	usual_flags
	cld
	testl	$ALIGNMENT_CHECK, CRN_R_RFLAGS(%rsp)
	jz	9f
	allow_unaligned
9:
	.endm

	/*
	 * All registers as struct crn_regs, on the agent's stack. %rflags must be untouched so far.
	 */
	.macro	save
	movl	$1, %gs:CRN_T_IN_AGENT
	save_registers
	.endm

	.macro	save_registers
	movq	%rsp, %gs:CRN_T_PROGRAM_RSP
	movq	%gs:CRN_T_STACK_TOP, %rsp
	pushq	$0
	pushq	%gs:CRN_T_PROGRAM_RSP
	pushfq
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	pushq	%rax
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	movq	%rsp, %gs:CRN_T_REGS
	usual_flags
	.endm

	.text
	/*
	 * From a stub, before the call. %rcx: the stub. On a stack of the agent's own, or in a
	 * hook, it is a debugger's call of a function: with what lies there, and what this thread
	 * has locked, another hook must not begin. It is made without one, as are the calls that
	 * pass (effects/passing_calls.c). Unwinders may come by here: its caller is the stub's.
	 */
	function crn_enter
	.cfi_startproc simple
	.cfi_signal_frame
	.cfi_def_cfa 7, 0
	.cfi_undefined 1
	.cfi_undefined 2
	/* DW_CFA_val_expression 7, { breg7 0 } */
	.cfi_escape 0x16, 7, 2, 0x77, 0
	/* DW_CFA_expression 16, { breg2 CRN_STUB_BACK } */
	.cfi_escape 0x10, 16, 3, 0x72, CRN_STUB_BACK | 0x80, 0
	movq	%rax, %r11
	lahf
	seto	%al
	cmpl	$0, %gs:CRN_T_IN_AGENT
	jne	2f
	cmpq	%rsp, %gs:CRN_T_STACKS
	ja	1f
	cmpq	%rsp, %gs:CRN_T_STACK_TOP
	jae	2f
1:	cmpq	$CRN_PASSING_END, %r11
	jae	3f
	cmpb	$0, %gs:CRN_T_PASSES(%r11)
	je	3f
	movq	%r11, %gs:CRN_T_LAST_NR
2:	addb	$0x7f, %al /* the overflow flag */
	sahf
	movq	%r11, %rax
	leaq	CRN_STUB_BARE(%rcx), %rcx
	.cfi_remember_state
	/* the same, as seen from the stub's bare call */
	.cfi_escape 0x10, 16, 2, 0x72, CRN_STUB_BACK - CRN_STUB_BARE
	jmp	*%rcx
	.cfi_restore_state
3:	addb	$0x7f, %al
	sahf
	movq	%r11, %rax
	movl	$1, %gs:CRN_T_IN_AGENT /* behind it signals wait, and nobody unwinds */
	.cfi_endproc
	save_registers
	movq	%rsp, %rdi
	movq	%rcx, %rsi
	call	crn_hook_before
	jmp	crn_exit

	/* From a stub, after the call. %rcx: the stub. */
	function crn_leave
	save
	movq	%rsp, %rdi
	movq	%rcx, %rsi
	call	crn_hook_after
	jmp	crn_exit

	/*
	 * From the trampoline of a function's entry, which is in_agent already. %r11: the
	 * trampoline.
	 */
	function crn_enter_function
	save
	movq	%rsp, %rdi
	movq	%r11, %rsi
	call	crn_hook_function
	jmp	crn_exit

	/* From the timer's signal, which has filled t->regs and is over. %rsp: t->regs. */
	function crn_enter_interrupted
	movq	%rsp, %rdi
	call	crn_hook_interrupted
	jmp	crn_exit

	/*
	 * The child side of clone and fork. %rcx: the stub; %r11: the flags, as syscall left them;
	 * %r9: a struct crn_thread with the kind in its low bits; %rax is 0; the rest is the
	 * program's. All signals are blocked. %gs is the parent's, right only after fork and vfork.
	 */
	function crn_clone_child
	movq	%rcx, %rax
	movl	%r9d, %ecx
	andl	$3, %ecx
	andq	$-4, %r9
	movl	$1, CRN_T_IN_AGENT(%r9)
	movq	%rsp, CRN_T_PROGRAM_RSP(%r9)
	movq	CRN_T_STACK_TOP(%r9), %rsp
	pushq	$0
	pushq	CRN_T_PROGRAM_RSP(%r9)
	pushq	%r11
	pushq	%rdi
	pushq	%rsi
	pushq	%rdx
	pushq	%rcx
	pushq	$0
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	movq	%rsp, CRN_T_REGS(%r9)
	usual_flags
	movq	%rsp, %rdi
	movq	%rax, %rsi
	movq	%r9, %rdx
	call	crn_hook_child
	jmp	crn_exit

	/*
	 * crn_leave_to(regs): give up the present stack and leave with these registers, which lie
	 * at t->regs.
	 */
	function crn_leave_to
	movq	%rdi, %rsp
	/* fall through */

	/* Those of arithmetic; IF and bit 1, which are always set. */
	.set	USUAL_FLAGS, 0xad7

	/* Back to the program: %rsp is at t->regs, whose rip says where. */
	.globl	crn_exit, crn_exit_begin, crn_exit_jump
	.hidden	crn_exit, crn_exit_begin, crn_exit_jump
crn_exit:
	cmpl	$0, %gs:CRN_T_PUT_OFF
crn_exit_begin:
	jne	crn_exit_put_off
	movq	CRN_R_RIP(%rsp), %rax
	movq	%rax, %gs:CRN_T_TARGET
	movq	CRN_R_R15(%rsp), %r15
	movq	CRN_R_R14(%rsp), %r14
	movq	CRN_R_R13(%rsp), %r13
	movq	CRN_R_R12(%rsp), %r12
	movq	CRN_R_RBP(%rsp), %rbp
	movq	CRN_R_RBX(%rsp), %rbx
	movq	CRN_R_R11(%rsp), %r11
	movq	CRN_R_R10(%rsp), %r10
	movq	CRN_R_R9(%rsp), %r9
	movq	CRN_R_R8(%rsp), %r8
	movq	CRN_R_RDX(%rsp), %rdx
	movq	CRN_R_RSI(%rsp), %rsi
	movq	CRN_R_RDI(%rsp), %rdi
	movl	CRN_R_RFLAGS(%rsp), %eax
	testl	$~USUAL_FLAGS, %eax
	je	1f
	pushq	CRN_R_RFLAGS(%rsp)
	popfq
	jmp	2f
1:	movl	%eax, %ecx /* popfq takes ten times as long as these */
	shrl	$11, %ecx
	andl	$1, %ecx
	movb	%al, %ah
	addb	$0x7f, %cl /* the overflow flag */
	sahf
2:	movq	CRN_R_RAX(%rsp), %rax
	movq	CRN_R_RCX(%rsp), %rcx
	movq	CRN_R_RSP(%rsp), %rsp
	movl	$0, %gs:CRN_T_IN_AGENT
crn_exit_jump:
	jmp	*%gs:CRN_T_TARGET

crn_exit_put_off:
	call	crn_exit_trap
	.globl	crn_exit_undefined
	.hidden	crn_exit_undefined
crn_exit_undefined:
	ud2

	/*
	 * What the kernel calls for each signal. Another may be sent in its midst: of those that
	 * are never blocked, for a tracker or crn_user_copy may need them here. Such a one is held.
	 * At the end, behind which no fault is raised any more, those that are held are sent once
	 * more while they are blocked, so that they come when rt_sigreturn lets them in: where the
	 * first signal was, or in the handler that it was delivered to. One that comes between the
	 * look and that finds its %rip there (crn_signal_ends).
	 */
	function crn_signal_entry
	pushq	%rdx
	pushfq
	popq	%rax
	testl	$ALIGNMENT_CHECK, %eax /* the kernel leaves that as it was */
	jz	1f
	allow_unaligned
1:	call	crn_signal_serve
	movq	%gs:CRN_T_BLOCKED, %rax
	notq	%rax
	testq	%rax, %gs:CRN_T_HELD
	.globl	crn_signal_end, crn_signal_over
	.hidden	crn_signal_end, crn_signal_over
crn_signal_end:
	jnz	1f
	popq	%rdx
	ret
1:	movl	$14, %eax /* rt_sigprocmask(SIG_BLOCK) */
	xorl	%edi, %edi
	leaq	reserved(%rip), %rsi
	xorl	%edx, %edx
	movl	$8, %r10d
	syscall
	movq	(%rsp), %rdi
	call	crn_signal_ends
	popq	%rdx
	ret
crn_signal_over:
	.balign	8
reserved:
	.quad	CRN_RESERVED_MASK

	/*
	 * int crn_user_copy(void *dst, const void *src, size_t n); a fault between its begin and
	 * its end goes to crn_user_copy_failed.
	 */
	.globl	crn_user_copy_begin, crn_user_copy_end, crn_user_copy_failed
	.hidden	crn_user_copy_begin, crn_user_copy_end, crn_user_copy_failed
	function crn_user_copy
	movq	%rdx, %rcx
	cmpq	$128, %rdx /* from here on `rep movsb` is quicker */
	ja	3f
	shrl	$3, %ecx
	jz	2f
crn_user_copy_begin:
1:	movq	(%rsi), %rax
	movq	%rax, (%rdi)
	addq	$8, %rsi
	addq	$8, %rdi
	decl	%ecx
	jnz	1b
2:	movl	%edx, %ecx
	andl	$7, %ecx
	jz	4f
3:	rep movsb
crn_user_copy_end:
4:	xorl	%eax, %eax
	ret
crn_user_copy_failed:
	movl	$-14, %eax
	ret

	/* void crn_xsave(void *area, uint64_t mask), crn_xrstor; and the plain FXSAVE forms. */
	function crn_xsave
	movq	%rsi, %rdx
	movl	%esi, %eax
	shrq	$32, %rdx
	xsave64	(%rdi)
	ret

	function crn_xsavec
	movq	%rsi, %rdx
	movl	%esi, %eax
	shrq	$32, %rdx
	xsavec64 (%rdi)
	ret

	function crn_xrstor
	movq	%rsi, %rdx
	movl	%esi, %eax
	shrq	$32, %rdx
	xrstor64 (%rdi)
	ret

	/*
	 * What the program's handlers return to. It is a site like any other, so that the call is
	 * seen; unwinders know it by its call frame information: every register is in the ucontext
	 * at %rsp.
	 */
	.macro	saved reg, offset
	/* DW_CFA_expression reg, { DW_OP_breg7 offset } with a two-byte offset */
	.cfi_escape 0x10, \reg, 3, 0x77, ((\offset) & 0x7f) | 0x80, (\offset) >> 7
	.endm

	.cfi_startproc simple
	.cfi_signal_frame
	/* CFA = the interrupted rsp: DW_OP_breg7 160, DW_OP_deref */
	.cfi_escape 0x0f, 4, 0x77, 0xa0, 0x01, 0x06
	saved	8, 40
	saved	9, 48
	saved	10, 56
	saved	11, 64
	saved	12, 72
	saved	13, 80
	saved	14, 88
	saved	15, 96
	saved	5, 104
	saved	4, 112
	saved	6, 120
	saved	3, 128
	saved	1, 136
	saved	0, 144
	saved	2, 152
	saved	7, 160
	saved	16, 168
	.balign	16
	nop /* unwinders look up the return address minus one */
	.globl	crn_restorer
	.hidden	crn_restorer
	.type	crn_restorer, @function
crn_restorer:
	movq	$15, %rax
	jmp	crn_stubs + CRN_STUB_AGAIN /* the first stub is the restorer's */
	.size	crn_restorer, . - crn_restorer
	.cfi_endproc

	/*
	 * The stubs. Frame information for all of them at once: the caller of a stub is its site,
	 * with every register as it is and the return address in the stub itself: *((rip & -128) +
	 * CRN_STUB_BACK).
	 */
	.section .text.stubs, "ax", @progbits
	.balign	4096
	.globl	crn_stubs, crn_stubs_end
	.hidden	crn_stubs, crn_stubs_end
crn_stubs:
	.cfi_startproc simple
	.cfi_signal_frame
	.cfi_def_cfa 7, 0
	.cfi_undefined 1
	.cfi_undefined 2
	/* DW_CFA_val_expression 7, { breg7 0 } */
	.cfi_escape 0x16, 7, 2, 0x77, 0
	/* DW_CFA_expression 16, { breg16 0; const2s -128; and; plus_uconst 104 } */
	.cfi_escape 0x10, 16, 8, 0x80, 0, 0x0b, 0x80, 0xff, 0x1a, 0x23, 104
	.skip	CRN_STUB_SIZE * CRN_STUB_MAX, 0xcc
	.cfi_endproc
crn_stubs_end:
	.section .note.GNU-stack, "", @progbits
