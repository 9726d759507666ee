/* SPDX-License-Identifier: MIT */
/*
 * Memory that is shared with another process, which stores beside what this program stores: a
 * restore leaves it as it is, both the other's bytes and our own, unless it has been named. What
 * has a name goes back; beside it, and in private memory, all is as ever. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../lib/harness.h"

#define LEN 8192ul
#define STEP 16 /* ours, then the other's, in one region */

static char *shared, *mapped; /* anonymous; of a file */
static char private[LEN];
static int ask[2], answer[2];
static uint64_t first, second;
static volatile int *went_back; /* shared: counts restores by itself */

static void *map_shared(int fd)
{
	void *at = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

/* The other process: one value for each byte that it is sent, until the pipe ends. */
static void other(void)
{
	char value;

	close(ask[1]);
	while (read(ask[0], &value, 1) == 1) {
		for (size_t i = STEP / 2; i < LEN; i += STEP)
			shared[i] = mapped[i] = value;
		CHECK(write(answer[1], "", 1) == 1);
	}
	_exit(0);
}

static void let_other_store(char value)
{
	CHECK(write(ask[1], &value, 1) == 1 && read(answer[0], &value, 1) == 1);
}

static void store(char value)
{
	for (size_t i = 0; i < LEN; i += STEP)
		shared[i] = mapped[i] = private[i] = value;
	memset(private + LEN / 2, value, 100);
}

static void check(const char *at, size_t from, size_t to, char ours, char others)
{
	for (size_t i = from; i < to; i += STEP) {
		CHECK(at[i] == ours);
		CHECK(at[i + STEP / 2] == others);
	}
}

/* Two intervals, of which both processes see stores; then back over `over` of them. */
static int undo(cairn_t *c, int over, char value)
{
	int came = *went_back;

	store(value);
	let_other_store(value);
	if (cairn_checkpoint(c, &first) == CAIRN_RESTORED)
		return *went_back - came;
	*went_back = came + 1;
	store((char)(value + 1));
	if (over == 2) {
		if (cairn_checkpoint(c, &second) == CAIRN_RESTORED)
			CHECK(0);
		store((char)(value + 2));
	}
	let_other_store((char)(value + 3));
	(void)!cairn_restore(c, first);
	test_fail("cairn_restore came back");
}

static void check_unnamed(cairn_t *c)
{
	char byte;

	for (int over = 1; over <= 2; over++) {
		CHECK(undo(c, over, 20) == 1);
		check(shared, 0, LEN, (char)(20 + over), 23);
		check(mapped, 0, LEN, (char)(20 + over), 23);
		for (size_t i = 0; i < LEN; i += STEP)
			CHECK(private[i] == 20);
	}
	CHECK_RC(cairn_peek(c, first, shared + 16, &byte, 1), CAIRN_ENOTAREA);
	CHECK_OK(cairn_peek(c, first, private, &byte, 1));
}

static void check_named(cairn_t *c)
{
	char byte;

	CHECK_RC(cairn_area_add(c, private, LEN), CAIRN_EOVERLAP);
	CHECK_OK(cairn_area_add(c, shared + 4096, 4096));
	CHECK_RC(cairn_area_add(c, shared, LEN), CAIRN_EOVERLAP);
	CHECK_RC(cairn_area_remove(c, shared, LEN), CAIRN_ENOTAREA);
	for (int over = 1; over <= 2; over++) {
		CHECK(undo(c, over, 40) == 1);
		check(shared, 0, 4096, (char)(40 + over), 43);
		for (size_t i = 4096; i < LEN; i += STEP)
			CHECK(shared[i] == 40);
		check(mapped, 0, LEN, (char)(40 + over), 43);
	}
	shared[4096] = 1;
	CHECK_OK(cairn_peek(c, first, shared + 4096, &byte, 1));
	CHECK(byte == 40);
	CHECK_OK(cairn_area_remove(c, shared + 4096, 4096));
	CHECK_RC(cairn_area_remove(c, shared + 4096, 4096), CAIRN_ENOTAREA);
	CHECK(undo(c, 1, 60) == 1);
	check(shared, 0, LEN, 61, 63);
}

/* A name is that of the memory, not of the place; what was closed meanwhile is left as well. */
static void check_replaced(cairn_t *c)
{
	char *at = map_shared(-1);

	CHECK_OK(cairn_area_add(c, at, LEN));
	CHECK(!munmap(at, LEN));
	if (cairn_checkpoint(c, &first) == CAIRN_RESTORED)
		CHECK(0);
	if (cairn_checkpoint(c, &first) == CAIRN_RESTORED)
		CHECK(0);
	CHECK(mmap(at, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
		== at);
	if (cairn_checkpoint(c, &first) != CAIRN_RESTORED) {
		memset(at, 5, LEN);
		CHECK(!mprotect(at, LEN, PROT_READ));
		(void)!cairn_restore(c, first);
		test_fail("cairn_restore came back");
	}
	CHECK(at[0] == 5 && at[LEN - 1] == 5);
	at[0] = 6; /* its protection has come back */
	CHECK_OK(cairn_area_remove(c, at, LEN));
}

/* A segment that is attached goes with its interval; of what is detached the interval is lost. */
static void check_segments(cairn_t *c)
{
	int id = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);
	struct shmid_ds of;
	char *at;

	if (id < 0)
		return;
	if (cairn_checkpoint(c, &first) != CAIRN_RESTORED) {
		at = shmat(id, NULL, 0);
		CHECK(at != (void *)-1 && !shmctl(id, IPC_RMID, NULL));
		memset(at, 7, LEN);
		CHECK(!shmctl(id, IPC_STAT, &of) && of.shm_nattch == 1);
		at = shmat(id, NULL, 0);
		CHECK(at != (void *)-1 && at[LEN - 1] == 7);
		(void)!cairn_restore(c, first);
		test_fail("cairn_restore came back");
	}
	CHECK(shmctl(id, IPC_STAT, &of) < 0); /* nobody has it any more */
	id = shmget(IPC_PRIVATE, LEN, IPC_CREAT | 0600);
	CHECK(id >= 0);
	at = shmat(id, NULL, 0);
	CHECK(at != (void *)-1 && !shmctl(id, IPC_RMID, NULL));
	if (cairn_checkpoint(c, &first) == CAIRN_RESTORED)
		CHECK(0);
	at[0] = 8;
	CHECK(!shmdt(at));
	CHECK_RC(cairn_restore(c, first), CAIRN_EFAILED);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;
	int status;
	pid_t pid;

	(void)argc;
	shared = map_shared(-1);
	CHECK(!pipe(ask) && !pipe(answer));
	status = test_file();
	CHECK(!ftruncate(status, LEN));
	mapped = map_shared(status);
	went_back = map_shared(-1);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		other();
	close(ask[0]);
	o.tracker = argv[1];
	o.keep = 3;
	CHECK_OK(cairn_open(&c, &o));
	check_unnamed(c);
	check_named(c);
	check_replaced(c);
	check_segments(c);
	CHECK_OK(cairn_close(c));
	printf("%d restores\n", *went_back);
	close(ask[1]);
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	return 0;
}
