/* SPDX-License-Identifier: MIT */
/*
 * More places that make system calls than the agent has room for. Those beyond are made all the
 * same, once, also when a signal is there by the time that they return: here each sends one itself.
 */
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "expect.h"

#define SITES 6000
#define SIZE  16

typedef long site(long a, long b, long c, long nr);

static volatile int handled;

static void handler(int sig)
{
	(void)sig;
	handled++;
}

int main(void)
{
	/* mov %rcx, %rax; syscall; ret */
	static const uint8_t code[] = {0x48, 0x89, 0xc8, 0x0f, 0x05, 0xc3};
	uint8_t *at = mmap(NULL, SITES * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	struct sigaction action = {.sa_handler = handler};

	EXPECT(at != MAP_FAILED && sigaction(SIGUSR1, &action, NULL) == 0);
	for (int i = 0; i < SITES; i++)
		memcpy(at + i * SIZE, code, sizeof(code));
	EXPECT(mprotect(at, SITES * SIZE, PROT_READ | PROT_EXEC) == 0);
	for (int i = 0; i < SITES; i++) {
		site *call = (site *)(void *)(at + i * SIZE);
		long r = call(getpid(), gettid(), SIGUSR1, SYS_tgkill);

		if (r != 0 || handled != i + 1)
			dprintf(2, "site %d: %ld, %d signals\n", i, r, handled);
		EXPECT(r == 0 && handled == i + 1);
	}
	printf("sites: ok\n");
	return 0;
}
