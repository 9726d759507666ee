/* SPDX-License-Identifier: MIT */
/*
 * A log that the program had open before its first checkpoint, once to append and once to read:
 * what it has appended is there once after a recovery, as it is read back.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../lib/harness.h"

int main(void)
{
	char name[] = "/tmp/cairn-early-XXXXXX", text[32] = "";
	int made = mkstemp(name), log = open(name, O_WRONLY | O_APPEND),
	    back = open(name, O_RDONLY);
	volatile int *passes =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(made >= 0 && log >= 0 && back >= 0 && passes != MAP_FAILED);
	CHECK(close(made) == 0 && unlink(name) == 0);
	CHECK(poll(NULL, 0, 0) == 0 && poll(NULL, 0, 0) == 0);
	CHECK(write(log, "one\n", 4) == 4);
	if (++*passes == 1)
		*(volatile int *)24 = 0;
	CHECK(read(back, text, sizeof(text)) == 4 && !strcmp(text, "one\n"));
	printf("ok after %d passes\n", *passes);
	return *passes != 2;
}
