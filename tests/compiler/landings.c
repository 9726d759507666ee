/* SPDX-License-Identifier: MIT */
/*
 * Reading into large buffers of which little comes to be written: after a restore all of it is as
 * it was, the call's answer is the kernel's, and hooks of regions have saved what was written only.
 * The bounces that the kernel writes to meanwhile outlive checkpoints. argv: TRACKER [unbounded]
 * (what is saved is not counted).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include "../lib/harness.h"

#define ROOM     (4ul << 20)
#define BUFFER   65536ul
#define MESSAGES 12
#define REGION   128
#define SPARE    96 /* regions that a case may write beside what it reads: headers, counters */

struct berth;
struct berth *crn_berth_take(struct berth **holder);
char *crn_berth_memory(const struct berth *b);
void crn_berth_leave(struct berth *b);

static char room[ROOM] __attribute__((aligned(4096)));
static int file, stream[2], packets[2];
static char *brim;          /* BUFFER bytes, of which only the first 4096 can be used */
static char *copy;          /* shared: of `room` at the checkpoint */
static volatile int *turns; /* shared: not turned back */
static cairn_t *c;

/* ---- Cases: what is read comes from `file`, or has been sent just before --------------------- */

static struct mmsghdr messages[MESSAGES];
static struct iovec parts[2 * MESSAGES];
static struct sockaddr_un names[MESSAGES];
static char control[MESSAGES][64];

static void send_packets(void)
{
	char text[40];

	for (int i = 0; i < 5; i++) {
		memset(text, 'a' + i, sizeof(text));
		CHECK(send(packets[0], text, 7 + 5 * i, 0) == 7 + 5 * i);
	}
}

/* Two buffers for each: a short one, which the longer messages overflow, and a large one. */
static void prepare(size_t large)
{
	memset(messages, 0, sizeof(messages));
	for (int i = 0; i < MESSAGES; i++) {
		parts[2 * i] = (struct iovec){ room + i * (BUFFER + 64) + 3, 11 };
		parts[2 * i + 1] = (struct iovec){ room + i * (BUFFER + 64) + 64, large };
		messages[i].msg_hdr = (struct msghdr){
			.msg_name = &names[i], .msg_namelen = sizeof(names[i]),
			.msg_iov = &parts[2 * i], .msg_iovlen = 2,
			.msg_control = control[i], .msg_controllen = sizeof(control[i]),
		};
	}
}

/* The five have come, and of their headers what the kernel says. */
static long received(long n)
{
	CHECK(n == 5);
	for (int i = 0; i < 5; i++) {
		const char *at = parts[2 * i].iov_base;

		CHECK(messages[i].msg_len == 7u + 5u * (unsigned)i);
		CHECK(at[0] == 'a' + i && at[6] == 'a' + i);
		CHECK(i < 1 || *(char *)parts[2 * i + 1].iov_base == 'a' + i);
		CHECK(messages[i].msg_hdr.msg_namelen == 0 &&
			messages[i].msg_hdr.msg_controllen == 0 &&
			messages[i].msg_hdr.msg_iov == &parts[2 * i] &&
			messages[i].msg_hdr.msg_iovlen == 2);
	}
	CHECK(messages[5].msg_hdr.msg_namelen == sizeof(names[5]));
	return 135 - 50;
}

static long messages_by_libc(void)
{
	prepare(BUFFER);
	send_packets();
	return received(recvmmsg(packets[1], messages, MESSAGES, MSG_DONTWAIT, NULL));
}

static long messages_by_number(void)
{
	prepare(BUFFER);
	send_packets();
	return received(syscall(SYS_recvmmsg, packets[1], messages, MESSAGES, MSG_DONTWAIT, NULL));
}

/* More than a bounce holds, all together. */
static long messages_too_large(void)
{
	prepare(ROOM - 2 * MESSAGES * BUFFER);
	send_packets();
	return received(syscall(SYS_recvmmsg, packets[1], messages, MESSAGES, MSG_DONTWAIT, NULL));
}

