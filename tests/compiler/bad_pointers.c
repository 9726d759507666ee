/* SPDX-License-Identifier: MIT */
/*
 * System calls that are given memory which is not there, ends early, or is closed to stores: by
 * libc's functions and by syscall(2) a program gets the answer that a bare call gets, and as much
 * is left of what was to be read. Without a session and with one; what was closed while
 * it was saved does not stop a restore. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <asm/sockios.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define SPAN  (16 * PAGE)
#define BYTES 9000 /* in each pipe and socket before each call */

#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17
#endif

enum how { BARE, LIBC, NUMBER };

static enum how how;
static int pipes[2], stream[2], packets[2], file, events;
static char filler[BYTES], drain[SPAN];
static char good[64];
static cairn_t *c;

static long bare(long nr, ...)
{
	long a[6], result;
	va_list ap;

	va_start(ap, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	register long d __asm__("r10") = a[3], e __asm__("r8") = a[4], f __asm__("r9") = a[5];
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(nr), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(d), "r"(e), "r"(f)
			 : "rcx", "r11", "memory");
	if ((unsigned long)result <= -4096ul)
		return result;
	errno = (int)-result;
	return -1;
}

/* ---- Calls ----------------------------------------------------------------------------------- */

#define NONE 0l, 0l, 0l, 0l, 0l, 0l
#define CALL(nr, by_libc, ...)                                \
	(how == LIBC ? (long)(by_libc)                        \
	 : how == BARE ? bare(SYS_##nr, __VA_ARGS__, NONE)    \
		       : syscall(SYS_##nr, __VA_ARGS__, NONE))

static long by_read(void *at, size_t n)
{
	return CALL(read, read(pipes[0], at, n), pipes[0], at, n);
}

static long by_pread(void *at, size_t n)
{
	return CALL(pread64, pread(file, at, n, 7), file, at, n, 7l);
}

static long by_readv(void *at, size_t n)
{
	struct iovec v[3] = { { good, 10 }, { at, n }, { good + 10, 10 } };

	return CALL(readv, readv(pipes[0], v, 3), pipes[0], v, 3l);
}

static long by_preadv(void *at, size_t n)
{
	struct iovec v[2] = { { good, 10 }, { at, n } };

	return CALL(preadv, preadv(file, v, 2, 0), file, v, 2l, 0l);
}

static long by_list(void *at, size_t n)
{
	return CALL(readv, readv(pipes[0], at, (int)(n & 15)), pipes[0], at, (long)(n & 15));
}

static long by_recv(void *at, size_t n)
{
	return CALL(recvfrom, recv(stream[1], at, n, MSG_DONTWAIT), stream[1], at, n,
		(long)MSG_DONTWAIT);
}

static long by_packet(void *at, size_t n)
{
	return CALL(recvfrom, recvfrom(packets[1], at, n, MSG_DONTWAIT, NULL, NULL), packets[1],
		at, n, (long)MSG_DONTWAIT);
}

static long by_recvmsg(void *at, size_t n)
{
	struct iovec v[2] = { { good, 10 }, { at, n } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };

	return CALL(recvmsg, recvmsg(packets[1], &m, MSG_DONTWAIT), packets[1], &m,
		(long)MSG_DONTWAIT);
}

static long by_header(void *at, size_t n)
{
	return CALL(recvmsg, recvmsg(stream[1], at, MSG_DONTWAIT), stream[1], at,
		(long)MSG_DONTWAIT);
}

static long by_recvmmsg(void *at, size_t n)
{
	struct iovec v = { at, n };
	struct mmsghdr m[2] = { { .msg_hdr = { .msg_iov = &v, .msg_iovlen = 1 } } };

	return CALL(recvmmsg, recvmmsg(packets[1], m, 2, MSG_DONTWAIT, NULL), packets[1], m, 2l,
		(long)MSG_DONTWAIT, 0l);
}

static long by_headers(void *at, size_t n)
{
	return CALL(recvmmsg, recvmmsg(stream[1], at, 2, MSG_DONTWAIT, NULL), stream[1], at, 2l,
		(long)MSG_DONTWAIT, 0l);
}

static long by_readlink(void *at, size_t n)
{
	return CALL(readlinkat, readlink("link", at, n), (long)AT_FDCWD, "link", at, n);
}

static long by_getcwd(void *at, size_t n)
{
	if (!at) /* libc allocates */
		return 0;
	return CALL(getcwd, getcwd(at, n) ? 1 : -1, at, n) > 0 ? 1 : -1;
}

static long by_epoll(void *at, size_t n)
{
	long count = (long)(int)(n / 12);

	return CALL(epoll_wait, epoll_wait(events, at, (int)count, 0), events, at, count, 0l);
}

static long by_getrandom(void *at, size_t n)
{
	return CALL(getrandom, getrandom(at, n & (SPAN - 1), 0), at, n & (SPAN - 1), 0l);
}

static long by_ioctl(void *at, size_t n)
{
	return CALL(ioctl, ioctl(pipes[0], FIONREAD, at), pipes[0], (long)FIONREAD, at);
}

static long by_fcntl(void *at, size_t n)
{
	return CALL(fcntl, fcntl(file, F_GETLK, at), file, (long)F_GETLK, at);
}

static long by_poll(void *at, size_t n)
{
	return CALL(poll, poll(at, 2, 0), at, 2l, 0l);
}

static long by_name(void *at, size_t n)
{
	socklen_t len = sizeof(good);

	return CALL(getsockname, getsockname(stream[0], at, &len), stream[0], at, &len);
}

static long by_name_length(void *at, size_t n)
{
	return CALL(getsockname, getsockname(stream[0], (struct sockaddr *)good, at), stream[0],
		good, at);
}

static long by_option(void *at, size_t n)
{
	socklen_t len = 4;

	return CALL(getsockopt, getsockopt(stream[0], SOL_SOCKET, SO_TYPE, at, &len), stream[0],
		(long)SOL_SOCKET, (long)SO_TYPE, at, &len);
}

static long by_option_length(void *at, size_t n)
{
	return CALL(getsockopt, getsockopt(stream[0], SOL_SOCKET, SO_TYPE, good, at), stream[0],
		(long)SOL_SOCKET, (long)SO_TYPE, good, at);
}

/* A request whose number does not tell that something is written. */
static long by_old_ioctl(void *at, size_t n)
{
	return CALL(ioctl, ioctl(stream[0], FIOGETOWN, at), stream[0], (long)FIOGETOWN, at);
}

static long by_owners(void *at, size_t n)
{
	return CALL(fcntl, fcntl(stream[0], F_GETOWNER_UIDS, at), stream[0],
		(long)F_GETOWNER_UIDS, at);
}

static long by_process(void *at, size_t n)
{
	struct iovec from = { filler, 100 }, to = { at, n };

	return CALL(process_vm_readv, process_vm_readv(getpid(), &to, 1, &from, 1, 0),
		(long)getpid(), &to, 1l, &from, 1l, 0l);
}

static long by_process_list(void *at, size_t n)
{
	struct iovec from = { filler, 100 };

	return CALL(process_vm_readv, process_vm_readv(getpid(), at, n & 15, &from, 1, 0),
		(long)getpid(), at, (long)(n & 15), &from, 1l, 0l);
}

static long by_stat(void *at, size_t n)
{
	return CALL(newfstatat, fstatat(AT_FDCWD, "link", at, AT_SYMLINK_NOFOLLOW), (long)AT_FDCWD,
		"link", at, (long)AT_SYMLINK_NOFOLLOW);
}

static long by_wait(void *at, size_t n)
{
	return CALL(wait4, wait4(-1, at, WNOHANG, at), -1l, at, (long)WNOHANG, at);
}

static long by_uname(void *at, size_t n)
{
	return CALL(uname, uname(at), at);
}

static long by_limit(void *at, size_t n)
{
	return CALL(prlimit64, getrlimit(RLIMIT_NOFILE, at), 0l, (long)RLIMIT_NOFILE, 0l, at);
}

static long by_pipe(void *at, size_t n)
{
	return CALL(pipe2, pipe2(at, O_CLOEXEC), at, (long)O_CLOEXEC);
}

static long by_groups(void *at, size_t n)
{
	return CALL(getgroups, getgroups(64, at), 64l, at) < 0;
}

static long by_sysinfo(void *at, size_t n)
{
	return CALL(sysinfo, sysinfo(at), at);
}

static long by_sendfile(void *at, size_t n)
{
	return CALL(sendfile, sendfile(pipes[1], file, at, 10), pipes[1], file, at, 10l);
}

static const struct {
	const char *name;
	long (*run)(void *at, size_t n);
} calls[] = {
	{ "read", by_read },
	{ "pread", by_pread },
	{ "readv", by_readv },
	{ "preadv", by_preadv },
	{ "readv, its list", by_list },
	{ "recv", by_recv },
	{ "recvfrom", by_packet },
	{ "recvmsg", by_recvmsg },
	{ "recvmsg, its header", by_header },
	{ "recvmmsg", by_recvmmsg },
	{ "recvmmsg, its headers", by_headers },
	{ "readlink", by_readlink },
	{ "getcwd", by_getcwd },
	{ "epoll_wait", by_epoll },
	{ "getrandom", by_getrandom },
	{ "ioctl", by_ioctl },
	{ "fcntl", by_fcntl },
	{ "poll", by_poll },
	{ "getsockname", by_name },
	{ "getsockname, its length", by_name_length },
	{ "getsockopt", by_option },
	{ "getsockopt, its length", by_option_length },
	{ "ioctl, FIOGETOWN", by_old_ioctl },
	{ "fcntl, F_GETOWNER_UIDS", by_owners },
	{ "process_vm_readv", by_process },
	{ "process_vm_readv, its list", by_process_list },
	{ "fstatat", by_stat },
	{ "wait4", by_wait },
	{ "uname", by_uname },
	{ "getrlimit", by_limit },
	{ "pipe2", by_pipe },
	{ "getgroups", by_groups },
	{ "sysinfo", by_sysinfo },
	{ "sendfile", by_sendfile },
};

#define CALLS  (sizeof(calls) / sizeof(*calls))
#define PLACES 7

static const size_t sizes[] = { 100, 20000, SPAN, INT_MAX, SIZE_MAX };

#define SIZES (sizeof(sizes) / sizeof(*sizes))

static char *places[PLACES];

/* What a call has answered, and what it has left. */
struct answer {
	long result;
	int err, left_pipe, left_stream, left_packets;
	bool wrote; /* to the page of its place that can be written */
};

static struct answer (*answers)[PLACES][SIZES]; /* shared: as of bare calls */

/* ---- Places ---------------------------------------------------------------------------------- */

static char *map(size_t n, int prot)
{
	char *at = mmap(NULL, n, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

/* Zeros each: as a structure, a length or a list they are harmless. */
static void make_places(void)
{
	char *at = map(SPAN + PAGE, PROT_READ | PROT_WRITE);

	CHECK(!mprotect(at + PAGE, SPAN, PROT_NONE));
	places[0] = at; /* ends early */
	places[1] = at + PAGE - 6;
	places[2] = map(SPAN, PROT_READ);
	at = map(2 * SPAN, PROT_READ | PROT_WRITE);
	CHECK(!mprotect(at + 2 * PAGE, PAGE, PROT_READ) && !munmap(at + SPAN, SPAN));
	places[3] = at + 64; /* closed in the middle */
	places[4] = (char *)8;
	places[5] = (char *)-64l;
	places[6] = NULL;
}

static bool has_page(int place)
{
	return place < 2 || place == 3;
}

static void refill(void)
{
	CHECK(bare(SYS_write, pipes[1], filler, (long)BYTES, NONE) == BYTES);
	CHECK(bare(SYS_write, stream[0], filler, (long)BYTES, NONE) == BYTES);
	for (int i = 0; i < 3; i++)
		CHECK(bare(SYS_write, packets[0], filler, (long)BYTES, NONE) == BYTES);
}

static int drained(int fd)
{
	long n = 0, got;

	while ((got = bare(SYS_recvfrom, fd, drain, sizeof(drain), (long)MSG_DONTWAIT, NONE)) > 0)
		n += got;
	if (got < 0 && errno == ENOTSOCK)
		while ((got = bare(SYS_read, fd, drain, sizeof(drain), NONE)) > 0)
			n += got;
	return (int)n;
}

static struct answer answer_of(size_t call, int place, size_t n)
{
	struct answer a = { 0 };
	char *at = places[place];

	refill();
	/* Lists of 15 entries are read from here, too. */
	if (has_page(place))
		memset(at, 0, place == 1 ? 6 : 256);
	errno = 0;
	a.result = calls[call].run(at, n);
	a.err = a.result < 0 ? errno : 0;
	for (int i = 0; has_page(place) && i < 6; i++)
		a.wrote |= at[i] != 0;
	a.left_pipe = drained(pipes[0]);
	a.left_stream = drained(stream[1]);
	a.left_packets = drained(packets[1]);
	if (calls[call].run == by_pipe && a.result == 0)
		(void)!(close(((int *)(void *)at)[0]) + close(((int *)(void *)at)[1]));
	return a;
}

static void check(size_t call, int place, size_t size)
{
	const struct answer *want = &answers[call][place][size];
	struct answer got = answer_of(call, place, sizes[size]);

	if (got.result == want->result && got.err == want->err && got.wrote == want->wrote &&
		got.left_pipe == want->left_pipe && got.left_stream == want->left_stream &&
		got.left_packets == want->left_packets)
		return;
	test_fail("%s, place %d, %zu bytes, %s: %ld errno %d left %d %d %d wrote %d, not %ld errno "
		  "%d left %d %d %d wrote %d", calls[call].name, place, sizes[size],
		how == LIBC ? "libc" : "by number", got.result, got.err, got.left_pipe,
		got.left_stream, got.left_packets, got.wrote, want->result, want->err,
		want->left_pipe, want->left_stream, want->left_packets, want->wrote);
}

static void each(void (*fn)(size_t call, int place, size_t size))
{
	for (size_t call = 0; call < CALLS; call++)
		for (int place = 0; place < PLACES; place++)
			for (size_t size = 0; size < SIZES; size++)
				fn(call, place, size);
}

/* The heap, of which the kernel is not asked else, as long as the program leaves it open. */
static void close_heap(void)
{
	places[2] = aligned_alloc(PAGE, SPAN);
	CHECK(places[2] && !mprotect(memset(places[2], 0, SPAN), SPAN, PROT_READ));
	how = LIBC;
	for (size_t call = 0; call < CALLS; call++)
		for (size_t size = 0; size < SIZES; size++)
			check(call, 2, size);
}

static void note(size_t call, int place, size_t size)
{
	answers[call][place][size] = answer_of(call, place, sizes[size]);
}

static void prepare(void)
{
	struct epoll_event wanted = { .events = EPOLLIN, .data.u64 = 0x1111111111111111 };

	CHECK(!pipe2(pipes, O_NONBLOCK) && !socketpair(AF_UNIX, SOCK_STREAM, 0, stream) &&
		!socketpair(AF_UNIX, SOCK_DGRAM, 0, packets) && !symlink("somewhere", "link"));
	events = epoll_create1(0);
	CHECK(events >= 0 && !epoll_ctl(events, EPOLL_CTL_ADD, pipes[0], &wanted));
	memset(filler, 'f', sizeof(filler));
	file = memfd_create("file", 0);
	CHECK(file >= 0 && write(file, filler, sizeof(filler)) == sizeof(filler));
	make_places();
	answers = mmap(NULL, sizeof(*answers) * CALLS, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(answers != MAP_FAILED);
}

int main(int argc, char **argv)
{
	volatile int *turns;
	uint64_t id;

	CHECK(argc == 2);
	prepare();
	turns = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	how = BARE;
	each(note);
	for (how = LIBC; how <= NUMBER; how++)
		each(check);
	c = test_open_built(argv[1]);
	for (how = LIBC; how <= NUMBER; how++) {
		*turns = 0;
		memset(places[3], 0x77, PAGE);
		if (cairn_checkpoint(c, &id) == CAIRN_TAKEN) {
			++*turns;
			each(check);
			CHECK(cairn_restore(c, id) < 0);
		}
		CHECK(*turns == 1);
		for (size_t i = 0; i < PAGE; i++)
			CHECK(places[3][i] == 0x77);
	}
	close_heap();
	CHECK_OK(cairn_close(c));
	return 0;
}
