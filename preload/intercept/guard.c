/* SPDX-License-Identifier: MIT */
/*
 * Calls by which a program would, mostly without knowing, take away what the agent needs:
 * descriptors, %gs, system call dispatch, the right to make system calls. For the program,
 * descriptors and children of the engine do not exist.
 */
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <asm/prctl.h>
#include "base/log.h"
#include "os/descriptor.h"
#include "os/sys.h"
#include "os/thread.h"
#include "intercept/intercept.h"

/* One bit for each descriptor up to the highest number that the engine uses. */
static uint64_t engine_fds[CRN_FD_CEILING / 64 + 1];

bool crn_fd_is_engine(int fd)
{
	return fd >= 0 && fd <= CRN_FD_CEILING && (engine_fds[fd / 64] >> (fd % 64) & 1);
}

void crn_fd_engine(int fd, bool open)
{
	if (fd < 0 || fd > CRN_FD_CEILING)
		return;
	if (open)
		__atomic_fetch_or(&engine_fds[fd / 64], 1ull << (fd % 64), __ATOMIC_RELAXED);
	else
		__atomic_fetch_and(&engine_fds[fd / 64], ~(1ull << (fd % 64)), __ATOMIC_RELAXED);
}

void crn_fd_watch(int fd, bool open)
{
	crn_fd_engine(fd, open);
}

/* The lowest engine descriptor in [from, to], or -1. */
static long engine_fd_from(unsigned from, unsigned to)
{
	for (unsigned fd = from; fd <= to && fd <= CRN_FD_CEILING; fd++) {
		if (!(fd % 64) && !engine_fds[fd / 64]) {
			fd += 63;
			continue;
		}
		if (crn_fd_is_engine((int)fd))
			return fd;
	}
	return -1;
}

/* Close everything in the range but ours, piece by piece. */
static bool close_range_around(struct crn_call *c)
{
	unsigned from = (unsigned)c->args[0], to = (unsigned)c->args[1];
	long ours = engine_fd_from(from, to), r = 0;

	if (from > to || ours < 0)
		return false;
	for (; r == 0 && ours >= 0; ours = engine_fd_from(from, to)) {
		if ((unsigned)ours > from)
			r = crn_sys3(SYS_close_range, from, ours - 1, c->args[2]);
		from = (unsigned)ours + 1;
		if (from > to)
			break;
	}
	if (r == 0 && from <= to)
		r = crn_sys3(SYS_close_range, from, to, c->args[2]);
	c->result = r;
	return true;
}

static void say_once(uint32_t *said, const char *what)
{
	if (!__atomic_exchange_n(said, 1, __ATOMIC_RELAXED))
		crn_warn("%s", what);
}

static bool call_prctl(struct crn_call *c)
{
	static uint32_t said_dispatch;

	if (c->nr == SYS_prctl && c->args[0] == PR_SET_SYSCALL_USER_DISPATCH) {
		say_once(&said_dispatch,
			"the program asked for syscall user dispatch, which is in use: refused");
		c->result = -EINVAL;
		return true;
	}
	return false;
}

static bool call_arch_prctl(struct crn_call *c)
{
	static uint32_t said;
	uint64_t zero = 0;

	if (c->args[0] == ARCH_SET_GS) {
		say_once(&said, "the program asked for the gs base, which is in use: refused");
		c->result = -EPERM;
		return true;
	}
	if (c->args[0] == ARCH_GET_GS) {
		c->result = crn_user_copy((void *)c->args[1], &zero, sizeof(zero));
		return true;
	}
	return false;
}

/*
 * A frozen child reports by no signal. Only a wait for such children finds it, and would take one
 * that has just been dropped. If the program has none like that, then all of its own, and whatever
 * it traces, are found by a plain wait.
 */
static bool call_wait(struct crn_call *c, long *options)
{
	const struct crn_agent *a = crn_agent;

	if (!a || !a->frozen_children || a->quiet_children)
		return false;
	if (*options & __WALL) {
		*options &= ~(long)(__WALL | __WCLONE);
		return false;
	}
	c->result = -ECHILD;
	return *options & __WCLONE;
}

bool crn_guard_call(struct crn_regs *regs, struct crn_pending *p)
{
	struct crn_call *c = &p->call;

	switch (c->nr) {
	case SYS_close:
		c->result = -EBADF;
		return crn_fd_is_engine((int)c->args[0]);
	case SYS_dup2:
	case SYS_dup3:
		c->result = -EBADF;
		return crn_fd_is_engine((int)c->args[0]) || crn_fd_is_engine((int)c->args[1]);
	case SYS_close_range:
		return close_range_around(c);
	case SYS_prctl:
	case SYS_seccomp:
		return call_prctl(c);
	case SYS_arch_prctl:
		return call_arch_prctl(c);
	case SYS_getpid:
		c->result = -EALREADY;
		return c->args[0] == CRN_ASK_AGENT && c->args[1] == ~CRN_ASK_AGENT && crn_agent &&
			crn_agent->config.site_count;
	case SYS_wait4:
		return call_wait(c, &c->args[2]);
	case SYS_waitid:
		return call_wait(c, &c->args[3]);
	case SYS_execve:
	case SYS_execveat:
		crn_exec_look(c);
		return false;
	case SYS_exit:
		if (c->thread->in_vfork)
			return false;
		c->thread->exiting = true;
		crn_late_timer_stop(c->thread);
		crn_timer_thread_ends(c->thread);
		crn_call_thread_ends(c->thread);
		return false;
	}
	return false;
}
