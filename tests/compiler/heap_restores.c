/* SPDX-License-Identifier: MIT */
/*
 * A program that cairn-cc has built allocates, resizes and frees, takes checkpoints and goes back
 * to any of them, thousands of times: each block holds what it held, no two overlap, what libc
 * allocates may be freed as well, and memory does not grow. argv: TRACKER COUNT.
 */
#define _GNU_SOURCE
#include <argz.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../lib/harness.h"

#ifndef KEEP
#define KEEP  4
#endif
#define SLOTS 256

struct block {
	unsigned char *at;
	size_t size;
	unsigned char fill; /* every byte of it */
	struct block *next; /* in a list of all, so that the blocks themselves are linked */
	unsigned long birth, odd, even, marks[2]; /* fresh stores: what is written of them varies */
};

#ifdef LIBC_BLOCKS
void *__libc_malloc(size_t size); /* as a function of libc would return one */
#endif

/* The program's: comes back. */
static struct block *table[SLOTS];
static struct block *list;
static unsigned long version;

/* Not turned back. */
static struct outside {
	uint64_t random;
	unsigned long step, restores;
	uint64_t ids[KEEP];
	struct { size_t size; unsigned char fill; } want[KEEP][SLOTS];
	unsigned long versions[KEEP];
} *outside;

static uint64_t draw(uint64_t below)
{
	return test_draw(&outside->random, below);
}

static size_t draw_size(void)
{
	static const size_t most[] = { 24, 100, 700, 5000, 40000, 300000 };
	size_t kind = 0;

	while (kind < sizeof(most) / sizeof(*most) - 1 && draw(5) < 2)
		kind++;
	return 1 + draw(most[kind]);
}

static void check_block(const struct block *b)
{
	CHECK(b->birth & 1 ? b->odd == b->birth : b->even == ~b->birth);
	CHECK(!(b->birth & 2) || (b->marks[0] == b->birth && b->marks[1] == b->birth));
	CHECK(b->at[0] == b->fill && b->at[b->size - 1] == b->fill);
	for (size_t i = 0; i < b->size; i += 1 + b->size / 64)
		CHECK(b->at[i] == b->fill);
}

static void fill(struct block *b)
{
	b->fill = (unsigned char)draw(256);
	memset(b->at, b->fill, b->size);
}

static void unlink_block(struct block *b)
{
	for (struct block **at = &list; *at; at = &(*at)->next) {
		if (*at == b) {
			*at = b->next;
			return;
		}
	}
	test_fail("a block is not in the list");
}

/* Several stores to a block that is new, or was freed in the same interval. */
static __attribute__((noinline)) struct block *new_block(unsigned long birth, size_t size)
{
	struct block *b = malloc(sizeof(*b));

	CHECK(b);
	b->birth = birth;
	if (birth & 1)
		b->odd = birth;
	else
		b->even = ~birth;
	if (birth & 2)
		for (size_t i = 0; i < 2; i++)
			b->marks[i] = birth;
	b->size = size;
	return b;
}

/* Of one interval alone, and of any size. */
static void pass_by(void)
{
	size_t size = draw_size();
	unsigned char *p = malloc(size);
	struct block *b = new_block(draw(4), size);

	CHECK(p);
	p[draw(size)] = 1;
	p[size - 1] = 2;
	CHECK(p[size - 1] == 2 && b->size == size);
	free(p);
	free(b);
}

static void add(size_t slot)
{
	struct block *b = draw(2) ? new_block(draw(1000), draw_size()) : calloc(1, sizeof(*b));
	void *aligned = NULL;

	CHECK(b);
	if (!b->size) {
		CHECK(!b->at && !b->next);
		b->even = ~0ul;
		b->size = draw_size();
	}
	switch (draw(4)) {
	case 0:
		CHECK(!posix_memalign(&aligned, 64, b->size) && !((uintptr_t)aligned & 63));
		b->at = aligned;
		break;
	case 1:
		b->at = calloc(b->size, 1);
		CHECK(b->at && !b->at[0] && !b->at[b->size / 2] && !b->at[b->size - 1]);
		break;
	default:
		b->at = malloc(b->size);
	}
	CHECK(b->at && malloc_usable_size(b->at) >= b->size);
	fill(b);
	b->next = list;
	list = b;
	table[slot] = b;
}

static void resize(struct block *b)
{
	size_t size = draw_size();

	check_block(b);
	b->at = realloc(b->at, size);
	CHECK(b->at && b->at[0] == b->fill);
	CHECK(b->at[(size < b->size ? size : b->size) - 1] == b->fill);
	b->size = size;
	fill(b);
}

static void change(void)
{
	size_t slot = draw(SLOTS);
	struct block *b = table[slot];

	version++;
	if (!draw(4))
		pass_by();
	if (!b) {
		add(slot);
	} else if (draw(3)) {
		check_block(b);
		unlink_block(b);
		free(b->at);
		free(b);
		table[slot] = NULL;
	} else if (draw(2)) {
		resize(b);
	} else {
		fill(b);
	}
}

