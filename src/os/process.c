/* SPDX-License-Identifier: MIT */
#include "os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include "base/bits.h"
#include "base/log.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/signal.h"
#include "os/sys.h"
#include "os/thread.h"

#define POLLIN_BIT   1
#define WAIT_NOHANG  1
#define WAIT_ALL     0x40000000 /* __WALL: children without an exit signal too */
#define FUTEX_WAIT_  0          /* not private */
#define HANDSHAKE_NS 20000000   /* how often we look whether the child still lives */

/* frozen.S */
long crn_frozen_clone(struct crn_frozen_control *control, long parent);

#define GET_SEALS 1034

static void lock_take(struct crn_frozen_control *control)
{
	int fd = crn_fd_memory("cairn-frozen", 0);

	control->lock_fd = -1;
	if (fd < 0)
		return;
	control->lock.type = F_WRLCK;
	if (crn_sys3(SYS_fcntl, fd, F_SETLK, &control->lock) < 0) {
		crn_fd_close(fd);
		return;
	}
	control->lock.type = F_RDLCK;
	control->lock_fd = fd;
}

/*
 * A number that is open may be another file by now: one that has no seals to tell of is not ours.
 */
bool crn_frozen_alive(const struct crn_frozen_control *control)
{
	return control->lock_fd < 0 || crn_sys3(SYS_fcntl, control->lock_fd, GET_SEALS, 0) >= 0;
}

int crn_frozen_open(struct crn_frozen_control **out)
{
	long at = crn_sys6(SYS_mmap, 0, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at < 0 && at > -4096)
		return (int)at;
	*out = (struct crn_frozen_control *)at;
	(*out)->poll.events = POLLIN_BIT;
	lock_take(*out);
	return 0;
}

void crn_frozen_close(struct crn_frozen_control *control)
{
	if (crn_frozen_alive(control))
		crn_fd_close(control->lock_fd);
	(void)crn_memory_unmap(control, CRN_PAGE_SIZE);
}

/* Until the child has said something. Its state, or -ECHILD if it died before that. */
static int handshake(struct crn_frozen_control *control, int pid)
{
	struct {
		int64_t sec, nsec;
	} timeout = { 0, HANDSHAKE_NS };
	uint32_t state;

	while (!(state = __atomic_load_n(&control->state, __ATOMIC_ACQUIRE))) {
		if (crn_sys4(SYS_futex, control, FUTEX_WAIT_, 0, &timeout) == -ETIMEDOUT &&
			crn_frozen_reap(pid, false))
			return -ECHILD;
	}
	return (int)state;
}

int crn_frozen_take(struct crn_frozen_control *control)
{
	uint64_t mask;
	int pid, state;

	if (!crn_frozen_alive(control))
		return -EBADF;
	mask = crn_signal_mask(SIG_SETMASK, ~0ull);
	/* SAFETY: signals are blocked in both, so that no handler runs on the child's copy of the
	 * stack. */
	__atomic_store_n(&control->state, 0, __ATOMIC_RELAXED);
	pid = (int)crn_frozen_clone(control, crn_getpid());
	crn_signal_mask(SIG_SETMASK, mask);
	if (pid < 0)
		return pid;
	state = handshake(control, pid);
	if (state == 1)
		return pid;
	if (state != -ECHILD)
		(void)crn_frozen_reap(pid, true);
	return state;
}

void crn_frozen_kill(int pid)
{
	(void)crn_sys2(SYS_kill, pid, SIGKILL);
}

bool crn_frozen_reap(int pid, bool wait)
{
	long r;

	do
		r = crn_sys4(SYS_wait4, pid, 0, WAIT_ALL | (wait ? 0 : WAIT_NOHANG), 0);
	while (r == -EINTR);
	return r != 0; /* -ECHILD: the program has collected it by __WALL */
}

/*
 * /proc/PID/`what`. In a PID namespace whose /proc is still the outer one, numbers name other
 * processes there: then there is no such file for us.
 */
static int open_proc(int pid, const char *what, int flags)
{
	char path[48];

	int64_t self;

	if (crn_file_number("/proc/self/stat", &self) < 0 || self != crn_getpid())
		return -EACCES;
	crn_format(path, sizeof(path), "/proc/%d/%s", pid, what);
	return crn_fd_open(path, flags);
}

/* /proc/PID/mem reads what process_vm_readv may not: mappings without PROT_READ. */
static long read_forced(int pid, void *dst, uintptr_t addr, size_t len)
{
	int fd = open_proc(pid, "mem", O_RDONLY);
	long n;

	if (fd < 0)
		return fd == -ENOENT ? -ESRCH : fd;
	n = crn_sys4(SYS_pread64, fd, dst, len, addr);
	crn_fd_close(fd);
	return n == -EIO || n == -EFAULT ? 0 : n;
}

long crn_frozen_read(int pid, void *dst, uintptr_t addr, size_t len)
{
	size_t done = 0;

	while (done < len) {
		struct iovec local = { (char *)dst + done, len - done };
		struct iovec remote = { (void *)(addr + done), len - done };
		long n = crn_sys6(SYS_process_vm_readv, pid, (long)&local, 1, (long)&remote, 1, 0);

		if (n == -EFAULT || n == -EPERM || n == 0) {
			size_t page = CRN_MIN(
				len - done, CRN_PAGE_SIZE - ((addr + done) & (CRN_PAGE_SIZE - 1)));

			n = read_forced(pid, (char *)dst + done, addr + done, page);
		}
		if (n < 0)
			return n;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (long)done;
}

int crn_frozen_pagemap(int pid)
{
	return open_proc(pid, "pagemap", O_RDONLY);
}