static long one_message(void)
{
	prepare(BUFFER);
	CHECK(send(packets[0], "message of thirty characters..", 30, 0) == 30);
	CHECK(recvmsg(packets[1], &messages->msg_hdr, 0) == 30 && room[64] == 't');
	CHECK(send(packets[0], "message of thirty characters..", 30, 0) == 30);
	messages[1].msg_hdr.msg_namelen = 9;
	CHECK(syscall(SYS_recvmsg, packets[1], &messages[1].msg_hdr, 0) == 30);
	CHECK(messages[1].msg_hdr.msg_namelen == 0 && room[BUFFER + 128] == 't');
	return 60;
}

static long one_buffer(void)
{
	struct sockaddr_un name;
	socklen_t len = sizeof(name);

	for (int i = 0; i < 4; i++)
		CHECK(send(stream[0], "twelve bytes", 12, 0) == 12);
	CHECK(recv(stream[1], room + 9, BUFFER, MSG_PEEK) == 48 && room[56] == 's');
	CHECK(recv(stream[1], room + 4096, 12, 0) == 12);
	CHECK(recvfrom(stream[1], room + 2 * BUFFER, 12, 0, (struct sockaddr *)&name, &len) == 12);
	CHECK(syscall(SYS_recvfrom, stream[1], room + 3 * BUFFER, 12, 0, NULL, NULL) == 12);
	CHECK(recvfrom(stream[1], room + 4 * BUFFER + 1, BUFFER, 0, NULL, NULL) == 12);
	for (int i = 0; i < 3; i++)
		CHECK(send(stream[0], "twelve bytes", 12, 0) == 12);
	CHECK(read(stream[1], room + 5 * BUFFER, 2 * BUFFER) == 36 && room[5 * BUFFER] == 't');
	CHECK(send(stream[0], "twelve bytes", 12, 0) == 12);
	CHECK(syscall(SYS_recvfrom, stream[1], room + 8 * BUFFER, BUFFER, 0, NULL, NULL) == 12);
	CHECK(send(stream[0], "twelve bytes", 12, 0) == 12);
	CHECK(syscall(SYS_read, stream[1], room + 9 * BUFFER + 5, BUFFER) == 12);
	return 200;
}

static long several_buffers(void)
{
	long end = lseek(file, 0, SEEK_END);

	prepare(BUFFER);
	CHECK(preadv(file, parts, 4, end - 50) == 50 && room[64] == room[3] + 11);
#ifdef __GLIBC__
	CHECK(preadv2(file, parts + 4, 4, end - 40, 0) == 40);
#else
	CHECK(preadv(file, parts + 4, 4, end - 40) == 40);
#endif
	CHECK(syscall(SYS_preadv, file, parts + 8, 4, end - 30, 0) == 30);
	CHECK(lseek(file, end - 60, SEEK_SET) >= 0 && readv(file, parts + 12, 3) == 60);
	CHECK(lseek(file, end - 60, SEEK_SET) >= 0);
	CHECK(syscall(SYS_readv, file, parts + 16, 4) == 60);
	return 240;
}

/* Nothing is left out of what fills its buffer, beyond a bounce either. */
static long whole_file(void)
{
	long n = pread(file, room + 1, ROOM - 1, 5);

	CHECK(n == 3 * 1024 * 1024 + 95);
	for (long i = 0; i < n; i += 997)
		CHECK(room[1 + i] == (char)(i + 5));
	CHECK(lseek(file, 0, SEEK_SET) == 0 && read(file, room, 8192) == 8192);
	return n;
}

static long refused(void)
{
	struct iovec bad = { (void *)8, BUFFER };
	struct mmsghdr m = { .msg_hdr = { .msg_iov = &bad, .msg_iovlen = 1 } };
	void *closed = mmap(NULL, BUFFER, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(send(packets[0], "x", 1, 0) == 1);
	CHECK(syscall(SYS_recvmmsg, packets[1], &m, 1, 0, NULL) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_recvmmsg, packets[1], (void *)64, 1, MSG_DONTWAIT, NULL) == -1);
	CHECK(syscall(SYS_read, file, (void *)8, BUFFER) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_pread64, file, closed, BUFFER, 0) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_recvmsg, packets[1], (void *)64, MSG_DONTWAIT) == -1);
	CHECK(syscall(SYS_readv, file, parts, -1) == -1 && errno == EINVAL);
	CHECK(readv(file, parts, -1) == -1 && errno == EINVAL);
	CHECK(recv(packets[1], room, BUFFER, MSG_DONTWAIT) <= 1); /* if it has not been consumed */
	CHECK(syscall(SYS_pread64, file, brim, BUFFER, 0) == 4096 && brim[4095] == (char)4095);
	return munmap(closed, BUFFER);
}

