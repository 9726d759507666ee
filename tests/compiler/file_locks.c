/* SPDX-License-Identifier: MIT */
/*
 * A lock that fcntl describes is that of the file, and its description comes back: by both calls of
 * a 32-bit program (-D_FILE_OFFSET_BITS=64). argv: TRACKER.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include "../lib/harness.h"

#define BEGIN 1000
#define BYTES 77

static struct flock lock;
static char behind[64] = "untouched";

static void ask(cairn_t *c, int fd, int command)
{
	uint64_t id;

	lock = (struct flock){ .l_type = F_WRLCK };
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK(!fcntl(fd, command, &lock));
	CHECK(lock.l_type == F_WRLCK && lock.l_start == BEGIN && lock.l_len == BYTES);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(lock.l_type == F_WRLCK && !lock.l_start && !lock.l_len && !lock.l_pid);
	CHECK(!strcmp(behind, "untouched"));
}

int main(int argc, char **argv)
{
	struct flock held = { .l_type = F_WRLCK, .l_start = BEGIN, .l_len = BYTES };
	int fd = test_file();
	cairn_t *c;

	CHECK(argc == 2);
	c = test_open_built(argv[1]);
	CHECK(!fcntl(fd, F_OFD_SETLK, &held));
	ask(c, test_file_again(fd), F_OFD_GETLK);
	ask(c, fd, F_GETLK);
	CHECK_OK(cairn_close(c));
	return 0;
}
