/* SPDX-License-Identifier: MIT */
/*
 * Another process cuts a file short that this one has mapped in parts, and lets it grow again: the
 * kernel takes the own copies of its pages along, in silence. After a crash they are there again.
 */
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "expect.h"

#define PAGE  4096ul
#define PAGES 4ul
#define TURNS 10
#define MOST  20000000ul

struct shared {
	_Atomic int wanted, done;
};

static struct shared *shared;

static void cut_when_wanted(int file, pid_t child)
{
	int status;

	while (waitpid(child, &status, WNOHANG) == 0) {
		if (shared->wanted == shared->done) {
			usleep(100);
			continue;
		}
		EXPECT(!ftruncate(file, 0) && !ftruncate(file, PAGES * PAGE));
		shared->done++;
	}
	EXPECT(WIFEXITED(status) && !WEXITSTATUS(status));
}

static void work(int file)
{
	volatile uint8_t *part =
		mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);

	EXPECT(part != MAP_FAILED && !mprotect((void *)part, PAGE, PROT_READ));
	part[3 * PAGE] = 'o';
	for (int i = 0; i < 40; i++) /* no strategy takes it for hot any more */
		poll(NULL, 0, 0);
	for (int turn = 1; turn <= TURNS; turn++) {
		poll(NULL, 0, 0);
		EXPECT(part[3 * PAGE] == 'o');
		if (shared->wanted == turn)
			continue;
		shared->wanted = turn;
		for (unsigned long i = 0; shared->done != turn && i < MOST; i++)
			__builtin_ia32_pause();
		EXPECT(shared->done == turn && part[3 * PAGE] == 0);
		*(volatile int *)8 = 1;
	}
}

int main(void)
{
	int file = memfd_create("cut_file", 0);
	pid_t child;

	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(shared != MAP_FAILED && file >= 0 && !ftruncate(file, PAGES * PAGE));
	child = fork();
	if (child == 0) {
		work(file);
		return 0;
	}
	cut_when_wanted(file, child);
	EXPECT(shared->done == TURNS);
	dprintf(1, "cut file: ok\n");
	return 0;
}
