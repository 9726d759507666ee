/* SPDX-License-Identifier: MIT */
/* Descriptors: made, copied, moved, changed, closed. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include "rows.h"

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif

static int fd, other;

static bool is_open(int n)
{
	return fcntl(n, F_GETFD) >= 0;
}

static void open_letters(void)
{
	fd = open(letters(), O_RDONLY);
	CHECK(fd >= 0 && lseek(fd, 5, SEEK_SET) == 5);
}

static void body_open(bool again)
{
	int n;

	if (again)
		CHECK(!is_open((int)outside->value[0]));
	n = (int)CALL(open, letters(), O_RDONLY);
	CHECK(n >= 0 && (!again || n == outside->value[0]));
	outside->value[0] = n;
	if (again)
		close(n);
}

static void body_openat(bool again)
{
	int n;

	if (again)
		CHECK(!is_open((int)outside->value[0]));
	n = (int)CALL(openat, AT_FDCWD, letters(), O_RDONLY | O_CLOEXEC);
	CHECK(n >= 0 && (!again || n == outside->value[0]));
	outside->value[0] = n;
	if (again)
		close(n);
}

static void body_openat2(bool again)
{
	struct open_how how = {.flags = O_RDONLY | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
	int n;

	if (again)
		CHECK(!is_open((int)outside->value[0]));
	n = (int)syscall(SYS_openat2, AT_FDCWD, letters(), &how, sizeof(how));
	CHECK(n >= 0 && (!again || n == outside->value[0]));
	outside->value[0] = n;
	if (again)
		close(n);
}

/* It makes the file: that stays, and it is open. */
static void body_openat2_made(bool again)
{
	struct open_how how = {.flags = O_RDWR | O_CREAT | O_EXCL, .mode = 0600};
	char made[80];
	int n;

	snprintf(made, sizeof(made), "%s.made", letters());
	outside->count++;
	n = (int)syscall(SYS_openat2, AT_FDCWD, made, &how, sizeof(how));
	CHECK(n >= 0);
	crash_once();
	CHECK(is_open(n) && access(made, F_OK) == 0 && unlink(made) == 0 && close(n) == 0);
}

/* The other end of a pipe sees it. */
static void body_close_range(bool again)
{
	int pair[2], first, copy;
	char c;

	CHECK(pipe(pair) == 0);
	first = fcntl(pair[1], F_DUPFD, 700);
	copy = fcntl(pair[1], F_DUPFD, 710);
	CHECK(first >= 700 && copy >= 710 && close(pair[1]) == 0);
	tick();
	outside->count++;
	CHECK(CALL(close_range, 700, 720, 0) == 0);
	crash_once();
	CHECK(!is_open(first) && !is_open(copy) && read(pair[0], &c, 1) == 0);
	close(pair[0]);
}

static void body_copy_file_range(bool again)
{
	int from = open(letters(), O_RDONLY), to;
	char b[8], made[80];

	snprintf(made, sizeof(made), "%s.made", letters());
	to = open(made, O_RDWR | O_CREAT | O_EXCL, 0600);
	CHECK(from >= 0 && to >= 0 && unlink(made) == 0);
	tick();
	outside->count++;
	CHECK(CALL(copy_file_range, from, NULL, to, NULL, 4, 0) == 4);
	crash_once();
	CHECK(pread(to, b, 8, 0) == 4 && !memcmp(b, "abcd", 4));
	CHECK(lseek(from, 0, SEEK_CUR) == 4 && lseek(to, 0, SEEK_CUR) == 4);
	close(from);
	close(to);
}

/* The file's offset comes back with it. */
static void body_close(bool again)
{
	char c;

	if (again)
		CHECK(is_open(fd) && lseek(fd, 0, SEEK_CUR) == 5 &&
			!(fcntl(fd, F_GETFD) & FD_CLOEXEC));
	CHECK(read(fd, &c, 1) == 1 && c == 'f');
	CHECK(CALL(close, fd) == 0);
	CHECK(!is_open(fd));
}

/* Opened, read and closed, with nothing to be undone between, or something. */
static void body_open_close(bool again)
{
	char c;

	if (again)
		CHECK(!is_open((int)outside->value[0]));
	for (int i = 0; i < 4; i++) {
		int n = (int)CALL(open, letters(), O_RDONLY);

		CHECK(n >= 0 && ((!again && !i) || n == outside->value[0]));
		outside->value[0] = n;
		CHECK(read(n, &c, 1) == 1 && c == 'a');
		if (i == 2)
			CHECK(lseek(fd, 20, SEEK_SET) == 20);
		CHECK(CALL(close, n) == 0 && !is_open(n));
	}
	CHECK(lseek(fd, 5, SEEK_SET) == 5);
	if (again)
		close(fd);
}

