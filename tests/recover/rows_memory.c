/* SPDX-License-Identifier: MIT */
/* Mappings: new ones go, old ones stay, content comes back. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "rows.h"

#define LEN     (16 * 4096ul)
#define RESERVE (1ul << 30)

static char *area;

static bool is_mapped(void *p)
{
	unsigned char vec;

	return mincore(p, 4096, &vec) == 0;
}

static void setup_area(void)
{
	area = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	memset(area, 'a', LEN);
}

static bool area_is(char c)
{
	return is_all(area, LEN, c);
}

static void body_mmap(bool again)
{
	char *p;

	if (again)
		CHECK(!is_mapped((void *)outside->value[0]));
	p = (char *)CALL(
		mmap, NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && p[LEN - 1] == 0);
	memset(p, 'x', LEN);
	outside->value[0] = (long)p;
	if (again)
		munmap(p, LEN);
}

/* Outside the surface, where no tracker looks: only the journal knows. */
static void body_mmap_file(bool again)
{
	int fd = open(letters(), O_RDONLY);
	char *p;

	if (again)
		CHECK(!is_mapped((void *)outside->value[0]));
	p = (char *)CALL(mmap, NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && p[3] == 'd');
	outside->value[0] = (long)p;
	close(fd);
	if (again)
		munmap(p, 4096);
}

static void setup_shared(void)
{
	area = mmap(NULL, LEN, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
}

static void body_mprotect_shared(bool again)
{
	/* A futex call must read the word; it says EFAULT if it may not. */
	if (again)
		CHECK(syscall(SYS_futex, area, 0 /* FUTEX_WAIT */, 1, NULL) == -1 &&
			errno == EAGAIN);
	CHECK(CALL(mprotect, area, LEN, PROT_NONE) == 0);
	if (again)
		munmap(area, LEN);
}

static void body_munmap(bool again)
{
	if (again)
		tick(); /* if the munmap were still pending it would be done now */
	CHECK(is_mapped(area) && area_is('a'));
	area[0] = 'b';
	CHECK(CALL(munmap, area, LEN) == 0);
}

/* As a library that is closed: a file that can be executed, but not written by that. */
static void setup_program(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);

	area = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(area != MAP_FAILED);
	close(fd);
}

static void body_munmap_program(bool again)
{
	if (again)
		tick();
	CHECK(is_mapped(area) && area[1] == 'E');
	CHECK(CALL(munmap, area, 4096) == 0);
}

/* The middle of a mapping, and something new in its place. */
static void body_remap_over(bool again)
{
	CHECK(area_is('a'));
	area[5] = 'b';
	CHECK(CALL(munmap, area + 4096, 4096) == 0);
	area[6] = 'b';
	if (again)
		munmap(area, LEN);
}

static void body_mprotect(bool again)
{
	CHECK(area_is('a'));
	area[3] = 'b'; /* would crash here if it were still read-only */
	memset(area, 'c', LEN);
	CHECK(CALL(mprotect, area, LEN, PROT_READ) == 0);
	if (again)
		munmap(area, LEN);
}

