/* SPDX-License-Identifier: MIT */
/*
 * For test_checked_site.py: turns of a loop that store to every kind of memory, and a signal
 * handler that stores whenever it likes; no checkpoints.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

struct entry {
	struct entry *next;
	char *name;
	int count;
};

static struct entry *table[64];
static unsigned long sums[32];
static __thread unsigned long own;
static unsigned seed = 7;
static volatile unsigned long ticks;
static unsigned long *shared; /* with other processes */

static unsigned draw(unsigned below)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 8) % below;
}

static void count_name(const char *name, unsigned at)
{
	struct entry *e;

	for (e = table[at]; e; e = e->next)
		if (!strcmp(e->name, name))
			break;
	if (!e) {
		e = malloc(sizeof(*e));
		*e = (struct entry){ table[at], strdup(name), 0 };
		table[at] = e;
	}
	e->count++;
}

static void drop_first(unsigned at)
{
	struct entry *e = table[at];

	if (!e)
		return;
	table[at] = e->next;
	sums[at % 32] += (unsigned long)e->count;
	free(e->name);
	free(e);
}

/* Blocks that one turn allocates and a later one frees, or the same. */
static void exchange(unsigned number)
{
	static unsigned char *kept[8];
	unsigned at = draw(8), size = 16 + draw(6000);

	if (kept[at])
		own += kept[at][16];
	free(kept[at]);
	kept[at] = malloc(size + 1);
	memset(kept[at], (int)number, size + 1);
}

static void turn(char *text, unsigned number)
{
	char *copy;

	for (int i = 0; i < 20; i++) {
		unsigned at = draw(64);

		sprintf(text, "%u-%u", at, draw(50));
		count_name(text, at);
		if (!draw(3))
			drop_first(draw(64));
	}
	for (unsigned i = draw(4); i; i--)
		exchange(number);
	copy = calloc(1, 1 + draw(100000));
	memset(copy, (int)number, draw(1) + 1);
	own += strlen(text) + (unsigned char)copy[0];
	++*shared;
	free(copy);
}

static void tick(int signo)
{
	(void)signo;
	ticks++;
}

int main(int argc, char **argv)
{
	unsigned turns = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
	struct itimerval often = { { 0, 500 }, { 0, 500 } };
	char text[64] = "";

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	signal(SIGALRM, tick);
	setitimer(ITIMER_REAL, &often, NULL);
	for (unsigned i = 0; i < turns; i++)
		turn(text, i);
	for (int i = 0; i < 32; i++)
		own = own * 31 + sums[i];
	printf("%lu %lu %s\n", own, *shared, text);
	return 0;
}
