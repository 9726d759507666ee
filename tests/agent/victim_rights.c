/* SPDX-License-Identifier: MIT */
/*
 * A worker that drops its rights before its first site, as a web server's does: by then the session
 * must be open, or there is no feed but the scan. What it does between the two (mappings that come
 * and go, stores) belongs to the first checkpoint; it crashes after each, and looks at its memory.
 * `files`: each turn maps a file and lets go of it, as for an answer. `sent`: each sends of a file
 * by its offset. `copy`: it has written to a private mapping of one. WORKERS: so many, at the same
 * time, all of which store at the same addresses.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "expect.h"

#define NOBODY 65534
#define PAGES  64
#define TURNS  60
#define MANY   64 /* workers, at most */

static uint8_t early[PAGES][4096] __attribute__((aligned(4096)));
static volatile uint64_t *crashes;
static int crash, files, sent, copy, me;

static void drop_rights(const char *how)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { { 0, 0, 0 }, { 0, 0, 0 } };

	/* Another number each time: libc's own calls are for all threads. */
	if (!strcmp(how, "setuid"))
		EXPECT(!syscall(SYS_setuid, NOBODY));
	else if (!strcmp(how, "setreuid"))
		EXPECT(!syscall(SYS_setreuid, NOBODY, NOBODY));
	else if (!strcmp(how, "setresuid"))
		EXPECT(!syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY));
	else if (!strcmp(how, "chroot")) /* to where there is neither /proc nor /sys */
		EXPECT(!chroot("/usr") && !chdir("/") && !syscall(SYS_setuid, NOBODY));
	else
		EXPECT(!syscall(SYS_capset, &head, none));
}

static void *map_some(void)
{
	void *p = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		0);

	EXPECT(p != MAP_FAILED);
	return p;
}

static void expect_turn(const uint8_t *late, int turn)
{
	for (int i = 0; i < PAGES; i++)
		EXPECT(early[i][7] == (uint8_t)(turn + i + me) &&
			late[i * 4096] == (uint8_t)(turn ^ i ^ me));
}

static void map_file(const char *path, int flags, int prot)
{
	int fd = open(path, O_RDONLY);
	const uint8_t *p;

	EXPECT(fd >= 0);
	p = mmap(NULL, 4096, prot, flags, fd, 0);
	EXPECT(p != MAP_FAILED && !close(fd) && p[1] == 'E' && !munmap((void *)p, 4096));
}

static void own_page_of_file(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	uint8_t *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	EXPECT(fd >= 0 && p != MAP_FAILED && !close(fd));
	p[0] = 1;
}

/* The agent writes the offset: what is sent is held. */
static void send_some(int file, int to, int turn)
{
	off_t at = turn;

	EXPECT(sendfile(to, file, &at, 7) == 7 && at == turn + 7);
}

static void work(const char *how)
{
	uint8_t *gone = map_some(), *late;
	int file = memfd_create("sent", 0), end[2];

	EXPECT(file >= 0 && !ftruncate(file, 4096));
	EXPECT(!socketpair(AF_UNIX, SOCK_STREAM, 0, end));
	gone[0] = 1;
	if (copy)
		own_page_of_file();
	drop_rights(how);
	late = map_some();
	EXPECT(!munmap(gone, PAGES * 4096));
	for (int turn = 0; turn < TURNS; turn++) {
		uint64_t before = crashes[me];

		for (int i = 0; i < PAGES; i++) {
			early[i][7] = (uint8_t)(turn + i + me);
			late[i * 4096] = (uint8_t)(turn ^ i ^ me);
		}
		if (files) {
			map_file("/proc/self/exe", MAP_SHARED, PROT_READ);
			map_file("/proc/self/exe", MAP_PRIVATE, PROT_READ);
		}
		if (sent)
			send_some(file, end[0], turn);
		poll(NULL, 0, 0);
		expect_turn(late, turn);
		if (!crash || crashes[me] != before)
			continue;
		memset(early, 0xee, sizeof(early));
		memset(late, 0xdd, PAGES * 4096);
		++crashes[me];
		*(volatile int *)8 = 1;
	}
}

int main(int argc, char **argv)
{
	int workers = argc > 3 ? atoi(argv[3]) : 1, status;
	pid_t children[MANY];

	EXPECT(argc > 1 && workers <= MANY);
	crash = argc > 2 && !strcmp(argv[2], "crash");
	files = argc > 2 && !strcmp(argv[2], "files");
	sent = argc > 2 && !strcmp(argv[2], "sent");
	copy = argc > 2 && !strcmp(argv[2], "copy");
	if (geteuid() != 0) {
		dprintf(1, "rights: not root\n");
		return 77;
	}
	crashes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(crashes != MAP_FAILED);
	for (me = 0; me < workers; me++) {
		children[me] = fork();
		EXPECT(children[me] >= 0);
		if (children[me] == 0) {
			work(argv[1]);
			return 0;
		}
	}
	for (int i = 0; i < workers; i++) {
		EXPECT(waitpid(children[i], &status, 0) == children[i]);
		EXPECT(WIFEXITED(status) && !WEXITSTATUS(status));
		EXPECT(crashes[i] == (crash ? TURNS : 0));
	}
	dprintf(1, "rights: ok\n");
	return 0;
}
