/* SPDX-License-Identifier: MIT */
/*
 * bound_session TRACKER: strategy oracle-count in a session. It copies what the profile counts,
 * from the beginning again when that ends; the program's stores cost nothing; whatever asks for
 * the past is refused and changes nothing.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../lib/harness.h"
#include "speculate/trace.h"

#define PAGE  4096ul
#define PAGES 8
#define COUNT 5

static const size_t counts[COUNT] = { 2, 7, 0, 300, 1 }; /* pages of each interval */
static uint8_t *area;

static int append(void *owner, const void *bytes, size_t len)
{
	return write(*(int *)owner, bytes, len) == (ssize_t)len ? 0 : -1;
}

static void write_profile(const char *path)
{
	static struct crn_trace_writer w;
	uintptr_t pages[300];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	for (size_t i = 0; i < 300; i++)
		pages[i] = (i + 100) * PAGE;
	CHECK(fd >= 0 && crn_trace_begin(&w, append, &fd, "") == 0);
	for (size_t i = 0; i < COUNT; i++)
		CHECK(crn_trace_interval(&w, 0, pages, counts[i]) == 0);
	CHECK(crn_trace_end(&w) == 0 && close(fd) == 0);
}

static int ignore(void *ctx, void *addr, size_t len, const void *before, const void *after)
{
	return 0;
}

static void refuse_the_past(cairn_t *c, uint64_t id)
{
	uint64_t word = 0x5a5a;

	area[0] = 77;
	CHECK_RC(cairn_restore(c, id), CAIRN_EUNSUPPORTED);
	CHECK_RC(cairn_rewind(c, id), CAIRN_EUNSUPPORTED);
	CHECK_RC(cairn_peek(c, id, area, &word, 8), CAIRN_EUNSUPPORTED);
	CHECK_RC(cairn_changes(c, id, CAIRN_NOW, ignore, NULL), CAIRN_EUNSUPPORTED);
	CHECK(area[0] == 77 && word == 0x5a5a);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct cairn_stats s = { .size = sizeof(s) };
	char folder[80], strategy[128];
	uint64_t id, before = 0;
	cairn_t *c;

	write_profile("profile");
	CHECK(getcwd(folder, sizeof(folder)));
	snprintf(strategy, sizeof(strategy), "oracle-count:profile=%s/profile", folder);
	o.tracker = argv[1];
	o.surface = "none";
	o.strategy = strategy;
	c = test_open(&o);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	for (size_t turn = 1; turn < 4 * COUNT; turn++) {
		/* Interval COUNT was open when the recording ended: nobody knows what it wrote. */
		size_t at = turn % (COUNT + 1);

		memset(area, (int)turn, PAGES * PAGE);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		CHECK_OK(cairn_stats(c, &s));
		CHECK_U64(s.pages_eager - before, at < COUNT ? counts[at] : 0);
		CHECK_U64(s.pages_saved, s.pages_eager);
		CHECK_U64(s.faults, 0);
		before = s.pages_eager;
	}
	refuse_the_past(c, id);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK_OK(cairn_area_remove(c, area, PAGES * PAGE));
	CHECK_OK(cairn_close(c));
	area[1] = 5;
	return 0;
}
