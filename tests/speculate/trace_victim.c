/* SPDX-License-Identifier: MIT */
/*
 * Writes known pages between waits: interval i writes page k of 64 if i has bit k % 6 set, page 7
 * each time, and page 9 until interval 100. Prints where they are and how often it waited. Ends by
 * _exit, or goes on waiting, if the second argument says so.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGES 64

int main(int argc, char **argv)
{
	unsigned turns = argc > 1 ? (unsigned)atoi(argv[1]) : 10;
	int ends[2];
	char *at = mmap(NULL, (PAGES + 2) * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || turns > 4096)
		return 1;
	/* A mapping of its own: next to libc's it would count as a part of a thread's memory. */
	at += 4096;
	if (mprotect(at, PAGES * 4096, PROT_READ | PROT_WRITE) < 0 || pipe(ends) < 0 ||
		write(ends[1], "x", 1) != 1)
		return 1;
	for (unsigned k = 0; k < PAGES; k++)
		at[k * 4096] = 1;
	printf("%p %u\n", (void *)at, turns);
	fflush(stdout);
	for (unsigned i = 0; i < turns; i++) {
		struct pollfd wait = { .fd = ends[0], .events = POLLIN };

		if (poll(&wait, 1, -1) != 1)
			return 1;
		for (unsigned k = 0; k < PAGES; k++)
			if (i >> k % 6 & 1 || k == 7 || (k == 9 && i < 100))
				at[k * 4096 + i]++;
	}
	while (argc > 2 && !strcmp(argv[2], "stay")) {
		struct pollfd wait = { .fd = ends[0], .events = POLLIN };

		usleep(20000);
		if (poll(&wait, 1, -1) != 1)
			return 1;
	}
	if (argc > 2)
		_exit(0); /* unlike exit(), this must not lose the trailer either */
	return 0;
}
