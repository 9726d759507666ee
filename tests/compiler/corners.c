/* SPDX-License-Identifier: MIT */
/*
 * What libc's functions do, wrappers do as well: read directly from a disk to several buffers, give
 * out zeros beside other threads, align blocks, fork with handlers that allocate, name errors,
 * number children, and drop pages where no descriptor is left. And a call that writes to memory in
 * ways that nobody sees ends what can be restored. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../lib/harness.h"

#define LARGE 40000

static void direct(void)
{
	static char block[4096] __attribute__((aligned(4096)));
	struct iovec part = { block, sizeof(block) };
	char path[] = "direct.XXXXXX";
	int writer = mkstemp(path), fd = open(path, O_RDONLY | O_DIRECT);
	CHECK(writer >= 0 && write(writer, block, sizeof(block)) == sizeof(block));
	if (fd >= 0 && pread(fd, block, sizeof(block), 0) == sizeof(block)) {
		CHECK(preadv(fd, &part, 1, 0) == sizeof(block));
		CHECK(syscall(SYS_pread64, fd, block, sizeof(block), 0l, 0l) == sizeof(block));
	}
	CHECK(!unlink(path) && !close(writer) && (fd < 0 || !close(fd)));
}

static void *write_and_free(void *stop)
{
	while (!atomic_load((atomic_int *)stop)) {
		char *volatile first = malloc(LARGE), *volatile second;

		memset(first, 0xee, LARGE);
		second = malloc(LARGE);
		memset(second, 0xcc, LARGE);
		free(first);
		free(second);
	}
	return NULL;
}

/* What calloc gives is zeros, whatever another thread does with the memory beside it. */
static void zeros(void)
{
	atomic_int stop = 0;
	pthread_t threads[3];

	for (int i = 0; i < 3; i++)
		CHECK(!pthread_create(&threads[i], NULL, write_and_free, &stop));
	for (int i = 0; i < 20000; i++) {
		long *volatile block = calloc(1, LARGE);

		for (size_t k = 0; k < LARGE / sizeof(*block); k += 500)
			CHECK(!block[k]);
		free(block);
	}
	atomic_store(&stop, 1);
	for (int i = 0; i < 3; i++)
		CHECK(!pthread_join(threads[i], NULL));
}

static void allocate(void)
{
	char *volatile block = malloc(100);

	free(block);
}

static void *sleep_on(void *unused)
{
	return (void *)(intptr_t)pause();
}

static void forks(void)
{
	pthread_t thread;
	int status;
	pid_t child;

	CHECK(!pthread_atfork(allocate, allocate, allocate));
	CHECK(!pthread_create(&thread, NULL, sleep_on, NULL));
	child = fork();
	allocate();
	if (!child)
		_exit(0);
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status);
	CHECK(!pthread_cancel(thread) && !pthread_join(thread, NULL));
}

static void no_place_for_name(void)
{
	void *closed = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "corners.socket" };
	char text[64];
	struct iovec part = { text, sizeof(text) };
	struct mmsghdr message = { .msg_hdr = { closed, sizeof(name), &part, 1, NULL, 0, 0 } };
	int ends[2];

	CHECK(closed != MAP_FAILED && !socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
	CHECK(!bind(ends[0], (struct sockaddr *)&name, sizeof(name)));
	CHECK(write(ends[0], "x", 1) == 1);
	CHECK(recvmmsg(ends[1], &message, 1, 0, NULL) == -1 && errno == EFAULT);
	CHECK(!unlink(name.sun_path) && !close(ends[0]) && !close(ends[1]));
}

static int has_number(void *number)
{
	return getpid() != *(pid_t *)number;
}

/* Which the kernel writes, is taken back as well. */
static void numbers_child(cairn_t *c)
{
	static char stack[65536] __attribute__((aligned(16)));
	static pid_t number = 77;
	uint64_t id;
	int got = cairn_checkpoint(c, &id), status;
	pid_t pid;

	if (got == CAIRN_TAKEN) {
		pid = clone(has_number, stack + sizeof(stack),
			CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, &number, &number, NULL,
			&number);
		CHECK(pid > 0 && number == pid && waitpid(pid, &status, 0) == pid && !status);
		CHECK_OK(cairn_restore(c, id));
	}
	CHECK(got == CAIRN_RESTORED && number == 77);
}

static void unseen(cairn_t *c, uint64_t id)
{
	static unsigned long context;

	if (!syscall(SYS_io_setup, 8, &context))
		CHECK(cairn_restore(c, id) < 0);
}

static void aligned(void)
{
	/* What the heap grants: cairn-cc(1). */
	const size_t most = sizeof(void *) == 8 ? 1ul << 30 : 8ul << 20;

	for (size_t align = 4ul << 20; align <= most; align *= 16) {
		void *volatile one, *other;

		CHECK(!posix_memalign(&other, align, 100) && !((uintptr_t)other & (align - 1)));
		memset(other, 'x', 100);
		one = aligned_alloc(align, 100);
		CHECK(one && one != other && !((uintptr_t)one & (align - 1)));
		free(one);
		free(other);
	}
}

/* What was mapped there cannot be told: the interval is given up, and the call made. */
static void no_descriptor(void)
{
	const struct rlimit none = { 3, 3 };
	char *pages = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(pages != MAP_FAILED && !setrlimit(RLIMIT_NOFILE, &none));
	pages[0] = 1;
	CHECK(!madvise(pages, 4096, MADV_DONTNEED) && !pages[0]);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id;
	cairn_t *c;

	aligned();
	zeros();
	forks();
	o.tracker = argv[1];
	o.threads = CAIRN_THREADS_ONE;
	CHECK_OK(cairn_open(&c, &o));
	numbers_child(c);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	direct();
	no_place_for_name();
	unseen(c, id);
	no_descriptor();
	return 0;
}
