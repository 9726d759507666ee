/* SPDX-License-Identifier: MIT */
/*
 * The environment comes back, and the program can go on with it, whatever it set meanwhile; what a
 * library has set in between does no harm. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define NAMES 300

static long beside[16]; /* environ may lie in the same region */

static int is(const char *name, const char *value)
{
	const char *has = getenv(name);

	return value ? has && !strcmp(has, value) : !has;
}

static void disturb(int turn, int (*set_by_library)(const char *, const char *, int))
{
	static char put[] = "PUT=put";
	char name[32];

	for (int i = 0; i < 16; i++)
		beside[i] = turn + i;
	for (int i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "NAME%d", i);
		CHECK(!setenv(name, turn % 2 ? "odd" : "even", 1));
		CHECK(is(name, turn % 2 ? "odd" : "even"));
		if (i % 50 == 20 && turn % 3 == 1)
			CHECK(!set_by_library("LIBRARY", name, 1));
	}
	CHECK(!setenv("FIRST", "other", 1) && is("FIRST", "other"));
	CHECK(!setenv("SECOND", "other", 0) && is("SECOND", "2"));
	CHECK(!unsetenv("SECOND") && is("SECOND", NULL));
	CHECK(!putenv(put) && is("PUT", "put"));
	put[4] = 'P';
	CHECK(is("PUT", "Put"));
	CHECK(!putenv((char[]){ "NAME7" }) && is("NAME7", NULL));
	if (turn % 3 == 2) {
		CHECK(!clearenv() && is("FIRST", NULL));
		CHECK(!setenv("NEW", "new", 1) && is("NEW", "new"));
	}
	/* What libc allocates meanwhile takes the place of what it has freed. */
	for (int i = 0; i < 100; i++)
		CHECK(!set_by_library("OTHER", "a text that is long enough to be somewhere", 1) ||
			turn % 3 != 1);
}

int main(int argc, char **argv)
{
	int (*set_by_library)(const char *, const char *, int) =
		(int (*)(const char *, const char *, int))dlsym(RTLD_DEFAULT, "setenv");
	static int turn;
	char **was, *first;
	uint64_t id;
	cairn_t *c;

	CHECK(argc == 2 && set_by_library);
	errno = 0;
	CHECK(setenv("A=B", "", 1) && errno == EINVAL && setenv("", "", 1) && unsetenv("A=B"));
	CHECK(!setenv("FIRST", "1", 1) && !setenv("SECOND", "2", 0) && is("FIRST", "1"));
	c = test_open_built(argv[1]);
	for (turn = 0; turn < 9; turn++) {
		was = environ;
		first = getenv("FIRST");
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		disturb(turn, set_by_library);
		CHECK_OK(cairn_rewind(c, id));
		CHECK(environ == was && getenv("FIRST") == first);
		CHECK(is("FIRST", "1") && is("SECOND", "2"));
		CHECK(is("NAME0", NULL) && is("PUT", NULL) && is("NEW", NULL));
		CHECK(!setenv("TURN", "x", 1) && is("TURN", "x") && !unsetenv("TURN") &&
			is("TURN", NULL));
	}
	CHECK_OK(cairn_close(c));
	return 0;
}
