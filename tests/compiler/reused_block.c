/* SPDX-License-Identifier: MIT */
/*
 * A block that was in use at the checkpoint is freed and allocated again in the same interval: what
 * it held comes back, whichever heap it is of. argv: TRACKER.
 *
 * libc's own heap writes its words over the ends of what is freed; they are not looked at.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../lib/harness.h"

#define SIZES 6
#define ENDS  64 /* bytes */

static const size_t sizes[SIZES] = { 100, 500, 1000, 3000, 20000, 60000 };
static unsigned char *blocks[SIZES];

static unsigned char *volatile allocated;

static __attribute__((noinline)) void use_again(size_t i)
{
	unsigned char *again;

	free(blocks[i]);
	again = malloc(sizes[i]);
	memset(again, 0x22, sizes[i]);
	for (size_t at = 0; at < sizes[i]; at += 32)
		again[at] = 0x33;
	allocated = again;
}

int main(int argc, char **argv)
{
	cairn_t *c;
	uint64_t id;
	int err;

	(void)argc;
	for (size_t i = 0; i < SIZES; i++) {
		blocks[i] = malloc(sizes[i]);
		memset(blocks[i], 0x11, sizes[i]);
	}
	c = test_open_built(argv[1]);
	err = cairn_checkpoint(c, &id);
	CHECK(err >= 0);
	if (err == CAIRN_TAKEN) {
		for (size_t i = 0; i < SIZES; i++) {
			unsigned char *old = blocks[i];

			use_again(i);
			dprintf(1, "%zu: %s\n", sizes[i], allocated == old ? "again" : "another");
		}
		err = cairn_restore(c, id);
		test_fail("restore: %s", cairn_strerror(err));
	}
	CHECK(err == CAIRN_RESTORED);
	for (size_t i = 0; i < SIZES; i++)
		for (size_t at = ENDS; at < sizes[i] - ENDS; at++)
			if (blocks[i][at] != 0x11)
				test_fail("byte %zu of %zu is %02x", at, sizes[i], blocks[i][at]);
	return 0;
}
