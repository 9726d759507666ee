/* SPDX-License-Identifier: MIT */
/*
 * starve_later CASE TRACKER: something runs out while a session is open. A checkpoint is taken or
 * marked failed, a rewind is right or refused; the program goes on, and when what was missing is
 * back, so is everything else.
 */
#include "starve.h"

#define MANY 4096ul

static void open_large(void)
{
	struct cairn_options o = with_defaults();

	map_area(MANY);
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, MANY * PAGE));
}

static void write_many(uint8_t value)
{
	for (size_t i = 0; i < MANY; i++)
		area[i * PAGE + 7] = value;
}

static void expect_many(uint8_t value)
{
	for (size_t i = 0; i < MANY; i++)
		CHECK_U64(area[i * PAGE + 7], value);
}

/* Taken, or marked failed for this reason, and then there is no such checkpoint. */
static bool taken(uint64_t *id)
{
	uint64_t oldest, newest;
	int rc;

	CHECK_OK(cairn_range(c, &oldest, &newest));
	rc = cairn_checkpoint(c, id);
	if (rc == CAIRN_TAKEN)
		return true;
	dprintf(1, "a checkpoint failed: %s\n", cairn_strerror(rc));
	if (rc != CAIRN_EMEMORY && rc != -ENOMEM && rc != -EMFILE && rc != -EAGAIN)
		test_fail("a checkpoint failed: %d (%s)", rc, cairn_strerror(rc));
	CHECK(cairn_rewind(c, newest + 1) < 0);
	return false;
}

/* The past as it was, or a refusal that has changed nothing. */
static void back_maybe(uint64_t id, uint8_t then, uint8_t now)
{
	int rc = cairn_rewind(c, id);

	if (rc < 0)
		dprintf(1, "a rewind was refused: %s\n", cairn_strerror(rc));
	expect_many(rc < 0 ? now : then);
}

static void live_through(void (*starve)(void), void (*feed)(void))
{
	uint64_t id[4];

	open_large();
	write_many(1);
	CHECK_RC(cairn_checkpoint(c, &id[0]), CAIRN_TAKEN);
	starve();
	write_many(2);
	if (taken(&id[1])) {
		write_many(3);
		back_maybe(id[1], 2, 3);
	}
	write_many(4);
	if (taken(&id[2])) {
		write_many(5);
		back_maybe(id[2], 4, 5);
	}
	feed();
	write_many(6);
	CHECK_RC(cairn_checkpoint(c, &id[3]), CAIRN_TAKEN);
	write_many(7);
	CHECK_OK(cairn_rewind(c, id[3]));
	expect_many(6);
	back_maybe(id[0], 1, 6);
	CHECK_OK(cairn_close(c));
}

static struct rlimit before;

static void less_address_space(void)
{
	limit(RLIMIT_AS, mapped_bytes() + PAGE, &before);
}

static void all_address_space(void)
{
	unlimit(RLIMIT_AS, &before);
}

static void case_address_space(void)
{
	live_through(less_address_space, all_address_space);
}

static void less_data(void)
{
	limit(RLIMIT_DATA, 256 << 10, &before);
}

static void all_data(void)
{
	unlimit(RLIMIT_DATA, &before);
}

static void case_data_limit(void)
{
	live_through(less_data, all_data);
}

static void no_descriptors(void)
{
	limit(RLIMIT_NOFILE, 3, &before);
}

static void all_descriptors(void)
{
	unlimit(RLIMIT_NOFILE, &before);
}

static void case_descriptors(void)
{
	live_through(no_descriptors, all_descriptors);
}

/* vm.max_map_count: pages of one mapping, every other one read-only. */
static uint8_t *scraps;
static size_t scrap_count;

static void no_mappings(void)
{
	const size_t most = 1ul << 18;

	scraps = mmap(NULL, most * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(scraps != MAP_FAILED);
	for (scrap_count = 0; scrap_count < most; scrap_count += 2)
		if (mprotect(scraps + scrap_count * PAGE, PAGE, PROT_READ))
			return;
	test_skip("a limit of mappings that can be reached (vm.max_map_count)");
}

static void all_mappings(void)
{
	CHECK(!munmap(scraps, scrap_count * PAGE));
}

static void case_mappings(void)
{
	live_through(no_mappings, all_mappings);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "address_space", case_address_space },
		{ "data_limit", case_data_limit },
		{ "descriptors", case_descriptors },
		{ "mappings", case_mappings },
		{ NULL, NULL },
	};

	tracker = argc > 2 ? argv[2] : "async";
	return test_run_case(cases, argc > 1 ? argv[1] : NULL);
}
