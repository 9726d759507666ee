/* SPDX-License-Identifier: MIT */
/*
 * C++: variables that are constructed when they are first used, and destroyed at the end. The guard
 * of such a variable is in the program's memory, and libstdc++ writes to it. A variable that was
 * constructed in an undone interval was never constructed: its destructor, which libc knows by
 * then, is not run.
 */
#include <stdint.h>
#include <stdlib.h>
#include "rt/deferred.h"
#include "rt/wrap/wrap.h"

int __cxa_guard_acquire(uint64_t *guard);
void __cxa_guard_release(uint64_t *guard);
void __cxa_guard_abort(uint64_t *guard);
int __cxa_atexit(void (*f)(void *), void *argument, void *object);

WRAPPER(int, __cxa_guard_acquire, uint64_t *guard)
{
	OBJECT(guard)
	return __cxa_guard_acquire(guard);
}

WRAPPER(void, __cxa_guard_release, uint64_t *guard)
{
	OBJECT(guard)
	__cxa_guard_release(guard);
}

WRAPPER(void, __cxa_guard_abort, uint64_t *guard)
{
	OBJECT(guard)
	__cxa_guard_abort(guard);
}

/* A block of libc's, which is not turned back. */
struct told {
	void (*f)(void *); /* first; NULL: it was undone (deferred.c) */
	void *argument;
};

static void at_end(void *block)
{
	const struct told *t = block;

	if (t->f)
		t->f(t->argument);
}

WRAPPER(int, __cxa_atexit, void (*f)(void *), void *argument, void *object)
{
	struct told *t = malloc(sizeof(*t));

	if (!t)
		return -1;
	*t = (struct told){ f, argument };
	if (__cxa_atexit(at_end, t, object)) {
		t->f = NULL;
		return -1;
	}
	if (__cairn_rt.active)
		(void)crn_map_changed(CRN_TOLD, (uintptr_t)t, sizeof(t->f), 0);
	return 0;
}
