/* SPDX-License-Identifier: MIT */
/*
 * The allocator of own_allocator.c: it knows its blocks from all others. The link of a free block
 * lies in the block, so what libraries write to theirs must come back.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "own_malloc.h"

#define ARENA   (16ul << 20)
#define CLASSES 20
#define HEAD    16

struct block {
	size_t class, pad;
	struct block *next; /* of a free one, where its content begins */
};

static _Alignas(64) char arena[ARENA];
static size_t used;
static struct block *lists[CLASSES];
size_t own_count;

bool own_holds(const void *p)
{
	return (const char *)p >= arena && (const char *)p < arena + ARENA;
}

static size_t room(const struct block *b)
{
	return 16ul << b->class;
}

void own_check(void)
{
	size_t free_blocks = 0;

	for (size_t i = 0; i < CLASSES; i++)
		for (const struct block *b = lists[i]; b; b = b->next, free_blocks++)
			if (!own_holds(b) || b->class != i || free_blocks > ARENA / 32)
				abort();
}

void *malloc(size_t size)
{
	struct block *b;
	size_t class = 0;

	while (class < CLASSES && 16ul << class < size)
		class++;
	if (class == CLASSES) {
		errno = ENOMEM;
		return NULL;
	}
	b = lists[class];
	if (b) {
		if (!own_holds(b))
			abort();
		lists[class] = b->next;
	} else {
		if (ARENA - used < HEAD + (16ul << class)) {
			errno = ENOMEM;
			return NULL;
		}
		b = (struct block *)(arena + used);
		used += HEAD + (16ul << class);
		b->class = class;
	}
	own_count++;
	return (char *)b + HEAD;
}

void free(void *p)
{
	struct block *b = (struct block *)((char *)p - HEAD);

	if (!p)
		return;
	if (!own_holds(p))
		abort(); /* it has none but its own */
	own_count--;
	b->next = lists[b->class];
	lists[b->class] = b;
}

void *calloc(size_t n, size_t size)
{
	void *p = malloc(n * size);

	__asm__("" : "+r"(p)); /* or the compiler makes a call of calloc of it */
	return p ? memset(p, 0, n * size) : NULL;
}

void *realloc(void *p, size_t size)
{
	const struct block *b = (const struct block *)((char *)p - HEAD);
	void *to = p && size <= room(b) ? p : malloc(size);

	if (!p || !to || to == p)
		return to;
	memcpy(to, p, room(b));
	free(p);
	return to;
}

char *own_text(void)
{
	return strcpy(malloc(16), "of another unit");
}
