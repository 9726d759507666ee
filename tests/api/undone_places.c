/* SPDX-License-Identifier: MIT */
/*
 * undone_places TRACKER: what a restore of surface "all" does to mappings that have changed in
 * several steps, so that what it undoes first is in the way of the rest.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "../lib/harness.h"

#define PAGE 4096ul

static cairn_t *c;
static struct {
	uint64_t id, newer;
} *kept; /* shared, so that no restore takes it back */

static uint8_t *map_at(void *at, size_t pages, int fixed)
{
	uint8_t *p = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void checkpoint(uint64_t *which)
{
	CHECK_RC(cairn_checkpoint(c, which), CAIRN_TAKEN);
}

static int any_change(void *at, void *addr, size_t len, const void *before, const void *after)
{
	return (uint8_t *)addr >= (uint8_t *)at && (uint8_t *)addr < (uint8_t *)at + 4 * PAGE;
}

/* What comes back is as old as it was: the checkpoints before its birth know nothing of it. */
static void back_at_its_age(void)
{
	uint8_t *at = map_at(NULL, 6, 0) + PAGE, byte;
	uint64_t before;

	munmap(at - PAGE, 6 * PAGE);
	checkpoint(&before);
	CHECK(map_at(at, 2, MAP_FIXED_NOREPLACE) == at);
	memset(at, 1, 2 * PAGE);
	checkpoint(&kept->id);
	CHECK(map_at(at + 2 * PAGE, 2, MAP_FIXED_NOREPLACE) == at + 2 * PAGE);
	memset(at + 2 * PAGE, 2, 2 * PAGE);
	checkpoint(&kept->newer);
	CHECK(munmap(at, 4 * PAGE) == 0);
	CHECK_OK(cairn_rewind(c, kept->newer));
	CHECK(at[PAGE] == 1 && at[3 * PAGE] == 2);
	for (size_t i = 0; i < 4; i++)
		CHECK_RC(cairn_peek(c, before, at + i * PAGE, &byte, 1), CAIRN_ENOTAREA);
	CHECK_OK(cairn_peek(c, kept->id, at, &byte, 1));
	CHECK(byte == 1);
	CHECK_RC(cairn_peek(c, kept->id, at + 2 * PAGE, &byte, 1), CAIRN_ENOTAREA);
	CHECK_OK(cairn_peek(c, kept->newer, at + 2 * PAGE, &byte, 1));
	CHECK(byte == 2);
	CHECK_OK(cairn_changes(c, before, kept->newer, any_change, at));
	CHECK_OK(cairn_changes(c, kept->id, CAIRN_NOW, any_change, at));
	at[0] = 3;
	CHECK_OK(cairn_rewind(c, kept->id));
	CHECK(at[0] == 1 && at[2 * PAGE - 1] == 1);
	CHECK(access((char *)at + 2 * PAGE, F_OK) < 0 && errno == EFAULT);
	CHECK_OK(cairn_rewind(c, before));
	CHECK(access((char *)at, F_OK) < 0 && errno == EFAULT);
}

/* Memory that was no part of the surface at the later one of two checkpoints is not compared. */
static void absent_at_the_end(void)
{
	uint8_t *at = map_at(NULL, 6, 0) + PAGE;

	munmap(at - PAGE, 6 * PAGE);
	CHECK(map_at(at, 4, MAP_FIXED_NOREPLACE) == at);
	memset(at, 1, 4 * PAGE);
	checkpoint(&kept->id);
	CHECK(mmap(at, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1,
		0) == at);
	memset(at, 2, 4 * PAGE);
	checkpoint(&kept->newer);
	CHECK_OK(cairn_changes(c, kept->id, kept->newer, any_change, at));
	map_at(at, 4, MAP_FIXED);
	memset(at, 3, 4 * PAGE);
	CHECK_OK(cairn_changes(c, kept->id, kept->newer, any_change, at));
	CHECK(cairn_changes(c, kept->id, CAIRN_NOW, any_change, at) == 1);
	CHECK_OK(cairn_changes(c, kept->id, kept->newer, any_change, at));
	checkpoint(&kept->newer);
	CHECK(cairn_changes(c, kept->id, kept->newer, any_change, at) == 1);
	CHECK(munmap(at, 4 * PAGE) == 0);
	checkpoint(&kept->newer); /* or what is mapped there next counts as the same memory */
}

/* Pages of two ages are closed by one call; those of the younger one will be gone. */
static void closed_at_once(void)
{
	uint8_t *at = map_at(NULL, 8, 0) + 4 * PAGE;

	munmap(at - 4 * PAGE, 4 * PAGE);
	memset(at, 1, 4 * PAGE);
	checkpoint(&kept->id);
	CHECK(map_at(at - 4 * PAGE, 4, MAP_FIXED_NOREPLACE) == at - 4 * PAGE);
	checkpoint(&kept->newer);
	CHECK(mprotect(at - PAGE, 2 * PAGE, PROT_READ) == 0);
	checkpoint(&kept->newer);
	CHECK_OK(cairn_rewind(c, kept->id));
	at[0] = 2;
	CHECK_OK(cairn_rewind(c, kept->id));
	CHECK(at[0] == 1);
}

static void set_break(uint8_t *end)
{
	CHECK(syscall(SYS_brk, end) == (long)end);
}

/* The heap has grown in steps, and ends below where it ended. */
static void shrunk_heap(void)
{
	uint8_t *heap = (uint8_t *)(((uintptr_t)syscall(SYS_brk, 0) + PAGE - 1) & ~(PAGE - 1));

	set_break(heap + 2 * PAGE);
	memset(heap, 1, 2 * PAGE);
	checkpoint(&kept->id);
	for (size_t to = 1, from = to; to < 14; from = to, to += 6) {
		set_break(heap + to * PAGE);
		memset(heap + from * PAGE, 2, (to - from) * PAGE);
		checkpoint(&kept->newer);
	}
	set_break(heap + PAGE);
	CHECK_OK(cairn_rewind(c, kept->id));
	CHECK(syscall(SYS_brk, 0) == (long)(heap + 2 * PAGE));
	for (size_t i = 0; i < 2 * PAGE; i++)
		CHECK_U64(heap[i], 1);
	set_break(heap + 9 * PAGE);
	heap[8 * PAGE] = 3;
	CHECK_OK(cairn_rewind(c, kept->id));
}

static uint8_t *reserve(uint8_t *at, size_t pages, int fixed)
{
	uint8_t *p = mmap(at, pages * PAGE, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void open_pages(uint8_t *at, size_t pages)
{
	CHECK(mprotect(at, pages * PAGE, PROT_READ | PROT_WRITE) == 0);
	memset(at, 2, pages * PAGE);
}

/* Nobody can map anything where the program has reserved addresses, and it can open them. */
static void check_reserved(uint8_t *at, size_t pages)
{
	for (size_t i = 0; i < pages; i++) {
		uint8_t *p = mmap(at + i * PAGE, PAGE, PROT_READ,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		CHECK(p == MAP_FAILED);
	}
	open_pages(at, pages);
}

/* As malloc's arenas: a reservation that is opened bit by bit, and unmapped as a whole. */
static void reserved(void)
{
	uint8_t *at = reserve(NULL, 16, 0);

	open_pages(at, 4);
	checkpoint(&kept->id);
	open_pages(at + 4 * PAGE, 2);
	checkpoint(&kept->newer);
	open_pages(at + 6 * PAGE, 2);
	CHECK_OK(cairn_rewind(c, kept->id));
	check_reserved(at + 4 * PAGE, 1);
	checkpoint(&kept->newer);
	CHECK(munmap(at, 16 * PAGE) == 0);
	checkpoint(&kept->newer);
	CHECK(map_at(at + 8 * PAGE, 1, MAP_FIXED_NOREPLACE) == at + 8 * PAGE);
	checkpoint(&kept->newer);
	CHECK_OK(cairn_rewind(c, kept->id));
	check_reserved(at + 4 * PAGE, 12);
	CHECK(at[3 * PAGE] == 2);
	CHECK(munmap(at, 16 * PAGE) == 0);
}

/* Protections of what has been there meanwhile do not open it. */
static void reserved_under_others(void)
{
	uint8_t *at = reserve(NULL, 4, 0);

	open_pages(at, 2);
	checkpoint(&kept->id);
	CHECK(munmap(at, 4 * PAGE) == 0);
	checkpoint(&kept->newer);
	CHECK(map_at(at, 4, MAP_FIXED_NOREPLACE) == at);
	CHECK(mprotect(at + 3 * PAGE, PAGE, PROT_READ) == 0);
	checkpoint(&kept->newer);
	CHECK(munmap(at, 4 * PAGE) == 0);
	checkpoint(&kept->newer);
	CHECK_OK(cairn_rewind(c, kept->id));
	CHECK(access((char *)at + 3 * PAGE, F_OK) < 0 && errno == EFAULT);
	check_reserved(at + 2 * PAGE, 2);
}

/* What was reserved after the checkpoint makes room for what was there before. */
static void reserved_since(void)
{
	uint8_t *at = map_at(NULL, 8, 0);

	memset(at, 1, 8 * PAGE);
	checkpoint(&kept->id);
	CHECK(munmap(at, 8 * PAGE) == 0);
	reserve(at, 8, MAP_FIXED_NOREPLACE);
	checkpoint(&kept->newer);
	open_pages(at, 8);
	checkpoint(&kept->newer);
	CHECK_OK(cairn_rewind(c, kept->id));
	for (size_t i = 0; i < 8 * PAGE; i++)
		CHECK_U64(at[i], 1);
}

/*
 * What holds an excluded byte stays where addresses were reserved. The rest of it goes once it is a
 * mapping of its own.
 */
static void reserved_under_excluded(void)
{
	uint8_t *at = reserve(NULL, 4, 0);

	checkpoint(&kept->id);
	map_at(at, 4, MAP_FIXED);
	CHECK_OK(cairn_area_exclude(c, at, 1));
	at[0] = 3;
	CHECK_OK(cairn_rewind(c, kept->id));
	CHECK(madvise(at, PAGE, MADV_RANDOM) == 0);
	for (int again = 0; again < 3; again++) {
		CHECK_OK(cairn_rewind(c, kept->id));
		CHECK(at[0] == 3);
	}
	check_reserved(at + PAGE, 3);
}

/* An excluded byte of a file that has come since is not given up for what was there before. */
static void file_under_excluded(void)
{
	uint8_t *at = map_at((void *)0x200000000000, 4, MAP_FIXED_NOREPLACE);
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	memset(at, 1, 4 * PAGE);
	checkpoint(&kept->id);
	CHECK(munmap(at, 4 * PAGE) == 0);
	checkpoint(&kept->newer);
	CHECK(mmap(at, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == at);
	CHECK_OK(cairn_area_exclude(c, at + 1, 1));
	for (int checkpoints = 0; checkpoints < 2; checkpoints++) {
		CHECK_RC(cairn_rewind(c, kept->id), CAIRN_ELAYOUT);
		CHECK(!memcmp(at, "\177ELF", 4));
		checkpoint(&kept->newer);
	}
	CHECK_OK(cairn_rewind(c, kept->newer));
	CHECK(at[1] == 'E');
	close(fd);
}

/* But the rest of it is, if what was there before lies beside such a byte. */
static void file_beside_excluded(void)
{
	uint8_t *at = map_at((void *)0x200100000000, 4, MAP_FIXED_NOREPLACE);
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK(munmap(at, 2 * PAGE) == 0);
	memset(at + 2 * PAGE, 1, 2 * PAGE);
	checkpoint(&kept->id);
	CHECK(munmap(at + 2 * PAGE, 2 * PAGE) == 0);
	checkpoint(&kept->newer);
	CHECK(mmap(at, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == at);
	CHECK_OK(cairn_area_exclude(c, at + 1, 1));
	CHECK_OK(cairn_rewind(c, kept->id));
	CHECK(at[1] == 'E' && at[2 * PAGE] == 1 && at[4 * PAGE - 1] == 1);
	close(fd);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	int rc;

	o.tracker = argc > 1 ? argv[1] : "async";
	o.surface = "all";
	o.strategy = argc > 2 ? argv[2] : "none";
	o.keep = 16;
	rc = cairn_open(&c, &o);
	if (rc == CAIRN_ENOTRACK || rc == CAIRN_EAREAONLY)
		test_skip("this tracker for surface all");
	CHECK_OK(rc);
	kept = mmap(NULL, sizeof(*kept), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(kept != MAP_FAILED);
	closed_at_once();
	shrunk_heap();
	reserved();
	reserved_under_others();
	reserved_since();
	back_at_its_age();
	absent_at_the_end();
	/* the last, for the bytes stay excluded */
	reserved_under_excluded();
	file_under_excluded();
	file_beside_excluded();
	return 0;
}
