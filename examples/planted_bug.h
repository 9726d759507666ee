/* SPDX-License-Identifier: MIT */
/* Bugs on demand: the ways in which a C program dies, by name. For trying out recovery. */
#ifndef EXAMPLES_PLANTED_BUG_H
#define EXAMPLES_PLANTED_BUG_H

#include <stdbool.h>

/* Set up what the "bus" bug needs (a mapping of a file that is then truncated). Once, at start. */
bool planted_bug_prepare(void);

/*
 * Run into the bug of that name. Returns false if there is none of that name; otherwise it does not
 * return, unless something outside the program goes back to before the call.
 */
bool planted_bug_trigger(const char *name);

/* The names, separated by spaces. */
const char *planted_bug_names(void);

#endif
