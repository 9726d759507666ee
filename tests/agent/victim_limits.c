/* SPDX-License-Identifier: MIT */
/*
 * What the program has unmapped does not count against its limits, nor keep a file from being
 * sealed, and what it has closed, or left, is neither locked nor busy, although a recovery may want
 * it back.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "expect.h"

#define MB 1048576ul

static const int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;

static void limit(int what, uint64_t bytes)
{
	struct rlimit r = { bytes, bytes };

	EXPECT(setrlimit(what, &r) == 0);
}

/* From outside: what the program sets itself leaves out the agent's memory, as below. */
static void limit_all(uint64_t bytes)
{
	struct rlimit r = { bytes, bytes };
	pid_t pid = fork();

	if (pid == 0)
		_exit(prlimit(getppid(), RLIMIT_AS, &r, NULL) != 0);
	EXPECT(waitpid(pid, &(int){0}, 0) == pid);
}

static uint64_t address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long pages;

	EXPECT(f && fscanf(f, "%lu", &pages) == 1 && fclose(f) == 0);
	return pages * 4096;
}

static uint64_t data_bytes(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[200];

	EXPECT(f);
	while (fgets(line, sizeof(line), f) && sscanf(line, "VmData: %lu", &kib) != 1)
		;
	EXPECT(fclose(f) == 0 && kib);
	return kib * 1024;
}

static char *map(size_t len, int flags)
{
	char *p = mmap(NULL, len, rw, anonymous | flags, -1, 0);

	EXPECT(p != MAP_FAILED);
	p[0] = 1;
	return p;
}

/* Each fits alone, no two do. */
static void maps_in_turn(void)
{
	char *p;

	limit_all(address_space() + 150 * MB);
	for (int i = 0; i < 4; i++)
		EXPECT(munmap(map(100 * MB, 0), 100 * MB) == 0);
	p = map(40 * MB, 0);
	EXPECT(munmap(map(60 * MB, 0), 60 * MB) == 0);
	p = mremap(p, 40 * MB, 100 * MB, MREMAP_MAYMOVE);
	EXPECT(p != MAP_FAILED && p[0] == 1 && munmap(p, 100 * MB) == 0);
	EXPECT(brk((char *)sbrk(0) + 100 * MB) == 0 && brk((char *)sbrk(0) - 100 * MB) == 0);
}

/* Little enough that what the agent reserves would not fit. */
static void limits_itself(void)
{
	struct rlimit r = { 1, 1 };
	char *p;

	limit(RLIMIT_AS, 200 * MB);
	EXPECT(getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur == 200 * MB && r.rlim_max == 200 * MB);
	p = map(100 * MB, 0);
	EXPECT(poll(NULL, 0, 0) == 0);
	EXPECT(mmap(NULL, 200 * MB, rw, anonymous, -1, 0) == MAP_FAILED && errno == ENOMEM);
	EXPECT(munmap(p, 100 * MB) == 0);
	limit(RLIMIT_AS, 150 * MB);
	EXPECT(getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur == 150 * MB);
}

/* The engine comes later, and takes nothing of the limit that the program has given itself. */
static void has_all_of_it(void)
{
	struct rlimit r = { 1, 1 };
	char *p;

	limit(RLIMIT_AS, 200 * MB);
	p = map(100 * MB, 0);
	EXPECT(poll(NULL, 0, 0) == 0 && munmap(p, 100 * MB) == 0);
	p = map(150 * MB, 0);
	EXPECT(getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur == 200 * MB && r.rlim_max == 200 * MB);
	EXPECT(mmap(NULL, 200 * MB, rw, anonymous, -1, 0) == MAP_FAILED && errno == ENOMEM);
	EXPECT(munmap(p, 150 * MB) == 0);
}

static void gives_up(unsigned capability)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	EXPECT(syscall(SYS_capget, &head, data) == 0);
	data[capability / 32].effective &= ~(1u << capability);
	EXPECT(syscall(SYS_capset, &head, data) == 0);
}

