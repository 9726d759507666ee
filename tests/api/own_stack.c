/* SPDX-License-Identifier: MIT */
/*
 * own_stack CASE TRACKER: cairn_rewind leaves the caller's own stack as it is, all of it, and
 * nothing else.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include "../lib/harness.h"

#define PAGE   4096ul
#define BESIDE 16ul

static const char *tracker;
static cairn_t *c;
static uint8_t *beside;

static void open_session(const char *surface)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	o.tracker = tracker;
	o.surface = surface;
	o.keep = 2;
	c = test_open(&o);
}

static uint8_t *map_pages(size_t count)
{
	void *p = mmap(
		NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		test_fail("mmap: errno %d", errno);
	return p;
}

/* ---- Memory beside the caller's stack goes back ---- */

static void rewind_beside(void)
{
	uint64_t id;

	memset(beside, 1, BESIDE * PAGE);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memset(beside, 2, BESIDE * PAGE);
	CHECK_OK(cairn_rewind(c, id));
	for (size_t i = 0; i < BESIDE * PAGE; i++)
		CHECK_U64(beside[i], 1);
}

static void *map_below(void *arg)
{
	size_t len = BESIDE * PAGE, stack_len, guard;
	pthread_attr_t attr;
	void *stack;

	CHECK_OK(pthread_getattr_np(pthread_self(), &attr));
	CHECK_OK(pthread_attr_getstack(&attr, &stack, &stack_len));
	CHECK_OK(pthread_attr_getguardsize(&attr, &guard));
	beside = mmap((uint8_t *)stack - guard - len, len, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(beside != MAP_FAILED);
	rewind_beside();
	return NULL;
}

static void below_a_thread(void)
{
	pthread_t thread;

	open_session("all");
	CHECK_OK(pthread_create(&thread, NULL, map_below, NULL));
	CHECK_OK(pthread_join(thread, NULL));
}

static void run_on(uint8_t *stack, size_t len, void (*run)(void))
{
	static ucontext_t outside, inside;

	CHECK_OK(getcontext(&inside));
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = len;
	inside.uc_link = &outside;
	makecontext(&inside, run, 0);
	CHECK_OK(swapcontext(&outside, &inside));
}

/* ---- Thread-local variables are no stack: malloc's are among them ---- */

#define BLOCKS 200

static __thread volatile int local = 1;

static void *use_heap(void *arg)
{
	volatile unsigned rounds = 0;
	uint64_t id;

	local = 2;
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	while (rounds++ < 10) {
		void *volatile blocks[BLOCKS];

		for (size_t i = 0; i < BLOCKS; i++) {
			blocks[i] = malloc(16 + 8 * i);
			CHECK(blocks[i]);
			memset(blocks[i], 0xff, 16 + 8 * i);
		}
		for (size_t i = 0; i < BLOCKS; i += 2)
			free(blocks[i]);
		local = 3;
		CHECK_OK(cairn_rewind(c, id));
		CHECK(local == 2);
	}
	return NULL;
}

static void *leave_heap(void *arg)
{
	uint64_t id;

	local = 2;
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED) {
		CHECK(local == 3);
		return NULL;
	}
	local = 3;
	CHECK_OK(cairn_restore(c, id));
	return NULL;
}

/* They are in no area. */
static void kept_locals(void)
{
	pthread_t thread;

	open_session("none");
	CHECK_OK(pthread_create(&thread, NULL, leave_heap, NULL));
	CHECK_OK(pthread_join(thread, NULL));
}

static void thread_locals(void)
{
	pthread_t thread;

	open_session("all");
	CHECK_OK(pthread_create(&thread, NULL, use_heap, NULL));
	CHECK_OK(pthread_join(thread, NULL));
}

/* Two areas of one mapping: the stack is one of them. */
static void beside_a_stack(void)
{
	uint8_t *pages = map_pages(3 * BESIDE);

	beside = pages;
	open_session("none");
	CHECK_OK(cairn_area_add(c, beside, BESIDE * PAGE));
	CHECK_OK(cairn_area_add(c, pages + BESIDE * PAGE, 2 * BESIDE * PAGE));
	run_on(pages + BESIDE * PAGE, 2 * BESIDE * PAGE, rewind_beside);
}

/* ---- The caller's stack stays, though it has grown, or come, since anybody has looked ---- */

static void rewind_to_0(void)
{
	beside[0] = 2;
	CHECK_OK(cairn_rewind(c, 0));
	CHECK(beside[0] == 1);
}

static void go_down(unsigned depth)
{
	volatile uint8_t frame[2 * PAGE];

	memset((void *)frame, (int)depth, sizeof(frame));
	if (depth)
		go_down(depth - 1);
	else
		rewind_to_0();
	for (size_t i = 0; i < sizeof(frame); i++)
		CHECK_U64(frame[i], depth);
}

static void deeper_stack(void)
{
	beside = map_pages(1);
	beside[0] = 1;
	open_session("all");
	go_down(100);
}

/* The stacks below go back, and the contexts: nobody returns there. */
static void rewind_and_leave(void)
{
	rewind_to_0();
	_exit(0);
}

static void younger_stack(void)
{
	beside = map_pages(1);
	beside[0] = 1;
	open_session("all");
	run_on(map_pages(2 * BESIDE), 2 * BESIDE * PAGE, rewind_and_leave);
}

static const struct test_case cases[] = {
	{ "below_a_thread", below_a_thread },
	{ "beside_a_stack", beside_a_stack },
	{ "deeper_stack", deeper_stack },
	{ "younger_stack", younger_stack },
	{ "thread_locals", thread_locals },
	{ "kept_locals", kept_locals },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	tracker = argv[2];
	return test_run_case(cases, argv[1]);
}
