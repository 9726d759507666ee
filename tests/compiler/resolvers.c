/* SPDX-License-Identifier: MIT */
/*
 * An indirect function whose resolver calls functions that store to variables: they run before
 * hooks may, and store with hooks when the program calls them. argv: TRACKER.
 */
#include <stdint.h>
#include <stdlib.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

static int level, looks;

static __attribute__((noinline)) void count_look(void)
{
	looks++;
}

static __attribute__((noinline)) void look(int found)
{
	level = found;
	count_look();
}

static int answer(void)
{
	return 42;
}

static void *resolve(void)
{
	look(2);
	return (void *)answer;
}

int chosen(void) __attribute__((ifunc("resolve")));

int main(int argc, char **argv)
{
	volatile int found = 7;
	uint64_t id;
	cairn_t *c;

	CHECK(argc == 2);
	CHECK(chosen() == 42 && level == 2 && looks == 1);
	c = test_open_built(argv[1]);
	if (cairn_checkpoint(c, &id) == CAIRN_TAKEN) {
		look(found);
		CHECK(level == 7 && looks == 2);
		CHECK_OK(cairn_restore(c, id)); /* does not return */
	}
	CHECK(level == 2 && looks == 1);
	CHECK_OK(cairn_close(c));
	return 0;
}
