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

static void open_all(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	o.tracker = tracker;
	o.strategy = "none";
	o.keep = 4;
	c = test_open(&o);
}

static bool is_there(void)
{
	return msync(area, PAGES * PAGE, MS_ASYNC) == 0;
}

/* An area that is removed, under a surface that has its memory besides, stays as it is. */
void removed_stays(void)
{
	uint64_t first = 0, next; /* on the stack, which a rewind leaves alone */

	for (int checkpoints = 0; checkpoints < 3; checkpoints++) {
		open_all();
		area = map_at(NULL, PAGES, 0);
		CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
		memset(area, 7, PAGES * PAGE);
		CHECK(cairn_checkpoint(c, &first) == CAIRN_TAKEN);
		memset(area, 8, PAGES * PAGE);
		CHECK(checkpoints < 1 || cairn_checkpoint(c, &next) == CAIRN_TAKEN);
		CHECK_OK(cairn_area_remove(c, area, PAGES * PAGE));
		CHECK(checkpoints < 2 || cairn_checkpoint(c, &next) == CAIRN_TAKEN);
		CHECK_OK(cairn_rewind(c, first));
		CHECK(is_there() && area[0] == 8 && !memcmp(area, area + 1, PAGES * PAGE - 1));
		CHECK_OK(cairn_rewind(c, first));
		CHECK(is_there() && area[0] == 8);
		/* It is memory like any other from now on. */
		CHECK(cairn_checkpoint(c, &next) == CAIRN_TAKEN);
		memset(area, 9, PAGES * PAGE);
		CHECK_OK(cairn_rewind(c, next));
		CHECK(is_there() && area[0] == 8 && !memcmp(area, area + 1, PAGES * PAGE - 1));
		CHECK_OK(cairn_close(c));
		CHECK(munmap(area, PAGES * PAGE) == 0);
	}
}

/* Of a part that a restore had to leave, older checkpoints know as little as before. */
void part_stays(void)
{
	uint64_t holed, next;
	uint8_t byte;

	open_area(4);
	CHECK(munmap(area + AT * PAGE, 2 * PAGE) == 0);
	CHECK(cairn_checkpoint(c, &holed) == CAIRN_TAKEN);
	map_at(area + AT * PAGE, 2, MAP_FIXED);
	memset(area + AT * PAGE, 9, 2 * PAGE);
	CHECK_OK(cairn_area_exclude(c, area + AT * PAGE, 1));
	for (int again = 0; again < 2; again++) {
		CHECK(cairn_checkpoint(c, &next) == CAIRN_TAKEN);
		CHECK_RC(cairn_peek(c, holed, area + AT * PAGE, &byte, 1), CAIRN_ENOTAREA);
		CHECK_OK(cairn_rewind(c, holed));
		CHECK(area[AT * PAGE] == 9);
		CHECK_RC(cairn_peek(c, holed, area + AT * PAGE, &byte, 1), CAIRN_ENOTAREA);
	}
	area[0] = 8;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(area[0] == 7 && area[AT * PAGE] == 9 && area[AT * PAGE + 1] == 7);
	CHECK_OK(cairn_close(c));
}

