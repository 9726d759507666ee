/* SPDX-License-Identifier: MIT */
/*
 * The ways in which bytes of a mapping change: stores, and everything that the kernel or others
 * write.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "oracle.h"
#include "os/sys.h"

#define ANY_KIND     UINT32_MAX
#define TRANSFER_MAX 20000ul

void op_store(void)
{
	uint8_t *addr;
	size_t len;

	for (uint64_t n = 1 + rnd_below(12); n > 0; n--) {
		if (!target(ANY_KIND, 8, &addr, &len))
			return;
		for (size_t i = 0; i < len; i++)
			addr[i] = (uint8_t)rnd();
		if (!rnd_below(6)) /* a store that changes nothing */
			*(volatile uint8_t *)addr = *(volatile uint8_t *)addr;
	}
}

void op_copy(void)
{
	uint8_t *addr, *from;
	size_t len, from_len;

	if (!target(ANY_KIND, TRANSFER_MAX, &addr, &len))
		return;
	if (rnd() & 1 && target(ANY_KIND, len, &from, &from_len))
		memmove(addr, from, from_len < len ? from_len : len);
	else
		memset(addr, rnd_below(3) ? (int)rnd_below(256) : 0, len);
}

static void expect_count(const char *call, long got, size_t want)
{
	if (got != (long)want)
		test_fail("%s: %ld of %zu bytes (errno %d): a call failed or came short because of "
			  "us",
			call, got, want, errno);
}

void op_read(void)
{
	uint8_t *addr;
	size_t len;

	if (!target(ANY_KIND, TRANSFER_MAX, &addr, &len))
		return;
	behind_with_faults(addr, len);
	if (rnd() & 1) {
		fill_random(W->buf, len);
		expect_count("write", write(W->pipe[1], W->buf, len), len);
		expect_count("read", read(W->pipe[0], addr, len), len);
	} else {
		expect_count("pread", pread(W->file, addr, len, (off_t)rnd_below(PAGE)), len);
	}
}

void op_recv(void)
{
	uint8_t *addr;
	size_t len;
	struct iovec iov;
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (!target(ANY_KIND, TRANSFER_MAX, &addr, &len))
		return;
	behind_with_faults(addr, len);
	fill_random(W->buf, len);
	expect_count("send", send(W->pair[1], W->buf, len, 0), len);
	iov = (struct iovec){ addr, len };
	if (rnd() & 1)
		expect_count("recv", recv(W->pair[0], addr, len, MSG_WAITALL), len);
	else
		expect_count("recvmsg", recvmsg(W->pair[0], &msg, MSG_WAITALL), len);
}

void op_readv(void)
{
	struct iovec iov[3];
	size_t total = 0;
	uint8_t *addr;

	for (size_t i = 0; i < 3; i++) {
		if (!target(ANY_KIND, 9000, &addr, &iov[i].iov_len))
			return;
		iov[i].iov_base = addr;
		behind_with_faults(addr, iov[i].iov_len);
		total += iov[i].iov_len;
	}
	fill_random(W->buf, total);
	expect_count("write", write(W->pipe[1], W->buf, total), total);
	expect_count("readv", readv(W->pipe[0], iov, 3), total);
}

/* The status and the resource usage of a child, written by the kernel into tracked memory. */
void op_waitpid(void)
{
	struct rusage *usage;
	uint8_t *addr;
	size_t len;
	int code = (int)rnd_below(100), status;
	pid_t pid;

	if (!target(ANY_KIND, 1, &addr, &len))
		return;
	addr = (uint8_t *)((uintptr_t)addr & ~(PAGE - 1)) + 64;
	usage = (struct rusage *)(addr + 64);
	behind_with_faults(addr, 64 + sizeof(*usage));
	pid = vfork();
	if (pid == 0)
		_exit(code);
	if (pid < 0)
		test_fail("vfork: errno %d", errno);
	if (wait4(pid, (int *)addr, 0, usage) != pid)
		test_fail("wait4: errno %d", errno);
	memcpy(&status, addr, sizeof(status));
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
	/* the engine's own children, if it has any, are not ours to see */
	if (wait4(-1, &status, WNOHANG, NULL) != -1 || errno != ECHILD)
		test_fail("wait(-1) sees a child that the program did not start");
}

/* Past the page cache, straight into the pages: no fault shows it. */
void op_direct(void)
{
	uint8_t *addr;
	size_t len;

	if (!target(ANY_KIND, 4 * PAGE, &addr, &len))
		return;
	addr = (uint8_t *)((uintptr_t)addr & ~(PAGE - 1));
	behind(addr, PAGE);
	expect_count(
		"O_DIRECT pread", pread(W->direct, addr, PAGE, (off_t)(rnd_below(8) * PAGE)), PAGE);
}

