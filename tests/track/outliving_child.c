/* SPDX-License-Identifier: MIT */
/*
 * outliving_child TRACKER [close]: a child of the program has inherited the session's open files
 * and lives longer than the session, as workers of a server do. The next session tracks the same
 * memory. With `close` the program has closed its own descriptors before.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 16ul

static struct cairn_options options = CAIRN_OPTIONS_INIT;
static volatile uint8_t *area;
static cairn_t *c;

static void open_session(void)
{
	c = test_open(&options);
	CHECK_OK(cairn_area_add(c, (void *)area, PAGES * PAGE));
}

static void use_session(uint8_t value)
{
	uint64_t id;

	area[PAGE] = value;
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	area[PAGE] = 100;
	CHECK_OK(cairn_rewind(c, id));
	CHECK_U64(area[PAGE], value);
}

int main(int argc, char **argv)
{
	pid_t child;

	if (argc < 2)
		test_fail("usage: outliving_child TRACKER [close]");
	options.tracker = argv[1];
	options.surface = "none";
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	open_session();
	use_session(1);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
	}
	if (argc > 2 && syscall(SYS_close_range, 3, ~0u, 0) < 0)
		test_skip("close_range(2) (Linux 5.9)");
	CHECK_OK(cairn_close(c));
	open_session();
	use_session(2);
	CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
	CHECK_OK(cairn_close(c));
	return 0;
}
