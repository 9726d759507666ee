/* SPDX-License-Identifier: MIT */
/*
 * C++ exceptions. Which ones a thread has caught is libstdc++'s state, and is restored with the
 * interval. Memory that an exception refers to may be libstdc++'s and freed with it (the text of
 * what()), and libstdc++ counts handlers in it. So an exception that was caught before the open
 * interval began must not be touched. If it is thrown or caught again, or its handler ends, the
 * interval cannot be restored.
 */
#include "base/status.h"
#include "rt/deferred.h"
#include "rt/rt.h"
#include "rt/wrap/wrap.h"

#define HANDLERS 256 /* entered most recently, by the address of the exception */

/* What __cxa_get_globals answers begins with it (Itanium C++ ABI, 2.2.2). */
struct globals {
	void *caught; /* the newest, or NULL */
};

struct handler {
	uint64_t caught; /* address */
	uint64_t open;   /* the checkpoint that begins the interval in which it was entered */
};

/* Not turned back. Where an entry is another's by now, the worst is assumed. */
static struct handler handlers[HANDLERS] CRN_RT_LASTING;

struct globals *__cxa_get_globals(void) __attribute__((weak));
void *__cxa_begin_catch(void *exception);
void __cxa_end_catch(void);
void __cxa_rethrow(void);
void __cxa_throw(void *object, void *type, void (*destroy)(void *));

static struct handler *handler_of(const void *caught)
{
	return &handlers[((uintptr_t)caught >> 4) % HANDLERS];
}

static uint64_t interval(void)
{
	return __cairn_rt.active ? __cairn_rt.open : 0;
}

/* libstdc++ is about to change it, or has. */
static void touch(const void *caught)
{
	const struct handler *h = handler_of(caught);

	if (caught && (h->caught != (uintptr_t)caught || h->open != interval()))
		crn_rt_give_up((uintptr_t)caught, CAIRN_ELAYOUT);
}

static void note_changed(const struct globals *g, const void *before)
{
	if (g->caught != before && __cairn_rt.active)
		(void)crn_map_changed(CRN_WORD, (uintptr_t)&g->caught, (size_t)before, 0);
}

/* Caught once more inside its handler, after `throw;`, it is known already. */
WRAPPER(void *, __cxa_begin_catch, void *exception)
{
	struct globals *g = __cxa_get_globals();
	const void *before = g->caught;
	void *object = __cxa_begin_catch(exception);

	if (g->caught == before)
		touch(before);
	else
		*handler_of(g->caught) = (struct handler){ (uintptr_t)g->caught, interval() };
	note_changed(g, before);
	return object;
}

WRAPPER(void, __cxa_end_catch, void)
{
	struct globals *g = __cxa_get_globals();
	const void *before = g->caught;

	touch(before);
	__cxa_end_catch();
	note_changed(g, before);
}

/*
 * With libc's heap an exception is one of its blocks: to put back what lay there before, and around
 * it, would damage that heap.
 */
WRAPPER(void, __cxa_throw, void *object, void *type, void (*destroy)(void *))
{
	crn_rt_give_up((uintptr_t)object, CAIRN_EUNSUPPORTED);
	__cxa_throw(object, type, destroy);
}

WRAPPER(void, __cxa_rethrow, void)
{
	touch(__cxa_get_globals()->caught);
	__cxa_rethrow();
}
