/* SPDX-License-Identifier: MIT */
/*
 * A program that changes its limit of descriptors after its first checkpoint. What lies above the
 * limit of that moment comes back like anything below; and what a recovery needs it finds below one
 * that has become lower. And the offset of a device.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "../lib/harness.h"
#include "../lib/tcp_pair.h"

#define LOW  512
#define HIGH 3000

static int *passes; /* shared: a restore leaves it alone */

static void wake_up(void)
{
	CHECK(poll(NULL, 0, 0) == 0);
}

static void crash(void)
{
	*(volatile int *)24 = 0;
}

static void allow(rlim_t count)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = count;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0) {
		printf("SKIP: %ld descriptors\n", (long)count);
		_exit(77);
	}
}

/* The same object by a number that was out of reach. */
static int move_up(int fd)
{
	int high = fcntl(fd, F_DUPFD, HIGH);

	CHECK(fd >= 0 && high >= HIGH && close(fd) == 0);
	return high;
}

static void list(void)
{
	int folder = move_up(open("/proc/self", O_RDONLY | O_DIRECTORY)), names = 0;
	DIR *d = fdopendir(folder);

	CHECK(d);
	wake_up();
	while (readdir(d))
		names++;
	CHECK(names > 10);
	if (++*passes == 1)
		crash();
	CHECK(*passes == 2 && readdir(d) == NULL);
}

static void step(int fd)
{
	wake_up();
	++*passes;
	CHECK(lseek(fd, 2, SEEK_CUR) == 2);
	if (*passes == 1)
		crash();
	CHECK(*passes == 2);
}

static void offset(void)
{
	char name[] = "/tmp/cairn-raised-XXXXXX", c;
	int made = mkstemp(name), fd;

	CHECK(made >= 0 && write(made, "abcdefghij", 10) == 10);
	fd = move_up(open(name, O_RDONLY));
	unlink(name);
	step(fd);
	CHECK(read(fd, &c, 1) == 1 && c == 'c');
}

/* It is no file, and has an offset. Nothing is read. */
static void device(void)
{
	static const char *const names[] = { "/dev/cpu/0/cpuid", "/dev/vda", "/dev/sda",
		"/dev/nvme0n1" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		int fd = open(names[i], O_RDONLY);

		if (fd < 0)
			continue;
		step(fd);
		return;
	}
	printf("SKIP: a device with an offset\n");
	_exit(77);
}

/* Its crash costs the one who has sent it its connection, and nobody else anything. */
static void connection(void)
{
	int bad[2], good[2];
	char c;

	CHECK(tcp_pair(bad) == 0 && tcp_pair(good) == 0);
	bad[0] = move_up(bad[0]);
	good[0] = move_up(good[0]);
	wake_up();
	CHECK(write(good[1], "g", 1) == 1 && write(bad[1], "b", 1) == 1);
	wake_up();
	CHECK(read(good[0], &c, 1) == 1 && c == 'g');
	if (read(bad[0], &c, 1) == 1) {
		CHECK(++*passes == 1);
		crash();
	}
	CHECK(*passes == 1 && errno == ECONNRESET);
	CHECK(write(good[0], "h", 1) == 1);
	wake_up();
	CHECK(read(good[1], &c, 1) == 1 && c == 'h');
	CHECK(read(bad[1], &c, 1) < 0 && errno == ECONNRESET);
}

/* An accepted connection waits, while it is accepted again, under a number that there is. */
static void lowered(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int client = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(at);
	int fd;
	char c;

	CHECK(listen(listener, 1) == 0 && getsockname(listener, (void *)&at, &len) == 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	allow(LOW / 2);
	CHECK(connect(client, (void *)&at, sizeof(at)) == 0 && write(client, "x", 1) == 1);
	wake_up();
	fd = accept(listener, NULL, NULL);
	CHECK(fd == client + 1);
	if (++*passes == 1)
		crash();
	CHECK(*passes == 2 && read(fd, &c, 1) == 1 && c == 'x');
}

/* Two of them, below a limit that leaves room for one where there was room before. */
static void tight(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	int client[2] = { socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_STREAM, 0) };
	socklen_t len = sizeof(at);
	int fd[2];
	char c;

	CHECK(listen(listener, 2) == 0 && getsockname(listener, (void *)&at, &len) == 0);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	allow(LOW / 2 + 1);
	for (int i = 0; i < 2; i++)
		CHECK(connect(client[i], (void *)&at, sizeof(at)) == 0 &&
			write(client[i], "xy" + i, 1) == 1);
	wake_up();
	for (int i = 0; i < 2; i++) {
		fd[i] = accept(listener, NULL, NULL);
		CHECK(fd[i] == client[1] + 1 + i);
	}
	if (++*passes == 1)
		crash();
	CHECK(*passes == 2);
	for (int i = 0; i < 2; i++)
		CHECK(read(fd[i], &c, 1) == 1 && c == "xy"[i]);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = { { "list", list }, { "offset", offset }, { "device", device },
		{ "connection", connection }, { "lowered", lowered }, { "tight", tight } };

	passes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(passes != MAP_FAILED && argc == 2);
	allow(LOW);
	wake_up();
	allow(HIGH + 1000);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (!strcmp(argv[1], cases[i].name)) {
			cases[i].run();
			printf("ok %s\n", argv[1]);
			return 0;
		}
	return 2;
}
