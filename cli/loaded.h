/* SPDX-License-Identifier: MIT */
/*
 * The shared objects that a program has at its start, as its own dynamic linker says: it is asked
 * to list them (--list), which runs nothing of the program.
 */
#ifndef CRN_LOADED_H
#define CRN_LOADED_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Call fn for each, in the linker's order, until it returns true. True if one did. The list may be
 * empty: an unusual linker. name: as the program asks for it; path: where it is.
 */
bool loaded_each(const char *interpreter, const char *program,
	bool (*fn)(void *arg, const char *name, const char *path), void *arg);

/*
 * Does the user's `wanted` name it? "libz.so.1", its file's name, that of the file behind a link
 * ("libz.so.1.2.13"), or the first without the version.
 */
bool loaded_is(const char *wanted, const char *name, const char *path);

#endif
