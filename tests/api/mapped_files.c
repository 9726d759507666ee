/* SPDX-License-Identifier: MIT */
/*
 * mapped_files TRACKER [STRATEGY [SURFACE [plain]]]: private mappings of files that are no part of
 * the surface, because they cannot be written, and what a restore makes of them when the program
 * opens, writes, closes, unmaps or replaces them. `plain`: without privileges.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "mapped_files.h"

cairn_t *c;
char *name;
bool children;
struct mapped_kept *kept;

/* A file of `pages` pages: page i is all 'a' + i. */
int make_file(const char *path, size_t pages)
{
	char text[PAGE];
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

	CHECK(fd >= 0);
	for (size_t i = 0; i < pages; i++) {
		memset(text, 'a' + (int)i, PAGE);
		CHECK(write(fd, text, PAGE) == (ssize_t)PAGE);
	}
	return fd;
}

uint8_t *map_file(int prot, int fixed, void *at)
{
	int fd = make_file(name, PAGES);
	uint8_t *p = mmap(at, PAGES * PAGE, prot, MAP_PRIVATE | fixed, fd, 0);

	if (p == MAP_FAILED && prot & PROT_EXEC) /* a file system without programs */
		p = mmap(at, PAGES * PAGE, prot & ~PROT_EXEC, MAP_PRIVATE | fixed, fd, 0);
	CHECK(p != MAP_FAILED);
	close(fd);
	return p;
}

static void protect(uint8_t *at, size_t pages, int prot)
{
	CHECK(mprotect(at, pages * PAGE, prot) == 0);
}

void write_pages(uint8_t *at, size_t pages)
{
	protect(at, pages, PROT_READ | PROT_WRITE);
	memset(at, 'X', pages * PAGE);
}

void checkpoint(uint64_t *which)
{
	CHECK_RC(cairn_checkpoint(c, which), CAIRN_TAKEN);
}

/* What the kernel can read of the page: its first byte and whether it may be written, or -1. */
int first_byte(const uint8_t *page)
{
	int ends[2], got;

	CHECK(pipe(ends) == 0);
	got = write(ends[1], page, PAGE) == (ssize_t)PAGE ? 0 : -1;
	if (!got)
		CHECK(read(ends[0], kept->seen, PAGE) == (ssize_t)PAGE);
	close(ends[0]);
	close(ends[1]);
	for (size_t i = 0; !got && i < PAGE; i++)
		CHECK_U64(kept->seen[i], kept->seen[0]);
	return got ? got : kept->seen[0];
}

/* Asked by having the kernel write what is there. */
static bool is_writable(uint8_t *page)
{
	int ends[2], got;

	CHECK(pipe(ends) == 0 && write(ends[1], page, 1) == 1);
	got = (int)read(ends[0], page, 1);
	close(ends[0]);
	close(ends[1]);
	return got == 1;
}

/* All of it as the file has it, and closed. */
void check_whole(uint8_t *at)
{
	for (size_t i = 0; i < PAGES; i++) {
		CHECK_U64(first_byte(at + i * PAGE), 'a' + i);
		CHECK(!is_writable(at + i * PAGE));
	}
}

/* The program may ask the mapping which file it is, or the child of `fork` has it. */
int deleted_since(const uint8_t *at)
{
	struct stat seen;
	char link[64];

	snprintf(link, sizeof(link), "/proc/self/map_files/%lx-%lx", (unsigned long)at,
		(unsigned long)(at + PAGES * PAGE));
	return children || stat(link, &seen) == 0 ? 0 : CAIRN_ELAYOUT;
}

void restart(uint8_t *at)
{
	CHECK(munmap(at, PAGES * PAGE) == 0);
	checkpoint(&kept->newest);
}

/* Opened and written, at once, in parts, before and after checkpoints; and once more. */
static void opened(void)
{
	uint8_t *at = map_file(PROT_READ, 0, NULL);

	checkpoint(&kept->id);
	for (int again = 0; again < 3; again++) {
		write_pages(at + PAGE, 2);
		if (again > 0)
			checkpoint(&kept->newer);
		write_pages(at + 2 * PAGE, 3);
		if (again > 1) {
			protect(at + 3 * PAGE, 1, PROT_READ);
			checkpoint(&kept->newer);
		}
		CHECK_OK(cairn_rewind(c, kept->id));
		check_whole(at);
	}
	write_pages(at + PAGE, 2);
	checkpoint(&kept->newer);
	memset(at + PAGE, 'Y', PAGE);
	CHECK_OK(cairn_rewind(c, kept->newer));
	CHECK_U64(first_byte(at + PAGE), 'X');
	CHECK(is_writable(at + 2 * PAGE));
	CHECK_OK(cairn_rewind(c, kept->id));
	check_whole(at);
	restart(at);
}

