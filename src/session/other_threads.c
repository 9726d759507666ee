/* SPDX-License-Identifier: MIT */
/*
 * Other threads' stacks are part of a surface of mappings, but their registers are not part of a
 * checkpoint. So memory goes back only if no other thread has run since the checkpoint, which would
 * show as dirty pages on its stack. (The agent has every thread's registers and decides for
 * itself.)
 */
#include "session/engine.h"
#include "base/copy.h"
#include "os/guarded.h"
#include "os/thread.h"
#include "rt/born.h"
#include "rt/rt.h"
#include "rt/waits.h"

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

/*
 * Of a thread that libc made: the descriptor, with the list, is at the upper end. What lies beside
 * its block in the same mapping is the program's, if that gave the stack or left out the guard.
 */
static int exempt_block(const struct stacks *s, const struct crn_mapping *m, uintptr_t list,
	size_t len)
{
	struct crn_range block = { m->begin, crn_page_up(list + len) };
	uintptr_t list_at = crn_thread_list_at();
	struct crn_range told;

	if (list_at && crn_thread_block(list - list_at, &told)) {
		block.begin = CRN_MAX(block.begin, told.begin);
		block.end = CRN_MIN(m->end, told.end);
	}
	return crn_ranges_add(s->c, &s->c->builtin, block.begin, block.end);
}

/* Of a libc with hooks (-fcairn-complete), which has no list that tells where its threads are. */
extern char crn_musl_one_thread __attribute__((weak));

/* Threads that have been waited for may not be gone yet. */
static bool stays(int tid)
{
	for (int i = 0; i < 20; i++) {
		if (crn_thread_gone(tid))
			return false;
		crn_doze(CRN_MILLISECOND);
	}
	return true;
}

static int exempt_stack(void *ctx, int tid)
{
	struct stacks *s = ctx;
	bool first = tid == crn_getpid();
	struct crn_mapping m;
	uintptr_t at = 0;
	size_t len;

	if (tid == s->self)
		return 0;
	if (first)
		at = crn_stack_start();
	else if (crn_robust_list_of(tid, &at, &len) < 0)
		return 0; /* it has ended */
	else if (&crn_musl_one_thread)
		return stays(tid) ? CAIRN_ETHREADS : 0;
	if (!at || crn_maps_find(&s->c->maps, at, &m) <= 0)
		return 0;
	if (first && crn_streq(m.name, "[heap]"))
		return CAIRN_EUNSUPPORTED;
	return first ? crn_ranges_add(s->c, &s->c->builtin, m.begin, m.end)
		     : exempt_block(s, &m, at, len);
}

/* What the threads that wait have noted, by functions of libc that have wrappers. */
static int exempt_waits(const struct stacks *s)
{
	const struct crn_wait *waits;
	size_t count;

	if (!__cairn_shape.waits)
		return 0;
	waits = __cairn_shape.waits(&count);
	for (size_t i = 0; i < count; i++) {
		uintptr_t at = __atomic_load_n(&waits[i].at, __ATOMIC_ACQUIRE);

		if (at && waits[i].tid != s->self && !crn_thread_gone(waits[i].tid))
			CRN_TRY(crn_ranges_add(s->c, &s->c->builtin, at, at + waits[i].len));
	}
	return 0;
}

bool crn_beside_other_threads(const cairn_t *c)
{
	return c->ops->caps & CRN_TRACK_STORES && __cairn_shape.threads &&
		!__cairn_shape.one_thread();
}

int crn_exempt_other_stacks(cairn_t *c)
{
	struct stacks s = { .c = c, .self = crn_gettid() };

	CRN_TRY(crn_exempt_all(c));
	c->thread_seen = 0; /* threads come and go */
	CRN_TRY(exempt_waits(&s));
	return crn_thread_each(exempt_stack, &s);
}

struct born {
	const struct crn_birth *births;
	size_t count;
	uint32_t before; /* at the checkpoint so many had been */
	uintptr_t list;	 /* from a thread's descriptor to its robust list */
	int self;
};

static int check_born(void *ctx, int tid)
{
	const struct born *b = ctx;
	uintptr_t list = 0;
	size_t len;

	if (tid == b->self || crn_robust_list_of(tid, &list, &len) < 0)
		return 0;
	if (!list) /* it has not said yet, or never does */
		return stays(tid) ? CAIRN_ETHREADS : 0;
	for (size_t i = 0; i < b->count; i++)
		if (b->births[i].thread == list - b->list && b->births[i].number > b->before)
			return stays(tid) ? CAIRN_ETHREADS : 0;
	return 0;
}

/* It would run on, in memory that does not know of it. */
int crn_other_threads_born(cairn_t *c, uint64_t id)
{
	struct born b = { .list = crn_thread_list_at() };
	const uint32_t *born;

	if (!__cairn_shape.births)
		return 0;
	b.births = __cairn_shape.births(&b.count, &born);
	if (!b.count || !b.list)
		return 0;
	CRN_TRY(c->ops->kept_peek(c->tracker, id, (uintptr_t)born, &b.before, sizeof(b.before)));
	if (b.before == *born)
		return 0;
	b.self = crn_gettid();
	return crn_thread_each(check_born, &b);
}

static int wake(void *ctx, int tid)
{
	struct crn_futex_wait wait;
	uint32_t now;

	if (tid != *(const int *)ctx && crn_thread_waits(tid, &wait) &&
		crn_guarded_copy(&now, wait.word, sizeof(now)) >= 0 && now != wait.expected)
		(void)crn_futex_wake_as(&wait);
	return 0;
}

/*
 * Who came for a lock since the checkpoint has said so in the lock's own word, which has been put
 * back: nobody would wake him. He looks again, and says it again if he has to wait.
 */
void crn_other_threads_wake(const cairn_t *c)
{
	int self;

	if (!crn_beside_other_threads(c))
		return;
	self = crn_gettid();
	(void)crn_thread_each(wake, &self);
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