/* What a number that is gone has moved: the offset of one that is not. */
static void body_dup_close(bool again)
{
	char b[4];
	int n;

	if (again)
		CHECK(lseek(fd, 0, SEEK_CUR) == 5);
	n = (int)CALL(dup, fd);
	CHECK(n >= 0 && read(n, b, 4) == 4 && !memcmp(b, "fghi", 4));
	CHECK(CALL(close, n) == 0 && lseek(fd, 0, SEEK_CUR) == 9);
	if (again)
		close(fd);
}

/* The same for a number of another's that was taken over meanwhile. */
static void body_open_dup2(bool again)
{
	int n;

	if (again)
		CHECK(lseek(fd, 0, SEEK_CUR) == 5 && !is_open((int)outside->value[0]));
	n = (int)CALL(open, letters(), O_RDONLY);
	CHECK(n >= 0 && (!again || n == outside->value[0]));
	outside->value[0] = n;
	CHECK(dup2(fd, n) == n && lseek(n, 3, SEEK_SET) == 3);
	CHECK(CALL(close, n) == 0 && lseek(fd, 0, SEEK_CUR) == 3);
	if (again)
		close(fd);
}

static void body_lseek(bool again)
{
	if (again)
		CHECK(lseek(fd, 0, SEEK_CUR) == 5);
	CHECK(CALL(lseek, fd, 20, SEEK_SET) == 20);
	if (again)
		close(fd);
}

static void body_read_file(bool again)
{
	char b[4];

	CHECK(CALL(read, fd, b, 4) == 4 && !memcmp(b, "fghi", 4));
	CHECK(CALL(read, fd, b, 4) == 4 && !memcmp(b, "jklm", 4));
	if (again)
		close(fd);
}

static void body_dup(bool again)
{
	int n;

	if (again)
		CHECK(!is_open((int)outside->value[0]));
	n = (int)CALL(dup, fd);
	CHECK(n >= 0 && (!again || n == outside->value[0]));
	outside->value[0] = n;
	if (again) {
		close(n);
		close(fd);
	}
}

static void setup_dup2(void)
{
	open_letters();
	other = open(letters(), O_RDONLY);
	CHECK(other >= 0 && lseek(other, 9, SEEK_SET) == 9);
}

/* What was under the number comes back. */
static void body_dup2(bool again)
{
	if (again)
		CHECK(lseek(other, 0, SEEK_CUR) == 9);
	CHECK(CALL(dup2, fd, other) == other);
	CHECK(lseek(other, 0, SEEK_CUR) == 5);
	if (again) {
		close(other);
		close(fd);
	}
}

static void setup_dup3(void)
{
	open_letters();
	other = 777;
}

static void body_dup3(bool again)
{
	if (again)
		CHECK(!is_open(other));
	CHECK(CALL(dup3, fd, other, O_CLOEXEC) == other);
	if (again) {
		close(other);
		close(fd);
	}
}

static void body_fcntl_dup(bool again)
{
	if (again)
		CHECK(!is_open(500));
	CHECK(CALL(fcntl, fd, F_DUPFD, 500) == 500);
	if (again) {
		close(500);
		close(fd);
	}
}

static void setup_pair(void)
{
	local_pair(SOCK_STREAM, &fd, &other);
}

static void close_pair(void)
{
	close(fd);
	close(other);
}

static void body_setfl(bool again)
{
	CHECK(!(fcntl(fd, F_GETFL) & O_NONBLOCK));
	CHECK(CALL(fcntl, fd, F_SETFL, O_NONBLOCK) == 0);
	if (again)
		close_pair();
}

static void body_setfd(bool again)
{
	CHECK(!(fcntl(fd, F_GETFD) & FD_CLOEXEC));
	CHECK(CALL(fcntl, fd, F_SETFD, FD_CLOEXEC) == 0);
	if (again)
		close_pair();
}

static void body_fionbio(bool again)
{
	int on = 1;

	CHECK(!(fcntl(fd, F_GETFL) & O_NONBLOCK));
	CHECK(CALL(ioctl, fd, FIONBIO, &on) == 0);
	if (again)
		close_pair();
}