/* Written before the checkpoint and closed: that is not what the file has. */
static void relocated(void)
{
	uint8_t *at = map_file(PROT_READ | PROT_WRITE, 0, NULL);

	memset(at + 2 * PAGE, 'R', 2 * PAGE);
	protect(at, PAGES, PROT_READ);
	checkpoint(&kept->id);
	for (int again = 0; again < 4; again++) {
		if (again & 1) {
			CHECK(munmap(at, PAGES * PAGE) == 0);
		} else {
			write_pages(at, PAGES);
			protect(at, 3, PROT_READ);
		}
		if (again & 2)
			checkpoint(&kept->newer);
		CHECK_OK(cairn_rewind(c, kept->id));
		for (size_t i = 0; i < PAGES; i++) {
			bool written = i == 2 || i == 3;

			CHECK_U64(first_byte(at + i * PAGE), written ? 'R' : 'a' + i);
		}
		CHECK(!is_writable(at) && !is_writable(at + 2 * PAGE) &&
			!is_writable(at + 7 * PAGE));
	}
	restart(at);
}

static uint64_t areas(void)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	return s.areas;
}

/* A long mapping: what was written in places far apart is tracked, close ones as one area. */
static void divided(void)
{
	const size_t written[] = { 10, 20, 80, 400 }, now[] = { 15, 20, 300, 400, 401 };
	const size_t pages = 1024;
	int fd = make_file(name, PAGES);
	uint64_t before = areas();
	uint8_t *at;

	CHECK(ftruncate(fd, (off_t)(pages * PAGE)) == 0);
	at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(at != MAP_FAILED);
	close(fd);
	for (size_t i = 0; i < 4; i++)
		at[written[i] * PAGE] = 'R';
	protect(at, pages, PROT_READ);
	checkpoint(&kept->id);
	CHECK_U64(areas() - before, 2);
	for (int again = 0; again < 2; again++) {
		for (size_t i = 0; i < 5; i++) {
			write_pages(at + now[i] * PAGE, 1);
			protect(at + now[i] * PAGE, 1, PROT_READ);
		}
		if (again)
			checkpoint(&kept->newer);
		CHECK_OK(cairn_rewind(c, kept->id));
		for (size_t i = 0; i < pages; i++) {
			bool own = i == 10 || i == 20 || i == 80 || i == 400;

			CHECK_U64(at[i * PAGE], own ? 'R' : i < PAGES ? 'a' + i : 0);
		}
	}
	CHECK(munmap(at, pages * PAGE) == 0);
}

/* Opened, written and closed with no checkpoint between: nothing of that is seen in the map. */
static void patched(void)
{
	uint8_t *at = map_file(PROT_READ | PROT_EXEC, 0, NULL);
	uint64_t id;

	checkpoint(&kept->id);
	CHECK_OK(cairn_rewind(c, kept->id));
	write_pages(at + 4 * PAGE, 1);
	protect(at + 4 * PAGE, 1, PROT_READ | PROT_EXEC);
	CHECK_OK(cairn_rewind(c, kept->id));
	check_whole(at);
	/* Before a checkpoint, or after it? */
	checkpoint(&kept->newer);
	write_pages(at + 5 * PAGE, 1);
	protect(at + 5 * PAGE, 1, PROT_READ | PROT_EXEC);
	checkpoint(&id);
	CHECK_OK(cairn_rewind(c, id));
	CHECK_U64(first_byte(at + 5 * PAGE), 'X');
	CHECK_OK(cairn_rewind(c, kept->newer));
	check_whole(at);
	write_pages(at + 5 * PAGE, 1);
	protect(at + 5 * PAGE, 1, PROT_READ | PROT_EXEC);
	checkpoint(&kept->newer);
	write_pages(at + 5 * PAGE, 1);
	memset(at + 5 * PAGE, 'Z', PAGE);
	protect(at + 5 * PAGE, 1, PROT_READ | PROT_EXEC);
	CHECK_OK(cairn_rewind(c, kept->newer));
	CHECK_U64(first_byte(at + 5 * PAGE), 'X');
	restart(at);
}