/* Unmapped after that, or closed, a part of it comes back only to where it was no area any more. */
void removed_gone(void)
{
	uint64_t first = 0, next = 0, more;
	unsigned char there;

	for (int way = 0; way < 8; way++) {
		open_all();
		area = map_at((void *)0x200000000000, PAGES, MAP_FIXED_NOREPLACE);
		CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
		memset(area, 7, PAGES * PAGE);
		CHECK(cairn_checkpoint(c, &first) == CAIRN_TAKEN);
		CHECK_OK(cairn_area_remove(c, area, PAGES * PAGE));
		memset(area, 8, PAGES * PAGE);
		CHECK(cairn_checkpoint(c, &next) == CAIRN_TAKEN);
		for (int times = 0; times <= (way & 1); times++) {
			CHECK_OK(times ? cairn_rewind(c, next) : 0);
			CHECK(is_there() && area[5] == 8 && area[(PAGES - 1) * PAGE] == 8);
			CHECK(munmap(area, 2 * PAGE) == 0);
			CHECK(mprotect(area + 2 * PAGE, PAGE, PROT_READ) == 0);
			CHECK(!(way & 2) || cairn_checkpoint(c, &more) == CAIRN_TAKEN);
			if ((way & 6) == 6)
				map_at(area, 1, MAP_FIXED)[5] = 1;
		}
		CHECK_OK(cairn_rewind(c, first));
		for (size_t i = 0; i < 2; i++)
			CHECK(mincore(area + i * PAGE, PAGE, &there) < 0);
		CHECK(!memcmp(area + 2 * PAGE, area + 2 * PAGE + 1, (PAGES - 2) * PAGE - 1));
		CHECK(area[2 * PAGE] == 8 && mprotect(area + 2 * PAGE, PAGE, PROT_NONE) == 0);
		CHECK_OK(cairn_rewind(c, first));
		CHECK_OK(cairn_close(c));
		CHECK(munmap(area, PAGES * PAGE) == 0);
	}
}

/*
 * Written and closed between two looks, at which it was not there, or reserved without content. The
 * engine, which is mapped meanwhile, takes addresses from above.
 */