/* From ourselves and from a child: both write through get_user_pages. */
void op_vmwritev(void)
{
	pid_t self = getpid(), pid;
	struct iovec from = { W->buf, 0 }, to;
	uint8_t *addr;
	int status;
	long n;

	if (!target(ANY_KIND, TRANSFER_MAX, &addr, &from.iov_len))
		return;
	behind(addr, from.iov_len);
	fill_random(W->buf, from.iov_len);
	to = (struct iovec){ addr, from.iov_len };
	if (rnd() & 3) {
		n = process_vm_writev(self, &from, 1, &to, 1, 0);
		expect_count("process_vm_writev", n, from.iov_len);
		return;
	}
	pid = fork();
	if (pid == 0)
		_exit(process_vm_writev(self, &from, 1, &to, 1, 0) == (long)from.iov_len ? 0
											 : errno);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		test_fail("fork: errno %d", errno);
	if (WEXITSTATUS(status) != EPERM) /* a strict host allows only descendants */
		CHECK(status == 0);
}

void op_procmem(void)
{
	uint8_t *addr;
	size_t len;

	if (!target(ANY_KIND, 9000, &addr, &len))
		return;
	behind(addr, len);
	fill_random(W->buf, len);
	expect_count(
		"pwrite /proc/self/mem", pwrite(W->mem, W->buf, len, (off_t)(uintptr_t)addr), len);
}

static int vfork_child(void *arg)
{
	struct iovec *iov = arg;

	memcpy(iov->iov_base, W->buf, iov->iov_len);
	return 0;
}

/* A child that shares our memory, as posix_spawn makes them. It runs on a stack in the world. */
void op_vfork(void)
{
	struct iovec iov;
	uint8_t *addr;
	int status;
	pid_t pid;

	if (!target(ANY_KIND, 9000, &addr, &iov.iov_len))
		return;
	iov.iov_base = addr;
	behind_with_faults(addr, iov.iov_len);
	fill_random(W->buf, iov.iov_len);
	pid = clone(vfork_child, W->buf + sizeof(W->buf), CLONE_VM | CLONE_VFORK | SIGCHLD, &iov);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		test_fail("clone: errno %d", errno);
	CHECK_U64((uint64_t)status, 0);
	if (memcmp(addr, W->buf, iov.iov_len))
		test_fail("the vfork child's bytes did not arrive");
}

/* Dropped pages read as zeros (anonymous) or as the file again; nobody faults. */
void op_dontneed(void)
{
	uint8_t *addr;
	size_t len;

	if (!target(REGION_ANON | REGION_FILE, 6 * PAGE, &addr, &len))
		return;
	len = (len + PAGE - 1) & ~(PAGE - 1);
	addr = (uint8_t *)((uintptr_t)addr & ~(PAGE - 1));
	for (size_t i = 0; i < REGIONS_MAX; i++) {
		struct region *r = &W->regions[i];

		if (r->live && addr >= r->addr && addr < r->addr + r->len &&
			addr + len > r->addr + r->len)
			len = (size_t)(r->addr + r->len - addr);
	}
	behind(addr, len);
	if (madvise(addr, len, MADV_DONTNEED))
		test_fail("MADV_DONTNEED: errno %d", errno);
}

void op_exclude(void)
{
	uint8_t *addr;
	size_t len;

	if (W->excluded_count == EXCLUDED_MAX) {
		/* excluded bytes must be written often, or nothing is tested */
		const struct span *s = &W->excluded[rnd_below(EXCLUDED_MAX)];

		if (byte_writable(s->begin))
			*(uint8_t *)s->begin ^= 0x5a;
		return;
	}
	if (!target(REGION_ANON | REGION_FILE | REGION_STATIC, 300, &addr, &len))
		return;
	CHECK_OK(cairn_area_exclude(W->c, addr, len));
	W->excluded[W->excluded_count++] = (struct span){ (uintptr_t)addr, (uintptr_t)addr + len };
}

/* More pages at once than the limit holds; at another time the region starts anew, empty. */
void op_burst(void)
{
	for (size_t i = 0; i < REGIONS_MAX; i++) {
		struct region *r = &W->regions[i];
		uint64_t pages = rnd_below(r->len / PAGE);

		if (!r->live || r->kind != REGION_BIG)
			continue;
		if (rnd_below(3)) {
			for (size_t at = 0; at < pages * PAGE; at += PAGE)
				r->addr[at + rnd_below(PAGE)] = (uint8_t)rnd();
			continue;
		}
		region_unregister(r);
		if (madvise(r->addr, r->len, MADV_DONTNEED))
			test_fail("MADV_DONTNEED: errno %d", errno);
		region_register(r);
	}
}

/* A long mapping, used here and there, given back in long runs: as stacks of threads are. */
void op_drop(void)
{
	for (size_t i = 0; i < REGIONS_MAX; i++) {
		struct region *r = &W->regions[i];
		uint64_t pages = r->len / PAGE, from, count;

		if (!r->live || r->kind != REGION_BIG)
			continue;
		from = rnd_below(pages);
		count = 1 + rnd_below(pages - from);
		switch (rnd_below(4)) {
		case 0:
			behind(r->addr + from * PAGE, count * PAGE);
			if (madvise(r->addr + from * PAGE, count * PAGE, MADV_DONTNEED))
				test_fail("MADV_DONTNEED: errno %d", errno);
			break;
		case 1: /* a load maps the zero page */
			(void)*(volatile uint8_t *)(r->addr + from * PAGE);
			break;
		default:
			for (uint64_t n = rnd_below(6); n < 6; n++)
				r->addr[rnd_below(r->len)] = (uint8_t)rnd();
		}
	}
}
