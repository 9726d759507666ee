/* SPDX-License-Identifier: MIT */
/*
 * Site timer:MS: a checkpoint every MS milliseconds of wall-clock time, in whichever thread runs. A
 * sleeping process changes nothing: its turn comes when it wakes.
 *
 * One thread holds the site's timer, which signals that thread alone. The signal is SIGSYS, which
 * belongs to the agent and is never blocked. What is done depends on where it finds the thread:
 *
 *	in the program's code   the checkpoint is taken there
 *	in a hook               the hook takes it when the call returns (`due`)
 *	in a call               the call continues as if nothing had happened. Another thread that
 *	                        is in the program's code is signalled, and holds the timer from
 *	                        then on. If there is none, the timer rests, and the first thread
 *	                        that returns from a call takes the checkpoint and the timer.
 *
 * A call that the signal has cut short is made again, with the rest of its timeout.
 */
#include <linux/futex.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include "base/log.h"
#include "os/clock.h"
#include "os/signal.h"
#include "os/thread.h"
#include "intercept/intercept.h"

#define COOKIE 0x6361697276ul /* tells our timers from the program's */
#define NS     1000000000ul

/* Static: the agent's image is outside every surface, and a forked child starts afresh. */
static struct {
	struct crn_thread *holder;
	uint32_t due;
} timers[CRN_SITES_MAX];
static uint32_t any_due, holders_lock;

static bool is_timer(uint32_t i)
{
	const struct crn_config *c = &crn_here.agent.config;

	return i < c->site_count && c->sites[i].kind == CRN_SITE_TIMER;
}

static void set(const struct crn_thread *t, uint32_t i, uint64_t ns)
{
	struct itimerspec every = { { (time_t)(ns / NS), (long)(ns % NS) }, { 0, 0 } };

	every.it_value = every.it_interval;
	if (t->timers[i])
		crn_sys4(SYS_timer_settime, t->timers[i] - 1, 0, &every, 0);
}

static void create(struct crn_thread *t, uint32_t i)
{
	struct crn_thread_event ev = { .value.sival_ptr = (void *)(COOKIE << 8 | i),
		.signo = SIGSYS,
		.notify = SIGEV_THREAD_ID,
		.tid = crn_gettid() };
	int id;
	long r = crn_sys3(SYS_timer_create, CLOCK_MONOTONIC, &ev, &id);

	if (r < 0)
		crn_warn("%s: the kernel gives no timer (%ld)",
			crn_here.agent.config.sites[i].text, r);
	else
		t->timers[i] = id + 1;
}

/* In a hook of t: the timer is its own, and runs. */
static void hold(struct crn_thread *t, uint32_t i)
{
	struct crn_thread *before;

	crn_spin_lock(&holders_lock);
	before = timers[i].holder;
	timers[i].holder = t;
	crn_spin_unlock(&holders_lock);
	if (before == t)
		return;
	if (before)
		set(before, i, 0);
	if (!t->timers[i])
		create(t, i);
	set(t, i, crn_here.agent.config.sites[i].argument);
}

/* Is any site a timer? Then calls come back to their after-hooks. */
static bool is_wanted(void)
{
	for (uint32_t i = 0; i < crn_here.agent.config.site_count; i++)
		if (is_timer(i))
			return true;
	return false;
}

void crn_timer_start(void)
{
	struct crn_thread *t = crn_thread_self();

	crn_here.timed = is_wanted();
	holders_lock = any_due = 0;
	for (uint32_t i = 0; i < CRN_SITES_MAX; i++) {
		timers[i].holder = NULL;
		timers[i].due = 0;
		t->timers[i] = 0;
		if (is_timer(i))
			hold(t, i);
	}
}

/* ---- Whose turn it is ------------------------------------------------------------------------ */

static void put_off(uint32_t i)
{
	__atomic_store_n(&timers[i].due, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&any_due, 1, __ATOMIC_RELEASE);
}

/* A thread in the program's own code, as far as can be told from here. */
static struct crn_thread *running(const struct crn_thread *self)
{
	struct crn_thread *t;

