/* SPDX-License-Identifier: MIT */
/* Parts of an explicit area that become memory of another kind, at moments when nobody looks. */
#include "remapped.h"

#define FIRST 10ul
#define COUNT 3ul

static uint8_t before[PAGES * PAGE];

/* A page of the part is written: a rewind puts it back, or is refused and changes nothing. */
static void check_part(void)
{
	int rc;

	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	for (size_t i = 4; i < FIRST + COUNT; i += 3)
		area[i * PAGE + 50] ^= 0x55;
	memcpy(before, area, sizeof(before));
	rc = cairn_rewind(c, id);
	CHECK(memcmp(area, rc == 0 ? at_checkpoint : before, sizeof(before)) == 0);
	CHECK(rc == 0 || rc == CAIRN_ELAYOUT || rc == CAIRN_EFAILED || rc == CAIRN_EEVICTED);
}

static void put_file_over(void)
{
	uint8_t page[PAGE];
	int fd = test_file();

	memset(page, 100, sizeof(page));
	for (size_t i = 0; i < COUNT; i++)
		CHECK(pwrite(fd, page, PAGE, (off_t)(i * PAGE)) == (ssize_t)PAGE);
	CHECK(mmap(area + FIRST * PAGE, COUNT * PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED);
	close(fd);
}

static void open_area(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	bool images = !strcmp(tracker, "images");

	area = map_area();
	area[5] = 1;
	o.tracker = images ? "async" : tracker;
	o.feed = images ? "bpf-images" : NULL;
	o.surface = "none";
	o.strategy = "none";
	o.keep = 4;
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
}

/* Before anybody has looked at the area since it was added. */
void exchanged_at_once(void)
{
	open_area();
	put_file_over();
	CHECK(cairn_checkpoint(c, &id) >= 0);
	check_part();
	CHECK_OK(cairn_close(c));
}
