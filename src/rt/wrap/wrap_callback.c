/* SPDX-License-Identifier: MIT */
/* Functions of libc that call the program back: a checkpoint may be taken inside. */
#include <obstack.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <threads.h>
#define WRAPPED_callback CRN_WRAPPER
#include "rt/wrap/wrap.h"
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