/* The same, and then something else becomes of it before the restore. */
static void patched_twice(void)
{
	for (int how = 0; how < 12; how++) {
		uint8_t *at = map_file(PROT_READ, 0, NULL), *page = at + 4 * PAGE;

		checkpoint(&kept->id);
		write_pages(page, 1);
		protect(page, 1, PROT_READ);
		checkpoint(&kept->newer);
		if (how % 6 == 0)
			protect(page, 1, PROT_READ | PROT_WRITE);
		if (how % 6 == 1)
			write_pages(page - PAGE, 3);
		if (how % 6 == 2)
			CHECK(madvise(at, PAGES * PAGE, MADV_DONTNEED) == 0);
		if (how % 6 == 3)
			CHECK(munmap(page, PAGE) == 0);
		if (how % 6 == 4) {
			write_pages(page, 2);
			page[7] = 'Z';
			protect(page, 2, PROT_READ);
		}
		if (how % 6 == 5)
			protect(at, PAGES, PROT_NONE);
		if (how >= 6)
			checkpoint(&kept->newest);
		CHECK_OK(cairn_rewind(c, kept->newer));
		for (size_t i = 0; i < PAGES; i++) {
			CHECK_U64(first_byte(at + i * PAGE), i == 4 ? 'X' : 'a' + i);
			CHECK(!is_writable(at + i * PAGE));
		}
		CHECK_OK(cairn_rewind(c, kept->id));
		check_whole(at);
		restart(at);
	}
}

/* Unmapped, in parts, and with something else in its place. */
static void unmapped(void)
{
	uint8_t *at = map_file(PROT_READ, 0, NULL);

	protect(at + 6 * PAGE, 1, PROT_NONE);
	checkpoint(&kept->id);
	for (int how = 0; how < 6; how++) {
		uint8_t *p = at + PAGE;

		CHECK(munmap(p, (how & 1 ? 6 : 2) * PAGE) == 0);
		if (how & 2)
			checkpoint(&kept->newer);
		if (how > 1) {
			p = mmap(p, PAGE, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
			CHECK(p == at + PAGE);
			*p = 1;
		}
		if (how > 3) {
			checkpoint(&kept->newer);
			CHECK(munmap(at, PAGES * PAGE) == 0);
			checkpoint(&kept->newer);
		}
		CHECK_OK(cairn_rewind(c, kept->id));
		CHECK_U64(first_byte(at + 6 * PAGE), -1);
		protect(at + 6 * PAGE, 1, PROT_READ);
		check_whole(at);
		CHECK_OK(cairn_rewind(c, kept->id));
		CHECK_U64(first_byte(at + 6 * PAGE), -1);
	}
	/* What it has become is still undone when it is there no more. */
	write_pages(at, 2);
	checkpoint(&kept->newer);
	CHECK(munmap(at, 4 * PAGE) == 0);
	CHECK_OK(cairn_rewind(c, kept->newer));
	CHECK_U64(first_byte(at + PAGE), 'X');
	CHECK_OK(cairn_rewind(c, kept->id));
	protect(at + 6 * PAGE, 1, PROT_READ);
	check_whole(at);
	restart(at);
}

/* A descriptor of ours that is closed would end the process's locks of the file. */
static void unmapped_locked(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_len = 10 };
	uint8_t *at = map_file(PROT_READ, 0, NULL);
	int fd = open(name, O_RDWR);

	CHECK(fd >= 0 && fcntl(fd, F_SETLK, &lock) == 0);
	checkpoint(&kept->id);
	CHECK(munmap(at, PAGES * PAGE) == 0);
	CHECK_OK(cairn_rewind(c, kept->id));
	check_whole(at);
	/* No record lock is an open file description's. */
	CHECK(fcntl(fd, F_OFD_GETLK, &lock) == 0);
	CHECK(lock.l_type == F_WRLCK || children);
	close(fd);
	restart(at);
}

