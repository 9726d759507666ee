/* SPDX-License-Identifier: MIT */
/* What is said of the past of pages that the program has closed, or exchanged, since. */
#include <unistd.h>
#include "remapped.h"

#define AT 2ul

static void open_area(uint32_t keep)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	bool images = !strcmp(tracker, "images");

	area = map_area();
	memset(area, 7, PAGES * PAGE);
	o.tracker = images ? "async" : tracker;
	o.feed = images ? "bpf-images" : NULL;
	o.surface = "none";
	o.strategy = "none";
	o.keep = keep;
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
}

/* Clean, and closed: what the newest checkpoint has of it is in live memory all the same. */
void closed_past(void)
{
	uint8_t page[PAGE];
	uint64_t next;

	/* So many that differences are kept, which say nothing without the newest content. */
	open_area(strcmp(tracker, "fork") ? 1000 : 4);
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	for (uint8_t i = 1; i < 4; i++) {
		area[AT * PAGE + 100] = 10 + i;
		CHECK(cairn_checkpoint(c, &next) == CAIRN_TAKEN);
	}
	CHECK(mprotect(area + AT * PAGE, PAGE, PROT_NONE) == 0);
	CHECK_OK(cairn_peek(c, next, area + AT * PAGE, page, PAGE));
	CHECK(page[0] == 7 && page[100] == 13);
	CHECK_OK(cairn_peek(c, next - 1, area + AT * PAGE, page, PAGE));
	CHECK(page[0] == 7 && page[100] == 12);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(mprotect(area + AT * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(is_restored());
	CHECK_OK(cairn_close(c));
}

static int note_change(void *ctx, void *addr, size_t len, const void *before, const void *after)
{
	uint8_t *told = ctx;

	CHECK(*(const uint8_t *)before == 7 && !memcmp(after, addr, len));
	told[((uintptr_t)addr - (uintptr_t)area) / PAGE] = 1;
	return 0;
}

/* A part of an area that is other memory now has changed, or it is refused. */
void exchanged_told(void)
{
	uint8_t told[PAGES] = { 0 };
	int rc, fd = test_file();

	open_area(4);
	CHECK(ftruncate(fd, PAGES * PAGE) == 0);
	CHECK(mmap(area + AT * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
		      0) != MAP_FAILED);
	close(fd);
	area[(AT + 4) * PAGE] = 1;
	rc = cairn_changes(c, id, CAIRN_NOW, note_change, told);
	CHECK(rc == 0 || rc == CAIRN_ELAYOUT || rc == CAIRN_EFAILED);
	for (size_t i = 0; i < PAGES && rc == 0; i++)
		CHECK(told[i] == (i == AT || i == AT + 1 || i == AT + 4));
	CHECK_OK(cairn_close(c));
}
