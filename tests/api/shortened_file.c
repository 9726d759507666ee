/* SPDX-License-Identifier: MIT */
/*
 * shortened_file TRACKER [clean]: a private file mapping whose file is cut short under it: its
 * pages are gone, and whoever touches them is killed by SIGBUS. The engine may not be.
 *
 * With "clean" one of the pages that go has not been written since the first checkpoint: a tracker
 * that has no copy of it cannot go back to when it was there.
 */
#include <stdbool.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE 4096ul

static int ignore_change(void *ctx, void *addr, size_t len, const void *from, const void *to)
{
	return 0;
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	int fd = memfd_create("shortened_file", 0);
	bool clean = argc > 2, copies; /* the tracker has the content of clean pages */
	uint64_t first, second, third;
	volatile uint8_t *map;
	cairn_t *c;
	uint8_t byte;

	CHECK(fd >= 0 && ftruncate(fd, 4 * PAGE) == 0);
	map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(map != MAP_FAILED);
	memset((void *)map, 'a', 4 * PAGE);
	o.tracker = argc > 1 ? argv[1] : "auto";
	o.surface = "none";
	o.keep = 8;
	copies = !clean || (strcmp(o.tracker, "uffd") && strcmp(o.tracker, "mprotect"));
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, (void *)map, 4 * PAGE));
	CHECK_RC(cairn_checkpoint(c, &first), CAIRN_TAKEN);
	map[0] = 'b';
	map[2 * PAGE] = 'b';
	CHECK_RC(cairn_checkpoint(c, &second), CAIRN_TAKEN);
	map[0] = 'c';
	if (!clean)
		map[PAGE] = 'c';
	map[2 * PAGE] = 'c';
	map[3 * PAGE] = 'c';
	CHECK(ftruncate(fd, PAGE) == 0);

	/* The past is there; going back to it is refused, and changes nothing. */
	CHECK_OK(cairn_peek(c, second, (void *)(map + 2 * PAGE), &byte, 1));
	CHECK_U64(byte, 'b');
	CHECK_RC(cairn_changes(c, second, CAIRN_NOW, ignore_change, NULL),
		copies ? 0 : CAIRN_ELAYOUT);
	CHECK_RC(cairn_rewind(c, second), CAIRN_ELAYOUT);
	CHECK_RC(cairn_rewind(c, first), CAIRN_ELAYOUT);
	CHECK_U64(map[0], 'c');
	CHECK_RC(cairn_checkpoint(c, &third), CAIRN_TAKEN);

	/* When the file is as long as it was, everything can be put back. */
	CHECK(ftruncate(fd, 4 * PAGE) == 0);
	CHECK_OK(cairn_rewind(c, third));
	CHECK(map[0] == 'c' && map[2 * PAGE] == 0);
	if (copies) {
		CHECK_OK(cairn_rewind(c, second));
		CHECK(map[0] == 'b' && map[PAGE] == 'a' && map[2 * PAGE] == 'b');
	} else {
		CHECK(cairn_rewind(c, second) < 0);
		CHECK(map[0] == 'c' && map[2 * PAGE] == 0);
	}
	CHECK_OK(cairn_close(c));
	return 0;
}
