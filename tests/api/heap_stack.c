/* SPDX-License-Identifier: MIT */
/*
 * heap_stack TRACKER: checkpoints on a stack of the program's own making. In the heap nobody
 * knows where it ends, and what lies above it is not to be put back: refused, until it is an area.
 * In a mapping of its own it ends with that.
 */
#include <sys/mman.h>
#include <ucontext.h>
#include "../lib/harness.h"

#define PAGE       4096ul
#define STACK_SIZE (16 * PAGE)

static ucontext_t back, there;
static cairn_t *c;
static int result, returns;
static volatile int *counted;

static void on_stack(void)
{
	volatile int local = 1;
	uint64_t id;

	result = cairn_checkpoint(c, &id);
	returns++;
	++*counted; /* survives a restore if it is not on the stack */
	if (result == CAIRN_TAKEN) {
		local = 2;
		if (cairn_restore(c, id) < 0)
			result = -1;
	} else if (result == CAIRN_RESTORED && local != 1) {
		result = -2;
	}
}

static void run_on(char *stack)
{
	CHECK(!getcontext(&there));
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = STACK_SIZE;
	there.uc_link = &back;
	makecontext(&there, on_stack, 0);
	*counted = returns = 0;
	CHECK(!swapcontext(&back, &there));
}

/* It ends where its mapping ends now, with which the kernel joins what is mapped above. */
static void own_ends_elsewhere(void)
{
	char *own = mmap(NULL, STACK_SIZE + 9 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		0);
	char *above = own + STACK_SIZE;
	uint64_t id;

	CHECK(own != MAP_FAILED && !mprotect(own, STACK_SIZE + 8 * PAGE, PROT_READ | PROT_WRITE));
	run_on(own);
	CHECK_RC(result, CAIRN_RESTORED);
	CHECK_OK(cairn_range(c, NULL, &id));
	/* What the newest checkpoint holds of it has no place to go back to. */
	CHECK(!munmap(above, 8 * PAGE));
	CHECK_RC(cairn_restore(c, id), CAIRN_ELAYOUT);
	run_on(own);
	CHECK_RC(result, CAIRN_RESTORED);
	CHECK_OK(cairn_range(c, NULL, &id));
	CHECK(!mprotect(own, STACK_SIZE, PROT_READ));
	CHECK_RC(cairn_restore(c, id), CAIRN_ELAYOUT);
	CHECK(!munmap(own, STACK_SIZE + 9 * PAGE));
	CHECK_RC(cairn_restore(c, id), CAIRN_ELAYOUT);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uintptr_t heap = ((uintptr_t)sbrk(STACK_SIZE + 4 * PAGE) + PAGE - 1) & ~(PAGE - 1);
	char *own;

	o.tracker = argc > 1 ? argv[1] : "async";
	o.surface = "none";
	c = test_open(&o);

	counted = (int *)(heap + STACK_SIZE + PAGE); /* above the stack, in the heap */
	run_on((char *)heap);
	CHECK_RC(result, CAIRN_EUNSUPPORTED);
	CHECK_U64((uint64_t)*counted, 1);

	/* Signal trackers cannot protect the stack that a store's handler may have to run on. */
	if (strcmp(o.tracker, "uffd") && strcmp(o.tracker, "mprotect")) {
		CHECK_OK(cairn_area_add(c, (void *)heap, STACK_SIZE));
		run_on((char *)heap);
		CHECK_RC(result, CAIRN_RESTORED);
		CHECK_U64((uint64_t)*counted, 2);
	}

	own = mmap(NULL, STACK_SIZE + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(!mprotect(own + PAGE, STACK_SIZE, PROT_READ | PROT_WRITE));
	run_on(own + PAGE);
	CHECK_RC(result, CAIRN_RESTORED);
	CHECK_U64((uint64_t)*counted, 2);
	own_ends_elsewhere();
	CHECK_OK(cairn_close(c));
	return 0;
}