/* Nothing is left of it to be protected as it was. */
static void body_mprotect_new(bool again)
{
	char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	p[4096] = 'x';
	CHECK(CALL(mprotect, p, LEN, PROT_READ) == 0);
	CHECK(CALL(mprotect, p + 4096, 4096, PROT_READ | PROT_WRITE) == 0);
	p[4096] = 'y';
	p = mmap(NULL, RESERVE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(p != MAP_FAILED && CALL(mprotect, p, RESERVE, PROT_READ | PROT_WRITE) == 0);
	p[4096] = 'z';
	if (again)
		munmap(p, RESERVE);
}

/* A hole below, which what is mapped there makes one mapping with the memory above. */
static void setup_hole(void)
{
	char *hole = mmap(
		NULL, 2 * LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(hole != MAP_FAILED);
	area = hole + LEN;
	memset(area, 'a', LEN);
	CHECK(munmap(hole, LEN) == 0);
}

static void body_mprotect_joined(bool again)
{
	char *hole = area - LEN;

	CHECK(area_is('a'));
	area[3] = 'b'; /* would crash here if it were still read-only */
	CHECK(mmap(hole, LEN, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == hole);
	hole[0] = 'x';
	CHECK(CALL(mprotect, hole, 2 * LEN, PROT_READ) == 0);
	if (again)
		munmap(hole, 2 * LEN);
}

static void setup_read_only(void)
{
	setup_area();
	CHECK(mprotect(area, LEN, PROT_READ) == 0);
}

/* The other way round: written when it was opened, and closed again after the crash. */
static void body_mprotect_open(bool again)
{
	int fd = open(letters(), O_RDONLY);

	CHECK(area_is('a'));
	CHECK(read(fd, area, 1) == -1 && errno == EFAULT);
	CHECK(CALL(mprotect, area, LEN, PROT_READ | PROT_WRITE) == 0);
	memset(area, 'c', LEN);
	close(fd);
	if (again)
		munmap(area, LEN);
}

static void map_file(int prot)
{
	int fd = memfd_create("file", 0);
	char text[LEN];

	memset(text, 'a', LEN);
	CHECK(fd >= 0 && write(fd, text, LEN) == LEN);
	tick();
	area = mmap(NULL, LEN, prot, MAP_PRIVATE, fd, 0);
	CHECK(area != MAP_FAILED);
	close(fd);
}

/* A read-only mapping of a file is no part of what comes back, until it can be written. */
static void setup_file_to_read(void)
{
	map_file(PROT_READ);
	tick();
	CHECK(mprotect(area, LEN, PROT_READ | PROT_WRITE) == 0);
}

/* No checkpoint lies between the mapping, or what was read of it last, and the call. */
static void setup_file_unseen(void)
{
	map_file(PROT_READ);
	tick();
}

static void body_mprotect_unseen(bool again)
{
	CHECK(is_mapped(area + 4096) && area_is('a'));
	CHECK(CALL(mprotect, area + 4096, 2 * 4096, PROT_READ | PROT_WRITE) == 0);
	memset(area + 4096, 'c', 2 * 4096);
	if (again)
		munmap(area, LEN);
}

/* Written and closed again, as code that is patched. */
static void body_mprotect_patched(bool again)
{
	CHECK(area_is('a'));
	CHECK(mprotect(area, LEN, PROT_READ | PROT_WRITE) == 0);
	memset(area + 4096, 'c', 2 * 4096);
	CHECK(CALL(mprotect, area, LEN, PROT_READ) == 0);
	if (again)
		munmap(area, LEN);
}

/* Read-only, and not what the file has. */
static void setup_constants(void)
{
	map_file(PROT_READ | PROT_WRITE);
	memset(area, 'r', LEN / 2);
	CHECK(mprotect(area, LEN, PROT_READ) == 0);
}

static void body_constants(bool again)
{
	CHECK(is_mapped(area) && area[0] == 'r' && area[LEN / 2 - 1] == 'r');
	CHECK(is_mapped(area + LEN / 2) && area[LEN / 2] == 'a' && area[LEN - 1] == 'a');
	CHECK(CALL(mprotect, area, LEN, PROT_READ | PROT_WRITE) == 0);
	memset(area, 'c', LEN);
	if (again)
		munmap(area, LEN);
}

/* Twice, over different parts: the protections of the checkpoint come back one by one. */
static void body_mprotect_twice(bool again)
{
	CHECK(area_is('a'));
	memset(area, 'c', LEN);
	CHECK(CALL(mprotect, area + 4096, 2 * 4096, PROT_READ) == 0);
	CHECK(CALL(mprotect, area + 4096, 4096, PROT_READ | PROT_WRITE) == 0);
	area[4096] = 'd';
	if (again)
		munmap(area, LEN);
}

static void setup_reserve(void)
{
	area = mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(area != MAP_FAILED);
}

/* As malloc's arenas grow: no hole may be left where the reserve was. */
static void body_mprotect_reserve(bool again)
{
	CHECK(is_mapped(area) && is_mapped(area + 4096) && is_mapped(area + LEN - 4096));
	CHECK(CALL(mprotect, area + 4096, 4 * 4096, PROT_READ | PROT_WRITE) == 0);
	CHECK(area[4096] == 0 && area[4 * 4096] == 0);
	memset(area + 4096, 'c', 4 * 4096);
	if (again)
		munmap(area, LEN);
}

/* And as they shrink: what is closed joins the reserve behind it, which was never open. */
static void setup_opened_reserve(void)
{
	setup_reserve();
	CHECK(mprotect(area, 4 * 4096, PROT_READ | PROT_WRITE) == 0);
	memset(area, 'a', 4 * 4096);
}

static void body_mprotect_shrink(bool again)
{
	CHECK(is_mapped(area + 4 * 4096) && is_mapped(area + LEN - 4096));
	CHECK(area[0] == 'a' && area[4 * 4096 - 1] == 'a');
	memset(area, 'c', 4 * 4096);
	CHECK(CALL(mprotect, area, 4 * 4096, PROT_NONE) == 0);
	if (again)
		munmap(area, LEN);
}

/*
 * As .data of a loaded object behind the part that is read-only once it is relocated: where a
 * tracker protects .data, the kernel makes one mapping of both.
 */
static void setup_relocated(void)
{
	/* The mappings are known; they are looked at again only because of what follows. */
	CHECK(poll(NULL, 0, 0) == 0);
	tick();
	map_file(PROT_READ | PROT_WRITE);
	memset(area, 'r', LEN / 2);
	memset(area + LEN / 2, 'd', LEN / 2);
	CHECK(mprotect(area, LEN / 2, PROT_READ) == 0);
}

static void body_relocated(bool again)
{
	void *other;

	CHECK(is_mapped(area) && area[0] == 'r' && area[LEN / 2 - 1] == 'r');
	CHECK(area[LEN / 2] == 'd' && area[LEN - 1] == 'd');
	/* So that mappings are looked at again. */
	other = (void *)CALL(
		mmap, NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(other != MAP_FAILED);
	if (again)
		munmap(area, LEN);
}

static void body_mprotect_part(bool again)
{
	CHECK(area_is('a'));
	memset(area, 'c', LEN);
	CHECK(CALL(mprotect, area + 4096, 2 * 4096, PROT_NONE) == 0);
	if (again)
		munmap(area, LEN);
}

static void body_dontneed(bool again)
{
	CHECK(area_is('a'));
	CHECK(CALL(madvise, area, LEN, MADV_DONTNEED) == 0);
	CHECK(area[0] == 0 && area[LEN - 1] == 0);
	if (again)
		munmap(area, LEN);
}

static void body_free(bool again)
{
	CHECK(area_is('a'));
	CHECK(CALL(madvise, area, LEN, MADV_FREE) == 0);
	if (again)
		munmap(area, LEN);
}

/* Only anonymous memory is freed lazily: a file's mapping keeps what was written to it. */
static void setup_private(void)
{
	int fd = open(letters(), O_RDONLY);

	CHECK(fd >= 0);
	area = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(area != MAP_FAILED);
	close(fd);
	area[0] = 'p';
}

static void body_free_file(bool again)
{
	CHECK(area[0] == 'p');
	CHECK(CALL(madvise, area, 4096, MADV_FREE) == -1 && errno == EINVAL);
	CHECK(area[0] == 'p');
}

/* The last page is shared memory. */
static void setup_part(void)
{
	char *last;

	setup_area();
	last = mmap(area + LEN - 4096, 4096, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(last == area + LEN - 4096);
	memset(last, 'a', 4096);
}

/* Up to what cannot be freed it is. */
static void body_free_part(bool again)
{
	CHECK(area_is('a'));
	CHECK(CALL(madvise, area, LEN, MADV_FREE) == -1 && errno == EINVAL);
	CHECK(area[LEN - 4096] == 'a');
	if (again)
		munmap(area, LEN);
}

static void body_brk(bool again)
{
	char *now = (char *)syscall(SYS_brk, 0);

	if (again)
		CHECK(now == (char *)outside->value[0]);
	outside->value[0] = (long)now;
	CHECK((char *)syscall(SYS_brk, now + 65536) == now + 65536);
	memset(now, 'z', 65536);
	if (again)
		CHECK((char *)syscall(SYS_brk, now) == now);
}

/* The allocator as a whole: big blocks are mappings, small ones the heap. */
static char *blocks[64];

static void setup_malloc(void)
{
	for (int i = 0; i < 64; i++) {
		blocks[i] = malloc((size_t)1 << (i % 20));
		memset(blocks[i], i, (size_t)1 << (i % 20));
	}
}

static void body_malloc(bool again)
{
	for (int i = 0; i < 64; i++)
		CHECK(blocks[i][0] == i && blocks[i][((size_t)1 << (i % 20)) - 1] == i);
	for (int i = 0; i < 64; i += 2)
		free(blocks[i]);
	for (int i = 0; i < 1000; i++) {
		char *p = malloc((size_t)i * 1000);

		if (p)
			memset(p, 7, (size_t)i * 1000);
		if (i % 3)
			free(p);
	}
}

/*
 * A buffer that the kernel writes while it is clean: each byte, none missing, and the old ones
 * back.
 */
static void body_kernel_writes(bool again)
{
	FILE *f = fopen(letters(), "r");

	CHECK(f && area_is('a'));
	CHECK(CALL(read, fileno(f), area + 4090, 26) == 26 &&
		!memcmp(area + 4090, "abcdefghijklmnopqrstuvwxyz", 26));
	fclose(f);
	if (again)
		munmap(area, LEN);
}

/* A checkpoint from the end of a stack that has grown far since the last one. */
static void descend(int depth)
{
	volatile char frame[4096];

	for (size_t i = 0; i < sizeof(frame); i++)
		frame[i] = 'a';
	if (depth > 0)
		descend(depth - 1);
	else
		tick();
	for (size_t i = 0; i < sizeof(frame); i++)
		CHECK(frame[i] == 'a');
	for (size_t i = 0; depth == 0 && i < sizeof(frame); i++)
		frame[i] = 'b';
	if (depth == 0)
		crash_once();
}

static void body_deep(bool again)
{
	outside->count = 1;
	descend(200);
}

/* Refused, but what had been given up was given back for it. */
static void body_map_refused(bool again)
{
	(void)again;
	CHECK(munmap(area + 4096, LEN - 4096) == 0);
	CHECK(mmap(area, LEN, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
		      0) == MAP_FAILED && errno == EEXIST);
	outside->count = 1;
	crash_once();
	CHECK(munmap(area, 4096) == 0);
}

static void setup_before_hole(void)
{
	area = mmap(NULL, 2 * LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(area != MAP_FAILED && munmap(area + LEN, LEN) == 0);
}

/* Up to a hole: the kernel changes what is mapped before that, and refuses. */
static void body_protect_refused(bool again)
{
	(void)again;
	CHECK(mprotect(area + LEN / 2, LEN, PROT_READ | PROT_WRITE) == -1 && errno == ENOMEM);
	outside->count = 1;
	crash_once();
	CHECK(is_mapped(area) && is_mapped(area + LEN / 2));
	memset(area + LEN / 2, 'x', LEN / 2);
	CHECK(munmap(area, LEN) == 0);
}

/* What has been given up is no memory any more. */
static void body_protect_given_up(bool again)
{
	(void)again;
	CHECK(munmap(area, LEN) == 0);
	CHECK(mprotect(area, LEN, PROT_READ) == -1 && errno == ENOMEM);
	outside->count = 1;
	crash_once();
	CHECK(!is_mapped(area));
}

/* A file of data in two parts is no loaded object. */
static void setup_parts(void)
{
	int fd = open(letters(), O_RDWR);

	CHECK(fd >= 0);
	CHECK(ftruncate(fd, 2 * 4096) == 0);
	area = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(area != MAP_FAILED && mprotect(area, 4096, PROT_READ) == 0);
	area[4096] = 'A';
	for (int i = 0; i < 40; i++) /* no strategy takes it for hot any more */
		tick();
	close(fd);
}

static void body_drop_part(bool again)
{
	CHECK(area[4096] == 'A');
	CHECK(madvise(area + 4096, 4096, MADV_DONTNEED) == 0);
	if (again)
		CHECK(munmap(area, 2 * 4096) == 0 && truncate(letters(), 26) == 0);
}

static char variables[3 * 4096] __attribute__((aligned(4096))) = {1};

static void setup_variables(void)
{
	variables[4096] = 'A';
	for (int i = 0; i < 40; i++)
		tick();
}

static void body_drop_variables(bool again)
{
	CHECK(variables[4096] == 'A' && !madvise(variables + 4096, 4096, MADV_DONTNEED));
}

const struct row rows_memory[] = {
	{"mmap", NULL, body_mmap},
	{"mmap_file", NULL, body_mmap_file},
	{"mprotect_shared", setup_shared, body_mprotect_shared},
	{"munmap", setup_area, body_munmap},
	{"munmap_program", setup_program, body_munmap_program},
	{"munmap_part", setup_area, body_remap_over},
	{"mmap_refused", setup_area, body_map_refused, .output = true},
	{"mprotect", setup_area, body_mprotect},
	{"mprotect_new", NULL, body_mprotect_new},
	{"mprotect_joined", setup_hole, body_mprotect_joined},
	{"mprotect_open", setup_read_only, body_mprotect_open},
	{"mprotect_file", setup_file_to_read, body_mprotect},
	{"mprotect_unseen", setup_file_unseen, body_mprotect_unseen},
	{"mprotect_patched", setup_file_unseen, body_mprotect_patched},
	{"constants", setup_constants, body_constants},
	{"mprotect_twice", setup_area, body_mprotect_twice},
	{"mprotect_reserve", setup_reserve, body_mprotect_reserve},
	{"mprotect_shrink", setup_opened_reserve, body_mprotect_shrink},
	{"relocated", setup_relocated, body_relocated},
	{"mprotect_part", setup_area, body_mprotect_part},
	{"mprotect_refused", setup_before_hole, body_protect_refused, .output = true},
	{"mprotect_given_up", setup_area, body_protect_given_up, .output = true},
	{"madvise_dontneed", setup_area, body_dontneed},
	{"madvise_part_of_file", setup_parts, body_drop_part},
	{"madvise_variables", setup_variables, body_drop_variables},
	{"madvise_free", setup_area, body_free},
	{"madvise_free_file", setup_private, body_free_file},
	{"madvise_free_part", setup_part, body_free_part},
	{"brk", NULL, body_brk},
	{"malloc", setup_malloc, body_malloc},
	{"kernel_writes", setup_area, body_kernel_writes},
	{"deep_stack", NULL, body_deep, .output = true},
	{0},
};
