/* SPDX-License-Identifier: MIT */
/*
 * Calls that change the process itself (signals, timers, socket options, umask, working directory),
 * and calls that are refused.
 */
#include <asm/prctl.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include "base/copy.h"
#include "base/log.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/proc.h"
#include "effects/effects.h"
#include "effects/hooks.h"
#include "effects/input.h"

#ifndef TCP_ZEROCOPY_RECEIVE
#define TCP_ZEROCOPY_RECEIVE 35
#endif
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72 /* Linux 5.14 */
#endif
#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef USERFAULTFD_IOC_NEW
#define USERFAULTFD_IOC_NEW 0xaa00
#endif
#ifndef ARCH_REQ_XCOMP_PERM
#define ARCH_REQ_XCOMP_PERM 0x1023
#endif
#ifndef ARCH_SHSTK_ENABLE
#define ARCH_SHSTK_ENABLE 0x5001
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#endif
#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif

/* ---- refusals -------------------------------------------------------------------------------- */

/* Bits 0 and 1 are for what is refused of calls that have another line as well. */
static unsigned bit_of(long nr)
{
	return 2 + (unsigned)nr % 30;
}

static void refuse_once(unsigned bit, const char *what, const char *why)
{
	if (crn_agent->refused_said & (1u << bit))
		return;
	crn_agent->refused_said |= 1u << bit;
	crn_warn("%s is refused: %s", what, why);
}

/* The other way to a userfaultfd. */
static bool is_userfaultfd_device(long fd)
{
	char path[40], target[32];
	long n;

	crn_format(path, sizeof(path), "/proc/self/fd/%d", (int)fd);
	n = crn_path_readlink(path, target, sizeof(target) - 1);
	target[CRN_MAX(n, 0)] = '\0';
	return crn_streq(target, "/dev/userfaultfd");
}

/* Each look at a socket's input would move it. */
static bool sets_offset(const struct crn_call *call)
{
	int at = -1;

	return crn_agent->config.recover && call->args[1] == SOL_SOCKET &&
		call->args[2] == SO_PEEK_OFF &&
		crn_user_copy(&at, (const void *)call->args[3], sizeof(at)) == 0 && at >= 0;
}

bool crn_refused(struct crn_call *call, const struct crn_row *row)
{
	switch (call->nr) {
	case SYS_arch_prctl:
		if (call->args[0] == ARCH_SHSTK_ENABLE)
			refuse_once(0, "a user shadow stack", "a restore cannot put it back");
		else if (call->args[0] == ARCH_REQ_XCOMP_PERM && crn_agent->config.recover)
			refuse_once(bit_of(SYS_arch_prctl), "AMX", "a recovery cannot put its "
				"registers back");
		else
			return false;
		call->result = -EOPNOTSUPP;
		return true;
	case SYS_madvise:
		/* Guard pages cannot be copied. Answer as kernels before 6.13 do. */
		if (call->args[2] != MADV_GUARD_INSTALL)
			return false;
		call->result = -EINVAL;
		return true;
	case SYS_mmap:
		/*
		 * Nor can memory that the kernel may drop be followed. libc keeps the state of
		 * getrandom there (from 2.41 on), and makes a call if it gets none. Answer as
		 * kernels before 6.11 do.
		 */
		if ((call->args[3] & MAP_TYPE) != MAP_DROPPABLE)
			return false;
		call->result = -EINVAL;
		return true;
	case SYS_ioctl:
		if (call->args[1] != USERFAULTFD_IOC_NEW || !is_userfaultfd_device(call->args[0]))
			return false;
		refuse_once(bit_of(SYS_userfaultfd), "userfaultfd",
			"the kernel would write memory that no checkpoint knows of");
		call->result = -EPERM;
		return true;
	case SYS_setsockopt:
		if (sets_offset(call)) {
			refuse_once(bit_of(SYS_setsockopt), "SO_PEEK_OFF",
				"a recovery cannot put the offset back");
			call->result = -EOPNOTSUPP;
			return true;
		}
		if (call->args[1] != SOL_SOCKET || call->args[2] != SO_ZEROCOPY)
			return false;
		refuse_once(1, "MSG_ZEROCOPY",
			"the kernel would read the program's memory after a checkpoint");
		call->result = -EOPNOTSUPP;
		return true;
	case SYS_getsockopt:
		if (call->args[1] != IPPROTO_TCP || call->args[2] != TCP_ZEROCOPY_RECEIVE ||
			!crn_agent->config.recover)
			return false;
		refuse_once(bit_of(SYS_getsockopt), "TCP_ZEROCOPY_RECEIVE",
			"what is read so cannot be given again");
		call->result = -ENOPROTOOPT;
		return true;
	case NR_MSEAL:
		if (!crn_output_matters())
			return false;
		refuse_once(bit_of(NR_MSEAL), row->name, "sealed memory cannot be opened again");
		call->result = -ENOSYS;
		return true;
	}
	if (row->effect != CRN_EFFECT_REFUSE)
		return false;
	refuse_once(bit_of(call->nr), row->name,
		"the kernel would write memory that no checkpoint knows of");
	call->result = -ENOSYS;
	return true;
}
const struct crn_hook crn_hook_refuse = {NULL, NULL};

