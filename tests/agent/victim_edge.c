/* SPDX-License-Identifier: MIT */
/*
 * Reads into a buffer that begins in the middle of a tracked page and ends in memory that is not
 * tracked. The kernel writes the first page right after a checkpoint has closed it.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

int main(void)
{
	int rw = PROT_READ | PROT_WRITE, ends[2];
	char *at = mmap(NULL, 2 * PAGE, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || pipe(ends) < 0 ||
		mmap(at + PAGE, PAGE, rw, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
			MAP_FAILED)
		return 2;
	memset(at, 1, 2 * PAGE);
	for (int i = 0; i < 50; i++) {
		struct pollfd p = { ends[0], POLLIN, 0 };
		ssize_t got;

		if (write(ends[1], "hello", 5) != 5 || poll(&p, 1, -1) != 1)
			return 2;
		got = read(ends[0], at + 100, PAGE);
		if (got != 5 || memcmp(at + 100, "hello", 5) != 0) {
			printf("turn %d: read %zd: %m\n", i, got);
			return 1;
		}
	}
	return 0;
}