/* Within a limit from before (ulimit -v), which it may not raise. */
static void limits_itself_within(void)
{
	struct rlimit before, r;
	char *p;

	limit_all(address_space() + 250 * MB);
	gives_up(CAP_SYS_RESOURCE);
	EXPECT(getrlimit(RLIMIT_AS, &before) == 0);
	r = (struct rlimit){ before.rlim_max, before.rlim_max + MB };
	EXPECT(setrlimit(RLIMIT_AS, &r) < 0 && errno == EPERM);
	r = (struct rlimit){ 200 * MB, before.rlim_max };
	EXPECT(setrlimit(RLIMIT_AS, &r) == 0 && getrlimit(RLIMIT_AS, &r) == 0);
	EXPECT(r.rlim_cur == 200 * MB && r.rlim_max == before.rlim_max);
	p = map(100 * MB, 0);
	EXPECT(munmap(p, 100 * MB) == 0);
	limit(RLIMIT_AS, 150 * MB);
	r = (struct rlimit){ MB, 150 * MB + 1 };
	EXPECT(setrlimit(RLIMIT_AS, &r) < 0 && errno == EPERM);
}

/* What it had at the last site it can store to, although it has no room for more. */
static void limits_its_data(void)
{
	char *p = map(4 * MB, 0);

	gives_up(CAP_SYS_RESOURCE);
	memset(p, 1, 4 * MB);
	for (int i = 0; i < 200; i++) /* until no strategy takes it for hot */
		EXPECT(poll(NULL, 0, 0) == 0);
	limit(RLIMIT_DATA, data_bytes());
	for (int i = 2; i < 4; i++) {
		memset(p, i, 4 * MB);
		EXPECT(poll(NULL, 0, 0) == 0);
	}
	for (size_t i = 0; i < 4 * MB; i++)
		EXPECT(p[i] == 3);
	EXPECT(mmap(NULL, 64 * MB, rw, anonymous, -1, 0) == MAP_FAILED && errno == ENOMEM);
}

/* So it is without the right to raise limits. */
static void has_all_without_rights(void)
{
	gives_up(CAP_SYS_RESOURCE);
	has_all_of_it();
}

/* `at_work`: it has a session before. */
static void limits_a_child(bool at_work, void (*limits)(void))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (at_work)
			poll(NULL, 0, 0);
		limits();
		_exit(0);
	}
	EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
}

static void locks_in_turn(void)
{
	struct rlimit now;
	size_t len = MB / 4 * 3;
	char *p;

	EXPECT(getrlimit(RLIMIT_MEMLOCK, &now) == 0);
	if (now.rlim_max < MB)
		return; /* less than one of these */
	limit(RLIMIT_MEMLOCK, MB);
	gives_up(CAP_IPC_LOCK);
	for (int i = 0; i < 3; i++) {
		p = map(len, MAP_LOCKED);
		EXPECT(munmap(p, len) == 0);
		p = map(len, 0);
		EXPECT(mlock(p, len) == 0 && munmap(p, len) == 0);
	}
}

