/* SPDX-License-Identifier: MIT */
/* The program break: memory comes back that the program has given up, and does so as zeros. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "rows.h"

#define PAGE 4096ul
#define LEN  (16 * PAGE)

static char *base; /* above it, LEN bytes of 'a' up to the break */

static char *now(void)
{
	return way == RAW ? (char *)syscall(SYS_brk, 0) : sbrk(0);
}

static bool move(char *to)
{
	return way == RAW ? (char *)syscall(SYS_brk, to) == to : brk(to) == 0;
}

static bool is_mapped(char *p)
{
	unsigned char vec;

	return mincore(p, PAGE, &vec) == 0;
}

static void setup_break(void)
{
	base = now();
	base += -(unsigned long)base & (PAGE - 1);
	CHECK(move(base + LEN));
	memset(base, 'a', LEN);
}

/* The content of all of it, and the break, are those of the checkpoint. */
static void found(void)
{
	CHECK(now() == base + LEN && is_all(base, LEN, 'a'));
}

static void body_falls(bool again)
{
	found();
	base[5] = 'b';
	CHECK(move(base + PAGE + 7) && now() == base + PAGE + 7);
	CHECK(move(base) && now() == base);
	if (!again)
		return;
	CHECK((char *)syscall(SYS_brk, 8) == base); /* too low: it says where it is */
	tick();
	CHECK(!is_mapped(base) && now() == base);
}

static void body_in_a_page(bool again)
{
	found();
	CHECK(move(base + LEN - 9) && move(base + LEN - 20) && now() == base + LEN - 20);
	memset(base + LEN - 20, 'b', 20);
	if (again)
		CHECK(move(base));
}

static void body_rises(bool again)
{
	found();
	for (int i = 0; i < 3; i++) {
		CHECK(move(base + PAGE + 7) && move(base + 3 * PAGE + 5));
		CHECK(is_all(base, 2 * PAGE, 'a') && is_all(base + 2 * PAGE, PAGE, 0));
		memset(base + 2 * PAGE, 'b', PAGE);
	}
	CHECK(move(base + LEN) && is_all(base + 4 * PAGE, LEN - 4 * PAGE, 0));
	CHECK(is_all(base + 2 * PAGE, PAGE, 'b') && now() == base + LEN);
	memset(base, 'c', LEN);
	if (again)
		CHECK(move(base));
}

static void body_rises_above(bool again)
{
	found();
	CHECK(move(base + PAGE) && move(base + 2 * LEN) && now() == base + 2 * LEN);
	CHECK(is_all(base, PAGE, 'a') && is_all(base + PAGE, 2 * LEN - PAGE, 0));
	memset(base, 'b', 2 * LEN);
	CHECK(move(base + LEN + 1));
	if (!again)
		return;
	CHECK(is_all(base, LEN + PAGE, 'b'));
	tick();
	CHECK(is_mapped(base + LEN) && !is_mapped(base + LEN + PAGE));
	CHECK(move(base));
}

/* There is no room: the answer is the program's own break, and what it has given up stays so. */
static void body_refused(bool again)
{
	char *wall = mmap(base + LEN + PAGE, PAGE, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	CHECK(wall == base + LEN + PAGE);
	found();
	CHECK(move(base + PAGE));
	CHECK((char *)syscall(SYS_brk, base + 2 * LEN) == base + PAGE);
	CHECK(now() == base + PAGE);
	if (!again)
		return;
	tick();
	CHECK(is_mapped(base) && !is_mapped(base + PAGE) && munmap(wall, PAGE) == 0);
	CHECK(move(base));
}

/* Something else is mapped where it was: an output. */
static void body_used_again(bool again)
{
	char *p;

	(void)again;
	CHECK(move(base + PAGE));
	outside->count++;
	p = mmap(base + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(p == base + 2 * PAGE && is_all(p, PAGE, 0));
	crash_once();
	CHECK(is_mapped(p) && !is_mapped(base + 4 * PAGE) && munmap(p, PAGE) == 0);
	CHECK(now() == base + PAGE && move(base));
}

/* A child has the break that the program has, and finds zeros above it: an output. */
static void body_forks(bool again)
{
	int status;
	pid_t pid;

	(void)again;
	CHECK(move(base + PAGE));
	outside->count++;
	pid = fork();
	if (pid == 0)
		_exit(move(base + LEN) && is_all(base + PAGE, LEN - PAGE, 0) ? 0 : 1);
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	crash_once();
	CHECK(now() == base + PAGE && move(base));
}

/* malloc gives the end of the heap back when enough of it is free. */
static char *blocks[8];

static void setup_heap(void)
{
	for (int i = 0; i < 8; i++) {
		blocks[i] = malloc(100000);
		CHECK(blocks[i]);
		memset(blocks[i], 'a' + i, 100000);
	}
}

static void body_heap(bool again)
{
	for (int i = 0; i < 8; i++)
		CHECK(is_all(blocks[i], 100000, (char)('a' + i)));
	for (int i = 8; i-- > 0;)
		free(blocks[i]);
	for (int i = 0; i < 8; i++) {
		char *p = calloc(1, 100000);

		CHECK(p && is_all(p, 100000, 0));
		memset(p, 'x', 100000);
		blocks[i] = p;
	}
	for (int i = 8; i-- > 0;)
		free(blocks[i]);
	(void)again;
}

const struct row rows_break[] = {
	{"falls", setup_break, body_falls},
	{"in_a_page", setup_break, body_in_a_page},
	{"rises", setup_break, body_rises},
	{"rises_above", setup_break, body_rises_above},
	{"refused", setup_break, body_refused},
	{"used_again", setup_break, body_used_again, .output = true},
	{"forks", setup_break, body_forks, .output = true},
	{"heap", setup_heap, body_heap, .libc_only = true},
	{0},
};
