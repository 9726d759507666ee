/* SPDX-License-Identifier: MIT */
/*
 * Stacks of the program's own making (makecontext, swapcontext, setcontext). Stores to a stack have
 * no hooks, and what calls push never has; a checkpoint copies the stack that it is taken on. All
 * others stand still until somebody turns to them, so what they hold is kept at that moment. What
 * lies below their stack pointer is nobody's.
 */
#include <stdlib.h>
#include <ucontext.h>
#include "rt/wrap/wrap.h"
#include "rt/wrap/reach.h"
#include "base/log.h"
#include "base/status.h"

#ifdef __i386__
#define STACK_POINTER REG_ESP
#else
#define STACK_POINTER REG_RSP
#endif
#define MAIN_MAX  (128ul << 20) /* so far below its start the kernel puts no other mapping */
#define ARGS_MAX  16
#define STACK_MIN 1024u

extern void *__libc_stack_end __attribute__((weak));

static struct crn_range current; /* the stack of makecontext's that runs now; empty: another */

bool crn_context_stack(uintptr_t at, struct crn_range *out);
bool crn_context_stack(uintptr_t at, struct crn_range *out)
{
	*out = current;
	return at - current.begin < current.end - current.begin;
}

/* The first frame of a stack has this above it. */
struct first {
	void (*run)(void);
	const ucontext_t *link;
	long args[ARGS_MAX];
};

/* The pass calls it before each swapcontext: a wrapper would be gone when that returns again. */
CRN_EXPORT void __cairn_to_context(const ucontext_t *to);
void __cairn_to_context(const ucontext_t *to)
{
	uintptr_t sp = (uintptr_t)to->uc_mcontext.gregs[STACK_POINTER];
	uintptr_t low = (uintptr_t)to->uc_stack.ss_sp, end = low + to->uc_stack.ss_size;
	uintptr_t start = &__libc_stack_end ? (uintptr_t)__libc_stack_end : 0;

	OBJECT(&current)
	current = (struct crn_range){ low, end };
	if (sp - low >= end - low) {
		end = start - sp < MAIN_MAX ? start : 0;
		current = (struct crn_range){ 0, 0 };
	}
	if (!__cairn_rt.active)
		return;
	if (end)
		crn_rt_range(sp, end - sp);
	else
		crn_rt_give_up(sp, CAIRN_EUNSUPPORTED); /* nobody can tell where it ends */
}

WRAPPER(int, setcontext, const ucontext_t *to)
{
	__cairn_to_context(to);
	return setcontext(to);
}

typedef void any_fn(long, long, long, long, long, long, long, long, long, long, long, long, long,
	long, long, long);

/* The return from a stack's first function turns to another one, too. */
static void start(const struct first *f)
{
	const long *a = f->args;

	/* Those that it does not take are in nobody's way. */
	((any_fn *)f->run)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
		a[12], a[13], a[14], a[15]);
	if (f->link)
		__cairn_to_context(f->link);
}

/* As far down as there is memory: below may be a page that nobody may touch. */
static void keep_whole(uintptr_t low, uintptr_t end)
{
	for (uintptr_t at; end > low && __cairn_rt.active; end = at) {
		at = CRN_MAX(low, crn_page_down(end - 1));
		if (!crn_reach_there((void *)at, end - at))
			return;
		keep((void *)at, end - at);
	}
}

/* It may be that another function is given up that was on that stack: all of it is kept. */
WRAPPER(void, makecontext, ucontext_t *context, void (*run)(void), int count, ...)
{
	uintptr_t low = (uintptr_t)context->uc_stack.ss_sp;
	size_t size = context->uc_stack.ss_size;
	struct first *first = (struct first *)((low + size - sizeof(*first)) & ~15ul);
	va_list args;

	if (size < STACK_MIN || count > ARGS_MAX) {
		crn_error("makecontext with %d arguments and a stack of %zu bytes is not supported",
			count, size);
		abort();
	}
	keep(context, sizeof(*context));
	keep_whole(low, low + size);
	*first = (struct first){ .run = run, .link = context->uc_link };
	va_start(args, count);
	for (int i = 0; i < count; i++)
		first->args[i] = va_arg(args, long);
	va_end(args);
	context->uc_stack.ss_size = (uintptr_t)first - low;
	makecontext(context, (void (*)(void))start, 1, first);
	context->uc_stack.ss_size = size;
}
