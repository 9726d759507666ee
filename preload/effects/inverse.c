/* SPDX-License-Identifier: MIT */
/*
 * The journal of inverses: what puts the process's kernel state back. It runs in reverse order
 * after memory has been put back. An inverse must not fail for a reason that could have been known
 * before: a call that cannot be inverted is never journalled, but counts as an output.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/effects.h"
#include "effects/hooks.h"
#include "effects/input.h"
#include "effects/planted.h"
#include "os/signal.h"
#include "os/thread.h"
#include "session/session.h"

struct crn_inverse *crn_inverse_add(struct crn_call *call, enum crn_inverse_kind kind, int fd)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_inverse *inv;

	if (e->inverse_count == CRN_INVERSES_MAX) {
		if (call)
			crn_call_raise(call);
		crn_effects_cannot_undo("more calls to undo than the journal holds");
		return NULL;
	}
	inv = &e->inverses[e->inverse_count++];
	*inv = (struct crn_inverse){.kind = kind, .fd = fd, .other = -1};
	return inv;
}

bool crn_inverse_unopen(int fd)
{
	struct crn_effects *e = crn_agent->effects;
	uint32_t n = e->inverse_count;

	while (n && e->inverses[n - 1].kind == CRN_INV_SEEK && e->inverses[n - 1].fd == fd)
		n--;
	if (!n || e->inverses[n - 1].kind != CRN_INV_CLOSE || e->inverses[n - 1].fd != fd ||
		!e->inverses[n - 1].a)
		return false;
	e->inverse_count = n - 1;
	return true;
}

/* The accepted socket leaves its number and waits, under a high one, to be accepted again. */
static long unaccept(const struct crn_inverse *inv)
{
	struct crn_piece *piece = crn_piece_at((uint32_t)inv->a);
	int high = crn_hold_duplicate(inv->fd);

	if (high < 0)
		return high;
	piece->value = high;
	crn_sys1(SYS_close, inv->fd);
	crn_fd_forget(inv->fd);
	return 0;
}

static long reopen(const struct crn_inverse *inv)
{
	long ret = crn_sys3(SYS_dup3, inv->other, inv->fd, inv->a ? O_CLOEXEC : 0);

	crn_hold_release(inv->other);
	crn_fd_forget(inv->fd);
	return ret;
}

/* The munmap was put off and is not wanted any more. */
static long keep_mapping(const struct crn_inverse *inv)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = e->delayed_count; i-- > 0;) {
		if (e->delayed[i].addr != inv->a || e->delayed[i].len != inv->b)
			continue;
		e->delayed_bytes -= e->delayed[i].len;
		e->delayed[i] = e->delayed[--e->delayed_count];
		return 0;
	}
	return -ENOENT;
}

/*
 * Inaccessible memory is no part of a surface. Opened since (a thread's malloc arena grows so), it
 * looked like a new mapping to the restore, which took it away. The reserve must not have a hole:
 * somebody else's mapping would come to lie in it.
 */
static void reserve_again(uintptr_t begin, size_t len)
{
	for (size_t at = 0; at < len; at += CRN_PAGE_SIZE)
		crn_sys6(SYS_mmap, begin + at, CRN_PAGE_SIZE, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
}

/*
 * Was this page mapped in the interval? Then an inverse that is still to come takes it away, and
 * the restore may have done so already. *until, if above that: where this ends to be so, or not.
 */
static bool is_new(uintptr_t at, uintptr_t *until)
{
	const struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->inverse_count; i++) {
		const struct crn_inverse *inv = &e->inverses[i];
		uintptr_t begin = inv->a, end = inv->a + inv->b;

		if (inv->kind == CRN_INV_BREAK) {
			begin = crn_page_up(inv->a);
			end = crn_page_up((uintptr_t)crn_sys1(SYS_brk, 0));
		} else if (inv->kind != CRN_INV_UNMAP) {
			continue;
		}
		if (at >= begin && at < end) {
			*until = CRN_MIN(*until, end);
			return true;
		}
		if (at < begin)
			*until = CRN_MIN(*until, begin);
	}
	return false;
}

