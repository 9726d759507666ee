/* SPDX-License-Identifier: MIT */
/*
 * Site timer:MS: a checkpoint after every MS milliseconds of processor time of the thread that
 * started the process. Processor time, because a signal must not cut short a call in which the
 * program sleeps (poll with a timeout cannot be restarted unseen), and because a sleeping program
 * changes nothing. The kernel looks at such timers at its own tick, so MS below some milliseconds
 * means every tick. The signal is SIGSYS, which is ours and never blocked.
 */
#include <signal.h>
#include <time.h>
#include "base/log.h"
#include "os/thread.h"
#include "intercept/intercept.h"

#define COOKIE 0x6361697276ul /* tells our timers from the program's */

/* The kernel's struct sigevent for SIGEV_THREAD_ID. */
struct thread_event {
	union sigval value;
	int signo, notify, tid;
	int pad[(64 - sizeof(union sigval)) / 4 - 3];
};

static void start(uint32_t index, uint64_t ms)
{
	struct thread_event ev = { .value.sival_ptr = (void *)(COOKIE << 8 | index),
		.signo = SIGSYS,
		.notify = SIGEV_THREAD_ID,
		.tid = crn_gettid() };
	struct itimerspec every = { { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 },
		{ 0, 0 } };
	int id;
	long r = crn_sys3(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &ev, &id);

	every.it_value = every.it_interval;
	if (r == 0)
		r = crn_sys4(SYS_timer_settime, id, 0, &every, 0);
	if (r < 0)
		crn_warn("%s: the kernel gives no timer (%ld)",
			crn_here.agent.config.sites[index].text, r);
}

void crn_timer_start(void)
{
	const struct crn_config *c = &crn_here.agent.config;

	for (uint32_t i = 0; i < c->site_count; i++)
		if (c->sites[i].kind == CRN_SITE_TIMER)
			start(i, c->sites[i].argument);
}

/* A call that the signal cut short before it slept: make it again, nobody has noticed. */
static void undo_interrupt(ucontext_t *uc, const struct crn_thread *t)
{
	greg_t *g = uc->uc_mcontext.gregs;
	uintptr_t rip = (uintptr_t)g[REG_RIP];
	size_t at = rip - (uintptr_t)crn_stub_of(rip);

	if (!crn_in_stubs(rip) || g[REG_RAX] != -EINTR ||
		(at != CRN_STUB_CALL + 2 && at != CRN_STUB_BARE + 2))
		return;
	g[REG_RAX] = t->last_nr;
	g[REG_RIP] -= 2;
}

/* True if the signal is of a timer of ours. In a hook the site is passed over. */
bool crn_timer_signal(struct crn_thread *t, const siginfo_t *info, ucontext_t *uc)
{
	uint64_t value = (uint64_t)(uintptr_t)info->si_value.sival_ptr;

	if (info->si_code != SI_TIMER || value >> 8 != COOKIE)
		return false;
	if (t->in_agent || t->in_vfork)
		return true;
	if ((uintptr_t)uc->uc_mcontext.gregs[REG_RIP] == (uintptr_t)crn_exit_jump)
		uc->uc_mcontext.gregs[REG_RIP] = (greg_t)t->target;
	undo_interrupt(uc, t);
	crn_interrupt(t, uc, (uint32_t)(value & 0xff) + 1);
	return true;
}
