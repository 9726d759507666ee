/* SPDX-License-Identifier: MIT */
/*
 * Functions with destructors and handlers, whose callees rest, go on, take checkpoints or go back,
 * and then return or throw: what follows, and what catches, goes on in the version of its blocks
 * that is right then. Every word is compared with a copy. argv: TRACKER. Built with
 * -fcairn-clone=on.
 */
#include <string>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

static const int STEPS = 4000, WORDS = 1024;
static const std::string words = "more than a short string has room for ";

static unsigned long memory[WORDS];
static cairn_t *c;
static bool rests;

/* Survives restores. */
static struct shared {
	uint64_t random, id; /* id 0: there is no checkpoint to go back to */
	unsigned long step, restores, changes, caught;
	unsigned long copy[WORDS];
} *shared;

static uint64_t draw(uint64_t below)
{
	return test_draw(&shared->random, below);
}

static void take()
{
	uint64_t id;

	shared->id = 0;
	memcpy(shared->copy, memory, sizeof(memory));
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED)
		CHECK(!memcmp(shared->copy, memory, sizeof(memory)));
	else
		shared->id = id;
}

static void change()
{
	if (rests) {
		CHECK_OK(cairn_resume(c));
		take();
	} else {
		shared->id = 0;
		CHECK_OK(cairn_pause(c));
	}
	rests = !rests;
	shared->changes++;
}

/* Stores while the stack is unwound, too. */
struct late_store {
	unsigned long value;

	~late_store()
	{
		memory[draw(WORDS)] = value;
	}
};

/* Says nothing to its caller about which version of it is right. */
static __attribute__((noinline)) void act()
{
	late_store late = { shared->step };

	switch (draw(6)) {
	case 0:
		change();
		break;
	case 1:
	case 2:
		if (!rests)
			take();
		break;
	case 3:
		if (!rests && shared->id) {
			shared->restores++;
			CHECK_OK(cairn_restore(c, shared->id)); /* does not return */
		}
	}
	if (draw(3) == 0)
		throw (int)draw(100);
}

static __attribute__((noinline)) unsigned long walk(int depth, unsigned long a)
{
	unsigned long first = a;
	std::string text = words + std::to_string(a);
	late_store late = { a };

	memory[draw(WORDS)] = a;
	try {
		act();
		memory[draw(WORDS)] = a + 1;
		if (depth)
			a += walk(depth - 1, a * 3 + 1);
		memory[draw(WORDS)] = a + 2;
	} catch (int n) {
		memory[draw(WORDS)] = a + n;
		shared->caught++;
		if (depth && n < 20)
			throw;
		a ^= n;
	}
	memory[draw(WORDS)] = a;
	CHECK(text == words + std::to_string(first));
	return a;
}

int main(int argc, char **argv)
{
	cairn_options o = CAIRN_OPTIONS_INIT;

	(void)argc;
	shared = (struct shared *)mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	shared->random = 88172645463325252u;
	o.tracker = argv[1];
	CHECK_OK(cairn_open(&c, &o));
	CHECK_OK(cairn_area_exclude(c, shared, sizeof(*shared)));
	while (shared->step++ < STEPS) {
		try {
			memory[draw(WORDS)] += walk((int)draw(6), shared->step);
		} catch (int n) {
			memory[draw(WORDS)] = n;
		}
	}
	printf("%lu restores, %lu changes, %lu caught\n", shared->restores, shared->changes,
		shared->caught);
	CHECK(shared->restores > 100 && shared->changes > 100 && shared->caught > 100);
	return 0;
}
