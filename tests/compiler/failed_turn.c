/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint, or a rewind, fails in its midst (areas cannot begin their next interval): the
 * interval goes on, and what is stored from there on, or was stored by a handler meanwhile, is not
 * lost silently. argv: TRACKER. Link with --wrap=crn_page_areas_turn.
 */
#include <stdbool.h>
#include "../lib/harness.h"

#define BYTES 8192
#define NO_HOOKS __attribute__((noinline, disable_sanitizer_instrumentation))

static volatile unsigned char bytes[BYTES] __attribute__((aligned(4096)));
static volatile bool fails, stores; /* set without hooks: a store would be put back */

/* As a handler might. */
static __attribute__((noinline)) void program_stores(size_t at, unsigned char value)
{
	bytes[at] = value;
}

struct crn_page_areas;
int __real_crn_page_areas_turn(struct crn_page_areas *areas);
NO_HOOKS int __wrap_crn_page_areas_turn(struct crn_page_areas *areas);
NO_HOOKS int __wrap_crn_page_areas_turn(struct crn_page_areas *areas)
{
	if (!fails)
		return __real_crn_page_areas_turn(areas);
	fails = false;
	if (stores)
		program_stores(5000, 7);
	return CAIRN_EMEMORY;
}

static NO_HOOKS void fail_next(bool with_store)
{
	fails = true;
	stores = with_store;
}

static void failed_rewind(cairn_t *c)
{
	uint64_t id;

	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	fail_next(false);
	CHECK_RC(cairn_rewind(c, id), CAIRN_EMEMORY);
	program_stores(1000, 5);
	CHECK_OK(cairn_rewind(c, id));
	CHECK_U64(bytes[1000], 1);
}

static void failed_checkpoint(cairn_t *c, bool with_store)
{
	uint64_t id, next;
	int err;

	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	program_stores(3000, 5);
	fail_next(with_store);
	CHECK_RC(cairn_checkpoint(c, &next), CAIRN_EMEMORY);
	program_stores(1000, 5);
	err = cairn_rewind(c, id);
	CHECK(err == 0 || err == CAIRN_EFAILED);
	if (!err)
		CHECK(bytes[1000] == 1 && bytes[3000] == 1 && bytes[5000] == 1);
	CHECK(with_store || !err);
	/* And the next one is good again. */
	program_stores(5000, 1);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	program_stores(5000, 9);
	CHECK_OK(cairn_rewind(c, id));
	CHECK_U64(bytes[5000], 1);
	program_stores(1000, 1);
	program_stores(3000, 1);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	(void)argc;
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = 1;
	o.tracker = argv[1];
	o.keep = 3;
	CHECK_OK(cairn_open(&c, &o));
	failed_rewind(c);
	failed_checkpoint(c, false);
	failed_checkpoint(c, true);
	failed_rewind(c);
	CHECK_OK(cairn_close(c));
	return 0;
}