void closed_unseen(void)
{
	void *const free_place = (void *)0x200000000000;

	for (int reserved = 0; reserved < 4; reserved++) {
		uint64_t to = 0;

		area = mmap(free_place, PAGES * PAGE, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		CHECK(area == free_place);
		CHECK(reserved & 1 || munmap(area, PAGES * PAGE) == 0);
		open_all();
		map_at(area, PAGES, MAP_FIXED);
		memset(area, 7, PAGES * PAGE);
		CHECK(mprotect(area, PAGES * PAGE, PROT_NONE) == 0);
		CHECK(cairn_checkpoint(c, &to) == CAIRN_TAKEN);
		CHECK(mprotect(area, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
		area[5] = 8;
		CHECK(reserved < 2 || cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		CHECK_OK(cairn_rewind(c, to));
		CHECK(mprotect(area, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
		CHECK(area[5] == 7 && !memcmp(area, area + 1, PAGES * PAGE - 1));
		CHECK_OK(cairn_close(c));
		CHECK(munmap(area, PAGES * PAGE) == 0);
	}
}

/* A rewind that is refused has found memory; what is in its place afterwards is another's. */
void refused_before(void)
{
	uint8_t *file = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, test_file(), 0);
	uint64_t older = 0, newer = 0;

	CHECK(file != MAP_FAILED);
	open_all();
	area = map_at(NULL, PAGES, 0);
	CHECK(munmap(area, PAGES * PAGE) == 0);
	CHECK(cairn_checkpoint(c, &older) == CAIRN_TAKEN);
	CHECK(munmap(file, PAGE) == 0); /* it has no name to be mapped again by */
	CHECK(cairn_checkpoint(c, &newer) == CAIRN_TAKEN);
	map_at(area, PAGES, MAP_FIXED);
	area[5] = 1;
	CHECK_RC(cairn_rewind(c, older), CAIRN_ELAYOUT);
	CHECK(mmap(area, PAGES * PAGE, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == area);
	memset(area, 7, PAGES * PAGE);
	CHECK_OK(cairn_rewind(c, newer));
	CHECK(is_there() && area[5] == 7 && !memcmp(area, area + 1, PAGES * PAGE - 1));
	CHECK_OK(cairn_close(c));
}

static int check_before(void *ctx, void *addr, size_t len, const void *before, const void *after)
{
	(void)ctx, (void)len, (void)after;
	if ((uint8_t *)addr >= area && (uint8_t *)addr < area + PAGES * PAGE)
		CHECK(*(const uint8_t *)before == 7);
	return 0;
}

/* Pages of a file that could only be read at the checkpoint were no part of the surface. */
void opened_past(void)
{
	uint64_t next;
	uint8_t page[PAGE];
	int fd = test_file(), rc;

	memset(page, 7, PAGE);
	for (size_t i = 0; i < PAGES; i++)
		CHECK(write(fd, page, PAGE) == (ssize_t)PAGE);
	area = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(area != MAP_FAILED);
	open_all();
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK(mprotect(area, 2 * PAGE, PROT_READ | PROT_WRITE) == 0);
	area[5] = 8;
	CHECK(cairn_checkpoint(c, &next) == CAIRN_TAKEN);
	rc = cairn_peek(c, id, area, page, PAGE);
	CHECK(rc == CAIRN_ENOTAREA || (rc == 0 && page[0] == 7 && page[5] == 7));
	CHECK_OK(cairn_changes(c, id, next, check_before, NULL));
	CHECK_OK(cairn_peek(c, next, area, page, PAGE));
	CHECK(page[0] == 7 && page[5] == 8);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(area[5] == 7);
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

/*
 * Memory with an excluded byte stays, though it is newer. A restore that prepared for that, and was
 * refused for something else, must not take for it what the program puts in its place.
 */
void stays_refused(void)
{
	bool fork = !strcmp(tracker, "fork");
	char name[] = "/tmp/cairn-test-XXXXXX";
	int fd = test_file(), named = mkstemp(name), rc;
	uint8_t page[PAGE], *lost;
	uint64_t next;

	memset(page, 7, PAGE);
	CHECK(named >= 0 && write(fd, page, PAGE) == (ssize_t)PAGE);
	CHECK(write(named, page, PAGE) == (ssize_t)PAGE);
	area = map_at((void *)0x200000000000, 4, MAP_FIXED_NOREPLACE);
	lost = fork ? mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, named, 0)
		    : mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			      -1, 0);
	CHECK(lost != MAP_FAILED);
	open_all();
	CHECK_OK(cairn_area_exclude(c, area + PAGE + 100, 10));
	CHECK_OK(fork ? 0 : cairn_area_add(c, lost, PAGE));
	CHECK(munmap(area, 4 * PAGE) == 0);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	map_at(area, 4, MAP_FIXED);
	CHECK(munmap(lost, PAGE) == 0 && unlink(name) == 0);
	rc = cairn_rewind(c, id);
	CHECK(rc == CAIRN_ELAYOUT || fork);
	CHECK(munmap(area + PAGE, 3 * PAGE) == 0);
	CHECK(mmap(area + PAGE, 2 * PAGE, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == area + PAGE);
	CHECK(mmap(area + 3 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) ==
		area + 3 * PAGE);
	area[PAGE] = 1;
	CHECK(cairn_checkpoint(c, &next) == CAIRN_TAKEN);
	area[PAGE] = 2; /* shared: nobody's */
	area[3 * PAGE + 5] = 8;
	CHECK_OK(cairn_rewind(c, next));
	CHECK(area[PAGE] == 2 && !memcmp(area + 3 * PAGE, page, PAGE));
	CHECK_OK(cairn_close(c));
	CHECK(munmap(area, 4 * PAGE) == 0 && close(fd) == 0 && close(named) == 0);
}

/* Surface "program": no memory that a part of a file was put in front of is a loaded object's. */
void in_front(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	int fd = test_file();

	CHECK(ftruncate(fd, 2 * PAGE) == 0);
	area = map_at((void *)0x200000000000, 2, MAP_FIXED_NOREPLACE);
	area[PAGE] = 5;
	o.tracker = tracker;
	o.surface = "program";
	o.strategy = "none";
	CHECK(munmap(area, PAGE) == 0);
	c = test_open(&o);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK(mmap(area, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, PAGE) == area);
	area[PAGE] = 6;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(area[PAGE] == 6);
	CHECK_OK(cairn_close(c));
	CHECK(munmap(area, 2 * PAGE) == 0 && close(fd) == 0);
}
