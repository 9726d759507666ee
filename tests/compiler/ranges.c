/* SPDX-License-Identifier: MIT */
/*
 * What the pass saves for whole loops, runs of bytes and new memory: loops of many shapes and
 * lengths write into memory that ends where nothing is mapped, on both sides; a restore brings all
 * of it back. argv: TRACKER.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define SIZE 16384
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct pair {
	int32_t a;
	char gap[3];
	char b;
	int64_t c;
};

typedef void (*shape)(char *from, long n, long v);

#define NOT_INLINED __attribute__((noinline))

NOT_INLINED static void up(char *from, long n, long v)
{
	for (long i = 0; i < n; i++)
		from[i] = (char)(v + i * i);
}

NOT_INLINED static void down(char *from, long n, long v)
{
	int64_t *words = (int64_t *)from;

	for (int i = (int)n / 8 - 1; i >= 0; i--)
		words[i] = v ^ i;
}

NOT_INLINED static void strided(char *from, long n, long v)
{
	for (unsigned i = 0; i < n; i += 7)
		from[i] = (char)v;
}

NOT_INLINED static void fields(char *from, long n, long v)
{
	struct pair *pairs = (struct pair *)from;

	for (int i = 0; i < n / (long)sizeof(*pairs); i++) {
		pairs[i].c = v + i;
		pairs[i].b = (char)i;
		pairs[i].a = (int)v;
	}
}

NOT_INLINED static void pointers(char *from, long n, long v)
{
	for (char *p = from + n; p != from; *p = (char)v)
		p--;
}

NOT_INLINED static void nested(char *from, long n, long v)
{
	for (long row = 0; row + 64 <= n; row += 64)
		for (long i = row; i < row + 64; i++)
			from[i] ^= (char)(v * i);
}

NOT_INLINED static void left_early(char *from, long n, long v)
{
	for (long i = 0; i < SIZE; i++) {
		if (i == n)
			break;
		from[i] += (char)v;
	}
}

NOT_INLINED static void until_zero(char *from, long n, long v)
{
	static char text[SIZE + 1];

	memset(text, 'x', (size_t)n);
	text[n] = 0;
	for (char *t = text; *t; t++)
		*from++ = (char)(*t + v);
}

NOT_INLINED static void sometimes(char *from, long n, long v)
{
	for (long i = 0; i < SIZE; i++)
		if (i < n && (i * v) % 3)
			from[i] = (char)v;
}

NOT_INLINED static void run(char *from, long n, long v)
{
	memset(from, (int)v, (size_t)n);
}

NOT_INLINED static void moved(char *from, long n, long v)
{
	if (n > 3)
		memmove(from + 1, from, (size_t)n - 1);
}

static const shape shapes[] = { up, down, strided, fields, pointers, nested, left_early, until_zero,
	sometimes, run, moved };
static const long lengths[] = { 0, 1, 2, 3, 4, 5, 15, 16, 17, 64, 127, 128, 129, 200, 1000, 4096,
	5003, SIZE };

/* Kept out of restores: how far the test has come. */
static struct progress {
	char want[SIZE];
	volatile size_t round;
} *progress;

/* New memory is written to without hooks; after a checkpoint it is old. */
static void check_new_memory(cairn_t *c)
{
	long *m = malloc(64 * sizeof(*m));
	uint64_t id;

	CHECK(m);
	for (long i = 0; i < 64; i++)
		m[i] = i;
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED) {
		for (long i = 0; i < 64; i++)
			CHECK(m[i] == i);
		free(m);
		return;
	}
	for (long i = 0; i < 64; i++)
		m[i] = -i;
	m[3]++;
	CHECK(cairn_restore(c, id) < 0); /* does not return */
}

/* At either end of the memory, every length; the same round again after its restore. */
static void check_shapes(cairn_t *c, char *memory)
{
	size_t count = 2 * COUNT_OF(shapes) * COUNT_OF(lengths);
	uint64_t id;

	while (progress->round < count) {
		size_t r = progress->round;
		long n = lengths[r / 2 % COUNT_OF(lengths)];
		shape f = shapes[r / 2 / COUNT_OF(lengths)];
		char *from = r % 2 ? memory : memory + ((SIZE - n) & -8);

		memcpy(progress->want, memory, SIZE);
		if (cairn_checkpoint(c, &id) == CAIRN_RESTORED) {
			CHECK(!memcmp(progress->want, memory, SIZE));
			progress->round++;
			f(from, n, 5);
			continue;
		}
		f(from, n, 77 + (long)r);
		CHECK(cairn_restore(c, id) < 0);
	}
	CHECK(memory[0] || memory[1] || memory[2]);
}

#define LARGE (4l << 20)
#define ROW   5000l

/* Far more than caches hold, in rows; words that are stored to earlier are saved already. */
static void check_large(cairn_t *c)
{
	static long large[LARGE / sizeof(long)];
	uint64_t id;

	for (long i = 0; i < LARGE / 8; i++)
		large[i] = i * 977;
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED) {
		for (long i = 0; i < LARGE / 8; i++)
			CHECK(large[i] == i * 977);
		return;
	}
	for (long i = 1; i < LARGE / 8; i = i * 5 / 4 + 1)
		large[i]++;
	for (long row = 0; row + ROW <= LARGE; row += ROW)
		down((char *)large + row, ROW, row);
	CHECK(cairn_restore(c, id) < 0); /* does not return */
}

int main(int argc, char **argv)
{
	char *map = mmap(NULL, SIZE + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cairn_t *c;

	(void)argc;
	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(map != MAP_FAILED && progress != MAP_FAILED);
	CHECK(!mprotect(map + 4096, SIZE, PROT_READ | PROT_WRITE));
	c = test_open_built(argv[1]);
	CHECK_OK(cairn_area_exclude(c, progress, sizeof(*progress)));
	check_shapes(c, map + 4096);
	check_new_memory(c);
	check_large(c);
	printf("%zu rounds\n", (size_t)progress->round);
	CHECK_OK(cairn_close(c));
	return 0;
}