	for (uint32_t i = 0; (t = crn_thread_slot(i)); i++)
		if (t != self && t->live && !t->exiting && !t->in_vfork && !t->in_agent &&
			!t->pending_count)
			return t;
	return NULL;
}

/* The thread is not to be disturbed. */
static void pass_on(struct crn_thread *t, uint32_t i, const siginfo_t *info)
{
	struct crn_thread *other = running(t);

	/* If the signal gets lost there, our own timer comes again. */
	if (other && crn_signal_requeue(crn_getpid(), other->tid, SIGSYS, info) >= 0)
		return;
	/* Whoever takes the turn finds that nobody holds the timer, and starts one. */
	if (__atomic_load_n(&timers[i].holder, __ATOMIC_RELAXED) == t) {
		set(t, i, 0);
		__atomic_store_n(&timers[i].holder, NULL, __ATOMIC_RELEASE);
	}
	put_off(i);
}

void crn_timer_hit(struct crn_thread *t, uint32_t i)
{
	if (!is_timer(i))
		return;
	__atomic_store_n(&timers[i].due, 0, __ATOMIC_RELAXED);
	hold(t, i);
}

/*
 * The checkpoint is taken. If the timer came again meanwhile, it starts anew, or a program whose
 * checkpoints take longer than its timer would do nothing else.
 */
void crn_timer_rest(struct crn_thread *t, uint32_t i)
{
	if (is_timer(i) && __atomic_exchange_n(&timers[i].due, 0, __ATOMIC_RELAXED) &&
		__atomic_load_n(&timers[i].holder, __ATOMIC_RELAXED) == t)
		set(t, i, crn_here.agent.config.sites[i].argument);
}

void crn_timer_turn(struct crn_call *call)
{
	if (!__atomic_load_n(&any_due, __ATOMIC_ACQUIRE) ||
		crn_fault_handled_at(call->thread, call->thread->regs->rsp))
		return;
	__atomic_store_n(&any_due, 0, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < crn_here.agent.config.site_count; i++) {
		if (!__atomic_exchange_n(&timers[i].due, 0, __ATOMIC_RELAXED))
			continue;
		hold(call->thread, i);
		call->spec = i + 1;
		crn_site_hit(call, CRN_SITE_TIMER);
		call->spec = 0;
		crn_timer_rest(call->thread, i);
	}
}

static void delete_timers(struct crn_thread *t)
{
	for (uint32_t i = 0; i < CRN_SITES_MAX; i++) {
		if (t->timers[i])
			crn_sys1(SYS_timer_delete, t->timers[i] - 1);
		t->timers[i] = 0;
	}
}

void crn_timer_thread_ends(struct crn_thread *t)
{
	for (uint32_t i = 0; i < crn_here.agent.config.site_count; i++) {
		if (!is_timer(i))
			continue;
		crn_spin_lock(&holders_lock);
		if (timers[i].holder == t) {
			timers[i].holder = NULL;
			put_off(i);
		}
		crn_spin_unlock(&holders_lock);
	}
	delete_timers(t);
}

void crn_timer_end(void)
{
	struct crn_thread *t;

	crn_here.timed = false;
	for (uint32_t n = 0; (t = crn_thread_slot(n)); n++) {
		if (!t->live)
			continue;
		crn_late_timer_stop(t);
		delete_timers(t);
	}
}

/* ---- A call that was cut short --------------------------------------------------------------- */

static void shorten_ms(long *arg, uint64_t elapsed_ns)
{
	int64_t left = (int64_t)(int)*arg * 1000000 - (int64_t)elapsed_ns;

	if ((int)*arg > 0)
		*arg = left > 0 ? (left + 999999) / 1000000 : 0;
}

