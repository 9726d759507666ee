/* SPDX-License-Identifier: MIT */
/*
 * What a trace says of the run that it was recorded of, and what must be so again for an oracle:
 * lines of a key and a value.
 *
 *	program NAME, build-id HEX
 *	surface all
 *	sites wait/2, recover
 */
#ifndef CRN_RUN_IDENTITY_H
#define CRN_RUN_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include "session/engine.h"

#define CRN_IDENTITY_MAX 1024 /* bytes, with the NUL; cut there */

/* Of this process. */
void crn_identity_here(const cairn_t *c, char out[CRN_IDENTITY_MAX]);
/* Of a run that has not begun: without its program, which it may still execute. */
void crn_identity_planned(const char *surface, const char *sites, char out[CRN_IDENTITY_MAX]);
/*
 * The first line of `here` that `recorded` does not have: false, and `why` says what differs. A
 * trace without any identity is taken for right.
 */
bool crn_identity_same(const char *recorded, size_t size, const char *here, char *why,
	size_t why_size);

/* ---- recorded_profile.c */
/* The session ends: that its oracle's profile goes on is logged. With the lock held. */
void crn_profile_close(cairn_t *c);

#endif