static void compare(size_t k)
{
	size_t count = 0, linked = 0;

	CHECK(version == outside->versions[k]);
	for (size_t i = 0; i < SLOTS; i++) {
		const struct block *b = table[i];

		CHECK((b ? b->size : 0) == outside->want[k][i].size);
		if (!b)
			continue;
		CHECK(b->fill == outside->want[k][i].fill);
		check_block(b);
		count++;
	}
	for (const struct block *b = list; b; b = b->next)
		linked++;
	CHECK(count == linked);
}

static void note(size_t k)
{
	outside->versions[k] = version;
	for (size_t i = 0; i < SLOTS; i++) {
		outside->want[k][i].size = table[i] ? table[i]->size : 0;
		outside->want[k][i].fill = table[i] ? table[i]->fill : 0;
	}
}

/* What libc allocates and the program frees, in an interval that is undone or is not. */
static void foreign(void)
{
	static char *name;
	FILE *f;

	free(name);
	name = realpath("/proc/self", NULL);
	CHECK(name && strchr(name, '/'));
	f = fopen("/dev/null", "w");
	CHECK(f && fclose(f) == 0);
#ifdef LIBC_BLOCKS
	char *block = realloc(__libc_malloc(100), 3000);

	CHECK(block);
	free(block);
#endif
}

/* What the program allocates and libc makes larger. */
static void lend(void)
{
	char *words = strdup("one");
	size_t len = 4;

	for (int i = 0; i < 100; i++)
		CHECK(!argz_add(&words, &len, "more"));
	CHECK(len == 504 && !strcmp(words + 499, "more"));
	free(words);
}

/* One of those that can be named. */
static size_t any_kept(cairn_t *c)
{
	uint64_t oldest, newest;
	size_t k = draw(KEEP);

	CHECK_OK(cairn_range(c, &oldest, &newest));
	while (outside->ids[k] < oldest || outside->ids[k] > newest || !outside->ids[k])
		k = (k + 1) % KEEP;
	return k;
}

/* Nothing is kept meanwhile; what was freed before may be given away. */
static bool rest(cairn_t *c)
{
	if (outside->step % 97 != 31)
		return false;
	CHECK_OK(cairn_pause(c));
	for (size_t n = draw(40); n--;)
		change();
	CHECK_OK(cairn_resume(c));
	memset(outside->ids, 0, sizeof(outside->ids));
	return true;
}

static void step(cairn_t *c)
{
	uint64_t id = 0;
	size_t k;

	for (size_t n = draw(40); n--;)
		change();
	if (outside->step % 50 == 7)
		foreign();
	if (!rest(c) && outside->step > KEEP && draw(2)) {
		k = any_kept(c);
		outside->restores++;
		CHECK_OK(cairn_restore(c, outside->ids[k])); /* does not return */
	}
	k = 0;
	for (size_t i = 1; i < KEEP; i++)
		if (outside->ids[i] < outside->ids[k])
			k = i;
	note(k);
	outside->ids[k] = 0;
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED) {
		for (k = 0; k < KEEP && outside->ids[k] != id; k++)
			;
		CHECK(k < KEEP);
		for (size_t i = 0; i < KEEP; i++)
			if (outside->ids[i] > id)
				outside->ids[i] = 0;
		compare(k);
	} else {
		outside->ids[k] = id;
	}
}

/* A child goes on with the heap as it was. */
static void check_child(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		for (int i = 0; i < 200; i++)
			change();
		_exit(0);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
}

static long resident_kib(void)
{
	struct rusage u;

	CHECK(!getrusage(RUSAGE_SELF, &u));
	return u.ru_maxrss;
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	unsigned long count = strtoul(argv[2], NULL, 10);
	long before;
	cairn_t *c;

	(void)argc;
	outside = mmap(NULL, sizeof(*outside), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);
	CHECK(outside != MAP_FAILED);
	outside->random = 88172645463325252u;
	for (int i = 0; i < 300; i++)
		change();
	lend();
	o.tracker = argv[1];
	o.keep = KEEP;
	CHECK_OK(cairn_open(&c, &o));
	CHECK_OK(cairn_area_exclude(c, outside, sizeof(*outside)));
	for (; outside->step < count / 4; outside->step++)
		step(c);
	before = resident_kib();
	for (; outside->step < count; outside->step++)
		step(c);
	check_child();
	CHECK_OK(cairn_close(c));
	for (int i = 0; i < 300; i++)
		change();
	printf("%lu restores, %ld KiB, then %ld KiB\n", outside->restores, before, resident_kib());
	CHECK(outside->restores > count / 4);
	CHECK(resident_kib() < before + before / 4 + 4096);
	return 0;
}
