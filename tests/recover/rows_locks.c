/* SPDX-License-Identifier: MIT */
/*
 * Record locks: a close of any descriptor of the file ends them. They come last: a program that has
 * locked once is one that locks.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "rows.h"

static int file;

/* By whomever; no record lock is an open file description's. */
static bool is_locked(off_t start, off_t len)
{
	struct flock lock = {.l_type = F_WRLCK, .l_start = start, .l_len = len};

	CHECK(syscall(SYS_fcntl, file, F_OFD_GETLK, &lock) == 0);
	return lock.l_type != F_UNLCK;
}

static void set(short type, off_t start, off_t len)
{
	struct flock lock = {.l_type = type, .l_start = start, .l_len = len};

	CHECK(CALL(fcntl, file, F_SETLK, &lock) == 0);
}

static void open_file(void)
{
	file = open(letters(), O_RDWR);
	CHECK(file >= 0);
}

/* What had been closed before, to be opened again by a recovery, is the same file. */
static void body_closed(bool again)
{
	(void)again;
	CHECK(close(file) == 0);
	open_file();
	set(F_WRLCK, 0, 10);
	CHECK(is_locked(0, 10));
	tick();
	CHECK(is_locked(0, 10));
	outside->count = 1;
	crash_once();
	CHECK(is_locked(0, 10));
	close(file);
}

static void setup_locked(void)
{
	open_file();
	set(F_RDLCK, 0, 10);
}

/* To be closed by a recovery. */
static void body_opened(bool again)
{
	int second = open(letters(), O_RDONLY);

	(void)again;
	CHECK(second >= 0);
	outside->count = 1;
	crash_once();
	CHECK(is_locked(0, 10));
	close(second);
	close(file);
}

static void body_copied(bool again)
{
	int second = dup(file);

	(void)again;
	CHECK(second >= 0);
	outside->count = 1;
	crash_once();
	CHECK(is_locked(0, 10));
	close(second);
	close(file);
}

/* Over a number that a recovery would close to open what it was. */
static void body_copied_over(bool again)
{
	int second = open("/dev/null", O_RDONLY);

	(void)again;
	CHECK(second >= 0);
	tick();
	CHECK(dup2(file, second) == second);
	outside->count = 1;
	crash_once();
	CHECK(is_locked(0, 10));
	close(second);
	close(file);
}

static void setup_beside(void)
{
	file = memfd_create("locked", 0);
	CHECK(file >= 0);
	set(F_WRLCK, 0, 10);
	open_file();
}

/* Another file is closed as ever. */
static void body_beside(bool again)
{
	CHECK(fcntl(file, F_GETFD) >= 0);
	CHECK(CALL(close, file) == 0);
	(void)again;
}

static void body_read(bool again)
{
	CHECK(!is_locked(3, 4));
	set(F_RDLCK, 3, 4);
	CHECK(is_locked(3, 4) && !is_locked(0, 3) && !is_locked(7, 0));
	if (again)
		close(file);
}

static pid_t other;

/* Somebody else reads, too. */
static void setup_shared(void)
{
	int tube[2];
	char byte;

	open_file();
	CHECK(pipe(tube) == 0);
	other = fork();
	CHECK(other >= 0);
	if (!other) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		set(F_RDLCK, 0, 10);
		CHECK(write(tube[1], "x", 1) == 1);
		for (;;)
			pause();
	}
	CHECK(read(tube[0], &byte, 1) == 1 && is_locked(3, 4));
	close(tube[0]);
	close(tube[1]);
}

static void body_shared(bool again)
{
	if (again) {
		CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
		CHECK(!is_locked(3, 4));
	}
	set(F_RDLCK, 3, 4);
	if (again)
		close(file);
}

/* One part had been locked before: it must not be given back. */
static void body_part(bool again)
{
	(void)again;
	set(F_RDLCK, 5, 10);
	outside->count = 1;
	crash_once();
	CHECK(is_locked(0, 5) && is_locked(5, 5) && is_locked(10, 5));
	close(file);
}

static void body_write(bool again)
{
	(void)again;
	set(F_WRLCK, 3, 4);
	outside->count = 1;
	crash_once();
	CHECK(is_locked(3, 4));
	close(file);
}

static void body_unlock(bool again)
{
	(void)again;
	set(F_UNLCK, 0, 10);
	outside->count = 1;
	crash_once();
	CHECK(!is_locked(0, 10));
	close(file);
}

const struct row rows_locks[] = {
	{"lock_closed", open_file, body_closed, .output = true},
	{"lock_opened", setup_locked, body_opened, .output = true},
	{"lock_copied", setup_locked, body_copied, .output = true},
	{"lock_copied_over", setup_locked, body_copied_over, .output = true},
	{"lock_read", open_file, body_read},
	{"lock_shared", setup_shared, body_shared},
	{"lock_part", setup_locked, body_part, .output = true},
	{"lock_write", open_file, body_write, .output = true},
	{"lock_unlock", setup_locked, body_unlock, .output = true},
	{"lock_beside", setup_beside, body_beside},
	{0},
};
