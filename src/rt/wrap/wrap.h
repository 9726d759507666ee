/* SPDX-License-Identifier: MIT */
/*
 * What the wrappers of libc's functions share (wrapped.def has the table). A file wrap_<family>.c
 * includes libc's headers, says which rows are its own, and includes the table:
 *
 *	#define WRAPPED_<family> CRN_WRAPPER
 *
 * The program calls wrappers in place of libc's functions, in its own context: what is legal there
 * is legal here. libc's functions are weak references, because this libc, or a static program, may
 * lack some.
 */
#ifndef CRN_RT_WRAP_H
#define CRN_RT_WRAP_H

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include "base/bits.h"
#include "rt/rt.h"

#define CRN_PRAGMA(text) _Pragma(#text)

/*
 * The pass inserts calls by these names; nothing else declares them. Weak: code with hooks that has
 * a function of libc's name itself gives its own this name, too.
 */
#define CRN_EXPORT __attribute__((weak, visibility("default")))
#define WRAPPER(type, name, ...)                          \
	CRN_PRAGMA(weak name)                             \
	CRN_EXPORT type __cairn_wrap_##name(__VA_ARGS__); \
	type __cairn_wrap_##name(__VA_ARGS__)

/* A row of the table. */
#define CRN_WRAPPER(type, name, parameters, arguments, ...) \
	CRN_PRAGMA(weak name)                               \
	CRN_EXPORT type __cairn_wrap_##name parameters;     \
	type __cairn_wrap_##name parameters                 \
	{                                                   \
		__VA_ARGS__                                 \
		return name arguments;                      \
	}

/*
 * What wrappers of files, of sockets and of what is ended call that has not their own name: weak
 * names alone bring nothing into a static program. So these families refer to it (wrap_called.c).
 */
extern const void *const crn_called[];

/* A family of system calls, which are given anything, takes crn_reach_keep (reach.h). */
#ifndef WRAPPERS_KEEP
#define WRAPPERS_KEEP keep
#endif
#define SPAN(p, bytes)  WRAPPERS_KEEP(p, bytes);
#define OBJECT(p)       WRAPPERS_KEEP(p, sizeof(*(p)));
#define ARRAY(p, count) WRAPPERS_KEEP(p, (count) * sizeof(*(p)));

/* For tests, which must see what is missing: bytes that each `keep` leaves out. */
#ifndef CRN_KEEP_LESS
#define CRN_KEEP_LESS 0
#endif

static inline void keep(const volatile void *p, size_t n)
{
	if (p && n)
		crn_rt_keep((uintptr_t)p, n - CRN_KEEP_LESS);
}

/* What was written elsewhere goes to its place. */
static inline void place(void *to, const void *from, size_t n)
{
	keep(to, n);
	memcpy(to, from, n);
}

/* A row of another family, or of code. */
#define CRN_NOTHING(...)

#define WRAPPED(family, ...) WRAPPED_##family(__VA_ARGS__)
#define CUSTOM(family, name)

#ifndef WRAPPED_bytes
#define WRAPPED_bytes CRN_NOTHING
#endif
#ifndef WRAPPED_memory
#define WRAPPED_memory CRN_NOTHING
#endif
#ifndef WRAPPED_text
#define WRAPPED_text CRN_NOTHING
#endif
#ifndef WRAPPED_number
#define WRAPPED_number CRN_NOTHING
#endif
#ifndef WRAPPED_callback
#define WRAPPED_callback CRN_NOTHING
#endif
#ifndef WRAPPED_stdio
#define WRAPPED_stdio CRN_NOTHING
#endif
#ifndef WRAPPED_time
#define WRAPPED_time CRN_NOTHING
#endif
#ifndef WRAPPED_file
#define WRAPPED_file CRN_NOTHING
#endif
#ifndef WRAPPED_socket
#define WRAPPED_socket CRN_NOTHING
#endif
#ifndef WRAPPED_process
#define WRAPPED_process CRN_NOTHING
#endif
#ifndef WRAPPED_thread
#define WRAPPED_thread CRN_NOTHING
#endif

#endif