/* The trackers that refuse stores themselves must know whose a refusal is. */
static long protect_part(uintptr_t begin, size_t len, int prot)
{
	long ret = crn_sys3(SYS_mprotect, begin, len, prot);

	if (ret >= 0)
		crn_protection_changed(crn_agent->session, begin, len, prot);
	return ret;
}

static long protect_old(uintptr_t begin, size_t len, int prot)
{
	long ret = protect_part(begin, len, prot);

	if (ret != -ENOMEM || prot != PROT_NONE)
		return ret;
	reserve_again(begin, len);
	return protect_part(begin, len, prot);
}

/* Old memory and new may have become one mapping, of which only the old part is left. */
static long protect(const struct crn_inverse *inv)
{
	const uintptr_t end = inv->a + inv->b;
	long ret = protect_part(inv->a, inv->b, (int)inv->c);

	if (ret != -ENOMEM)
		return ret;
	ret = 0;
	for (uintptr_t at = inv->a, until; at < end; at = until) {
		until = end;
		if (!is_new(at, &until))
			ret = CRN_MIN(ret, protect_old(at, until - at, (int)inv->c));
	}
	return ret;
}

int crn_itimer_signal(int which)
{
	return which == ITIMER_REAL ? SIGALRM : which == ITIMER_VIRTUAL ? SIGVTALRM : SIGPROF;
}

static bool sent_by(const struct crn_inverse *inv, const siginfo_t *info)
{
	if (inv->kind == CRN_INV_TIMER)
		return info->si_code == SI_TIMER && info->si_timerid == inv->fd;
	return info->si_code == SI_KERNEL && info->si_signo == crn_itimer_signal(inv->fd);
}

/*
 * What the timer has sent since it was set goes with it: the handler may be gone as well, and the
 * signal would be the program's end. The kernel itself drops what is pending of POSIX timers.
 */
static void forget_signals_of(const struct crn_inverse *inv)
{
	struct crn_effects *e = crn_agent->effects;
	uint64_t set = 1ull << (crn_itimer_signal(inv->fd) - 1);
	struct timespec now = {0};
	siginfo_t info;

	for (uint32_t i = (uint32_t)inv->a; i < e->signal_count; i++)
		if (sent_by(inv, &e->signals[i].info))
			e->signals[i].sig = 0;
	if (inv->kind != CRN_INV_ITIMER || inv->b)
		return;
	if (crn_sys4(SYS_rt_sigtimedwait, &set, &info, &now, sizeof(set)) > 0 &&
		!sent_by(inv, &info))
		crn_signal_requeue(crn_agent->pid, crn_gettid(), info.si_signo, &info);
}

