/* SPDX-License-Identifier: MIT */
/*
 * keeper_starved TRACKER: the kernel, short of memory, ends keeper or twin. The program, whose
 * calls on its mappings sleep until one of them has read of it, goes on.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "../lib/harness.h"
#include "child_find.h"

#define BYTES 65536ul

/* Whoever uses the victim's memory dies with it, as in the kernel's way out of a lack of memory. */
static void kill_with_memory(pid_t victim, const pid_t *others, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		long differ = syscall(SYS_kcmp, victim, others[i], 1 /* KCMP_VM */, 0, 0);

		if (differ < 0)
			test_skip("kcmp(2)");
		if (!differ)
			CHECK(!kill(others[i], SIGKILL));
	}
	CHECK(!kill(victim, SIGKILL));
	expect_deaths(&victim, 1);
}

/* Nobody else would be left to read the event of this thread's munmap. */
static void unmap_after_death(const char *tracker, const char *dies, const char *stays)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint8_t *area;
	cairn_t *c;
	pid_t victims[CHILDREN_MAX], others[CHILDREN_MAX];
	size_t count;
	uint64_t id;

	o.tracker = tracker;
	o.strategy = "none";
	o.surface = "none";
	c = test_open(&o);
	area = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	CHECK_OK(cairn_area_add(c, area, BYTES));
	area[5] = 1;
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	child_name = stays;
	count = children_find(others);
	child_name = dies;
	if (!count || !children_find(victims))
		test_skip("a keeper that reads events");
	kill_with_memory(victims[0], others, count);
	alarm(20);
	CHECK(!munmap(area, BYTES / 2));
	alarm(0);
	CHECK_RC(cairn_rewind(c, id), CAIRN_ELAYOUT);
	CHECK_OK(cairn_area_remove(c, area, BYTES));
	CHECK_OK(cairn_close(c));
	expect_deaths(others, count);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		test_fail("usage: keeper_starved TRACKER");
	unmap_after_death(argv[1], "cairn-keeper", "cairn-twin");
	unmap_after_death(argv[1], "cairn-twin", "cairn-keeper");
	return 0;
}
