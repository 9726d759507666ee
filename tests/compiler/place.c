/* SPDX-License-Identifier: MIT */
/*
 * Where a 32-bit program's memory lies, and that a session leaves alone what the kernel shows of
 * it: all that can be written lies in one of two windows, the stack too; /proc/self/cmdline and
 * environ are the same before, within and after a session. Mappings stay in the windows until
 * there is no room left. argv: TRACKER, and anything.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"
#include "smaps.h"

#define TEXT_MAX (256 << 10)
#define PIECE    (16ul << 20)

static struct smaps maps;
static char variable = 1;

/* rt/i386/layout_i386.h */
static bool in_windows(uintptr_t at)
{
	return (at >= 0x10000000 && at < 0x40000000) || at >= 0xc0000000;
}

static void check_maps(void)
{
	char *text = maps.text, *line;
	const char *flags;

	read_smaps(&maps);
	while ((line = next_mapping(&text, &flags))) {
		char *rest;
		uintptr_t begin = strtoul(line, &rest, 16), end = strtoul(rest + 1, &rest, 16);

		if (begin == 0x80000000) /* a page by which a closed session is known */
			continue;
		if (!strncmp(rest, " rw", 3) && !strstr(flags, " wf") &&
			!(in_windows(begin) && in_windows(end - 1)))
			test_fail("outside of the windows: %s", line);
	}
}

static size_t read_file(const char *path, char *text)
{
	FILE *f = fopen(path, "r");
	size_t n;

	CHECK(f);
	n = fread(text, 1, TEXT_MAX, f);
	CHECK(n > 0 && n < TEXT_MAX && !fclose(f));
	return n;
}

static void check_same(const char *path, const char *text, size_t len)
{
	static char now[TEXT_MAX];

	CHECK(read_file(path, now) == len && !memcmp(text, now, len));
}

/* All that the kernel gives; each piece is stored to. */
static size_t fill_space(void)
{
	size_t got = 0;

	for (;; got += PIECE) {
		char *at = mmap(NULL, PIECE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (at == MAP_FAILED)
			return got;
		at[got / PIECE] = 1;
		at[PIECE - 1] = 1;
	}
}

int main(int argc, char **argv)
{
	static char line[TEXT_MAX], environment[TEXT_MAX];
	volatile char local = 1;
	size_t line_len, environment_len, room;
	uint64_t id;
	cairn_t *c;

	line_len = read_file("/proc/self/cmdline", line);
	environment_len = read_file("/proc/self/environ", environment);
	for (size_t at = 0, i = 0; at < line_len; at += strlen(line + at) + 1)
		CHECK(i < (size_t)argc && !strcmp(line + at, argv[i++]));
	CHECK(in_windows((uintptr_t)&local) && in_windows((uintptr_t)&variable));
	check_maps();
	c = test_open_built(argv[1]);
	if (cairn_checkpoint(c, &id) != CAIRN_RESTORED) {
		local = variable = 2;
		argv[argc - 1][0] ^= 1; /* the strings are memory like any other */
		CHECK_OK(cairn_restore(c, id)); /* does not return */
	}
	CHECK(local == 1 && variable == 1);
	check_same("/proc/self/cmdline", line, line_len);
	check_same("/proc/self/environ", environment, environment_len);
	room = fill_space();
	check_maps();
	CHECK_OK(cairn_close(c));
	CHECK(!fill_space()); /* what the engine had is not the program's */
	check_maps();
	check_same("/proc/self/cmdline", line, line_len);
	printf("room for %zu MiB of mappings\n", room >> 20);
	CHECK(room >= 512ul << 20);
	return 0;
}