static void seals(void)
{
	int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
	char *p;

	EXPECT(fd >= 0 && ftruncate(fd, 4096) == 0);
	p = mmap(NULL, 4096, rw, MAP_SHARED, fd, 0);
	EXPECT(p != MAP_FAILED);
	p[0] = 'x';
	EXPECT(munmap(p, 4096) == 0);
	EXPECT(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	EXPECT(write(fd, "y", 1) < 0 && errno == EPERM);
	close(fd);
}

static const char lock[] = "victim_limits.lock";

/* Of a new description, which a lock of any other keeps out. */
static int locked(void)
{
	int fd = open(lock, O_CREAT | O_RDWR, 0600);

	EXPECT(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
	return fd;
}

static int locked_in_part(void)
{
	struct flock part = { .l_type = F_WRLCK, .l_len = 1 };
	int fd = open(lock, O_RDWR);

	EXPECT(fd >= 0 && fcntl(fd, F_OFD_SETLK, &part) == 0);
	return fd;
}

/* `early`: has been locked since before the first site. */
static void unlocks(int early)
{
	int fd;

	EXPECT(close(early) == 0);
	for (int i = 0; i < 3; i++)
		EXPECT(close(locked()) == 0);
	for (int i = 0; i < 3; i++)
		EXPECT(close(locked_in_part()) == 0);
	fd = locked();
	EXPECT(dup2(1, fd) == fd && close(locked()) == 0);
	EXPECT(unlink(lock) == 0);
}

/* What a daemon has locked before it became one: its parent has taken the lock. */
static void unlocks_in_a_child(void)
{
	int fd = locked(), ready[2], status;
	pid_t pid;
	char c;

	EXPECT(pipe(ready) == 0 && (pid = fork()) >= 0);
	if (pid == 0) {
		close(ready[1]);
		EXPECT(read(ready[0], &c, 1) == 0);
		EXPECT(poll(NULL, 0, 0) == 0 && close(fd) == 0 && close(locked()) == 0);
		_exit(0);
	}
	EXPECT(close(fd) == 0 && poll(NULL, 0, 0) == 0 && close(ready[1]) == 0);
	EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
	EXPECT(close(ready[0]) == 0 && unlink(lock) == 0);
}

/* A program that a process has written can be executed at once, by itself, too. */
static void executes(bool mapped)
{
	static const char name[] = "./victim_limits.program", text[] = "#!/bin/sh\nexit 7\n";
	char *const argv[] = { (char *)name, NULL };
	pid_t pid = fork();
	int fd, status;
	char *p = NULL;

	EXPECT(pid >= 0);
	if (pid == 0) {
		EXPECT(poll(NULL, 0, 0) == 0);
		fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0700);
		EXPECT(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
		if (mapped) {
			p = mmap(NULL, 4096, rw, MAP_SHARED, fd, 0);
			EXPECT(p != MAP_FAILED && poll(NULL, 0, 0) == 0);
		}
		EXPECT(close(fd) == 0 && (!mapped || munmap(p, 4096) == 0));
		EXPECT(execv(name, argv) == 0);
	}
	EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	EXPECT(unlink(name) == 0);
}

/* Does some descriptor of this process mean the file? The agent's numbers are below 32768. */
static int has_open(const struct stat *file)
{
	struct stat st;

	for (int fd = 0; fd < 32768; fd++)
		if (fstat(fd, &st) == 0 && st.st_dev == file->st_dev && st.st_ino == file->st_ino)
			return 1;
	return 0;
}

/* An eventfd takes what fits below its end, and nothing of what does not. */
static void counts_to_the_end(void)
{
	uint64_t near = UINT64_MAX - 4, two = 2, three = 3, got;
	int fd = eventfd(0, EFD_NONBLOCK);

	EXPECT(fd >= 0 && poll(NULL, 0, 0) == 0);
	EXPECT(write(fd, &near, 8) == 8 && write(fd, &three, 8) == 8);
	EXPECT(write(fd, &two, 8) < 0 && errno == EAGAIN);
	EXPECT(read(fd, &got, 8) == 8 && got == UINT64_MAX - 1 && close(fd) == 0);
}

/* A child has nothing of what was given up before it was born. */
static void forks(void)
{
	int fd = open(".", O_RDONLY | O_DIRECTORY), status;
	unsigned char there;
	struct stat file;
	char *p = map(MB, 0), here[4096];
	pid_t pid;

	EXPECT(poll(NULL, 0, 0) == 0 && fd >= 0 && fstat(fd, &file) == 0);
	EXPECT(getcwd(here, sizeof(here)) && close(fd) == 0 && munmap(p, MB) == 0);
	EXPECT(chdir("/") == 0 && (pid = fork()) >= 0);
	if (!pid) {
		EXPECT(mincore(p, 4096, &there) < 0 && errno == ENOMEM);
		EXPECT(!has_open(&file));
		_exit(0);
	}
	EXPECT(waitpid(pid, &status, 0) == pid && status == 0 && chdir(here) == 0);
}

/* A file system on which the program has been, and has read, until just now. */
static void unmounts(void)
{
	char folder[] = "/tmp/cairn-mount-XXXXXX";
	pid_t pid;
	int status, fd;

	EXPECT(mkdtemp(folder) && (pid = fork()) >= 0);
	if (!pid) {
		if (unshare(CLONE_NEWNS) < 0 ||
			mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
			_exit(0); /* not permitted */
		EXPECT(mount("none", folder, "tmpfs", 0, NULL) == 0 && chdir(folder) == 0);
		EXPECT((fd = open("file", O_RDWR | O_CREAT, 0600)) >= 0 && poll(NULL, 0, 0) == 0);
		EXPECT(close(fd) == 0 && chdir("/") == 0 && umount(folder) == 0);
		_exit(0);
	}
	EXPECT(waitpid(pid, &status, 0) == pid && status == 0 && rmdir(folder) == 0);
}

int main(void)
{
	int early = locked();

	EXPECT(poll(NULL, 0, 0) == 0);
	unlocks(early);
	unlocks_in_a_child();
	executes(false);
	executes(true);
	forks();
	unmounts();
	seals();
	locks_in_turn();
	limits_a_child(false, limits_itself);
	limits_a_child(true, limits_itself);
	limits_a_child(false, has_all_of_it);
	limits_a_child(false, has_all_without_rights);
	limits_a_child(true, limits_itself_within);
	limits_a_child(true, limits_its_data);
	limits_a_child(false, limits_its_data);
	counts_to_the_end();
	maps_in_turn();
	printf("limits: ok\n");
	return 0;
}
