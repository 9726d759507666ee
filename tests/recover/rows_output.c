/* SPDX-License-Identifier: MIT */
/*
 * Outputs: nobody is told twice, and nobody is told what is undone. Each body does one output,
 * counts it in memory that a restore leaves alone, and crashes: the recovery must come back to just
 * after it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "rows.h"

static int fd, other;
static char name[64], name_two[64];

/* In packets, and so never held; nor is what goes through the sockets below. */
static void setup_pipe(void)
{
	int pair[2];

	CHECK(pipe2(pair, O_NONBLOCK | O_DIRECT) == 0);
	fd = pair[0];
	other = pair[1];
}

static void setup_socket(void)
{
	local_pair(SOCK_SEQPACKET | SOCK_NONBLOCK, &fd, &other);
}

static void told_once(void)
{
	char b[32];

	crash_once();
	CHECK(read(fd, b, 32) == 4 && !memcmp(b, "told", 4));
	CHECK(read(fd, b, 32) == -1 && errno == EAGAIN);
	close(fd);
	close(other);
}

static void body_write(bool again)
{
	outside->count++;
	CHECK(CALL(write, other, "told", 4) == 4);
	told_once();
}

static void body_writev(bool again)
{
	struct iovec iov[2] = {{"to", 2}, {"ld", 2}};

	outside->count++;
	CHECK(CALL(writev, other, iov, 2) == 4);
	told_once();
}

static void body_sendto(bool again)
{
	outside->count++;
	CHECK(CALL(sendto, other, "told", 4, MSG_NOSIGNAL, NULL, 0) == 4);
	told_once();
}

static void body_sendmmsg(bool again)
{
	struct iovec iov[2] = {{"told", 4}, {"twice", 5}};
	struct mmsghdr m[2] = {{{.msg_iov = iov, .msg_iovlen = 1}, 0},
		{{.msg_iov = iov + 1, .msg_iovlen = 1}, 0}};
	char b[8];

	outside->count++;
	CHECK(CALL(sendmmsg, other, m, 2, 0) == 2);
	crash_once();
	CHECK(read(fd, b, 8) == 4 && read(fd, b, 8) == 5 && !memcmp(b, "twice", 5));
	CHECK(read(fd, b, 8) == -1 && errno == EAGAIN);
	close(fd);
	close(other);
}

static void body_sendmsg(bool again)
{
	struct iovec iov = {"told", 4};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	outside->count++;
	CHECK(CALL(sendmsg, other, &msg, 0) == 4);
	told_once();
}

static void body_fprintf(bool again)
{
	FILE *f = fdopen(dup(other), "w");

	outside->count++;
	CHECK(f && fprintf(f, "%s", "told") == 4 && fflush(f) == 0);
	told_once();
	fclose(f);
}

/* What a process writes to itself is no output: it is undone, and comes once. */
static void setup_own_pipe(void)
{
	int pair[2];

	CHECK(pipe2(pair, O_NONBLOCK) == 0 && write(pair[1], "old", 3) == 3);
	fd = pair[0];
	other = pair[1];
}

static void setup_own_pair(void)
{
	local_pair(SOCK_STREAM | SOCK_NONBLOCK, &fd, &other);
	CHECK(write(other, "old", 3) == 3);
}

static void setup_own_event(void)
{
	fd = other = eventfd(3, EFD_NONBLOCK);
	CHECK(fd >= 0);
}

static void body_own(bool again)
{
	struct iovec iov[2] = {{"ne", 2}, {"w", 1}};
	char b[32];

	CHECK(CALL(write, other, "new", 3) == 3 && CALL(writev, other, iov, 2) == 3);
	if (!again)
		return;
	CHECK(poll(NULL, 0, 0) == 0 && read(fd, b, 32) == 9 && !memcmp(b, "oldnewnew", 9));
	CHECK(read(fd, b, 32) == -1 && errno == EAGAIN);
	close(fd);
	close(other);
}

static void body_own_event(bool again)
{
	const uint64_t more[2] = {1, 5};
	uint64_t n;

	CHECK(CALL(write, other, &more[0], 8) == 8 && CALL(write, other, &more[1], 8) == 8);
	if (!again)
		return;
	CHECK(poll(NULL, 0, 0) == 0 && read(fd, &n, 8) == 8 && n == 9);
	CHECK(read(fd, &n, 8) == -1 && errno == EAGAIN);
	close(fd);
}

