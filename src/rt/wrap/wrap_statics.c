/* SPDX-License-Identifier: MIT */
/*
 * C++: variables that are constructed when they are first used, and destroyed at the end. The guard
 * of such a variable is in the program's memory, and libstdc++ writes to it. A variable that was
 * constructed in an undone interval was never constructed: its destructor, which libc knows by
 * then, is not run. Neither is what C has told libc in such an interval (atexit).
 */
#include <stdint.h>
#include <stdlib.h>
#include "rt/deferred.h"
#include "rt/wrap/wrap.h"

int __cxa_guard_acquire(uint64_t *guard);
void __cxa_guard_release(uint64_t *guard);
void __cxa_guard_abort(uint64_t *guard);
int __cxa_atexit(void (*f)(void *), void *argument, void *object);
int __cxa_thread_atexit(void (*f)(void *), void *argument, void *object);

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

static int tell(int (*tell_libc)(void (*)(void *), void *, void *), void (*f)(void *),
	void *argument, void *object)
{
	struct told *t = malloc(sizeof(*t));

	if (!t)
		return -1;
	*t = (struct told){ f, argument };
	if (tell_libc(at_end, t, object)) {
		t->f = NULL;
		return -1;
	}
	if (__cairn_rt.active)
		(void)crn_map_changed(CRN_TOLD, (uintptr_t)t, sizeof(t->f), 0);
	return 0;
}

WRAPPER(int, __cxa_atexit, void (*f)(void *), void *argument, void *object)
{
	return tell(__cxa_atexit, f, argument, object);
}

WRAPPER(int, __cxa_thread_atexit, void (*f)(void *), void *argument, void *object)
{
	return tell(__cxa_thread_atexit, f, argument, object);
}

/* The argument that it does not take is in nobody's way. */
WRAPPER(int, atexit, void (*f)(void))
{
	return tell(__cxa_atexit, (void (*)(void *))f, NULL, NULL);
}