/* ---- signals --------------------------------------------------------------------------------- */

/*
 * A signal that waits is dropped when it is ignored, and so is how children end that nobody wants
 * to know of. Nothing brings that back.
 */
static bool drops_signal(int sig, uintptr_t action)
{
	const uint64_t idle = 1ull << (SIGCHLD - 1) | 1ull << (SIGCONT - 1) |
		1ull << (SIGURG - 1) | 1ull << (SIGWINCH - 1);
	struct crn_ksigaction act;
	uint64_t pending = 0, signal = 1ull << (sig - 1);

	if (crn_user_read(&act, action, sizeof(act)) < 0)
		return false;
	if (sig == SIGCHLD && (act.handler == (uintptr_t)SIG_IGN || act.flags & SA_NOCLDWAIT))
		return true;
	if (act.handler > (uintptr_t)SIG_IGN ||
		(act.handler == (uintptr_t)SIG_DFL && !(idle & signal)))
		return false;
	crn_sys2(SYS_rt_sigpending, &pending, sizeof(pending));
	return pending & signal;
}

static enum crn_verdict sigaction_before(struct crn_call *call)
{
	struct crn_inverse *inv;

	/*
	 * Journalled before, because afterwards the old action is gone; putting it back twice is
	 * harmless.
	 */
	if (!call->args[1] || call->args[0] < 1 || call->args[0] > 64)
		return CRN_CALL_RUN;
	if (drops_signal((int)call->args[0], (uintptr_t)call->args[1]))
		crn_call_raise(call);
	inv = crn_inverse_add(call, CRN_INV_ACTION, (int)call->args[0]);
	if (inv)
		crn_sigaction_get((int)call->args[0], (struct crn_ksigaction *)inv->text);
	return CRN_CALL_RUN;
}
const struct crn_hook crn_hook_sigaction = {sigaction_before, NULL};

/* The alternate stack is part of what the checkpoint keeps of its thread (interval.c). */
const struct crn_hook crn_hook_sigaltstack = {NULL, NULL};

/* ---- timers ---------------------------------------------------------------------------------- */

_Static_assert(
	sizeof(struct itimerval) == 32 && sizeof(struct itimerspec) == 32, "scratch holds one");

static void timer_after(struct crn_call *call, enum crn_inverse_kind kind, int which)
{
	struct crn_inverse *inv;
	uint64_t pending = 0;

	if (call->result < 0)
		return;
	inv = crn_inverse_add(call, kind, which);
	if (!inv)
		return;
	crn_copy(inv->text, call->scratch, 32);
	inv->a = kind == CRN_INV_TIMERFD ? crn_agent->effects->pool_used
					 : crn_agent->effects->signal_count;
	if (kind != CRN_INV_ITIMER)
		return;
	crn_sys2(SYS_rt_sigpending, &pending, sizeof(pending));
	inv->b = pending >> (crn_itimer_signal(which) - 1) & 1;
}

