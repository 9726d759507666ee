/* SPDX-License-Identifier: MIT */
/*
 * Files that are deleted, and others in their places, which some file systems give the same number.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "mapped_files.h"

/*
 * The file is deleted, and there is another one, whose page i is all 'A' + i. True if it has been
 * given the same number: some file systems do that, if nobody else (the child of `fork`) has it.
 */
static bool exchange_file(const char *path)
{
	struct stat old, new;
	char text[PAGE];
	int fd;

	CHECK(stat(name, &old) == 0 && unlink(name) == 0);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	CHECK(fd >= 0 && fstat(fd, &new) == 0);
	for (size_t i = 0; i < PAGES; i++) {
		memset(text, 'A' + (int)i, PAGE);
		CHECK(write(fd, text, PAGE) == (ssize_t)PAGE);
	}
	close(fd);
	return old.st_ino == new.st_ino;
}

static void map_exchanged(const char *path, uint8_t *at, int prot)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && mmap(at, PAGES * PAGE, prot, MAP_PRIVATE | MAP_FIXED, fd, 0) == at);
	close(fd);
}

/* In its place, by the same name or another, closed or open, seen by a checkpoint or not. */
void numbers(void)
{
	char other[256];

	snprintf(other, sizeof(other), "%s.other", name);
	for (int how = 0; how < 12; how++) {
		const char *path = how & 1 ? other : name;
		uint8_t *at = map_file(PROT_READ, 0, NULL);

		checkpoint(&kept->id);
		CHECK(munmap(at, PAGES * PAGE) == 0);
		(void)exchange_file(path);
		if (how < 8)
			map_exchanged(path, at, PROT_READ | (how & 2 ? PROT_WRITE : 0));
		checkpoint(&kept->newer);
		if (how & 4)
			checkpoint(&kept->newer);
		if (how & 2 && how < 8)
			at[PAGE] = 'Z';
		CHECK_OK(cairn_rewind(c, kept->newer));
		CHECK_U64(first_byte(at + PAGE), how < 8 ? 'B' : -1);
		if (how >= 8 && how & 2)
			map_exchanged(path, at, PROT_READ);
		CHECK_RC(cairn_rewind(c, kept->id), CAIRN_ELAYOUT);
		CHECK_RC(cairn_rewind(c, kept->id), CAIRN_ELAYOUT);
		if (how < 8) {
			CHECK_OK(cairn_rewind(c, kept->newer));
			CHECK_U64(first_byte(at + PAGE), 'B');
		}
		CHECK(munmap(at, PAGES * PAGE) == 0);
		CHECK(unlink(path) == 0);
		close(make_file(name, PAGES));
		checkpoint(&kept->newest);
	}
}

/*
 * Deleted when it is seen first, or while it is mapped, and so is the one in its place: no name
 * tells one from the other. What a restore puts there is what was there.
 */
void numbers_without_names(void)
{
	for (int how = 0; how < 16; how++) {
		uint8_t *at = map_file(PROT_READ, 0, NULL);
		int rc;

		if (how & 1)
			CHECK(unlink(name) == 0);
		checkpoint(&kept->id);
		if (how & 8) { /* a part of it goes alone */
			CHECK(munmap(at, PAGE) == 0);
			checkpoint(&kept->newer);
		}
		CHECK(munmap(at, PAGES * PAGE) == 0);
		if (how & 1)
			close(make_file(name, PAGES));
		(void)exchange_file(name);
		map_exchanged(name, at, PROT_READ);
		if (how & 2)
			CHECK(unlink(name) == 0);
		if (how & 4)
			checkpoint(&kept->newer);
		rc = cairn_rewind(c, kept->id);
		if (rc == 0)
			check_whole(at);
		else
			CHECK_RC(rc, CAIRN_ELAYOUT);
		restart(at);
		unlink(name);
	}
	close(make_file(name, PAGES));
}

/* What is written, renamed or deleted is still the same file, as long as it is mapped. */
void same_number(void)
{
	char other[256];

	snprintf(other, sizeof(other), "%s.other", name);
	for (int how = 0; how < 4; how++) {
		uint8_t *at = map_file(PROT_READ, 0, NULL);
		int rc = how & 1 ? deleted_since(at) : 0, seen;

		checkpoint(&kept->id);
		if (how == 0)
			CHECK(rename(name, other) == 0);
		if (how == 1)
			CHECK(unlink(name) == 0 && close(make_file(name, PAGES)) == 0);
		if (how == 2)
			CHECK(chmod(name, 0600) == 0 && truncate(name, PAGES * PAGE) == 0);
		if (how == 3)
			CHECK(link(name, other) == 0 && unlink(name) == 0);
		checkpoint(&kept->newer);
		write_pages(at + PAGE, 1);
		seen = cairn_rewind(c, kept->newer);
		if (!rc || seen != rc) { /* that look may not have asked for the name */
			CHECK_OK(seen);
			check_whole(at);
		}
		write_pages(at + PAGE, 1);
		CHECK_RC(cairn_rewind(c, kept->id), rc);
		if (!rc)
			check_whole(at);
		restart(at);
		(void)unlink(other);
	}
}

/* Mapped before the session: that is not asked for at each checkpoint. */
void number_found_late(uint8_t *at)
{
	bool same;

	checkpoint(&kept->id);
	CHECK(munmap(at, PAGES * PAGE) == 0);
	same = exchange_file(name);
	map_exchanged(name, at, PROT_READ);
	checkpoint(&kept->newer);
	/* Before it, or after? */
	CHECK_RC(cairn_rewind(c, kept->newer), same ? CAIRN_ELAYOUT : 0);
	CHECK_RC(cairn_rewind(c, kept->id), CAIRN_ELAYOUT);
	checkpoint(&kept->newer);
	CHECK_OK(cairn_rewind(c, kept->newer));
	CHECK_U64(first_byte(at + PAGE), 'B');
	CHECK_RC(cairn_rewind(c, kept->id), CAIRN_ELAYOUT);
	restart(at);
}