/* The name leads nowhere, to another file, or to one that has become shorter. */
static void lost_names(void)
{
	char other[256];

	snprintf(other, sizeof(other), "%s.other", name);
	for (int how = 0; how < 4; how++) {
		uint8_t *at = map_file(PROT_READ, 0, NULL);
		int rc = how == 3 ? deleted_since(at) : CAIRN_ELAYOUT;

		checkpoint(&kept->id);
		CHECK(how == 3 || munmap(at + PAGE, 2 * PAGE) == 0);
		if (how == 0)
			CHECK(unlink(name) == 0);
		if (how == 1) {
			close(make_file(other, PAGES));
			CHECK(rename(other, name) == 0);
		}
		if (how == 2)
			CHECK(truncate(name, PAGE) == 0);
		if (how == 3) { /* what is still mapped needs no name */
			CHECK(unlink(name) == 0);
			write_pages(at, PAGES);
		}
		CHECK_RC(cairn_rewind(c, kept->id), rc);
		CHECK_U64(first_byte(at + PAGE), how < 3 ? -1 : rc ? 'X' : 'b');
		if (how != 2 && (how < 3 || !rc))
			CHECK_U64(first_byte(at + 7 * PAGE), 'h');
		restart(at);
	}
}

/* Shared memory lies where it was: it stays, and the restore is refused. Another file gives way. */
static void replaced(void)
{
	uint8_t *at = map_file(PROT_READ, 0, NULL), *p;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	checkpoint(&kept->id);
	p = mmap(at, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
	CHECK(p == at);
	CHECK_RC(cairn_rewind(c, kept->id), CAIRN_ELAYOUT);
	CHECK(at[1] == 'E');
	p = mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
	CHECK(p == at);
	CHECK_OK(cairn_rewind(c, kept->id));
	check_whole(at);
	close(fd);
	restart(at);
}

/* A library of the system that nobody here uses, closed, and another one loaded in its place. */
static void library(void)
{
	const char *names[] = { "libutil.so.1", "libresolv.so.2", "libnsl.so.1", "libanl.so.1" };
	void *lib = NULL;

	for (size_t i = 0; i < 4 && !lib; i++)
		lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	CHECK(lib);
	checkpoint(&kept->id);
	for (size_t i = 0; i < 8; i++) {
		CHECK(dlclose(lib) == 0);
		if (i & 4)
			checkpoint(&kept->newer);
		(void)dlopen(names[i % 4], RTLD_NOW | RTLD_LOCAL);
		if (i & 1)
			checkpoint(&kept->newer);
		CHECK_OK(cairn_rewind(c, kept->id));
	}
	CHECK(dlclose(lib) == 0);
}

/* Not to ask mappings for their files: CAP_SYS_ADMIN and CAP_CHECKPOINT_RESTORE. */
static void be_plain(void)
{
	struct {
		uint32_t version;
		int pid;
	} head = { .version = 0x20080522 };
	struct {
		uint32_t effective, permitted, inheritable;
	} caps[2];

	CHECK(syscall(SYS_capget, &head, caps) == 0);
	caps[0].effective &= ~(1u << 21);
	caps[1].effective &= ~(1u << (40 - 32));
	CHECK(syscall(SYS_capset, &head, caps) == 0);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	char path[] = "/tmp/mapped_files.XXXXXX", named[64];
	int rc, fd = mkstemp(path);
	uint8_t *before;

	CHECK(fd >= 0);
	close(fd);
	name = path;
	o.tracker = argc > 1 ? argv[1] : "async";
	o.surface = argc > 3 ? argv[3] : "all";
	if (strcmp(o.surface, "name") == 0) {
		snprintf(named, sizeof(named), "[stack],%s", strrchr(path, '/') + 1);
		o.surface = named;
	}
	o.strategy = argc > 2 ? argv[2] : "none";
	children = strcmp(o.tracker, "fork") == 0;
	if (argc > 4)
		be_plain();
	o.keep = 16;
	before = map_file(PROT_READ, 0, NULL);
	rc = cairn_open(&c, &o);
	if (rc == CAIRN_ENOTRACK || rc == CAIRN_EAREAONLY) {
		unlink(path);
		test_skip("this tracker for surface all");
	}
	CHECK_OK(rc);
	kept = mmap(NULL, sizeof(*kept), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(kept != MAP_FAILED);
	number_found_late(before);
	close(make_file(name, PAGES));
	opened();
	patched();
	if (o.surface != named) /* what is unmapped comes back without a name */
		patched_twice();
	lost_names();
	if (o.surface != named) { /* what is mapped again is memory, and has no name */
		relocated();
		divided();
	}
	if (strcmp(o.surface, "all") == 0) {
		unmapped();
		unmapped_locked();
		numbers();
		numbers_without_names();
		same_number();
		replaced();
		library();
	}
	unlink(path);
	return 0;
}
