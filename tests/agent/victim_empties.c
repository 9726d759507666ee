/* SPDX-License-Identifier: MIT */
/* Pages are emptied more often between two waits than there is memory to note it each time. */
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include "expect.h"

#define PAGE  4096ul
#define PAGES 512ul
#define CALLS 2000

int main(void)
{
	const int rw = PROT_READ | PROT_WRITE;
	char *at = mmap(NULL, PAGES * PAGE, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(at != MAP_FAILED);
	for (unsigned i = 0; i < PAGES; i += 2)
		at[i * PAGE] = 1;
	poll(NULL, 0, 1);
	for (unsigned i = 0; i < CALLS; i++)
		EXPECT(!madvise(at, PAGES * PAGE, MADV_DONTNEED));
	for (unsigned i = 0; i < PAGES; i++)
		EXPECT(!at[i * PAGE]);
	poll(NULL, 0, 1);
	poll(NULL, 0, 1);
	return 0;
}
