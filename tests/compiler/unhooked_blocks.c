/* SPDX-License-Identifier: MIT */
/*
 * Blocks of the heap that only code without hooks fills, as a library fills a buffer: what it wrote
 * stays, but a restore that makes the blocks free again leaves the heap whole. argv: TRACKER.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define BLOCKS   200
#define NO_HOOKS __attribute__((noinline, disable_sanitizer_instrumentation))

static const size_t sizes[] = { 16, 40, 100, 300, 2000 };
static unsigned char *blocks[2 * BLOCKS];

static NO_HOOKS void library_fills(volatile unsigned char *at, size_t n)
{
	while (n--)
		at[n] = 0xff;
}

static void allocate(size_t count, size_t size)
{
	for (size_t i = 0; i < count; i++) {
		blocks[i] = malloc(size);
		CHECK(blocks[i]);
	}
}

static void free_all(size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(blocks[i * 7 % count]);
}

/* No two of them lie in one place. */
static void use_all(size_t count, size_t size)
{
	allocate(count, size);
	for (size_t i = 0; i < count; i++)
		memset(blocks[i], (int)(i % 251), size);
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < size; j++)
			CHECK(blocks[i][j] == i % 251);
	free_all(count);
}

int main(int argc, char **argv)
{
	volatile unsigned *restored =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t id;
	cairn_t *c;

	CHECK(argc == 2 && restored != MAP_FAILED);
	c = test_open_built(argv[1]);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		allocate(BLOCKS, sizes[i]);
		free_all(BLOCKS);
		if (cairn_checkpoint(c, &id) == CAIRN_TAKEN) {
			allocate(BLOCKS, sizes[i]);
			for (size_t k = 0; k < BLOCKS; k++)
				library_fills(blocks[k], sizes[i]);
			CHECK_OK(cairn_restore(c, id)); /* does not return */
		}
		++*restored;
		use_all(2 * BLOCKS, sizes[i]);
	}
	CHECK_U64(*restored, sizeof(sizes) / sizeof(*sizes));
	CHECK_OK(cairn_close(c));
	return 0;
}
