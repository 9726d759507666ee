/* SPDX-License-Identifier: MIT */
/*
 * Memory that grows by little between checkpoints, as heaps do, stays as few mappings as it would
 * be alone: a process may have 65530 of them. And what was reserved and made writable in pieces is
 * one mapping to mremap.
 *
 *	victim_grown [break]
 */
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include "expect.h"

#define PAGE  4096ul
#define STEPS 100

static const int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;

static void checkpoint(void)
{
	EXPECT(poll(NULL, 0, 0) == 0);
}

static int mappings(void)
{
	static char text[1 << 16];
	int fd = open("/proc/self/maps", O_RDONLY), lines = 0;
	ssize_t n;

	EXPECT(fd >= 0);
	while ((n = read(fd, text, sizeof(text))) > 0)
		for (ssize_t i = 0; i < n; i++)
			lines += text[i] == '\n';
	close(fd);
	return lines;
}

/* PROCMAP_QUERY, Linux 6.11: without it nobody asks what a piece of memory is. */
static int asks_cheaply(void)
{
	int fd = open("/proc/self/maps", O_RDONLY);
	uint64_t query[13] = { sizeof(query), 0x10, 0 };
	int err = ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'f', 17, sizeof(query)), query);

	close(fd);
	return err == 0 || errno == ENOENT;
}

static void by_brk(int step)
{
	char *p = sbrk(PAGE);

	EXPECT(p != (void *)-1);
	memset(p, step, PAGE);
}

static char *reserved;

static void by_mprotect(int step)
{
	EXPECT(mprotect(reserved + step * PAGE, PAGE, rw) == 0);
	memset(reserved + step * PAGE, step, PAGE);
}

static void by_fixed_mmap(int step)
{
	char *at = reserved + (STEPS + step) * PAGE;

	EXPECT(mmap(at, PAGE, rw, anonymous | MAP_FIXED, -1, 0) == at);
	memset(at, step, PAGE);
}

/* The kernel puts it below the one before. */
static void by_mmap(int step)
{
	char *p = mmap(NULL, 2 * PAGE, rw, anonymous, -1, 0);

	EXPECT(p != MAP_FAILED);
	memset(p, step, 2 * PAGE);
}

static void grows(void (*step)(int))
{
	int before = mappings();

	for (int i = 0; i < STEPS; i++) {
		step(i);
		checkpoint();
	}
	EXPECT(mappings() < before + STEPS / 2);
}

/* The first page has been tracked for a while, the others have not, or all have. */
static void moves_as_one(int checkpoints)
{
	char *p = mmap(NULL, 16 * PAGE, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0);

	EXPECT(p != MAP_FAILED && mprotect(p, PAGE, rw) == 0);
	p[0] = 1;
	checkpoint();
	EXPECT(mprotect(p, 16 * PAGE, rw) == 0);
	p[0] = 2;
	p[2 * PAGE] = 3;
	while (checkpoints--)
		checkpoint();
	p = mremap(p, 16 * PAGE, 32 * PAGE, MREMAP_MAYMOVE);
	EXPECT(p != MAP_FAILED && p[0] == 2 && p[2 * PAGE] == 3 && p[31 * PAGE] == 0);
	checkpoint();
	p[31 * PAGE] = 4;
	checkpoint();
	EXPECT(p[0] == 2 && p[31 * PAGE] == 4);
}

int main(int argc, char **argv)
{
	(void)argv;
	reserved = mmap(NULL, 2 * STEPS * PAGE, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0);
	EXPECT(reserved != MAP_FAILED);
	checkpoint();
	grows(by_brk);
	if (argc > 1 && !strcmp(argv[1], "break")) {
		printf("grown: ok\n");
		return 0;
	}
	grows(by_fixed_mmap);
	grows(by_mmap);
	if (asks_cheaply()) {
		grows(by_mprotect);
		for (int checkpoints = 0; checkpoints < 3; checkpoints++)
			moves_as_one(checkpoints);
	}
	printf("grown: ok\n");
	return 0;
}
