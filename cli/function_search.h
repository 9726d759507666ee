/* SPDX-License-Identifier: MIT */
/* Where the function of a site is: in the program, or in an object that it has at its start. */
#ifndef CRN_FUNCTION_SEARCH_H
#define CRN_FUNCTION_SEARCH_H

#include <limits.h>
#include <stdint.h>

struct found_function {
	uint64_t address;    /* from the base of its object */
	char path[PATH_MAX]; /* of that object */
	char object[44];     /* its file name; empty: the program itself */
};

/*
 * text: [OBJECT:]SYMBOL or [OBJECT:]0xOFFSET, perhaps with /N behind it. NULL, or why there is
 * none.
 */
const char *function_find(const char *text, const char *program, struct found_function *out);

#endif
