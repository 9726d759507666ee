/* SPDX-License-Identifier: MIT */
/*
 * Coroutines of ucontext.h come back, with what is on their stacks: local variables, and where
 * calls return to. Checkpoints are taken on the main stack and in coroutines; those end and begin
 * again meanwhile. argv: TRACKER [KEEP].
 */
#include <errno.h>
#include <sys/mman.h>
#include <ucontext.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define STACK (64 << 10)
#define STEPS 12

struct task {
	ucontext_t at;
	char *stack;
	long steps;
	int ended;
};

static ucontext_t top;
static struct task tasks[3], *running;
static long sum;
static cairn_t *session;
static uint64_t ids[8];
static int asked = -1; /* the checkpoint that a coroutine shall take */

static void yield(void)
{
	struct task *self = running;

	swapcontext(&self->at, &top);
}

/* Returns to another place each time. */
__attribute__((noinline)) static void deep(long n)
{
	volatile long here[8];

	for (int i = 0; i < 8; i++)
		here[i] = n * 10 + i;
	if (asked >= 0 && n % 3 == 1) {
		int which = asked;

		asked = -1;
		CHECK(cairn_checkpoint(session, &ids[which]) >= 0);
	}
	yield();
	for (int i = 0; i < 8; i++)
		sum = sum * 31 + here[i];
}

static void work(int low, int high)
{
	struct task *self = running;
	volatile long n = ((long)high << 16) + low;

	CHECK(n == self - tasks);
	for (long i = 0; i < STEPS; i += 3) {
		self->steps++;
		deep(n + i);
		sum ^= 0x1111;
		self->steps++;
		deep(n + i + 1);
		sum += 0x2222;
		self->steps++;
		deep(n + i + 2);
		sum -= 0x3333;
	}
	self->ended = 1;
}

static void make(struct task *t)
{
	int n = (int)(t - tasks);

	CHECK(!getcontext(&t->at));
	t->at.uc_stack.ss_sp = t->stack;
	t->at.uc_stack.ss_size = STACK;
	t->at.uc_link = &top;
	t->steps = t->ended = 0;
	makecontext(&t->at, (void (*)(void))work, 2, n & 0xffff, n >> 16);
}

static void turn(struct task *t)
{
	if (t->ended)
		make(t);
	running = t;
	CHECK(!swapcontext(&top, &t->at));
}

static void turns(int from, int to)
{
	for (int i = from; i < to; i++)
		turn(&tasks[i * i % 3]);
}

/* What the tasks do from here on, as a number. */
static long course(int from, int to)
{
	turns(from, to);
	return sum;
}

static char *volatile more[80];

static void begin(void)
{
	tasks[0].stack = malloc(STACK);
	tasks[1].stack = aligned_alloc(4096, STACK);
	tasks[2].stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		0);
	CHECK(tasks[0].stack && tasks[1].stack && tasks[2].stack != MAP_FAILED);
	CHECK(!mprotect(tasks[2].stack, 4096, PROT_NONE));
	/* What lies above a stack in the heap is much, and no part of it. */
	for (int i = 0; i < 80; i++) {
		more[i] = malloc(1 << 20);
		CHECK(more[i]);
		memset(more[i], i, 1 << 20);
	}
	for (int i = 0; i < 3; i++)
		make(&tasks[i]);
}

static volatile long *in_heap, in_image;

/* Only the stack of the coroutine stays as it is, wherever it lies. */
static void rewinds(void)
{
	volatile long on_stack = 2;

	*in_heap = in_image = 2;
	CHECK_OK(cairn_rewind(session, ids[0]));
	CHECK(*in_heap == 1 && in_image == 1 && on_stack == 2);
	CHECK(!setcontext(&top));
}

static void check_rewind(void)
{
	static ucontext_t other;

	in_heap = malloc(100000);
	*in_heap = in_image = 1;
	for (volatile int i = 0; i < 3; i++) {
		volatile int back = 0;

		CHECK(!getcontext(&top));
		if (back++)
			continue;
		CHECK(!getcontext(&other));
		other.uc_stack.ss_sp = tasks[i].stack;
		other.uc_stack.ss_size = STACK;
		other.uc_link = NULL;
		makecontext(&other, rewinds, 0);
		CHECK(cairn_checkpoint(session, &ids[0]) == CAIRN_TAKEN);
		setcontext(&other);
	}
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	long *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const int lengths[] = { 1, 2, 5, 40, 3, 90 };

	CHECK(argc >= 2 && seen != MAP_FAILED);
	o.tracker = argv[1];
	o.keep = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
	CHECK_OK(cairn_open(&session, &o));
	CHECK_OK(cairn_area_exclude(session, seen, 4096));
	begin();
	turns(0, 7);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		volatile int from = (int)(10 * i);

		/* On this stack; as many more as are kept follow, then the oldest comes back. */
		CHECK(cairn_checkpoint(session, &ids[0]) >= 0);
		seen[1] = course(from, from + lengths[i]);
		if (seen[0]++ == 0) {
			seen[2] = seen[1];
			if (o.keep > 1) {
				CHECK(cairn_checkpoint(session, &ids[1]) >= 0);
				turns(from + 50, from + 61);
			}
			CHECK_OK(cairn_restore(session, ids[0])); /* does not return */
		}
		if (seen[1] != seen[2])
			test_fail("%d turns: %lx, and again %lx", lengths[i], seen[2], seen[1]);
		seen[0] = 0;
		/* In a coroutine: the stack of main is the one that stands still. */
		asked = 2;
		seen[1] = course(from, from + 6 + lengths[i]);
		CHECK(asked < 0);
		if (seen[0]++ == 0) {
			seen[2] = seen[1];
			CHECK_OK(cairn_restore(session, ids[2]));
		}
		if (seen[1] != seen[2])
			test_fail("%d turns, in one: %lx, and again %lx", lengths[i], seen[2],
				seen[1]);
		seen[0] = 0;
	}
	check_rewind();
	CHECK_OK(cairn_close(session));
	return 0;
}