static long run(const struct crn_inverse *inv)
{
	long ret;

	switch ((enum crn_inverse_kind)inv->kind) {
	case CRN_INV_CLOSE:
		crn_stream_closed(inv->fd); /* what was read of it is nobody's */
		crn_sys1(SYS_close, inv->fd);
		crn_fd_forget(inv->fd);
		return 0;
	case CRN_INV_REOPEN:
		return reopen(inv);
	case CRN_INV_UNACCEPT:
		return unaccept(inv);
	case CRN_INV_SEEK:
		return crn_sys3(SYS_lseek, inv->fd, inv->a, SEEK_SET);
	case CRN_INV_STATUS:
		return crn_sys3(SYS_fcntl, inv->fd, F_SETFL, inv->a);
	case CRN_INV_CLOEXEC:
		return crn_sys3(SYS_fcntl, inv->fd, F_SETFD, inv->a);
	case CRN_INV_EPOLL:
		return crn_epoll_put(inv->fd, (int)inv->c, inv->other, (uint32_t)inv->a, inv->b);
	case CRN_INV_UNMAP:
		return crn_sys2(SYS_munmap, inv->a, inv->b);
	case CRN_INV_KEEP:
		return keep_mapping(inv);
	case CRN_INV_BREAK:
		return crn_sys1(SYS_brk, inv->a) == (long)inv->a ? 0 : -ENOMEM;
	case CRN_INV_BREAK_KEPT:
		crn_agent->effects->break_put_off = inv->a;
		return 0;
	case CRN_INV_PROTECT:
		return protect(inv);
	case CRN_INV_ACTION:
		crn_sigaction_put(inv->fd, (const struct crn_ksigaction *)inv->text);
		return 0;
	case CRN_INV_ITIMER:
		ret = crn_sys3(SYS_setitimer, inv->fd, inv->text, 0);
		forget_signals_of(inv);
		return ret;
	case CRN_INV_TIMER:
		ret = crn_sys4(SYS_timer_settime, inv->fd, 0, inv->text, 0);
		forget_signals_of(inv);
		return ret;
	case CRN_INV_TIMERFD:
		crn_stream_cut(inv->fd, (uint32_t)inv->a);
		return crn_sys4(SYS_timerfd_settime, inv->fd, 0, inv->text, 0);
	case CRN_INV_OPTION:
		return crn_sys5(SYS_setsockopt, inv->fd, inv->a, inv->b, inv->text, inv->c);
	case CRN_INV_UMASK:
		return crn_sys1(SYS_umask, inv->a);
	case CRN_INV_FOLDER:
		ret = crn_sys1(SYS_fchdir, inv->other);
		crn_hold_release(inv->other);
		return ret;
	case CRN_INV_APPEND:
		return crn_append_undo(inv);
	case CRN_INV_UNLOCK:
		return crn_record_lock_undo(inv);
	}
	return -EINVAL;
}

/*
 * Under trackers that take permissions away, the engine takes tracked memory for writable: what it
 * refuses is refused by the tracker, who opens it. Memory that the program itself has made
 * read-only since the checkpoint is opened here; its inverse sets the protection that it had. All
 * of its pages were saved and opened before the change, so no store slips by. What may not be
 * opened (a file that is open for reading) cannot have been written either.
 */
void crn_inverses_open_memory(void)
{
	struct crn_effects *e = crn_agent->effects;

	if (!e->kernel_needs_open_pages)
		return;
	for (uint32_t i = 0; i < e->inverse_count; i++) {
		const struct crn_inverse *inv = &e->inverses[i];

		if (inv->kind == CRN_INV_PROTECT)
			crn_sys3(SYS_mprotect, inv->a, inv->b,
				PROT_READ | PROT_WRITE | (inv->c & PROT_EXEC));
	}
}

void crn_inverses_run(void)
{
	struct crn_effects *e = crn_agent->effects;

	e->round++;
	while (e->inverse_count) {
		const struct crn_inverse *inv = &e->inverses[--e->inverse_count];
		long ret = crn_planted((int)inv->kind) ? 0 : run(inv);

		if (ret < 0)
			crn_error("an inverse failed (kind %u, descriptor %d): %ld", inv->kind,
				inv->fd, ret);
	}
	e->keeps_files = false;
}

void crn_inverse_void(enum crn_inverse_kind kind, int other)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = e->inverse_count; i-- > 0;)
		if (e->inverses[i].kind == kind && e->inverses[i].other == other)
			e->inverses[i].other = -1;
}

bool crn_inverses_close(void)
{
	struct crn_effects *e = crn_agent->effects;
	bool any = false;

	for (uint32_t i = 0; i < e->inverse_count; i++) {
		struct crn_inverse *inv = &e->inverses[i];

		if ((inv->kind != CRN_INV_REOPEN && inv->kind != CRN_INV_FOLDER) || inv->other < 0)
			continue;
		crn_hold_release(inv->other);
		inv->other = -1;
		any = true;
	}
	e->keeps_files = false;
	return any;
}

void crn_inverses_drop(void)
{
	struct crn_effects *e = crn_agent->effects;

	crn_inverses_close();
	e->round++;
	e->inverse_count = 0;
}