static const struct landing_case {
	const char *name;
	long (*run)(void); /* bytes that are written */
	bool all;          /* what is not written may be saved */
} cases[] = {
	{ "messages by libc", messages_by_libc, false },
	{ "messages by number", messages_by_number, false },
	{ "messages, too large", messages_too_large, true },
	{ "one message", one_message, false },
	{ "one buffer", one_buffer, false },
	{ "several buffers", several_buffers, false },
	{ "whole file", whole_file, true },
	{ "refused", refused, true },
};

/* ---- The run --------------------------------------------------------------------------------- */

static uint64_t saved(void)
{
	struct cairn_stats s = { .size = sizeof(s) };
	uint64_t id;

	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK_OK(cairn_stats(c, &s));
	return s.faults;
}

static void run(const struct landing_case *t, bool bounded)
{
	uint64_t id, before;
	long n;

	memset(room, 0x55, ROOM);
	memcpy(copy, room, ROOM);
	*turns = 0;
	if (cairn_checkpoint(c, &id) == CAIRN_TAKEN) {
		++*turns;
		(void)t->run();
		CHECK(cairn_restore(c, id) < 0);
	}
	CHECK(*turns == 1 && !memcmp(room, copy, ROOM));
	before = saved();
	n = t->run();
	n = (long)(saved() - before) - n / REGION;
	if (bounded && !t->all && n > SPARE)
		test_fail("%s: %ld regions were saved beside those written", t->name, n);
}

/* The kernel writes without hooks. */
static void fill(char *at, char byte, size_t n)
{
	__asm__ volatile("rep stosb" : "+D"(at), "+c"(n) : "a"(byte) : "memory");
}

static int fill_all(char byte, struct berth **held)
{
	int n = 0;

	while (crn_berth_take(&held[n]))
		fill(crn_berth_memory(held[n++]), byte, 100);
	return n;
}

/* As a checkpoint in a handler, between the kernel's answer and what is made of it. */
static void bounces(void)
{
	struct berth *mine, *held[64];
	char want[100];
	uint64_t id;
	int all, n;

	memset(want, 'k', sizeof(want));
	*turns = 0;
	CHECK(crn_berth_take(&mine));
	fill(crn_berth_memory(mine), 'k', 100);
	CHECK(cairn_checkpoint(c, &id) == (*turns ? CAIRN_RESTORED : CAIRN_TAKEN));
	CHECK(!memcmp(crn_berth_memory(mine), want, 100));
	crn_berth_leave(mine);
	for (n = all = fill_all('z', held); n; n--)
		crn_berth_leave(held[n - 1]);
	if (++*turns < 4)
		CHECK(cairn_restore(c, id) < 0);
	CHECK(*turns == 4 && all > 1);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN); /* the other is gone */
	CHECK(fill_all('z', held) == all + 1);
	/* All are taken: whole buffers are kept. */
	for (size_t i = 0; cases[i].run != refused; i++)
		run(&cases[i], false);
	for (n = all + 1; n; n--)
		crn_berth_leave(held[n - 1]);
}

/* ---- Calls that never return ----------------------------------------------------------------- */

static sigjmp_buf back;

static void leave(int sig)
{
	siglongjmp(back, 1);
}

static void *wait_for_ever(void *ready)
{
	CHECK(write(*(int *)ready, "", 1) == 1);
	return (void *)read(stream[1], room, BUFFER);
}

