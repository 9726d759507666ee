/* SPDX-License-Identifier: MIT */
/*
 * Stores through misaligned pointers, which C does not allow and x86 does, come back with
 * -fcairn-aligned=off. argv: TRACKER.
 */
#include <stdint.h>
#include <string.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

static char memory[4096] __attribute__((aligned(4096)));

struct fields {
	long a;
	int b;
};

__attribute__((noinline)) static void store(char *at)
{
	*(int *)(at + 126) = 1;
	*(long *)(at + 255 - 128 + 124) = 2;
	((struct fields *)(at + 500))->a = 3;
	((struct fields *)(at + 500))->b = 4;
	*(short *)(at + 1023) = 5;
}

int main(int argc, char **argv)
{
	uint64_t id;
	cairn_t *c;

	CHECK(argc == 2);
	memset(memory, 'm', sizeof(memory));
	c = test_open_built(argv[1]);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	store(memory);
	CHECK_OK(cairn_rewind(c, id));
	for (size_t i = 0; i < sizeof(memory); i++)
		if (memory[i] != 'm')
			test_fail("byte %zu: %d", i, memory[i]);
	CHECK_OK(cairn_close(c));
	return 0;
}
