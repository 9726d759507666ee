/* SPDX-License-Identifier: MIT */
/*
 * Each bug is what a real program would do, kept from the compiler's eyes by volatile: a compiler
 * that sees a NULL store or a division by zero may drop it or put a trap in its place.
 */
#include "planted_bug.h"

#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096

static volatile char *truncated; /* mapping of a file that has no bytes any more */
static volatile int zero;        /* never anything else */

static void bug_null(void)
{
	int *volatile p = NULL;

	*(volatile int *)p = 1;
}

/*
 * A pointer whose high bits were scribbled over: not an address at all (#GP, and si_addr says 0).
 */
static void bug_wild(void)
{
	volatile uintptr_t scribbled = 0x4141414141414140;

	*(volatile int *)scribbled = 1;
}

static void bug_readonly(void)
{
	static const char text[] = "this is not a variable";
	char *volatile p = (char *)(uintptr_t)text;

	p[0] = 'T';
}

/* Recursion without an end. Each frame is written, so that no guard page is jumped over. */
static int descend(int depth);
static int (*volatile next_level)(int) = descend;

static int descend(int depth)
{
	volatile char frame[512];

	memset((char *)frame, depth, sizeof(frame));
	return next_level(depth + 1) + frame[depth % 512];
}

static void bug_stack(void)
{
	zero = descend(0) & 0;
}

static void bug_div(void)
{
	volatile int quotient = 7 / zero;

	(void)quotient;
}

static void bug_overflow(void)
{
	volatile int most_negative = INT_MIN;
	volatile int quotient = most_negative / (zero - 1);

	(void)quotient;
}

/* A function pointer that was never set to a function. */
static void bug_jump(void)
{
	void (*volatile target)(void) = (void (*)(void))(uintptr_t)0x1234;

	target();
}

/* A jump into data: the page is there but may not be executed. */
static void bug_data(void)
{
	static unsigned char data[16];
	void (*volatile target)(void) = (void (*)(void))(uintptr_t)data;

	target();
}

static void bug_ill(void)
{
	__asm__ volatile("ud2");
}

static void bug_bus(void)
{
	truncated[0] = 1;
}

/*
 * Not a bug: the signal of one, sent. Nothing is wrong with the memory, so nothing may be undone.
 */
static void bug_raise(void)
{
	raise(SIGSEGV);
}

static const struct {
	const char *name;
	void (*run)(void);
} bugs[] = {
	{ "null", bug_null },
	{ "wild", bug_wild },
	{ "readonly", bug_readonly },
	{ "stack", bug_stack },
	{ "div", bug_div },
	{ "overflow", bug_overflow },
	{ "jump", bug_jump },
	{ "data", bug_data },
	{ "ill", bug_ill },
	{ "bus", bug_bus },
	{ "raise", bug_raise },
};

bool planted_bug_prepare(void)
{
	FILE *file = tmpfile();
	void *map = MAP_FAILED;

	if (!file)
		return false;
	if (ftruncate(fileno(file), PAGE) == 0)
		map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
	if (map != MAP_FAILED && ftruncate(fileno(file), 0) == 0)
		truncated = map;
	fclose(file);
	return truncated != NULL;
}

bool planted_bug_trigger(const char *name)
{
	for (size_t i = 0; i < sizeof(bugs) / sizeof(bugs[0]); i++) {
		if (strcmp(bugs[i].name, name) == 0) {
			bugs[i].run();
			return true;
		}
	}
	return false;
}

const char *planted_bug_names(void)
{
	static char names[128];

	if (!names[0]) {
		for (size_t i = 0; i < sizeof(bugs) / sizeof(bugs[0]); i++) {
			if (i > 0)
				strcat(names, " ");
			strcat(names, bugs[i].name);
		}
	}
	return names;
}
