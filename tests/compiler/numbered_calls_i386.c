/* SPDX-License-Identifier: MIT */
/*
 * What the kernel writes for syscall(2) in a 32-bit program comes back; after a call that nobody
 * has looked at, a restore is refused. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include "../lib/harness.h"

#define ROOM 512

static char room[ROOM] __attribute__((aligned(64)));
static int file;
static cairn_t *c;

/* `len`: bytes of the room that it writes at least. */
#define CASE(call, len, ...) { #call, SYS_##call, len, { __VA_ARGS__ } }
#define AT   (long)room
#define HERE (long)"."
#define LINK (long)"link"

static const struct numbered_case {
	const char *name;
	long nr, len, args[5];
} cases[] = {
	CASE(clock_getres, 8, CLOCK_MONOTONIC, AT),
	CASE(clock_getres_time64, 16, CLOCK_MONOTONIC, AT),
	CASE(clock_gettime, 8, CLOCK_MONOTONIC, AT),
	CASE(clock_gettime64, 16, CLOCK_MONOTONIC, AT),
	CASE(fstat64, 96, 0, AT),
	CASE(fstatat64, 96, AT_FDCWD, HERE, AT),
	CASE(getcpu, 8, AT, AT + 4),
	CASE(getcwd, 2, AT, ROOM),
	CASE(getdents64, 40, -1, AT, ROOM),
	CASE(getrandom, 100, AT, 100),
	CASE(gettimeofday, 16, AT, AT + 8),
	CASE(lstat64, 96, HERE, AT),
	CASE(pipe2, 8, AT, O_CLOEXEC),
	CASE(pread64, 200, -2, AT, 200),
	CASE(prlimit64, 16, 0, 7, 0, AT),
	CASE(read, 50, -2, AT, 50),
	CASE(readlink, 9, LINK, AT, ROOM),
	CASE(readlinkat, 9, AT_FDCWD, LINK, AT, ROOM),
	CASE(sched_getaffinity, 4, 0, ROOM, AT),
	CASE(stat64, 96, HERE, AT),
	CASE(statx, 200, AT_FDCWD, HERE, 0, 0x7ff, AT),
	CASE(sysinfo, 64, AT),
	CASE(uname, 390, AT),
	CASE(getpid, 0, 0),
	CASE(write, 0, -2, (long)"x", 1),
};

static void fill(void)
{
	memset(room, 0x55, ROOM);
	CHECK(lseek(file, 0, SEEK_SET) == 0);
}

static bool untouched(void)
{
	for (int i = 0; i < ROOM; i++)
		if (room[i] != 0x55)
			return false;
	return true;
}

static void run(const struct numbered_case *t, int folder)
{
	long a[5], got;
	uint64_t id;

	for (int i = 0; i < 5; i++)
		a[i] = t->args[i] == -1 && i == 0 ? folder : t->args[i] == -2 ? file : t->args[i];
	fill();
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	got = syscall(t->nr, a[0], a[1], a[2], a[3], a[4], 0);
	if (got < 0 || (t->len && untouched()))
		test_fail("%s: %ld", t->name, got);
	CHECK_OK(cairn_rewind(c, id));
	if (!untouched())
		test_fail("%s: it is not as it was", t->name);
}

int main(int argc, char **argv)
{
	int folder = open(".", O_RDONLY | O_DIRECTORY);
	uint64_t id;

	CHECK(argc == 2 && folder >= 0 && !symlink("somewhere", "link"));
	memset(room, 'f', ROOM);
	file = open("file", O_RDWR | O_CREAT, 0600);
	CHECK(file >= 0 && write(file, room, ROOM) == ROOM);
	c = test_open_built(argv[1]);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		run(&cases[i], folder);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK(syscall(SYS_times, room) != 0);
	CHECK(cairn_rewind(c, id) < 0);
	CHECK_OK(cairn_close(c));
	return 0;
}
