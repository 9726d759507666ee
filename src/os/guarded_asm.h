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
