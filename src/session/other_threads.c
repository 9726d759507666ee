/* SPDX-License-Identifier: MIT */
/*
 * Other threads' stacks are part of a surface of mappings, but their registers are not part of a
 * checkpoint. So memory goes back only if no other thread has run since the checkpoint, which would
 * show as dirty pages on its stack. (The agent has every thread's registers and decides for
 * itself.)
 */
#include "session/engine.h"
#include "base/copy.h"
#include "os/thread.h"

struct stacks {
	cairn_t *c;
	uint64_t id;
	int self;
};

/*
 * libc keeps a thread's descriptor, robust list included, at the upper end of the thread's stack.
 */
static int find_stack(cairn_t *c, int tid, struct crn_range *out)
{
	struct crn_mapping m;
	uintptr_t head = 0;
	size_t len;

	out->begin = out->end = 0;
	if (crn_robust_list_of(tid, &head, &len) < 0 || !head)
		return 0;
	if (tid == crn_getpid()) {
		/*
		 * The main thread's descriptor is elsewhere, in a mapping that everybody writes to.
		 */
		for (size_t i = 0; i < c->area_count; i++) {
			if (c->areas[i]->flags & CRN_AREA_STACK) {
				out->begin = c->areas[i]->begin;
				out->end = c->areas[i]->end;
			}
		}
		return 0;
	}
	if (crn_maps_find(&c->maps, head, &m) <= 0 || m.shared)
		return 0; /* not rolled back */
	if (!crn_area_at(c, head))
		/* born since, or not rolled back */
		return c->mode == CRN_SURFACE_ALL ? CAIRN_ETHREADS : 0;
	out->begin = m.begin;
	out->end = crn_page_up(head + len);
	return 0;
}

static int check_thread(void *ctx, int tid)
{
	struct stacks *s = ctx;
	cairn_t *c = s->c;
	struct crn_range stack;

	if (tid == s->self)
		return 0;
	CRN_TRY(find_stack(c, tid, &stack));
	if (stack.begin == stack.end)
		return 0;
	if (c->ops->caps & CRN_TRACK_KEEPS
			? c->ops->kept_written(
				  c->tracker, s->id, stack.begin, stack.end - stack.begin)
			: c->ops->page.collect(c->tracker, stack.begin, stack.end - stack.begin))
		return CAIRN_ETHREADS; /* written, or not even tracked all through */
	return crn_ranges_add(c, &c->other_stacks, stack.begin, stack.end);
}

static int exempt_stack(void *ctx, int tid)
{
	struct stacks *s = ctx;
	struct crn_mapping m;
	uintptr_t at = 0;
	size_t len;

	if (tid == s->self)
		return 0;
	if (tid == crn_getpid())
		at = crn_stack_start();
	else if (crn_robust_list_of(tid, &at, &len) < 0)
		return 0; /* it has ended */
	if (!at || crn_maps_find(&s->c->maps, at, &m) <= 0)
		return 0;
	if (crn_streq(m.name, "[heap]"))
		return CAIRN_EUNSUPPORTED;
	/* Of a thread that libc made: the descriptor, with the list, is at the upper end. */
	return crn_ranges_add(s->c, &s->c->builtin, m.begin,
		tid == crn_getpid() ? m.end : crn_page_up(at + len));
}

int crn_exempt_other_stacks(cairn_t *c)
{
	struct stacks s = { .c = c, .self = crn_gettid() };

	CRN_TRY(crn_exempt_all(c));
	c->thread_seen = 0; /* threads come and go */
	return crn_thread_each(exempt_stack, &s);
}

int crn_other_threads_check(cairn_t *c, uint64_t id)
{
	struct stacks s = { .c = c, .id = id };

	c->other_stacks.count = 0;
	if (c->agent || c->mode == CRN_SURFACE_NONE || c->threads == CAIRN_THREADS_ONE ||
		!c->ops->page.collect)
		return 0;
	s.self = crn_gettid();
	return crn_thread_each(check_thread, &s);
}

bool crn_on_other_stack(const cairn_t *c, uintptr_t page)
{
	size_t i = crn_ranges_from(&c->other_stacks, page);

	return i < c->other_stacks.count && c->other_stacks.at[i].begin <= page;
}