/* Whoever reads what he has just written finds it, behind what was there. */
static void body_own_read(bool again)
{
	int twin = dup(fd);
	char b[32];
	ssize_t n;

	if (!again)
		return;
	CHECK(CALL(write, other, "new", 3) == 3);
	n = CALL(read, twin, b, 32);
	CHECK(n == 6 && !memcmp(b, "oldnew", 6));
	CHECK(CALL(write, other, "late", 4) == 4 && read(fd, b, 32) == 4);
	close(twin);
	close(fd);
	close(other);
}

static void body_own_count(bool again)
{
	int twin = dup(fd);
	uint64_t n = 6;

	if (!again)
		return;
	CHECK(CALL(write, other, &n, 8) == 8 && CALL(read, twin, &n, 8) == 8 && n == 9);
	close(twin);
	close(fd);
}

/* As much as the pipe takes, and not more; nobody is left to read: as ever. */
static void body_own_full(bool again)
{
	char b[4096];
	size_t sum = 3;
	ssize_t n;

	memset(b, 'f', sizeof(b));
	if (!again)
		return;
	while ((n = CALL(write, other, b, 1000)) > 0)
		sum += (size_t)n;
	CHECK(n == -1 && errno == EAGAIN && sum >= 60000);
	while ((n = read(fd, b, sizeof(b))) > 0)
		sum -= (size_t)n;
	CHECK(n == -1 && errno == EAGAIN && sum == 0);
	CHECK(write(other, "x", 1) == 1 && close(fd) == 0);
	signal(SIGPIPE, SIG_IGN);
	CHECK(CALL(write, other, "x", 1) == -1 && errno == EPIPE);
	signal(SIGPIPE, SIG_DFL);
	close(other);
}

/*
 * The last descriptor of the other end: the peer sees the end, and the recovery does not open it
 * again.
 */
static void body_close_peer(bool again)
{
	char c;

	outside->count++;
	CHECK(CALL(close, other) == 0);
	crash_once();
	CHECK(fcntl(other, F_GETFD) == -1);
	CHECK(read(fd, &c, 1) == 0);
	close(fd);
}

static void body_shutdown(bool again)
{
	char c;

	outside->count++;
	CHECK(CALL(shutdown, other, SHUT_WR) == 0);
	crash_once();
	CHECK(read(fd, &c, 1) == 0);
	close(fd);
	close(other);
}

static void setup_names(void)
{
	int n;

	snprintf(name, sizeof(name), "%s.one", letters());
	snprintf(name_two, sizeof(name_two), "%s.two", letters());
	n = open(name, O_CREAT | O_WRONLY, 0600);
	CHECK(n >= 0 && write(n, "abc", 3) == 3 && close(n) == 0);
}

static void body_rename(bool again)
{
	outside->count++;
	CHECK(CALL(rename, name, name_two) == 0);
	crash_once();
	CHECK(access(name, F_OK) == -1 && access(name_two, F_OK) == 0);
	CHECK(unlink(name_two) == 0);
}

static void body_unlink(bool again)
{
	outside->count++;
	CHECK(CALL(unlink, name) == 0);
	crash_once();
	CHECK(access(name, F_OK) == -1);
}

static void body_create(bool again)
{
	int n;

	unlink(name);
	outside->count++;
	n = (int)CALL(open, name, O_CREAT | O_EXCL | O_WRONLY, 0600);
	CHECK(n >= 0);
	crash_once();
	CHECK(fcntl(n, F_GETFD) >= 0 && access(name, F_OK) == 0);
	close(n);
	unlink(name);
}

static void body_pwrite(bool again)
{
	int n = open(name, O_RDWR);
	char b[8];

	outside->count++;
	CHECK(CALL(pwrite64, n, "X", 1, 1) == 1);
	crash_once();
	CHECK(pread(n, b, 8, 0) == 3 && !memcmp(b, "aXc", 3));
	close(n);
	unlink(name);
}

