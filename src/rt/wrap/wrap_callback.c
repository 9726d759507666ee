/* SPDX-License-Identifier: MIT */
/* Functions of libc that call the program back: a checkpoint may be taken inside. */
#include <obstack.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>
#define WRAPPED_callback CRN_WRAPPER
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrap_format.h"
#undef obstack_free
#include "rt/wrap/wrapped.def"

/* After the call of the program's function, too: an interval may have begun in it. */
struct once_call {
	pthread_once_t *once;
	void (*run)(void);
};

static _Thread_local struct once_call *call;

static void run_once(void)
{
	struct once_call *c = call;

	c->run();
	OBJECT(c->once)
}

static void begin_once(struct once_call *c)
{
	OBJECT(c->once)
	OBJECT(&call)
	call = c;
}

WRAPPER(int, pthread_once, pthread_once_t *once, void (*run)(void))
{
	begin_once(&(struct once_call){ once, run });
	return pthread_once(once, run_once);
}

/* In glibc the same. */
WRAPPER(void, call_once, once_flag *once, void (*run)(void))
{
	begin_once(&(struct once_call){ (pthread_once_t *)once, run });
	call_once(once, run_once);
}

/* ---- Printing to an obstack, whose chunks the program allocates ------------------------------ */

#pragma weak vasprintf
#pragma weak free

static int grow_by_text(struct obstack *o, const char *format, va_list ap)
{
	char *text;
	int n;

	crn_keep_counts(format, ap);
	n = vasprintf(&text, format, ap);
	if (n < 0)
		return n;
	if (obstack_room(o) < (size_t)n)
		__cairn_wrap__obstack_newchunk(o, n);
	place(o->next_free, text, (size_t)n);
	OBJECT(&o->next_free)
	o->next_free += n;
	free(text);
	return n;
}

WRAPPER(int, obstack_vprintf, struct obstack *o, const char *format, va_list ap)
{
	return grow_by_text(o, format, ap);
}

WRAPPER(int, __obstack_vprintf_chk, struct obstack *o, int flag, const char *format, va_list ap)
{
	(void)flag;
	return grow_by_text(o, format, ap);
}

WRAPPER(int, obstack_printf, struct obstack *o, const char *format, ...)
{
	va_list ap;
	int n;

	va_start(ap, format);
	n = grow_by_text(o, format, ap);
	va_end(ap);
	return n;
}

WRAPPER(int, __obstack_printf_chk, struct obstack *o, int flag, const char *format, ...)
{
	va_list ap;
	int n;

	(void)flag;
	va_start(ap, format);
	n = grow_by_text(o, format, ap);
	va_end(ap);
	return n;
}
