/* SPDX-License-Identifier: MIT */
/*
 * Blocks that libc allocates for the program. If they were libc's and the program stored to one, a
 * restore would put back the headers that libc keeps beside it, or what lay there while it was
 * free. So they become blocks of the program's heap (not with -fcairn-heap=off).
 */
#ifndef CRN_RT_GIVEN_H
#define CRN_RT_GIVEN_H

#include <stddef.h>

/* `size` bytes of it, in a block of `room`; libc's is freed. As is: NULL, or no memory. */
void *crn_given(void *block, size_t size, size_t room);
/* Does the program give back its blocks to the run-time's heap? */
int crn_given_wanted(void);

#endif
