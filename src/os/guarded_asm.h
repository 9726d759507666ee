/* SPDX-License-Identifier: MIT */
/*
 * For assembly: functions that touch memory of the program that may vanish (guarded.h). In each,
 * the instructions that do so lie between NAME_begin and NAME_end; guarded.c finds these places in
 * their section and resumes a fault there at NAME_failed.
 */
.macro GUARDED_PLACE name
	.globl \name\()_begin, \name\()_end
	.hidden \name\()_begin, \name\()_end
	/* R: some linkers drop a section of which only the begin and end are named. */
	.pushsection crn_guarded, "aR", @progbits
	.balign 4
	.long \name\()_begin - ., \name\()_end - ., \name\()_failed - .
	.popsection
.endm

.macro GUARDED name
	GUARDED_PLACE \name
	.globl \name
	.hidden \name
	.type \name, @function
	.balign 16
\name:
.endm

/*
 * The place \name: two pages are compared by whole lines. Bit i of \mask says whether line i
 * differs. \at (of which \at32 is the lower half), rax, k1, zmm16 and flags change.
 */
.macro COMPARE_LINES name, old, live, at, at32, mask
	xorl \at32, \at32
	.balign 16
\name\()_begin:
1:
.irp line, 0, 1, 2, 3, 4, 5, 6, 7
	vmovdqa64 \line * 64(\live,\at), %zmm16
	vpcmpneqq \line * 64(\old,\at), %zmm16, %k1
	kmovb %k1, %eax
	addl $-1, %eax /* carry: the line differs */
	rcrq $1, \mask
.endr
	addl $512, \at32
	cmpl $4096, \at32
	jne 1b
\name\()_end:
.endm
