/* SPDX-License-Identifier: MIT */
/* mremap: blocks that shrink, grow and move are where they were, with their content. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "rows.h"

#define PAGE 4096ul
#define LEN  (16 * PAGE)

static char *area;

static void setup_area(void)
{
	area = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	memset(area, 'a', LEN);
}

static bool is_mapped(const char *p)
{
	unsigned char vec;

	return mincore((void *)p, PAGE, &vec) == 0;
}

static char *remap(char *p, size_t old, size_t new)
{
	return (char *)CALL(mremap, p, old, new, MREMAP_MAYMOVE);
}

static void body_shrinks(bool again)
{
	CHECK(is_all(area, LEN, 'a'));
	area[3 * PAGE] = 'b';
	CHECK(remap(area, LEN, 2 * PAGE) == area && is_all(area, 2 * PAGE, 'a'));
	memset(area, 'c', 2 * PAGE);
	if (!again)
		return;
	tick();
	CHECK(is_mapped(area + PAGE) && !is_mapped(area + 2 * PAGE));
	munmap(area, 2 * PAGE);
}

static void body_grows(bool again)
{
	char *p = area;

	CHECK(is_all(area, LEN, 'a'));
	if (again)
		CHECK(!is_mapped((char *)outside->value[0]));
	for (size_t len = LEN; len < 8 * LEN; len *= 2) {
		p = remap(p, len, 2 * len);
		CHECK(p != MAP_FAILED && is_all(p, LEN, 'a') && is_all(p + len, len, 0));
	}
	outside->value[0] = (long)p;
	memset(p, 'b', 8 * LEN);
	if (!again)
		return;
	tick();
	CHECK(is_all(p, 8 * LEN, 'b') && (p == area || !is_mapped(area)));
	munmap(p, 8 * LEN);
}

/* A child has no more of it than the program believes that there is: an output. */
static void body_grows_and_forks(bool again)
{
	char *p = remap(area, LEN, 2 * LEN);
	int status;
	pid_t pid;

	(void)again;
	CHECK(p != MAP_FAILED);
	outside->count++;
	pid = fork();
	if (pid == 0)
		_exit(is_all(p, LEN, 'a') && !is_mapped(area) ? 0 : 1);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	crash_once();
	CHECK(is_all(p, LEN, 'a') && munmap(p, 2 * LEN) == 0);
}

/* Blocks of realloc that are mappings. */
static char *block;

static void setup_block(void)
{
	block = malloc(50 * LEN);
	CHECK(block);
	memset(block, 'a', 50 * LEN);
	block = realloc(block, 10 * LEN);
	CHECK(block);
}

static void body_realloc(bool again)
{
	CHECK(is_all(block, 10 * LEN, 'a'));
	block = realloc(block, 14 * LEN);
	CHECK(block && is_all(block, 10 * LEN, 'a'));
	memset(block, 'b', 14 * LEN);
	block = realloc(block, 15 * LEN);
	CHECK(block && is_all(block, 14 * LEN, 'b'));
	block = realloc(block, 3 * LEN);
	CHECK(block && is_all(block, 3 * LEN, 'b'));
	if (again)
		free(block);
}

/*
 * A copy would lack what was said of the mapping, so it is moved by the kernel: an output. The last
 * row: from here on any mapping may be such a one.
 */
static void setup_marked(void)
{
	setup_area();
	CHECK(madvise(area, LEN, MADV_DONTFORK) == 0);
}

static void body_marked(bool again)
{
	char *p;
	int status;
	pid_t pid;

	(void)again;
	outside->count++;
	p = remap(area, LEN, 2 * LEN);
	CHECK(p != MAP_FAILED);
	crash_once();
	pid = fork();
	if (pid == 0)
		_exit(is_mapped(p));
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(is_all(p, LEN, 'a') && munmap(p, 2 * LEN) == 0);
}

const struct row rows_remap[] = {
	{"shrinks", setup_area, body_shrinks},
	{"grows", setup_area, body_grows},
	{"grows_and_forks", setup_area, body_grows_and_forks, .output = true},
	{"realloc", setup_block, body_realloc, .libc_only = true},
	{"marked", setup_marked, body_marked, .output = true},
	{0},
};
