/* SPDX-License-Identifier: MIT */
/*
 * A program that cairn-cc has built changes its mappings in an interval that is undone: they are as
 * they were, and so is what they held. And what is unmapped for good goes. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "../lib/harness.h"

#define LEN   (64 * 4096ul)
#define FRESH 16

/* Not turned back. */
static struct outside {
	int pipe[2], self;
	volatile int round;
	char *fresh[FRESH]; /* where the undone interval mapped something */
	int fresh_count;
} *outside;

static char *area, *reserve, *heap; /* LEN bytes each; the last one below the break */
static char *shut; /* LEN bytes, too, that can only be read, or not even that */
static char *code; /* a page that can be run, nothing, and another such page */

static int mapped(const char *at)
{
	unsigned char in;

	return !mincore((void *)at, 4096, &in) || errno != ENOMEM;
}

/* As the kernel sees it, so that no signal is needed. */
static int writable(char *at)
{
	ssize_t n;

	CHECK(write(outside->pipe[1], "w", 1) == 1);
	n = syscall(SYS_read, outside->pipe[0], at, 1);
	if (n == 1)
		return 1;
	CHECK(errno == EFAULT && syscall(SYS_read, outside->pipe[0], &n, 1) == 1);
	return 0;
}

static void fill(int seed)
{
	CHECK(!mprotect(shut, LEN, PROT_READ | PROT_WRITE));
	for (size_t i = 0; i < LEN; i++)
		shut[i] = area[i] = heap[i] = (char)((i >> 3) * 31 + i + (size_t)seed);
	CHECK(!mprotect(shut, LEN, seed / 32 & 1 ? PROT_READ : PROT_NONE));
}

static void check(int seed)
{
	CHECK(!writable(shut) && !mprotect(shut, LEN, PROT_READ));
	for (size_t i = 0; i < LEN; i++)
		CHECK(area[i] == (char)((i >> 3) * 31 + i + (size_t)seed) && heap[i] == area[i] &&
			shut[i] == area[i]);
	CHECK(sbrk(0) == heap + LEN);
	for (int i = 0; i < outside->fresh_count; i++)
		CHECK(!mapped(outside->fresh[i]));
	((void (*)(void))code)();
	CHECK(!mapped(code + 4096));
	((void (*)(void))(code + 8192))();
	CHECK(!writable(reserve));
	/* It can be stored to, from the first page to the last. */
	area[0]++;
	area[LEN - 1]++;
	area[0]--;
	area[LEN - 1]--;
}

static char *get(void *at, size_t len, int flags)
{
	char *got = mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1,
		0);

	CHECK(got != MAP_FAILED);
	return got;
}

static char *get_fresh(size_t len)
{
	char *got = get(NULL, len, 0);

	outside->fresh[outside->fresh_count++] = got;
	memset(got, 7, len);
	return got;
}

static void unmaps(void)
{
	memset(area, 1, 5000);
	CHECK(!munmap(area, LEN));
	get_fresh(LEN);
}

static void unmaps_in_part(void)
{
	CHECK(!munmap(area + 4096, 8192));
	memset(area, 2, 4096);
	CHECK(!munmap(get_fresh(3 * 4096), 4096));
}

static void closes(void)
{
	memset(area + 9000, 3, 9000);
	CHECK(!mprotect(area, LEN / 2, PROT_NONE));
	CHECK(!mprotect(area + LEN / 2, 4096, PROT_READ));
}

static void throws_away(void)
{
	memset(area + 100, 4, 100);
	CHECK(!madvise(area, LEN, MADV_DONTNEED) && !area[0] && !area[LEN - 1]);
	area[20000] = 1;
}

static void throws_locked_away(void)
{
	if (madvise(area, LEN, 24 /* MADV_DONTNEED_LOCKED */))
		CHECK(errno == EINVAL); /* before Linux 5.18 */
}

static void replaces(void)
{
	area[5] = 5;
	CHECK(get(area, LEN / 2, MAP_FIXED) == area && !area[0]);
	memset(area, 5, LEN);
}

static void replaces_code(void)
{
	CHECK(get(code, 3 * 4096, MAP_FIXED) == code);
	memset(code, 6, 3 * 4096);
}

