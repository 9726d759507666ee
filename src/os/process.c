/* SPDX-License-Identifier: MIT */
#include "os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/proc.h"
#include "os/signal.h"
#include "os/sys.h"
#include "os/thread.h"

#define POLLIN_BIT   1
#define WAIT_NOHANG  1
#define WAIT_CLONE   0x80000000l /* __WCLONE: only children without SIGCHLD */
#define FUTEX_WAIT_  0           /* not private */
#define FUTEX_WAKE_  1
#define PAGEMAP_FD   1 /* in a frozen child: frozen.S */
#define HANDSHAKE_NS 20000000    /* how often we look whether the child still lives */
#define PATIENCE_NS  10000000000ull
#define END_WAIT_MS  2000

/* frozen.S */
long crn_frozen_clone(struct crn_frozen_control *control, long parent);
_Static_assert(offsetof(struct crn_frozen_control, line_fd) == 16, "frozen.S");
_Static_assert(sizeof(struct crn_frozen_control) <= CRN_PAGE_SIZE, "one page");

/* ---- Children -------------------------------------------------------------------------------- */

int crn_process_kill(int pid)
{
	return (int)crn_sys2(SYS_kill, pid, SIGKILL);
}

bool crn_process_reap(int pid, bool wait)
{
	long r;

	do
		r = crn_sys4(SYS_wait4, pid, 0, WAIT_CLONE | (wait ? 0 : WAIT_NOHANG), 0);
	while (r == -EINTR);
	return r != 0; /* -ECHILD: the program has collected it by __WALL */
}

void crn_process_end(int pid, bool dying)
{
	/* Whoever is killed ends, also if it is stopped: that can be waited for. */
	if (!dying)
		dying = crn_process_kill(pid) >= 0;
	for (int i = 0; i < END_WAIT_MS && !crn_process_reap(pid, dying); i++)
		crn_doze(CRN_MILLISECOND);
}

/* What a child has said, or that it cannot say anything any more; 0: neither yet. */
static int heard(const uint32_t *word, int pid)
{
	uint32_t state = __atomic_load_n(word, __ATOMIC_ACQUIRE);

	if (state || !crn_process_reap(pid, false))
		return (int)state;
	state = __atomic_load_n(word, __ATOMIC_ACQUIRE); /* its last word */
	return state > 1 ? (int)state : -ECHILD;
}

/*
 * Ends: the word is looked at after each wait, which has a timeout, and so is the child, whatever
 * has woken us up: the program's signals may come more often than that. Time in which we did not
 * run ourselves does not count: the child may not have run either.
 */
int crn_process_await(uint32_t *word, int pid)
{
	struct {
		int64_t sec, nsec;
	} timeout = { 0, HANDSHAKE_NS };
	uint64_t waited = 0, before = crn_clock_kernel_ns(), now;
	int state = (int)__atomic_load_n(word, __ATOMIC_ACQUIRE);

	for (; !state && waited < PATIENCE_NS; before = now) {
		crn_sys4(SYS_futex, word, FUTEX_WAIT_, 0, &timeout);
		state = heard(word, pid);
		now = crn_clock_kernel_ns();
		waited += CRN_MIN(now - before, (uint64_t)HANDSHAKE_NS);
	}
	if (state)
		return state;
	crn_warn("process %d, a child of ours, does not say that it has begun: it is ended", pid);
	/* Not waited for: who hangs in the kernel dies when that lets it go. */
	(void)crn_process_kill(pid);
	(void)crn_process_reap(pid, false);
	return -ECHILD;
}

void crn_process_wake(uint32_t *word)
{
	crn_sys3(SYS_futex, word, FUTEX_WAKE_, INT32_MAX);
}

/* ---- Frozen ones ----------------------------------------------------------------------------- */

/*
 * The lines before stay mapped while their children may live. When there is no more room the oldest
 * goes, and its children with it.
 */
static void line_take(struct crn_frozen_control *control)
{
	if (crn_lifeline_open(&control->line) >= 0) {
		uint32_t at = control->line_count++ % CRN_FROZEN_LINES;

		crn_lifeline_end(control->lines[at]);
		control->lines[at] = control->line.mapping;
	}
	control->line_fd = control->line.fd;
}

int crn_frozen_open(struct crn_frozen_control **out)
{
	void *at;

	CRN_TRY(crn_memory_map_shared(&at, CRN_PAGE_SIZE));
	*out = at;
	(*out)->poll.events = POLLIN_BIT;
	line_take(*out);
	return 0;
}

void crn_frozen_close(struct crn_frozen_control *control)
{
	crn_lifeline_close_fd(&control->line);
	for (uint32_t i = 0; i < CRN_MIN(control->line_count, CRN_FROZEN_LINES); i++)
		crn_lifeline_end(control->lines[i]);
	(void)crn_memory_unmap(control, CRN_PAGE_SIZE);
}

int crn_frozen_take(struct crn_frozen_control *control)
{
	uint64_t mask;
	int pid, state;

	if (crn_proc_children_elsewhere())
		return -EXDEV;
	/* Also where there was no descriptor to be had before. */
	if (!crn_fd_is(control->line.fd, &control->line.id))
		line_take(control);
	mask = crn_signals_block();
	/*
	 * SAFETY: signals are blocked in both, so that no handler runs on the child's copy of the
	 * stack.
	 */
	__atomic_store_n(&control->state, 0, __ATOMIC_RELAXED);
	pid = (int)crn_frozen_clone(control, crn_getpid());
	crn_signal_mask(SIG_SETMASK, mask);
	if (pid < 0)
		return pid;
	state = crn_process_await(&control->state, pid);
	if (state == 1)
		return pid;
	if (state != -ECHILD)
		crn_process_end(pid, false);
	return state;
}

/*
 * /proc/PID/`what`. In a PID namespace whose /proc is still the outer one, numbers name other
 * processes there: then there is no such file for us.
 */
static int open_proc(int pid, const char *what, int flags)
{
	char path[48];

	int64_t self;
	int err = crn_file_number("/proc/self/stat", &self);

	if (err == -EMFILE || err == -ENFILE)
		return err;
	if (err < 0 || self != crn_getpid())
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

bool crn_frozen_dies(int pid)
{
	static const char key[] = "\nShdPnd:\t";
	char text[2048];
	uint64_t pending = 0;
	int fd = open_proc(pid, "status", O_RDONLY);
	long len, at = 0;

	if (fd < 0)
		return fd == -ENOENT;
	len = crn_fd_read(fd, text, sizeof(text) - 1);
	crn_fd_close(fd);
	if (len <= 0)
		return true; /* it has been collected just now */
	text[len] = 0;
	while (at < len && !crn_starts_with(text + at, key))
		at++;
	for (at += (long)sizeof(key) - 1; at < len && text[at] > ' '; at++)
		pending = pending << 4 | (uint64_t)(text[at] - (text[at] > '9' ? 'a' - 10 : '0'));
	return pending & 1ull << (SIGKILL - 1);
}

int crn_frozen_pagemap(int pid)
{
	int fd = open_proc(pid, "pagemap", O_RDONLY), pidfd;

	if (fd >= 0)
		return fd;
	pidfd = (int)crn_sys2(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return pidfd;
	fd = (int)crn_sys3(SYS_pidfd_getfd, pidfd, PAGEMAP_FD, 0);
	crn_sys1(SYS_close, pidfd);
	return crn_fd_raise(fd);
}
