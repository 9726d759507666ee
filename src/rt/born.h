/* SPDX-License-Identifier: MIT */
/*
 * Threads that the program has made, numbered in order of birth. The count is memory like any
 * other, so it goes back with a restore: a thread that lives and has a higher number than the count
 * at a checkpoint was born since then.
 */
#ifndef CRN_RT_BORN_H
#define CRN_RT_BORN_H

#include <stdint.h>

struct crn_birth {
	uintptr_t thread; /* libc's descriptor; 0: no entry */
	uint32_t number;
};

/* Not restored. If there are more, the oldest are forgotten: they count as older than any. */
#define CRN_BIRTHS 1024u
extern struct crn_birth crn_births[CRN_BIRTHS];
extern uint32_t crn_births_count;

/* A thread was made by a program built with -fcairn-threads. */
void crn_birth(uintptr_t thread);

#endif
