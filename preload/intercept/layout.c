/* SPDX-License-Identifier: MIT */
/* Proves the numbers of layout.h. */
#include "intercept/intercept.h"

#define AT(type, field, offset) _Static_assert(offsetof(struct type, field) == (offset), #field)

AT(crn_thread, self, CRN_T_SELF);
AT(crn_thread, stack_top, CRN_T_STACK_TOP);
AT(crn_thread, program_rsp, CRN_T_PROGRAM_RSP);
AT(crn_thread, target, CRN_T_TARGET);
AT(crn_thread, regs, CRN_T_REGS);
AT(crn_thread, in_agent, CRN_T_IN_AGENT);
AT(crn_thread, put_off, CRN_T_PUT_OFF);
AT(crn_thread, program_blocked, CRN_T_BLOCKED);
AT(crn_thread, held, CRN_T_HELD);
AT(crn_thread, stacks, CRN_T_STACKS);
AT(crn_thread, last_nr, CRN_T_LAST_NR);
AT(crn_thread, passes, CRN_T_PASSES);
AT(crn_regs, r15, CRN_R_R15);
AT(crn_regs, r12, CRN_R_R12);
AT(crn_regs, rbx, CRN_R_RBX);
AT(crn_regs, r11, CRN_R_R11);
AT(crn_regs, r8, CRN_R_R8);
AT(crn_regs, rax, CRN_R_RAX);
AT(crn_regs, rdi, CRN_R_RDI);
AT(crn_regs, rflags, CRN_R_RFLAGS);
AT(crn_regs, rip, CRN_R_RIP);
_Static_assert(CRN_SIG_RESERVED == CRN_RESERVED_MASK, "reserved signals");
_Static_assert(sizeof(struct crn_regs) == CRN_R_SIZE, "struct crn_regs");
_Static_assert(CRN_R_SIZE % 16 == 0, "the hooks are called with an aligned stack");
