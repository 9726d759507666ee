/* SPDX-License-Identifier: MIT */
/*
 * Calls whose arguments point to what cannot be read: the agent, which looks where they point
 * before the kernel does, dies of none, and each fails as it would alone. Also with all signals
 * blocked.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include "expect.h"

#define PAGE	      4096ul
#define REFUSED(call) EXPECT((call) == -1 && errno == EFAULT)

static void *map(int prot, int flags, int file)
{
	void *at = mmap(NULL, 2 * PAGE, prot, flags, file, 0);

	EXPECT(at != MAP_FAILED);
	return at;
}

/* What lies there is beyond the end of the file: a load raises SIGBUS. */
static char *cut_short(int flags)
{
	int file = memfd_create("cut short", 0);
	char *at;

	EXPECT(file >= 0 && !ftruncate(file, (off_t)(2 * PAGE)));
	at = map(PROT_READ | PROT_WRITE, flags, file);
	EXPECT(!ftruncate(file, (off_t)PAGE) && !close(file));
	return at + PAGE;
}

static void try_vectors(int from, int to, void *bad)
{
	REFUSED(readv(from, bad, 2));
	REFUSED(writev(to, bad, 2));
	REFUSED(recvmsg(from, bad, MSG_DONTWAIT));
	REFUSED(recvmmsg(from, bad, 3, MSG_DONTWAIT, NULL));
	REFUSED(sendmsg(to, bad, 0));
	REFUSED(sendmmsg(to, bad, 2, 0));
	REFUSED(process_vm_readv(getpid(), bad, 1, bad, 1, 0));
}

static void try_headers(int from, void *bad)
{
	struct sockaddr_storage name;
	struct iovec vector = { bad, 8 };
	struct msghdr msg = { .msg_iov = bad, .msg_iovlen = 2 };
	struct mmsghdr two[2] = { { .msg_hdr = { .msg_iov = &vector, .msg_iovlen = 1 } } };

	REFUSED(recvmsg(from, &msg, MSG_DONTWAIT));
	REFUSED(recvmmsg(from, two, 2, MSG_DONTWAIT, NULL));
	REFUSED(recvfrom(from, &name, 1, MSG_DONTWAIT, (void *)&name, bad));
	REFUSED(getsockname(from, (void *)&name, bad));
}

static void try_others(int from, void *bad)
{
	int set = epoll_create1(0);

	EXPECT(set >= 0);
	REFUSED(epoll_ctl(set, EPOLL_CTL_ADD, from, bad));
	EXPECT(!close(set));
	REFUSED(poll(bad, 2, 0));
	REFUSED(syscall(SYS_ppoll, bad, 2, bad, NULL, 8));
	REFUSED(syscall(SYS_select, 3, bad, NULL, NULL, bad));
	REFUSED(syscall(SYS_nanosleep, bad, NULL));
	REFUSED(syscall(SYS_fcntl, from, F_GETLK, bad));
	REFUSED(syscall(SYS_clone3, bad, 88));
	REFUSED(syscall(SYS_openat2, AT_FDCWD, "/dev/null", bad, 24));
	REFUSED(syscall(SYS_rt_sigaction, SIGUSR1, bad, NULL, 8));
}

static void try_all(int from, int to, void *bad)
{
	for (int i = 0; i < 3; i++) /* a call that fails at its own buffer has taken one */
		EXPECT(send(to, "8 bytes", 8, 0) == 8);
	try_vectors(from, to, bad);
	try_headers(from, bad);
	try_others(from, bad);
	EXPECT(poll(NULL, 0, 0) == 0); /* a checkpoint */
}

int main(void)
{
	char *none = map(PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	char *half = map(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	void *const bad[] = {
		(void *)8, none, half + PAGE - 2, cut_short(MAP_SHARED), cut_short(MAP_PRIVATE),
		(void *)0xffff800000000000, (void *)-8,
	};
	int pair[2];
	sigset_t all;

	EXPECT(!mprotect(half + PAGE, PAGE, PROT_NONE));
	EXPECT(!socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	sigfillset(&all);
	for (int blocked = 0; blocked < 2; blocked++) {
		for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
			try_all(pair[0], pair[1], bad[i]);
		EXPECT(!sigprocmask(SIG_BLOCK, &all, NULL));
	}
	puts("bad pointers: ok");
	return 0;
}
