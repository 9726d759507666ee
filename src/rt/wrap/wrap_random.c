/* SPDX-License-Identifier: MIT */
/*
 * random and its like, whose numbers come from a table of the program's once initstate or setstate
 * has named one. Which one it is, is libc's state: no restore turns it back.
 */
#include <stdlib.h>
#include "rt/wrap/reach.h"
#include "rt/wrap/wrap.h"

#define TABLE_MAX 256ul /* bytes: libc uses no more */

static struct {
	char *table; /* NULL: libc's own */
	size_t size;
	char rest[4096 - sizeof(char *) - sizeof(size_t)];
} present CRN_RT_LASTING;

static void keep_table(void)
{
	crn_reach_keep(present.table, present.size);
}

/* Its first word says of which size it is. */
static size_t size_of(const char *table)
{
	static const size_t sizes[] = { 8, 32, 64, 128, TABLE_MAX };
	uint32_t word;

	memcpy(&word, table, sizeof(word));
	return sizes[word % CRN_ARRAY_SIZE(sizes)];
}

WRAPPER(long, random, void)
{
	keep_table();
	return random();
}

WRAPPER(int, rand, void)
{
	keep_table();
	return rand();
}

WRAPPER(void, srandom, unsigned seed)
{
	keep_table();
	srandom(seed);
}

WRAPPER(void, srand, unsigned seed)
{
	keep_table();
	srand(seed);
}

WRAPPER(char *, initstate, unsigned seed, char *table, size_t n)
{
	char *before;

	keep_table();
	keep(table, CRN_MIN(n, TABLE_MAX));
	before = initstate(seed, table, n);
	if (before) {
		present.table = table;
		present.size = CRN_MIN(n, TABLE_MAX);
	}
	return before;
}

WRAPPER(char *, setstate, char *table)
{
	char *before;

	keep_table();
	before = setstate(table);
	if (before) {
		present.table = table;
		present.size = size_of(table);
	}
	return before;
}