static void closes_and_opens(void)
{
	CHECK(mmap(area, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == area);
	CHECK(get(area, LEN / 2, MAP_FIXED) == area && !area[0]);
	memset(area, 5, LEN / 2);
}

static void closes_and_replaces(void)
{
	CHECK(!mprotect(area, LEN, PROT_NONE));
	CHECK(get(area, LEN / 2, MAP_FIXED) == area && !area[0]);
	memset(area, 5, LEN / 2);
	CHECK(!mprotect(area, 4096, PROT_READ) && get(area, 4096, MAP_FIXED) == area && !area[5]);
}

static void closes_and_empties(void)
{
	CHECK(!mprotect(area, LEN, PROT_NONE) && !madvise(area, LEN, MADV_DONTNEED));
}

/* The same by other calls: with no key, and of this process among others. */
static void closes_otherwise(void)
{
	struct iovec parts[2] = { { area, 8192 }, { area + LEN / 2, LEN / 2 } };

	area[9] = 1;
	CHECK(!pkey_mprotect(area, LEN / 4, PROT_NONE, -1));
	if (process_madvise(outside->self, parts, 1, MADV_DONTNEED, 0) < 0)
		CHECK(errno == EINVAL || errno == ENOSYS); /* before Linux 6.13 */
#ifdef __x86_64__
	if (syscall(SYS_process_madvise, outside->self, parts + 1, 1, MADV_DONTNEED, 0) < 0)
		CHECK(errno == EINVAL || errno == ENOSYS);
	CHECK(!syscall(SYS_pkey_mprotect, area + LEN / 4, LEN / 4, PROT_READ, -1));
#endif
}

static void empties_shut(void)
{
	CHECK(!madvise(shut, LEN, MADV_DONTNEED));
}

static void replaces_shut(void)
{
	CHECK(mmap(shut, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == shut);
}

static void opens_shut(void)
{
	CHECK(get(shut, LEN, MAP_FIXED) == shut && !shut[0]);
	memset(shut, 5, LEN / 2);
}

/* What is unmapped is free to be mapped, though it stays; what is not is not. */
static void takes_again(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;

	CHECK(!munmap(area + 8192, 4096) && !munmap(area, 8192));
	CHECK(mmap(area, 16384, PROT_READ, flags, -1, 0) == MAP_FAILED && errno == EEXIST);
	CHECK(get(area, 12288, MAP_FIXED_NOREPLACE) == area && !area[0] && !area[12287]);
	memset(area, 6, LEN);
	CHECK(mmap(area, 4096, PROT_READ, flags, -1, 0) == MAP_FAILED && errno == EEXIST);
}

static void opens(void)
{
	CHECK(get(reserve, 8192, MAP_FIXED) == reserve);
	memset(reserve, 6, 8192);
}

static void grows(void)
{
	char *got = mremap(area, LEN, 4 * LEN, MREMAP_MAYMOVE);

	CHECK(got != MAP_FAILED && got[9] == (char)(31 + 9 + outside->round));
	if (got != area)
		outside->fresh[outside->fresh_count++] = got;
	else
		outside->fresh[outside->fresh_count++] = got + LEN;
	memset(got, 8, 4 * LEN);
}

static void shrinks(void)
{
	CHECK(mremap(area, LEN, 4096, 0) == area);
	memset(area, 9, 4096);
}

static void raises_break(void)
{
	CHECK(sbrk(3 * LEN) == heap + LEN && !heap[LEN] && !heap[4 * LEN - 1]);
	memset(heap + 9000, 10, 4 * LEN - 9000);
}

static void lowers_break(void)
{
	heap[LEN - 1] = heap[5] = 11;
	CHECK(!brk(heap + 8192 + 5) && sbrk(0) == heap + 8192 + 5);
}

static void moves_break(void)
{
	raises_break();
	lowers_break();
	CHECK(!brk(heap + 2 * LEN) && !heap[LEN / 2] && !heap[2 * LEN - 1]);
	memset(heap + LEN / 2, 12, LEN);
	CHECK(sbrk(-(long)LEN / 2) == heap + 2 * LEN);
}

static void lowers_and_raises_break(void)
{
	lowers_break();
	CHECK(!brk(heap + 3 * LEN) && !heap[LEN / 2] && !heap[3 * LEN - 1]);
	memset(heap + LEN / 2, 13, LEN);
}

static void (*const changes[])(void) = {
	unmaps, unmaps_in_part, closes, throws_away, throws_locked_away, replaces, replaces_code,
	closes_and_opens, closes_and_replaces, closes_and_empties, closes_otherwise, empties_shut,
	replaces_shut, opens_shut, takes_again, opens, grows, shrinks, raises_break, lowers_break,
	moves_break, lowers_and_raises_break,
};

/* A page that is closed and emptied at once does not come back: that is said. */
static void check_guard(cairn_t *c)
{
	static volatile int refused;
	uint64_t id;

	fill(1);
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED)
		test_fail("restored");
	if (madvise(area, 4096, 102 /* MADV_GUARD_INSTALL */)) {
		CHECK(errno == EINVAL); /* before Linux 6.13 */
		return;
	}
	CHECK(!madvise(area, 4096, 103 /* MADV_GUARD_REMOVE */) && !area[0]);
	refused = cairn_restore(c, id);
	CHECK(refused < 0);
	CHECK_OK(cairn_checkpoint(c, &id));
}

/* K more checkpoints, and what was unmapped before them is gone. */
static void check_gone(cairn_t *c)
{
	char *one = get(NULL, LEN, 0);
	uint64_t id;

	one[0] = 1;
	CHECK_OK(cairn_checkpoint(c, &id));
	CHECK(!munmap(one, LEN) && mapped(one));
	CHECK_OK(cairn_checkpoint(c, &id));
	CHECK(get(one + 4096, 4096, MAP_FIXED) == one + 4096); /* the rest goes around it */
	for (int i = 0; i < 3; i++)
		CHECK_OK(cairn_checkpoint(c, &id));
	CHECK(!mapped(one) && mapped(one + 4096) && !mapped(one + 8192));
	CHECK(!mapped(one + LEN - 4096) && !munmap(one + 4096, 4096));
}

/* While the session rests, at once. */
static void check_pause(cairn_t *c)
{
	char *one = get(NULL, LEN, 0), *two = get(NULL, LEN, 0);

	CHECK(!munmap(one, LEN) && mapped(one));
	CHECK_OK(cairn_pause(c));
	CHECK(!mapped(one) && !munmap(two, LEN) && !mapped(two));
	CHECK_OK(cairn_resume(c));
	two = get(NULL, LEN, 0);
	CHECK(!munmap(two, LEN) && mapped(two));
}

/* Where hooks have no tags nothing is mapped, with a session and without. */
static void check_low(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	void *low = (void *)0x7fff0000ul;
	char *at = mmap(low, LEN, PROT_READ | PROT_WRITE, flags, -1, 0);

	CHECK(at != MAP_FAILED && at != low);
	at[LEN - 1] = 1;
	CHECK(!munmap(at, LEN));
	errno = 0;
	CHECK(mmap(low, LEN, PROT_READ, flags | MAP_FIXED, -1, 0) == MAP_FAILED && errno == ENOMEM);
#ifndef __i386__
	errno = 0;
	CHECK(mmap(NULL, LEN, PROT_READ, flags | MAP_32BIT, -1, 0) == MAP_FAILED);
	CHECK(errno == ENOMEM);
#endif
}

/* Far below what the kernel chooses, so that nothing else is mapped between. */
static void make_code(void)
{
	code = reserve - (64ul << 20);
	for (int i = 0; i < 3; i += 2) {
		char *page = mmap(code + i * 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		CHECK(page == code + i * 4096);
		*page = (char)0xc3; /* ret */
	}
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	const int count = sizeof(changes) / sizeof(*changes);
	uint64_t id;
	cairn_t *c;

	(void)argc;
	outside = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(outside != MAP_FAILED && !pipe(outside->pipe));
	outside->self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	area = get(NULL, LEN, 0);
	shut = get(NULL, LEN, 0);
	heap = sbrk(LEN);
	CHECK(heap != (void *)-1);
	reserve = mmap(NULL, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(reserve != MAP_FAILED);
	make_code();
	o.tracker = argv[1];
	o.keep = 2;
	check_low();
	CHECK_OK(cairn_open(&c, &o));
	CHECK_OK(cairn_area_exclude(c, outside, 4096));
	check_low();
	/* Each twice: the second time it starts from what a restore has made. */
	while (outside->round < 3 * count) {
		fill(outside->round);
		outside->fresh_count = 0;
		if (cairn_checkpoint(c, &id) == CAIRN_RESTORED) {
			check(outside->round);
			outside->round++;
			continue;
		}
		changes[outside->round % count]();
		CHECK_OK(cairn_restore(c, id));
	}
	check_guard(c);
	check_gone(c);
	check_pause(c);
	printf("%d restores\n", outside->round);
	CHECK_OK(cairn_close(c));
	return 0;
}
