/* SPDX-License-Identifier: MIT */
/*
 * Shared memory that another object takes the place of, and gives it back: in that the area's
 * mappings look as they should. Whatever is put back is the content of a checkpoint.
 */
#include <unistd.h>
#include "remapped.h"

#define AT 10ul

static int area_file, other_file;
static uint64_t first;
static uint8_t at_first[PAGES * PAGE];

static void fill_file(int fd, uint8_t byte)
{
	for (size_t i = 0; i < PAGES; i++) {
		uint8_t page[PAGE];

		memset(page, byte + (int)i, PAGE);
		CHECK(write(fd, page, PAGE) == (ssize_t)PAGE);
	}
}

static int file_of(uint8_t byte)
{
	int fd = test_file();

	fill_file(fd, byte);
	return fd;
}

static void map_file(int fd, size_t page, size_t count, int prot)
{
	CHECK(mmap(area + page * PAGE, count * PAGE, prot, MAP_SHARED | MAP_FIXED, fd,
		      (off_t)(page * PAGE)) != MAP_FAILED);
}

static void open_area(const char *strategy)
{
	void *at;

	area_file = file_of(1);
	other_file = file_of(101);
	at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, area_file, 0);
	CHECK(at != MAP_FAILED);
	open_on(at, strategy);
	first = id;
	memcpy(at_first, at_checkpoint, sizeof(at_first));
}

static void close_area(void)
{
	CHECK_OK(cairn_close(c));
	CHECK(munmap(area, PAGES * PAGE) == 0);
	close(area_file);
	close(other_file);
}

static void check_to(uint64_t to, const uint8_t *want)
{
	static uint8_t before[PAGES * PAGE];
	uint8_t byte = 0;
	int rc = cairn_peek(c, to, area + AT * PAGE, &byte, 1);

	CHECK(rc < 0 || byte == want[AT * PAGE]);
	memcpy(before, area, sizeof(before));
	rc = cairn_rewind(c, to);
	CHECK(!memcmp(area, rc == 0 ? want : before, sizeof(before)));
	CHECK(rc == 0 || rc == CAIRN_ELAYOUT || rc == CAIRN_EFAILED || rc == CAIRN_EEVICTED);
}

/* As long as it is there; and once it is gone, for its bytes have never been the area's. */
void other_object(void)
{
	open_area("none");
	map_file(other_file, AT, 2, PROT_READ);
	area[5] = 77;
	check_to(first, at_first);
	map_file(area_file, AT, 2, PROT_READ);
	check_to(first, at_first);
	close_area();
}

/* It is saved, by a first store or a touch, in place of what was there. */
static void check_saved(bool touched)
{
	open_area("none");
	map_file(other_file, AT, 2, PROT_READ);
	if (touched)
		(void)!cairn_area_touch(c, area + AT * PAGE, 2 * PAGE);
	else
		area[AT * PAGE + 5] = 77;
	map_file(area_file, AT, 2, PROT_READ | PROT_WRITE);
	check_to(first, at_first);
	close_area();
}

void other_object_saved(void)
{
	check_saved(false);
	check_saved(true);
}

/* It is there at a checkpoint, which has its bytes. */
void other_object_kept(void)
{
	open_area("none");
	map_file(other_file, AT, 2, PROT_READ);
	area[5] = 77;
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	map_file(area_file, AT, 2, PROT_READ);
	check_to(id, at_checkpoint);
	check_to(first, at_first);
	close_area();
}

/* Pages that were written have gone: what was theirs is not put into another object. */
void other_object_open(void)
{
	uint8_t bytes[PAGE];

	open_area("none");
	area[AT * PAGE] = 55;
	map_file(other_file, AT, 1, PROT_READ | PROT_WRITE);
	CHECK_RC(cairn_rewind(c, first), CAIRN_ELAYOUT);
	CHECK(pread(other_file, bytes, PAGE, AT * PAGE) == (ssize_t)PAGE && bytes[0] == 101 + AT);
	/* Removed and added, it is an area again. */
	CHECK_OK(cairn_area_remove(c, area, PAGES * PAGE));
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &first) == CAIRN_TAKEN);
	memcpy(at_first, area, sizeof(at_first));
	memset(area, 9, PAGES * PAGE);
	CHECK_OK(cairn_rewind(c, first));
	CHECK(!memcmp(area, at_first, sizeof(at_first)));
	close_area();
}

/* A file with that name, new: page i is all `byte` + i. */
static int named_file(const char *name, uint8_t byte)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	fill_file(fd, byte);
	return fd;
}

/* The session comes before the file, so that no process of its has a copy of the mapping. */
static void *begin_number(const char *name)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	int fd = named_file(name, 1);

	o.tracker = tracker;
	o.surface = o.strategy = "none";
	o.keep = 4;
	c = test_open(&o);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(area != MAP_FAILED && close(fd) == 0);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &first) == CAIRN_TAKEN);
	return area;
}

static void check_number(const char *name, bool between, int prot)
{
	void *at = begin_number(name);
	uint8_t bytes[PAGES * PAGE];
	int rc, fd;

	area[5] = 77;
	CHECK(munmap(at, PAGES * PAGE) == 0 && unlink(name) == 0);
	fd = named_file(name, 101);
	map_file(fd, 0, PAGES, prot);
	if (between)
		(void)!cairn_checkpoint(c, &id);
	rc = cairn_rewind(c, first);
	CHECK(rc == CAIRN_ELAYOUT || rc == CAIRN_EFAILED || rc == CAIRN_EEVICTED);
	CHECK(pread(fd, bytes, sizeof(bytes), 0) == (ssize_t)sizeof(bytes));
	for (size_t i = 0; i < sizeof(bytes); i++)
		CHECK(bytes[i] == 101 + i / PAGE);
	CHECK_OK(cairn_close(c));
	CHECK(munmap(at, PAGES * PAGE) == 0 && close(fd) == 0 && unlink(name) == 0);
}

/*
 * The file is deleted, and what is mapped in its place is of a new one, which some file systems
 * give the same number if nobody has that: not if somebody else has made a file just then.
 */
void other_object_number(void)
{
	char name[] = "/tmp/remapped.XXXXXX";
	int fd = mkstemp(name);

	CHECK(fd >= 0 && close(fd) == 0);
	for (int how = 0; how < 16; how++)
		check_number(name, how & 1, PROT_READ | (how & 2 ? 0 : PROT_WRITE));
}
