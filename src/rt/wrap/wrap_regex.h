/* SPDX-License-Identifier: MIT */
/* Patterns that have been freed, in the list of what is put off (deferred.h): by an odd address. */
#ifndef CRN_RT_WRAP_REGEX_H
#define CRN_RT_WRAP_REGEX_H

#include <stdbool.h>
#include <stdint.h>

#define CRN_REGEX_DEFERRED(copy) ((void *)((uintptr_t)(copy) | 1))

/* Is it one? Then what crn_regex_end takes. */
static inline void *crn_regex_deferred(void *what)
{
	return (uintptr_t)what & 1 ? (void *)((uintptr_t)what - 1) : NULL;
}

void crn_regex_end(void *copy) __attribute__((weak));

#endif