/* The kernel tells the double of what is set, and leaves it as it is from then on. */
static void body_buffer(bool again)
{
	int value = 0, small = 5000, lock = 0;
	socklen_t len = sizeof(value);

	if (getsockopt(fd, SOL_SOCKET, SO_BUF_LOCK, &lock, &len) == 0)
		CHECK(lock == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &value, &len) == 0);
	CHECK(!again || value == outside->value[0]);
	outside->value[0] = value;
	CHECK(CALL(setsockopt, fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
	if (again) {
		close(fd);
		close(other);
	}
}

static void body_setsockopt(bool again)
{
	int value = 0;
	socklen_t len = sizeof(value);

	CHECK(getsockopt(fd, SOL_SOCKET, SO_PASSCRED, &value, &len) == 0 && value == 0);
	value = 1;
	CHECK(CALL(setsockopt, fd, SOL_SOCKET, SO_PASSCRED, &value, sizeof(value)) == 0);
	if (again)
		close_pair();
}

static void body_socket(bool again)
{
	int n;

	if (again)
		CHECK(!is_open((int)outside->value[0]));
	n = (int)CALL(socket, AF_INET, SOCK_STREAM, 0);
	CHECK(n >= 0 && (!again || n == outside->value[0]));
	outside->value[0] = n;
	if (again)
		close(n);
}

static void body_pipe2(bool again)
{
	int pair[2];

	if (again)
		CHECK(!is_open((int)outside->value[0]) && !is_open((int)outside->value[1]));
	CHECK(CALL(pipe2, pair, O_CLOEXEC) == 0);
	if (again)
		CHECK(pair[0] == outside->value[0] && pair[1] == outside->value[1]);
	outside->value[0] = pair[0];
	outside->value[1] = pair[1];
	if (again) {
		close(pair[0]);
		close(pair[1]);
	}
}

static void body_socketpair(bool again)
{
	int pair[2];

	if (again)
		CHECK(!is_open((int)outside->value[0]) && !is_open((int)outside->value[1]));
	CHECK(CALL(socketpair, AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	outside->value[0] = pair[0];
	outside->value[1] = pair[1];
	if (again) {
		close(pair[0]);
		close(pair[1]);
	}
}

static void body_timerfd_create(bool again)
{
	int n;

	if (again)
		CHECK(!is_open((int)outside->value[0]));
	n = (int)CALL(timerfd_create, CLOCK_MONOTONIC, 0);
	CHECK(n >= 0);
	outside->value[0] = n;
	if (again)
		close(n);
}

/* stdio's own buffer and the file's offset must agree after the restore. */
static FILE *stream;

static void setup_stream(void)
{
	stream = fopen(letters(), "r");
	CHECK(stream && fgetc(stream) == 'a');
}

static void body_fgetc(bool again)
{
	char b[32];

	CHECK(ftell(stream) == 1 && fgetc(stream) == 'b');
	CHECK(fread(b, 1, sizeof(b), stream) == 24 && b[0] == 'c' && feof(stream));
	if (again)
		fclose(stream);
}

static void body_fopen(bool again)
{
	FILE *f;

	if (again)
		CHECK(!is_open((int)outside->value[0]));
	f = fopen(letters(), "r");
	CHECK(f);
	outside->value[0] = fileno(f);
	CHECK(fgetc(f) == 'a');
	if (again)
		fclose(f);
}

static void body_fclose(bool again)
{
	CHECK(ftell(stream) == 1 && fgetc(stream) == 'b');
	CHECK(fclose(stream) == 0);
}

static void body_fseek(bool again)
{
	CHECK(ftell(stream) == 1);
	CHECK(fseek(stream, 10, SEEK_SET) == 0 && fgetc(stream) == 'k');
	if (again)
		fclose(stream);
}

const struct row rows_descriptor[] = {
	{"open", NULL, body_open},
	{"openat", NULL, body_openat},
	{"openat2", NULL, body_openat2},
	{"openat2_made", NULL, body_openat2_made, .output = true},
	{"close_range", NULL, body_close_range, .output = true},
	{"copy_file_range", NULL, body_copy_file_range, .output = true},
	{"close", open_letters, body_close},
	{"open_close", open_letters, body_open_close},
	{"dup_close", open_letters, body_dup_close},
	{"open_dup2", open_letters, body_open_dup2},
	{"lseek", open_letters, body_lseek},
	{"read_file", open_letters, body_read_file},
	{"dup", open_letters, body_dup},
	{"dup2", setup_dup2, body_dup2},
	{"dup3", setup_dup3, body_dup3},
	{"fcntl_dup", open_letters, body_fcntl_dup},
	{"fcntl_setfl", setup_pair, body_setfl},
	{"fcntl_setfd", setup_pair, body_setfd},
	{"ioctl_fionbio", setup_pair, body_fionbio},
	{"setsockopt", setup_pair, body_setsockopt},
	{"setsockopt_buffer", setup_pair, body_buffer},
	{"socket", NULL, body_socket},
	{"pipe2", NULL, body_pipe2},
	{"socketpair", NULL, body_socketpair},
	{"timerfd_create", NULL, body_timerfd_create},
	{"fgetc", setup_stream, body_fgetc, .stdio = true},
	{"fopen", NULL, body_fopen, .stdio = true},
	{"fclose", setup_stream, body_fclose, .stdio = true},
	{"fseek", setup_stream, body_fseek, .stdio = true},
	{0},
};
