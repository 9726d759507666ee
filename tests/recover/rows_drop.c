/* SPDX-License-Identifier: MIT */
/* Content that is dropped (MADV_DONTNEED) where the program itself may not write. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include "rows.h"

#define PAGE 4096ul
#define LEN  (12 * PAGE)

static char *area;

/* Every other page holds what was written, which no tracker is told of any more. */
static void write_parts(int flags, int fd)
{
	area = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | flags, fd, 0);
	CHECK(area != MAP_FAILED);
	tick();
	for (size_t i = 0; i < LEN; i += 2 * PAGE)
		memset(area + i, 'a', PAGE);
	tick();
}

static void write_parts_of_file(void)
{
	int fd = memfd_create("closed", MFD_CLOEXEC);

	CHECK(fd >= 0 && ftruncate(fd, LEN) == 0);
	write_parts(0, fd);
	close(fd);
}

/* It is found anew where it was moved to. */
static void move_area(void)
{
	char *to = mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(mremap(area, LEN, LEN, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	area = to;
	tick();
}

static void close_area(void)
{
	CHECK(mprotect(area, LEN, PROT_READ) == 0);
	tick();
	tick();
}

static void setup_closed(void)
{
	write_parts(MAP_ANONYMOUS, -1);
	close_area();
}

static void setup_closed_file(void)
{
	write_parts_of_file();
	close_area();
}

static void setup_moved(void)
{
	write_parts(MAP_ANONYMOUS, -1);
	move_area();
	close_area();
}

static void setup_moved_file(void)
{
	write_parts_of_file();
	move_area();
	close_area();
}

/* It could not be written any more when it was first seen. */
static void setup_found(void)
{
	area = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	for (size_t i = 0; i < LEN; i += 2 * PAGE)
		memset(area + i, 'a', PAGE);
	close_area();
}

static void body_drop(bool again)
{
	for (size_t i = 0; i < LEN; i += PAGE)
		CHECK(area[i] == (i / PAGE % 2 ? 0 : 'a'));
	CHECK(CALL(madvise, area, LEN, MADV_DONTNEED) == 0);
	CHECK(area[0] == 0);
	if (again)
		munmap(area, LEN);
}

/* It is saved, and stays. */
static void body_only_touched(bool again)
{
	int fd = open("/dev/zero", O_RDONLY);

	for (size_t i = 0; i < LEN; i += PAGE)
		CHECK(area[i] == (i / PAGE % 2 ? 0 : 'a'));
	CHECK(CALL(read, fd, area, LEN) == -1 && errno == EFAULT);
	close(fd);
	if (again)
		munmap(area, LEN);
}

const struct row rows_drop[] = {
	{"drop_closed", setup_closed, body_drop},
	{"drop_closed_file", setup_closed_file, body_drop},
	{"drop_moved", setup_moved, body_drop},
	{"drop_moved_file", setup_moved_file, body_drop},
	{"drop_nothing", setup_closed, body_only_touched},
	{"drop_nothing_moved", setup_moved, body_only_touched},
	{"drop_nothing_file", setup_moved_file, body_only_touched},
	{"drop_found", setup_found, body_drop},
	{"drop_nothing_found", setup_found, body_only_touched},
	{0},
};
