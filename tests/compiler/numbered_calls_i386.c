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

#define WRITES(call, ...)  { #call, SYS_##call, true, { __VA_ARGS__ } } /* to the room */
#define NOTHING(call, ...) { #call, SYS_##call, false, { __VA_ARGS__ } }
#define AT         (long)room
#define HERE       (long)"."
#define LINK       (long)"link"
/* In place of descriptors, which are not known yet. */
#define OUR_FILE   -2
#define OUR_FOLDER -3

static const struct numbered_case {
	const char *name;
	long nr;
	bool writes;
	long args[5];
} cases[] = {
	WRITES(clock_getres, CLOCK_MONOTONIC, AT),
	WRITES(clock_getres_time64, CLOCK_MONOTONIC, AT),
	WRITES(clock_gettime, CLOCK_MONOTONIC, AT),
	WRITES(clock_gettime64, CLOCK_MONOTONIC, AT),
	WRITES(fstat64, 0, AT),
	WRITES(fstatat64, AT_FDCWD, HERE, AT),
	WRITES(getcpu, AT, AT + 4),
	WRITES(getcwd, AT, ROOM),
	WRITES(getdents64, OUR_FOLDER, AT, ROOM),
	WRITES(getrandom, AT, 100),
	WRITES(gettimeofday, AT, AT + 8),
	WRITES(lstat64, HERE, AT),
	WRITES(pipe2, AT, O_CLOEXEC),
	WRITES(pread64, OUR_FILE, AT, 200),
	WRITES(prlimit64, 0, 7, 0, AT),
	WRITES(read, OUR_FILE, AT, 50),
	WRITES(readlink, LINK, AT, ROOM),
	WRITES(readlinkat, AT_FDCWD, LINK, AT, ROOM),
	WRITES(sched_getaffinity, 0, ROOM, AT),
	WRITES(stat64, HERE, AT),
	WRITES(statx, AT_FDCWD, HERE, 0, 0x7ff, AT),
	WRITES(sysinfo, AT),
	WRITES(uname, AT),
	NOTHING(getpid, 0),
	NOTHING(write, OUR_FILE, (long)"x", 1),
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
		a[i] = t->args[i];
	if (a[0] == OUR_FILE)
		a[0] = file;
	else if (a[0] == OUR_FOLDER)
		a[0] = folder;
	fill();
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	got = syscall(t->nr, a[0], a[1], a[2], a[3], a[4], 0);
	if (got < 0 || (t->writes && untouched()))
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
