/* SPDX-License-Identifier: MIT */
/*
 * Mappings that move, grow, end and are replaced right after a checkpoint, when trackers that take
 * permissions away have closed all of their pages: every store goes through, wherever they are now.
 *
 *	victim_moves [NAME]
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>
#include "expect.h"

#define PAGE  4096ul
#define PAGES 8
#define LEN   (PAGES * PAGE)

static const int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;

static void checkpoint(void)
{
	EXPECT(poll(NULL, 0, 0) == 0);
}

/*
 * LEN bytes in the midst of nothing, of which the engine knows, and which nobody has written since:
 * memory that touches a thread's stack would be treated as one.
 */
static char *closed(int flags, int fd)
{
	char *p = mmap(NULL, 32 * LEN, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0);

	EXPECT(p != MAP_FAILED && munmap(p + 16 * LEN, LEN) == 0);
	p += 16 * LEN;
	EXPECT(mmap(p, LEN, rw, flags | MAP_FIXED_NOREPLACE, fd, 0) == p);
	memset(p, 'a', LEN);
	checkpoint();
	checkpoint();
	return p;
}

static void all(const char *p, size_t len, char c)
{
	for (size_t i = 0; i < len; i++)
		EXPECT(p[i] == c);
}

/* What is there can be written, now and after the next checkpoint, and has kept its content. */
static void works(char *p, size_t len)
{
	all(p, LEN, 'a');
	for (char c = 'b'; c < 'e'; c++) {
		memset(p, c, len);
		checkpoint();
		all(p, len, c);
	}
}

static void moves(void)
{
	char *p = closed(anonymous, -1), *q = mremap(p, LEN, 3 * LEN, MREMAP_MAYMOVE);

	EXPECT(q != MAP_FAILED && q != p);
	works(q, 3 * LEN);
}

/* A mapping that is split by permissions cannot be moved: the program has not split it. */
static void moves_half_open(void)
{
	char *p = closed(anonymous, -1), *q;

	p[3 * PAGE] = 'a';
	q = mremap(p, LEN, 3 * LEN, MREMAP_MAYMOVE);
	EXPECT(q != MAP_FAILED && q != p);
	works(q, 3 * LEN);
}

static void moves_over_another(void)
{
	char *p = closed(anonymous, -1), *q = closed(anonymous, -1);

	EXPECT(mremap(p, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, q) == q);
	works(q, LEN);
}

static void grows(void)
{
	char *p = closed(anonymous, -1);

	EXPECT(munmap(p + LEN, LEN) == 0 && mremap(p, LEN, 2 * LEN, 0) == p);
	works(p, 2 * LEN);
}

static void shrinks(void)
{
	char *p = closed(anonymous, -1);

	EXPECT(mremap(p, LEN, 3 * PAGE, 0) == p);
	all(p, 3 * PAGE, 'a');
	memset(p, 'b', 3 * PAGE);
	checkpoint();
	memset(p, 'c', 3 * PAGE);
	EXPECT(mmap(p + 3 * PAGE, LEN, rw, anonymous | MAP_FIXED_NOREPLACE, -1, 0) != p);
}

static void moves_a_file(void)
{
	int fd = memfd_create("file", 0);
	char *p, *q;

	EXPECT(fd >= 0 && ftruncate(fd, 3 * LEN) == 0);
	p = closed(MAP_PRIVATE, fd);
	q = mremap(p, LEN, 3 * LEN, MREMAP_MAYMOVE);
	EXPECT(q != MAP_FAILED);
	works(q, 3 * LEN);
	close(fd);
}

/* Two pieces of a mapping go, and in the place of one there is something that is not tracked. */
static void is_replaced(void)
{
	char *p = closed(anonymous, -1);

	memset(p, 'b', LEN);
	EXPECT(munmap(p, 2 * PAGE) == 0 && munmap(p + 4 * PAGE, 4 * PAGE) == 0);
	EXPECT(mmap(p + 6 * PAGE, 2 * PAGE, rw, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
		       -1, 0) == p + 6 * PAGE);
	checkpoint();
	checkpoint();
	memset(p + 6 * PAGE, 'c', 2 * PAGE);
	all(p + 2 * PAGE, 2 * PAGE, 'b');
	memset(p + 2 * PAGE, 'c', 2 * PAGE);
}

/* ---- With threads ------------------------------------------------------------------------- */

static atomic_bool over;

static void *takes_checkpoints(void *arg)
{
	while (!over)
		checkpoint();
	return arg;
}

static void *stores(void *arg)
{
	volatile char *p = arg;

	while (!over)
		for (size_t i = 0; i < 4; i++)
			p[i * PAGE]++;
	return NULL;
}

/* One stores to the beginning of a mapping whose end another cuts off and brings back. */
static void grows_under_stores(void)
{
	const struct timespec length = { 0, 300000000 };
	char *p = closed(anonymous, -1);
	struct timespec begin, now;
	pthread_t t[2];

	EXPECT(!pthread_create(&t[0], NULL, takes_checkpoints, NULL));
	EXPECT(!pthread_create(&t[1], NULL, stores, p));
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		EXPECT(mremap(p, LEN, 6 * PAGE, 0) == p);
		EXPECT(mremap(p, 6 * PAGE, LEN, 0) == p);
		p[7 * PAGE] = 1;
		EXPECT(munmap(p + 7 * PAGE, PAGE) == 0);
		EXPECT(mmap(p + 7 * PAGE, PAGE, rw, anonymous | MAP_FIXED_NOREPLACE, -1, 0) ==
			p + 7 * PAGE);
		p[7 * PAGE] = 1;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec <
		length.tv_nsec);
	over = true;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	over = false;
}

static void *naps(void *arg)
{
	const struct timespec t = { 0, 100000 };

	while (!over)
		nanosleep(&t, NULL);
	return arg;
}

/*
 * A thread lives in memory that was found before it was born. The kernel writes its rseq area there
 * at every switch, also when a part of that memory has been given back.
 */
static void loses_a_part_of_its_stack(void)
{
	size_t size = 64 * PAGE;
	char *p = mmap(NULL, size + 2 * PAGE, PROT_NONE, anonymous, -1, 0);
	pthread_attr_t attr;
	pthread_t t;

	EXPECT(p != MAP_FAILED && mprotect(p + PAGE, size, rw) == 0);
	p += PAGE;
	memset(p, 0, size);
	checkpoint();
	pthread_attr_init(&attr);
	EXPECT(!pthread_attr_setstack(&attr, p + 16 * PAGE, size - 16 * PAGE));
	EXPECT(!pthread_create(&t, &attr, naps, NULL));
	for (int i = 0; i < 200; i++) {
		checkpoint();
		if (i < 8)
			EXPECT(munmap(p + i * PAGE, PAGE) == 0);
		nanosleep(&(struct timespec){ 0, 100000 }, NULL);
	}
	over = true;
	pthread_join(t, NULL);
	over = false;
}

static const struct part {
	const char *name;
	void (*run)(void);
} parts[] = {
	{"move", moves}, {"half_open", moves_half_open}, {"over", moves_over_another},
	{"grow", grows}, {"shrink", shrinks}, {"file", moves_a_file}, {"replaced", is_replaced},
	{"stores", grows_under_stores}, {"stack", loses_a_part_of_its_stack},
};

int main(int argc, char **argv)
{
	checkpoint();
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (argc < 2 || !strcmp(argv[1], parts[i].name))
			parts[i].run();
	printf("moves: ok\n");
	return 0;
}