static enum crn_verdict setitimer_before(struct crn_call *call)
{
	return crn_sys2(SYS_getitimer, call->args[0], call->scratch) < 0 ? CRN_CALL_RUN
									 : CRN_CALL_RUN_THEN;
}

static void setitimer_after(struct crn_call *call)
{
	timer_after(call, CRN_INV_ITIMER, (int)call->args[0]);
}
const struct crn_hook crn_hook_setitimer = {setitimer_before, setitimer_after};

static enum crn_verdict alarm_before(struct crn_call *call)
{
	crn_sys2(SYS_getitimer, ITIMER_REAL, call->scratch);
	return CRN_CALL_RUN_THEN;
}

static void alarm_after(struct crn_call *call)
{
	timer_after(call, CRN_INV_ITIMER, ITIMER_REAL);
}
const struct crn_hook crn_hook_alarm = {alarm_before, alarm_after};

/* What it has sent, and nobody was given yet, is dropped with that: it may be what is pending. */
static enum crn_verdict timer_settime_before(struct crn_call *call)
{
	uint64_t pending = 0;

	crn_sys2(SYS_rt_sigpending, &pending, sizeof(pending));
	if (pending)
		crn_call_raise(call);
	return crn_sys2(SYS_timer_gettime, call->args[0], call->scratch) < 0 ? CRN_CALL_RUN
									     : CRN_CALL_RUN_THEN;
}

static void timer_settime_after(struct crn_call *call)
{
	timer_after(call, CRN_INV_TIMER, (int)call->args[0]);
}
const struct crn_hook crn_hook_timer_settime = {timer_settime_before, timer_settime_after};

/* One that has run out and was not read yet must be readable again: it runs out at once. */
static enum crn_verdict timerfd_settime_before(struct crn_call *call)
{
	struct itimerspec *old = (struct itimerspec *)call->scratch;
	struct pollfd now = {.fd = (int)call->args[0], .events = POLLIN};

	if (crn_sys2(SYS_timerfd_gettime, call->args[0], old) < 0)
		return CRN_CALL_RUN;
	if (crn_sys3(SYS_poll, &now, 1, 0) == 1)
		old->it_value = (struct timespec){0, 1};
	return CRN_CALL_RUN_THEN;
}

static void timerfd_settime_after(struct crn_call *call)
{
	timer_after(call, CRN_INV_TIMERFD, (int)call->args[0]);
	if (call->result >= 0)
		crn_stream_pass((int)call->args[0]);
}
const struct crn_hook crn_hook_timerfd_settime = {timerfd_settime_before, timerfd_settime_after};

/* ---- the rest -------------------------------------------------------------------------------- */

/* It does not adapt a buffer any more that was set, not even to what it was: undone after that. */
static void journal_lock(struct crn_call *call)
{
	uint32_t lock, len = sizeof(lock);
	struct crn_inverse *inv;

	if (crn_sys5(SYS_getsockopt, call->args[0], SOL_SOCKET, SO_BUF_LOCK, &lock, &len) < 0)
		return;
	inv = crn_inverse_add(call, CRN_INV_OPTION, (int)call->args[0]);
	if (!inv)
		return;
	inv->a = SOL_SOCKET;
	inv->b = SO_BUF_LOCK;
	inv->c = len;
	crn_copy(inv->text, &lock, len);
}

/*
 * The old value is journalled before the call. An option that cannot be read back in the same
 * length as it is set has no inverse. Nor has a filter: by its number its instructions are asked
 * for, and the length is their count. (Some options look at what is in the buffer.)
 */
static enum crn_verdict setsockopt_before(struct crn_call *call)
{
	struct crn_inverse *inv;
	uint8_t old[CRN_INVERSE_TEXT] __attribute__((aligned(8))) = {0};
	uint32_t len = sizeof(old);

