/* SPDX-License-Identifier: MIT */
/*
 * parts_of_areas TRACKER: what is said of areas of which a part is another memory by now, or memory
 * that no tracker takes.
 */
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "../lib/harness.h"

#define PAGE 4096ul

static cairn_t *c;
static bool tracker_forks;

static uint8_t *map(uint8_t *at, size_t pages, int flags)
{
	uint8_t *p = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE,
		MAP_ANONYMOUS | flags | (at ? MAP_FIXED : 0), -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

/* A restore that is refused has looked at the new part, and has not begun to track it. */
static void touched_part(void)
{
	uint8_t *at = map(NULL, 4, MAP_PRIVATE);
	uint64_t id;
	int rc;

	CHECK_OK(cairn_area_add(c, at, 4 * PAGE));
	map(at + 3 * PAGE, 1, MAP_SHARED);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	map(at + PAGE, 1, MAP_PRIVATE);
	map(at + 3 * PAGE, 1, MAP_PRIVATE);
	rc = cairn_rewind(c, id);
	CHECK(rc == CAIRN_ELAYOUT || rc == 0);
	CHECK_OK(cairn_area_touch(c, at + PAGE, PAGE));
	CHECK_OK(cairn_area_touch(c, at, 4 * PAGE));
	CHECK_RC(cairn_area_touch(c, at, 5 * PAGE), CAIRN_ENOTAREA);
	memset(at, 1, 4 * PAGE);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memset(at, 2, 4 * PAGE);
	CHECK_OK(cairn_rewind(c, id));
	for (size_t i = 0; i < 4 * PAGE; i++)
		CHECK_U64(at[i], 1);
	CHECK_OK(cairn_area_remove(c, at, 4 * PAGE));
}

/* What a tracker cannot take back stands in the way of restores while it is a part of an area. */
static void shared_part(void)
{
	uint8_t *at = map(NULL, 4, MAP_PRIVATE), *other = map(NULL, 1, MAP_PRIVATE);
	uint64_t id;
	int rc;

	CHECK_OK(cairn_area_add(c, at, 4 * PAGE));
	CHECK_OK(cairn_area_add(c, other, PAGE));
	map(at + PAGE, 1, MAP_SHARED);
	*other = 1;
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	*other = 2;
	rc = cairn_rewind(c, id);
	CHECK(rc == CAIRN_EUNSUPPORTED || rc == 0);
	CHECK_OK(cairn_area_remove(c, at, 4 * PAGE));
	CHECK_OK(cairn_rewind(c, id));
	CHECK(*other == 1);
}

/* What has come and gone since a checkpoint need not come back. */
static void passing_shared_part(void)
{
	uint8_t *at = map(NULL, 4, MAP_PRIVATE);
	uint64_t before, with, after;
	int rc;

	CHECK_OK(cairn_area_add(c, at, 4 * PAGE));
	memset(at, 1, 4 * PAGE);
	CHECK(cairn_checkpoint(c, &before) == CAIRN_TAKEN);
	memset(map(at + PAGE, 2, MAP_SHARED), 2, PAGE);
	CHECK(cairn_checkpoint(c, &with) == CAIRN_TAKEN);
	memset(map(at + 2 * PAGE, 1, MAP_PRIVATE), 3, PAGE);
	CHECK(munmap(at + PAGE, PAGE) == 0);
	CHECK(cairn_checkpoint(c, &after) == CAIRN_TAKEN);
	memset(at, 4, PAGE);
	CHECK_RC(cairn_rewind(c, with), CAIRN_ELAYOUT);
	rc = cairn_rewind(c, before);
	/* Under fork nobody knows when it came. */
	CHECK(rc == 0 || (rc == CAIRN_ELAYOUT && tracker_forks));
	for (size_t i = 0; !rc && i < 4 * PAGE; i++)
		CHECK_U64(at[i], 1);
	CHECK_OK(cairn_area_remove(c, at, 4 * PAGE));
}

/* From one place of an area to another, where other memory was. */
static void moved_shared_part(void)
{
	uint8_t *at = map(NULL, 4, MAP_PRIVATE), *from = at + PAGE, *to = at + 3 * PAGE;
	uint64_t id;

	CHECK_OK(cairn_area_add(c, at, 4 * PAGE));
	map(from, 1, MAP_SHARED);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK(mremap(from, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK_OK(cairn_area_remove(c, at, 4 * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK_OK(cairn_rewind(c, id));
}

/* What it holds cannot be read by system calls: it would be taken for a file that was cut short. */
static void secret_memory(void)
{
	int fd = (int)syscall(SYS_memfd_secret, 0), rc;
	uint8_t *at = map(NULL, 4, MAP_PRIVATE), *secret = at + 2 * PAGE;
	uint64_t id;

	if (fd < 0)
		return; /* the kernel has none */
	CHECK(ftruncate(fd, PAGE) == 0);
	CHECK(mmap(secret, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == secret);
	rc = cairn_area_add(c, at, 4 * PAGE);
	CHECK(rc == CAIRN_EUNSUPPORTED || rc == CAIRN_ESHARED);
	CHECK_RC(cairn_area_add(c, secret, PAGE), rc);
	map(secret, 1, MAP_PRIVATE);
	CHECK_OK(cairn_area_add(c, at, 4 * PAGE));
	CHECK(mmap(secret, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == secret);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK_RC(cairn_rewind(c, id), CAIRN_EUNSUPPORTED);
	CHECK_OK(cairn_area_remove(c, at, 4 * PAGE));
	CHECK_OK(cairn_rewind(c, id));
	close(fd);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	int rc;

	o.tracker = argc > 1 ? argv[1] : "async";
	tracker_forks = !strcmp(o.tracker, "fork");
	o.surface = "none";
	o.keep = 4;
	rc = cairn_open(&c, &o);
	if (rc == CAIRN_ENOTRACK)
		test_skip("this tracker");
	CHECK_OK(rc);
	touched_part();
	shared_part();
	moved_shared_part();
	passing_shared_part();
	secret_memory();
	CHECK_OK(cairn_close(c));
	return 0;
}
