/* SPDX-License-Identifier: MIT */
/* Which program this process has executed, in words. */
#ifndef CRN_OS_PROGRAM_ID_H
#define CRN_OS_PROGRAM_ID_H

#include <stddef.h>

/*
 * "NAME, build-id HEX" of the process's executable; "NAME, N bytes" if it has no build-id or may
 * not be read; "unknown" without /proc. Cut at size - 1. Makes some system calls.
 */
void crn_program_id(char *out, size_t size);

#endif