	if ((call->args[1] == SOL_SOCKET && call->args[2] == SO_ATTACH_FILTER) ||
		crn_sys5(SYS_getsockopt, call->args[0], call->args[1], call->args[2], old,
			&len) < 0 || len != (uint32_t)call->args[4]) {
		crn_call_raise(call);
		return CRN_CALL_RUN_THEN;
	}
	/* The kernel doubles these when they are set, and tells the double. */
	if (call->args[1] == SOL_SOCKET &&
		(call->args[2] == SO_RCVBUF || call->args[2] == SO_SNDBUF)) {
		*(uint32_t *)old /= 2;
		journal_lock(call);
	}
	inv = crn_inverse_add(call, CRN_INV_OPTION, (int)call->args[0]);
	if (inv) {
		inv->a = (uint64_t)call->args[1];
		inv->b = (uint64_t)call->args[2];
		inv->c = len;
		crn_copy(inv->text, old, len);
	}
	return CRN_CALL_RUN;
}
const struct crn_hook crn_hook_setsockopt = {setsockopt_before, NULL};

static void umask_after(struct crn_call *call)
{
	struct crn_inverse *inv = crn_inverse_add(call, CRN_INV_UMASK, -1);

	if (inv)
		inv->a = (uint64_t)call->result;
}
const struct crn_hook crn_hook_umask = {NULL, umask_after};

/*
 * The folder in which the interval began is enough, wherever the program went from there. One that
 * may not be opened could not be come back to.
 */
static enum crn_verdict chdir_before(struct crn_call *call)
{
	struct crn_effects *e = crn_agent->effects;
	int fd = -1;

	call->scratch[0] = 0;
	if (e->folder_round == e->round)
		return CRN_CALL_RUN;
	fd = crn_fd_open(".", O_PATH | O_DIRECTORY);
	if (fd < 0)
		crn_call_raise(call);
	call->scratch[0] = (uint64_t)(fd + 1);
	return CRN_CALL_RUN_THEN;
}

static void chdir_after(struct crn_call *call)
{
	struct crn_effects *e = crn_agent->effects;
	int fd = (int)call->scratch[0] - 1;
	struct crn_inverse *inv;

	if (fd < 0)
		return;
	inv = call->result < 0 ? NULL : crn_inverse_add(call, CRN_INV_FOLDER, -1);
	if (!inv) {
		crn_fd_close(fd);
		return;
	}
	inv->other = fd;
	e->folder_round = e->round;
	e->keeps_files = true;
}
const struct crn_hook crn_hook_chdir = {chdir_before, chdir_after};

static enum crn_verdict prctl_before(struct crn_call *call)
{
	switch (call->args[0]) {
	case PR_GET_PDEATHSIG:
	case PR_GET_DUMPABLE:
	case PR_GET_KEEPCAPS:
	case PR_GET_NAME:
	case PR_GET_SECCOMP:
	case PR_CAPBSET_READ:
	case PR_GET_TSC:
	case PR_GET_SECUREBITS:
	case PR_GET_TIMERSLACK:
	case PR_GET_NO_NEW_PRIVS:
	case PR_GET_THP_DISABLE: case PR_GET_CHILD_SUBREAPER: case PR_SET_NAME: case PR_SET_VMA:
		call->effect = CRN_EFFECT_NONE; /* a thread's name is for people; it may stay */
		return CRN_CALL_RUN;
	case PR_SET_MEMORY_MERGE: /* as by a kernel without KSM; see madvise */
		call->result = -EINVAL;
		return CRN_CALL_ANSWERED;
	}
	return CRN_CALL_RUN_THEN;
}
const struct crn_hook crn_hook_prctl = {prctl_before, NULL};

static enum crn_verdict arch_prctl_before(struct crn_call *call)
{
	if (call->args[0] == ARCH_GET_FS || call->args[0] == ARCH_GET_GS) {
		call->effect = CRN_EFFECT_NONE;
		return CRN_CALL_RUN;
	}
	return CRN_CALL_RUN_THEN;
}
const struct crn_hook crn_hook_arch_prctl = {arch_prctl_before, NULL};

static enum crn_verdict prlimit_before(struct crn_call *call)
{
	if (!call->args[2])
		return CRN_CALL_RUN;
	crn_call_raise(call);
	return CRN_CALL_RUN_THEN;
}
const struct crn_hook crn_hook_prlimit = {prlimit_before, NULL};
