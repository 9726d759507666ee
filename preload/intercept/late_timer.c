/* SPDX-License-Identifier: MIT */
/*
 * A thread that holds output and computes on, without any call at which the output could be sent,
 * is interrupted. A timer on its processor time, made when the thread first holds something, checks
 * every PERIOD_NS whether bytes are held. When it finds them for the second time, they are sent; if
 * that instant lies in a hook, the next call commits. Processor time is right because a sleeping
 * thread has entered a call that waits, and then nothing is held any more. The signal is SIGSYS,
 * which belongs to the agent and is never blocked.
 */
#include <signal.h>
#include <time.h>
#include "base/log.h"
#include "os/thread.h"
#include "intercept/intercept.h"

#define COOKIE    0x6361697268ul /* not timer.c's */
#define PERIOD_NS 8000000

static void start(struct crn_thread *t)
{
	struct crn_thread_event ev = { .value.sival_ptr = (void *)COOKIE,
		.signo = SIGSYS,
		.notify = SIGEV_THREAD_ID,
		.tid = t->tid };
	struct itimerspec every = { { 0, PERIOD_NS }, { 0, PERIOD_NS } };
	int id;

	t->late_timer_pid = crn_agent->pid;
	t->late_timer = -1;
	if (crn_sys3(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &ev, &id) < 0) {
		crn_debug("no timer: output is held until the next call");
		return;
	}
	t->late_timer = id;
	crn_sys4(SYS_timer_settime, id, 0, &every, 0);
}

void crn_late_timer_start(struct crn_thread *t)
{
	if (t->late_timer_pid != crn_agent->pid && !crn_fault_handled_at(t, t->regs->rsp))
		start(t);
}

void crn_late_timer_stop(struct crn_thread *t)
{
	if (t->late_timer_pid != crn_agent->pid)
		return;
	t->late_timer_pid = 0;
	if (t->late_timer >= 0)
		crn_sys1(SYS_timer_delete, t->late_timer);
}

bool crn_late_signal(struct crn_thread *t, const siginfo_t *info, ucontext_t *uc)
{
	if (info->si_code != SI_TIMER || (uint64_t)(uintptr_t)info->si_value.sival_ptr != COOKIE)
		return false;
	if (t->in_vfork)
		return true;
	crn_hold_looked_at();
	if (t->in_agent || crn_on_own_stack(t, (uintptr_t)uc->uc_mcontext.gregs[REG_RSP]))
		return true;
	crn_undo_interrupt(uc, t);
	if (!crn_hold_is_late())
		return true;
	if ((uintptr_t)uc->uc_mcontext.gregs[REG_RIP] == (uintptr_t)crn_exit_jump)
		uc->uc_mcontext.gregs[REG_RIP] = (greg_t)t->target;
	/*
	 * In the midst of a call no checkpoint can be taken: the next call or the next look do.
	 * (The stubs are in our text.)
	 */
	if (!crn_in_own_text((uintptr_t)uc->uc_mcontext.gregs[REG_RIP]))
		crn_interrupt(t, uc, 0);
	return true;
}
