/* SPDX-License-Identifier: MIT */
/*
 * lost_guard FEED: under CAIRN_PROTECT a keeper has the only reference to what closes the engine's
 * own frames, and does not give it back: the program has changed its user, and closed all. Calls
 * say what is lost, and the session can be closed.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 64ul

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	volatile uint8_t *area;
	uint64_t id, none;
	cairn_t *c;

	if (argc != 2)
		test_fail("usage: lost_guard FEED");
	if (getuid())
		test_skip("root (to become somebody else)");
	o.tracker = "async";
	o.feed = argv[1];
	o.strategy = "none";
	o.surface = "none";
	o.keep = 4;
	o.flags = CAIRN_PROTECT;
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, (void *)area, PAGES * PAGE));
	for (size_t i = 0; i < PAGES; i++)
		area[i * PAGE] = 1;
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	for (size_t i = 0; i < PAGES; i++)
		area[i * PAGE] = 2;
	CHECK(!setgid(65534) && !setuid(65534));
	if (syscall(SYS_close_range, 3, ~0u, 0) < 0)
		test_skip("close_range(2) (Linux 5.9)");
	CHECK_RC(cairn_checkpoint(c, &none), -EBADF);
	CHECK_RC(cairn_rewind(c, id), -EBADF);
	for (size_t i = 0; i < PAGES; i++)
		CHECK_U64(area[i * PAGE], 2);
	CHECK_OK(cairn_pause(c));
	CHECK_RC(cairn_resume(c), -EBADF);
	CHECK_OK(cairn_close(c));
	return 0;
}