static void shorten(struct crn_thread *t, long *arg, uint64_t elapsed_ns)
{
	struct timespec ts;
	uint64_t left;

	if (!*arg || crn_user_copy(&ts, (const void *)*arg, sizeof(ts)) < 0 || ts.tv_sec < 0 ||
		ts.tv_sec > (time_t)(INT64_MAX / NS / 2))
		return;
	left = (uint64_t)ts.tv_sec * NS + (uint64_t)ts.tv_nsec;
	left = left > elapsed_ns ? left - elapsed_ns : 0;
	t->rest[0] = left / NS;
	t->rest[1] = left % NS;
	*arg = (long)(uintptr_t)t->rest;
}

/*
 * Which argument is a timeout that the kernel counts from the beginning of the call, and does not
 * write back. -1: none.
 */
static int timeout_arg(long nr, const long *args)
{
	switch (nr) {
	case SYS_nanosleep:
		return 0;
	case SYS_poll:
	case SYS_rt_sigtimedwait:
		return 2;
	case SYS_clock_nanosleep:
		return args[1] & TIMER_ABSTIME ? -1 : 2;
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
	case SYS_semtimedop:
		return 3;
	case SYS_futex:
		return (args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT ? 3 : -1;
	}
	return -1;
}

uint64_t crn_timer_began_ns(const struct crn_call *call)
{
	return crn_here.timed && timeout_arg(call->nr, call->args) >= 0 ? crn_clock_kernel_ns() : 0;
}

static void shorten_args(struct crn_thread *t, long args[4], long nr, uint64_t elapsed_ns)
{
	int i = timeout_arg(nr, args);

	if (i < 0)
		return;
	if (nr == SYS_poll || nr == SYS_epoll_wait || nr == SYS_epoll_pwait)
		shorten_ms(&args[i], elapsed_ns);
	else
		shorten(t, &args[i], elapsed_ns);
}

/* What is left of the call's timeout counts from here. */
static void shorten_call(struct crn_thread *t, struct crn_pending *p, long args[4])
{
	uint64_t now = crn_clock_kernel_ns();

	shorten_args(t, args, p->call.nr, now - p->began_ns);
	p->began_ns = now;
}

/* Which timeout of its socket a call is under, and what says that this is over. 0: none. */
static int socket_timeout(long nr, int *error)
{
	*error = EAGAIN;
	switch (nr) {
	case SYS_read:
	case SYS_readv:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
	case SYS_accept:
	case SYS_accept4:
		return SO_RCVTIMEO;
	case SYS_write:
	case SYS_writev:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_sendmmsg:
		return SO_SNDTIMEO;
	case SYS_connect:
		*error = EINPROGRESS;
		return SO_SNDTIMEO;
	}
	return 0;
}

/* Has the socket of a call such a timeout? */
static bool has_timeout(long fd, int option, struct timeval *limit)
{
	socklen_t len = sizeof(*limit);

	return option &&
		crn_sys5(SYS_getsockopt, fd, SOL_SOCKET, option, limit, &len) == 0 &&
		(limit->tv_sec || limit->tv_usec);
}

/* Does the kernel make this call again behind a handler with SA_RESTART? */
static bool is_restarted(const struct crn_call *call)
{
	struct timeval limit;
	int error, option = socket_timeout(call->nr, &error);

	if (call->nr == SYS_wait4 || call->nr == SYS_waitid)
		return true;
	return option && !has_timeout(call->args[0], option, &limit);
}

static bool all_restart(uint64_t signals)
{
	struct crn_ksigaction act;

	for (; signals; signals &= signals - 1)
		if (crn_sys4(SYS_rt_sigaction, __builtin_ctzll(signals) + 1, NULL, &act,
			    sizeof(act.mask)) < 0 || !(act.flags & SA_RESTART))
			return false;
	return true;
}

/*
 * Has the program a signal coming that may cut the call short? Then it was cut short by that,
 * unless it would begin again behind it. A call that waits under a mask of its own is made again
 * all the same: that mask, under which the signal is let in, is in force nowhere else.
 */
static bool others_come(const struct crn_pending *p, const ucontext_t *uc)
{
	uint64_t pending = 0;

	if (p && p->waits)
		return false;
	crn_sys2(SYS_rt_sigpending, &pending, sizeof(pending));
	pending &= ~*(const uint64_t *)&uc->uc_sigmask & ~CRN_SIG_RESERVED;
	return pending && !(p && is_restarted(&p->call) && all_restart(pending));
}

/*
 * SO_RCVTIMEO and SO_SNDTIMEO count anew in a call that is made again. Where signals of ours come
 * faster than that, it would never end: it ends with one that comes later than that behind the
 * first one. The error, or 0.
 */
static int socket_time_over(struct crn_pending *p)
{
	int error, option = socket_timeout(p->call.nr, &error);
	struct timeval limit;
	uint64_t now;

	if (!has_timeout(p->call.args[0], option, &limit))
		return 0;
	now = crn_clock_kernel_ns();
	if (!p->began_ns)
		p->began_ns = now;
	return (now - p->began_ns) / 1000 <
			(uint64_t)limit.tv_sec * 1000000 + (uint64_t)limit.tv_usec
		? 0 : error;
}

void crn_undo_interrupt(ucontext_t *uc, struct crn_thread *t)
{
	greg_t *g = uc->uc_mcontext.gregs;
	uintptr_t rip = (uintptr_t)g[REG_RIP];
	size_t at = rip - (uintptr_t)crn_stub_of(rip);
	struct crn_pending *p;
	long args[4];
	int over;

	if (!crn_in_stubs(rip) || (g[REG_RAX] != -EINTR && g[REG_RAX] <= 0) ||
		(at != CRN_STUB_CALL + 2 && at != CRN_STUB_BARE + 2))
		return;
	p = crn_pending_at(t, (uint64_t)g[REG_RSP]);
	/* A handler of the program has run, is to run, or is put off until behind the call. */
	if (t->last_nr < 0 || t->put_off || others_come(p, uc))
		return;
	if (g[REG_RAX] > 0) {
		if (p)
			crn_go_on(t, p, g);
		return;
	}
	over = p ? socket_time_over(p) : 0;
	if (over) {
		g[REG_RAX] = -over;
		return;
	}
	g[REG_RAX] = p ? p->call.nr : t->last_nr;
	g[REG_RIP] -= 2;
	if (!p || !p->began_ns || timeout_arg(p->call.nr, p->call.args) < 0)
		return;
	args[0] = g[REG_RDI];
	args[1] = g[REG_RSI];
	args[2] = g[REG_RDX];
	args[3] = g[REG_R10];
	shorten_call(t, p, args);
	g[REG_RDI] = args[0];
	g[REG_RDX] = args[2];
	g[REG_R10] = args[3];
}

/* ---- The signal ------------------------------------------------------------------------------ */

/* True if the signal is of a timer of ours, perhaps the last one of a timer that is no more. */
bool crn_timer_signal(struct crn_thread *t, const siginfo_t *info, ucontext_t *uc)
{
	uint64_t value = (uint64_t)(uintptr_t)info->si_value.sival_ptr;
	greg_t *g = uc->uc_mcontext.gregs;
	uint32_t i = (uint32_t)(value & 0xff);
	uintptr_t rip;

	if (info->si_code != SI_TIMER || value >> 8 != COOKIE)
		return false;
	if (!is_timer(i)) {
		crn_undo_interrupt(uc, t);
		return true;
	}
	if (t->in_agent || t->in_vfork) {
		put_off(i);
		return true;
	}
	rip = (uintptr_t)g[REG_RIP];
	if (rip == (uintptr_t)crn_exit_jump)
		rip = t->target;
	/* The entry of another signal, which came with this one: next time. */
	if (crn_on_own_stack(t, (uintptr_t)g[REG_RSP]))
		return true;
	if (crn_in_stubs(rip)) {
		crn_undo_interrupt(uc, t);
		pass_on(t, i, info);
		return true;
	}
	/* On the way into a hook, or in the program's return from a handler: next time. */
	if (crn_in_own_text(rip))
		return true;
	g[REG_RIP] = (greg_t)rip;
	crn_interrupt(t, uc, i + 1);
	return true;
}