static bool sleeps(pid_t pid)
{
	char path[64], line[256] = "", *name_end;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "r");
	CHECK(f && fgets(line, sizeof(line), f) && !fclose(f));
	name_end = strrchr(line, ')');
	return name_end && name_end[2] == 'S';
}

/* A child: a signal for the parent, whenever it has said that it will wait, and does. */
static void interrupt(int ready)
{
	pid_t parent = getppid();
	char byte;

	while (read(ready, &byte, 1) == 1) {
		while (!sleeps(parent))
			usleep(300);
		CHECK(!kill(parent, SIGUSR1));
	}
	_exit(0);
}

static void leave_reads(int n)
{
	struct sigaction action = { .sa_handler = leave };
	int ready[2], status;
	pid_t child;

	CHECK(!sigaction(SIGUSR1, &action, NULL) && !pipe(ready));
	child = fork();
	CHECK(child >= 0);
	if (!child)
		interrupt((close(ready[1]), ready[0]));
	for (volatile int i = 0; i < n; i++) {
		if (sigsetjmp(back, 1))
			continue;
		CHECK(write(ready[1], "", 1) == 1);
		CHECK(read(stream[1], room, BUFFER) < 0);
	}
	CHECK(!close(ready[0]) && !close(ready[1]));
	CHECK(waitpid(child, &status, 0) == child && !status);
}

static void cancel_reads(int n)
{
	int ready[2];
	pthread_t thread;
	char byte;

	CHECK(!pipe(ready));
	for (int i = 0; i < n; i++) {
		CHECK(!pthread_create(&thread, NULL, wait_for_ever, &ready[1]));
		CHECK(read(ready[0], &byte, 1) == 1 && !pthread_cancel(thread));
		CHECK(!pthread_join(thread, NULL));
	}
	CHECK(!close(ready[0]) && !close(ready[1]));
}

/* All that there are, if it is looked often enough whose they are. */
static int free_places(void)
{
	struct berth *held[64];
	int most = 0, n;

	for (int i = 0; i < 140; i++) {
		n = fill_all('z', held);
		most = n > most ? n : most;
		while (n)
			crn_berth_leave(held[--n]);
	}
	return most;
}

static void *read_much(void *unused)
{
	struct epoll_event events[8];
	volatile char mine[9000];
	int poll = epoll_create1(0);

	for (size_t i = 0; i < sizeof(mine); i += 64)
		mine[i] = 1;
	CHECK(poll >= 0 && !epoll_wait(poll, events, 8, 0) && !close(poll) && mine[0]);
	return (void *)pread(file, room, 16384, 0);
}

/* What is no more than libc's functions need themselves is enough. */
static void read_on_little_stack(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	void *got;

	CHECK(!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, 16384));
	CHECK(!pthread_create(&thread, &attributes, read_much, NULL));
	CHECK(!pthread_join(thread, &got) && got == (void *)16384);
	CHECK(!pthread_attr_destroy(&attributes));
}

int main(int argc, char **argv)
{
	char line[1024];
	int all;

	copy = mmap(NULL, ROOM + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	turns = (int *)(copy + ROOM);
	file = memfd_create("file", 0);
	CHECK(copy != MAP_FAILED && file >= 0 && !socketpair(AF_UNIX, SOCK_STREAM, 0, stream) &&
		!socketpair(AF_UNIX, SOCK_DGRAM, 0, packets));
	for (int i = 0; i < 1024; i++)
		line[i] = (char)i;
	for (int i = 0; i < 3 * 1024; i++)
		CHECK(write(file, line, sizeof(line)) == sizeof(line));
	CHECK(write(file, line, 100) == 100);
	brim = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(brim != MAP_FAILED && !mprotect(brim + 4096, BUFFER - 4096, PROT_NONE));
	all = free_places();
	leave_reads(all + 2);
	CHECK(free_places() == all);
	c = test_open_built(argv[1]);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		run(&cases[i], argc == 2 && !strcmp(argv[1], "shadow"));
	bounces();
	CHECK_OK(cairn_close(c));
	CHECK(free_places() == all);
	cancel_reads(all + 2);
	CHECK(free_places() == all);
	read_on_little_stack();
	return 0;
}
