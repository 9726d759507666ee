/* SPDX-License-Identifier: MIT */
/*
 * A stream's lock is let go at the block's end, and where a cancelled thread leaves it: for files
 * that are compiled with -fexceptions.
 */
#ifndef CRN_RT_WRAP_STREAM_LOCK_H
#define CRN_RT_WRAP_STREAM_LOCK_H

#include <stdio.h>

static inline FILE *crn_stream_lock(FILE *f)
{
	flockfile(f);
	return f;
}

static inline void crn_stream_unlock(FILE **f)
{
	funlockfile(*f);
}

#define LOCKED(f) FILE *locked __attribute__((cleanup(crn_stream_unlock))) = crn_stream_lock(f)

#endif
