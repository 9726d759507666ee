/* SPDX-License-Identifier: MIT */
/*
 * Numbers that assembler and C share: where things lie in a stub, in struct crn_thread and in
 * struct crn_regs. layout.c proves them. A stub is CRN_STUB_SIZE bytes of the agent's text:
 *
 *	  0  instruction that the patch displaced, or nops          <- CRN_STUB_ENTRY: the site jumps here
 *	 16  lea  stub, %rcx; jmp crn_enter                          <- CRN_STUB_AGAIN
 *	 28  syscall; lea stub, %rcx; jmp crn_leave                  <- CRN_STUB_CALL: an after-hook follows
 *	 42  syscall; mov %rax, %rcx; jrcxz 1f                       <- CRN_STUB_CLONE: returns twice
 *	     lea stub, %rcx; jmp crn_leave; 1: lea stub, %rcx; jmp crn_clone_child
 *	 73  syscall                                                 <- CRN_STUB_BARE: no after-hook
 *	 75  instructions behind the site that the patch displaced   <- CRN_STUB_RETURN
 *	 96  jmp *back
 *	104  back: where the program runs on; site: its syscall instruction; flags
 *
 * %rcx and %r11 are free in a stub because the syscall instruction destroys them; nothing in it
 * changes the flags, the stack or its red zone.
 */
#ifndef CRN_LAYOUT_H
#define CRN_LAYOUT_H

#define CRN_STUB_SIZE   128
#define CRN_STUB_MAX    4096
#define CRN_STUB_ENTRY  0
#define CRN_STUB_AGAIN  16
#define CRN_STUB_CALL   28
#define CRN_STUB_CLONE  42
#define CRN_STUB_BARE   73
#define CRN_STUB_RETURN 75
#define CRN_STUB_JUMP   96
#define CRN_STUB_BACK   104
#define CRN_STUB_SITE   112

#define CRN_STUB_BEFORE_MAX 16 /* room for the displaced instruction before the call */
#define CRN_STUB_AFTER_MAX  21 /* and for those behind it */

/* struct crn_thread */
#define CRN_T_SELF        0
#define CRN_T_STACK_TOP   8
#define CRN_T_PROGRAM_RSP 16
#define CRN_T_TARGET      24
#define CRN_T_REGS        32
#define CRN_T_IN_AGENT    40
#define CRN_T_PUT_OFF     44
#define CRN_T_BLOCKED     48
#define CRN_T_HELD        56
#define CRN_T_STACKS      64
#define CRN_T_LAST_NR     72
#define CRN_T_PASSES      80

#define CRN_PASSING_END 336 /* no call from this number on passes the gate without a hook */

/* SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: CRN_SIG_RESERVED, for gate.S */
#define CRN_RESERVED_MASK 0x400004d8

/*
 * A trampoline, near the function whose entry jumps to it:
 *
 *	  0  movl $1, %gs:CRN_T_IN_AGENT; mov %r11, %gs:(r11); lea trampoline, %r11; jmp *enter
 *	 40  the instructions that the jump displaced; jmp *back     <- CRN_TRAMPOLINE_RETURN
 *	104  enter: crn_enter_function; back: behind the displaced instructions; index of the site
 */
#define CRN_TRAMPOLINE_SIZE   128
#define CRN_TRAMPOLINE_RETURN 40
#define CRN_TRAMPOLINE_ENTER  104
#define CRN_TRAMPOLINE_BACK   112
#define CRN_TRAMPOLINE_SITE   120

/* struct crn_regs */
#define CRN_R_R15    0
#define CRN_R_R14    8
#define CRN_R_R13    16
#define CRN_R_R12    24
#define CRN_R_RBP    32
#define CRN_R_RBX    40
#define CRN_R_R11    48
#define CRN_R_R10    56
#define CRN_R_R9     64
#define CRN_R_R8     72
#define CRN_R_RAX    80
#define CRN_R_RCX    88
#define CRN_R_RDX    96
#define CRN_R_RSI    104
#define CRN_R_RDI    112
#define CRN_R_RFLAGS 120
#define CRN_R_RSP    128
#define CRN_R_RIP    136
#define CRN_R_SIZE   144

/* In %r9 across clone, below the thread pointer. */
#define CRN_CLONE_THREAD 0
#define CRN_CLONE_FORK   1
#define CRN_CLONE_VFORK  2

#endif
