/* SPDX-License-Identifier: MIT */
/*
 * A program that closes every descriptor that it does not know, as daemons do, and at times opens
 * files of its own under the same numbers. Nothing may be lost by that, and its files are left
 * alone.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "oracle.h"

#define SEARCHED 16384 /* the engine's numbers are below */

/* What a tracker cannot open anew it must be able to fetch from a child of the process. */
void need_fetching(void)
{
	pid_t pid = fork();
	int pidfd, fd;

	if (pid == 0) {
		pause();
		_exit(0);
	}
	pidfd = (int)syscall(434, pid, 0);
	fd = (int)syscall(438, pidfd, 2, 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (fd < 0)
		test_skip("pidfd_getfd(2)");
	close(fd);
	close(pidfd);
}

static bool is_known(int fd)
{
	const int known[] = { W->file, W->direct, W->mem, W->pipe[0], W->pipe[1], W->pair[0],
		W->pair[1], W->copies };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (fd == known[i])
			return true;
	return fd < 3;
}

static bool is_decoy(int fd)
{
	for (uint32_t i = 0; i < W->decoy_count; i++)
		if (W->decoys[i] == fd)
			return true;
	return false;
}

/* What we put under the engine's numbers is still there and still the same. */
static void check_decoys(void)
{
	struct stat want, got;

	CHECK(!fstat(W->file, &want));
	for (uint32_t i = 0; i < W->decoy_count; i++) {
		if (fstat(W->decoys[i], &got))
			test_fail("descriptor %d of the program's has been closed", W->decoys[i]);
		if (got.st_ino != want.st_ino || got.st_dev != want.st_dev)
			test_fail("descriptor %d of the program's is another file", W->decoys[i]);
	}
}

void close_unknown(void)
{
	bool reuse = rnd_below(2);

	check_decoys();
	for (uint32_t i = 0; i < W->decoy_count; i++)
		syscall(SYS_close, W->decoys[i]);
	W->decoy_count = 0;
	for (int fd = 3; fd < SEARCHED; fd++) {
		if (is_known(fd) || is_decoy(fd) || syscall(SYS_fcntl, fd, F_GETFD) < 0)
			continue;
		syscall(SYS_close, fd);
		if (!reuse || W->decoy_count == DECOYS_MAX)
			continue;
		CHECK(syscall(SYS_dup3, W->file, fd, O_CLOEXEC) == fd);
		W->decoys[W->decoy_count++] = fd;
	}
}