static void body_fork(bool again)
{
	pid_t pid;
	int status;

	outside->count++;
	pid = way == RAW ? (pid_t)syscall(SYS_fork) : fork();
	if (pid == 0)
		_exit(7);
	CHECK(pid > 0);
	crash_once();
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* Children that were waited for: each is found again, once, by whatever call asks for it. */
static pid_t ended[4];

static void setup_children(void)
{
	for (int i = 0; i < 4; i++) {
		ended[i] = fork();
		if (ended[i] == 0) {
			if (i == 3)
				kill(getpid(), SIGKILL);
			_exit(9 + i);
		}
		CHECK(waitid(P_PID, (id_t)ended[i], &(siginfo_t){0}, WEXITED | WNOWAIT) == 0);
	}
}

static void body_waitpid(bool again)
{
	siginfo_t info = {0};
	int status = 0;

	CHECK(!again || kill(ended[0], 0) == 0);
	CHECK(CALL(wait4, ended[0], &status, 0, NULL) == ended[0] && WEXITSTATUS(status) == 9);
	if (again) { /* who had asked differently */
		CHECK(CALL(wait4, ended[3], &status, 0, NULL) == ended[3]);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		CHECK(CALL(wait4, 0, &status, WNOHANG, NULL) == ended[1]);
		CHECK(WEXITSTATUS(status) == 10);
		CHECK(waitid(P_PGID, (id_t)getpgrp(), &info, WEXITED) == 0);
		CHECK(info.si_pid == ended[2] && info.si_code == CLD_EXITED &&
			info.si_status == 11);
	} else {
		CHECK(CALL(wait4, -1, NULL, WNOHANG, NULL) == ended[1]);
		CHECK(CALL(wait4, -getpgrp(), &status, 0, NULL) == ended[2]);
		CHECK(waitid(P_ALL, 0, &info, WEXITED) == 0 && info.si_pid == ended[3] &&
			info.si_code == CLD_KILLED && info.si_status == SIGKILL);
	}
	CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
}

static volatile int handled;

static void count_signal(int sig)
{
	handled++;
}

static void setup_signal(void)
{
	handled = 0;
	signal(SIGUSR2, count_signal);
}

static void body_kill(bool again)
{
	outside->count++;
	CHECK(CALL(kill, getpid(), SIGUSR2) == 0);
	crash_once();
	CHECK(handled == 1);
}

static void body_mremap(bool again)
{
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *q;

	CHECK(p != MAP_FAILED);
	memset(p, 'm', 8192);
	outside->count++;
	q = (char *)CALL(mremap, p, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, p + (1ul << 30));
	CHECK(q == p + (1ul << 30));
	crash_once();
	CHECK(q[0] == 'm' && q[8191] == 'm');
	munmap(q, 8192);
}

/* Content that goes at once: the checkpoint after it must hold what is there then. */
static void body_mmap_fixed(bool again)
{
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memset(p, 'm', 8192);
	outside->count++;
	CHECK((char *)CALL(mmap, p, 4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == p);
	crash_once();
	CHECK(p[0] == 0 && p[4096] == 'm');
	munmap(p, 8192);
}

/* The same over all of a mapping that nobody has written lately: it looks like the old one. */
static void body_mmap_fixed_all(bool again)
{
	static char *area;

	if (!area) {
		area = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(area, 'm', 8192);
		tick();
		tick();
	}
	outside->count++;
	CHECK((char *)CALL(mmap, area, 8192, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == area);
	CHECK(area[0] == 0 && area[4096] == 0);
	memset(area, 'x', 8192);
	crash_once();
	munmap(area, 8192);
	area = NULL;
}

/* A log is cut back: the crash comes back to before the line, and the line is there once. */
static void setup_log(void)
{
	snprintf(name, sizeof(name), "%s.log", letters());
	other = open(name, O_CREAT | O_EXCL | O_WRONLY | O_APPEND, 0600);
	CHECK(other >= 0 && write(other, "abc", 3) == 3);
}

static void body_log(bool again)
{
	struct stat st;

	CHECK(fstat(other, &st) == 0 && st.st_size == 3);
	CHECK(CALL(write, other, "li", 2) == 2 && CALL(write, other, "ne\n", 3) == 3);
	CHECK(fstat(other, &st) == 0 && st.st_size == 8);
	if (again) {
		close(other);
		unlink(name);
	}
}

/* Without O_APPEND, at its end; closed before the crash. */
static void setup_output_file(void)
{
	snprintf(name, sizeof(name), "%s.out", letters());
	other = open(name, O_CREAT | O_EXCL | O_WRONLY, 0600);
	CHECK(other >= 0 && write(other, "abc", 3) == 3);
}

static void body_output_file(bool again)
{
	struct stat st;

	CHECK(CALL(write, other, "line\n", 5) == 5);
	CHECK(close(other) == 0 && stat(name, &st) == 0 && st.st_size == 8);
	if (again)
		unlink(name);
}

/* The flags are the file's, by whatever number: what is written over cannot be cut off again. */
static void setup_log_copy(void)
{
	setup_log();
	fd = dup(other);
	CHECK(fd >= 0);
}

static void body_log_over(bool again)
{
	struct stat st;

	CHECK(CALL(write, fd, "def", 3) == 3);
	CHECK(CALL(fcntl, other, F_SETFL, 0) == 0 && CALL(lseek, other, 0, SEEK_SET) == 0);
	outside->count++;
	CHECK(CALL(write, fd, "x", 1) == 1);
	crash_once();
	CHECK(fstat(fd, &st) == 0 && st.st_size == 6);
	close(fd);
	close(other);
	unlink(name);
}

/* Somebody has it open, or has added to it: it is left as written, and the line is there twice. */
static pid_t child;
static bool shared;

static void leave_to_child(bool writes)
{
	int ready[2];
	char c;

	shared = writes;
	CHECK(pipe(ready) == 0);
	child = fork();
	if (child == 0) {
		int mine = open(name, writes ? O_WRONLY | O_APPEND : O_RDONLY);

		close(ready[0]);
		(void)!write(ready[1], "r", 1);
		while (writes && *(volatile long *)&outside->value[1] != 1)
			usleep(1000);
		if (writes) {
			(void)!write(mine, "other\n", 6);
			outside->value[1] = 2;
		}
		for (;;)
			pause();
	}
	CHECK(read(ready[0], &c, 1) == 1);
	close(ready[0]);
	close(ready[1]);
	tick();
}

static void setup_followed(void)
{
	setup_log();
	leave_to_child(false);
}

static void setup_shared(void)
{
	setup_log();
	leave_to_child(true);
}

static void body_log_left(bool again)
{
	struct stat st;

	CHECK(fstat(other, &st) == 0 && CALL(write, other, "line\n", 5) == 5);
	if (!again && shared) {
		outside->value[1] = 1;
		while (*(volatile long *)&outside->value[1] != 2)
			;
	}
	if (again) {
		CHECK(st.st_size == 8 || st.st_size == 14);
		kill(child, SIGKILL);
		close(other);
		unlink(name);
	}
}

/* The same file once it is synced: now a line is an output. */
static void body_log_synced(bool again)
{
	struct stat st;

	CHECK(CALL(fsync, other) == 0);
	outside->count++;
	CHECK(CALL(write, other, "line\n", 5) == 5);
	crash_once();
	CHECK(fstat(other, &st) == 0 && st.st_size == 8);
	close(other);
	unlink(name);
}

const struct row rows_output[] = {
	{"write_pipe", setup_pipe, body_write, .output = true},
	{"own_pipe", setup_own_pipe, body_own},
	{"own_pair", setup_own_pair, body_own},
	{"own_event", setup_own_event, body_own_event},
	{"own_pipe_read", setup_own_pipe, body_own_read},
	{"own_pair_read", setup_own_pair, body_own_read},
	{"own_event_read", setup_own_event, body_own_count},
	{"own_pipe_full", setup_own_pipe, body_own_full},
	{"writev_socket", setup_socket, body_writev, .output = true},
	{"sendto", setup_socket, body_sendto, .output = true},
	{"sendmmsg", setup_socket, body_sendmmsg, .output = true},
	{"sendmsg", setup_socket, body_sendmsg, .output = true},
	{"close_peer", setup_pipe, body_close_peer, .output = true},
	{"shutdown", setup_socket, body_shutdown, .output = true},
	{"rename", setup_names, body_rename, .output = true},
	{"unlink", setup_names, body_unlink, .output = true},
	{"create", setup_names, body_create, .output = true},
	{"pwrite", setup_names, body_pwrite, .output = true},
	{"fork", NULL, body_fork, .output = true},
	{"waitpid", setup_children, body_waitpid},
	{"kill", setup_signal, body_kill, .output = true},
	{"mremap", NULL, body_mremap, .output = true},
	{"mmap_fixed_all", NULL, body_mmap_fixed_all, .output = true},
	{"mmap_fixed", NULL, body_mmap_fixed, .output = true},
	{"log", setup_log, body_log},
	{"log_at_end", setup_output_file, body_output_file},
	{"log_over", setup_log_copy, body_log_over, .output = true},
	{"log_followed", setup_followed, body_log_left},
	{"log_shared", setup_shared, body_log_left},
	{"log_synced", setup_log, body_log_synced, .output = true},
	{"fprintf", setup_pipe, body_fprintf, .stdio = true, .output = true},
	{0},
};
