/* SPDX-License-Identifier: MIT */
/*
 * A fatal signal of the program's own making. If the open interval can be undone, it is. Everything
 * is checked first; then come memory, the inverses in reverse order, input to be given again, the
 * suspect's reset, epoll, and the signals delivered since. Then the program runs on from the
 * checkpoint. Otherwise one line says why, and the signal is the program's.
 *
 * The handler may run on a stack of the program's, which the restore overwrites. So the work is
 * done on the agent's own stack of this thread, which is idle, because a fault inside a hook is
 * never recovered from.
 */
#include <ucontext.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/hold.h"
#include "effects/planted.h"
#include "os/clock.h"
#include "os/signal.h"
#include "recover/recover.h"
#include "session/session.h"
#include "sites/sites.h"

static bool is_recoverable_signal(int sig, const siginfo_t *info)
{
	/* si_code <= 0: somebody sent it. It is not a crash. */
	return info->si_code > 0 &&
		(sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL);
}

/*
 * Why this crash cannot be recovered from; NULL if it can. *tid: the thread that stands in the way.
 */
static const char *obstacle(const struct crn_crash *crash, int *tid)
{
	struct crn_thread *t = crash->thread;
	struct crn_effects *e = crn_agent->effects;
	int ret;

	*tid = 0;
	t->fault_unasked = !e || !e->open;
	if (t->fault_unasked)
		return "no checkpoint has been taken yet";
	if (t->in_agent)
		return "it crashed inside Cairn itself";
	if (t->in_vfork)
		return "it crashed between vfork and exec";
	t->fault_unasked = crn_fault_is_generated(crash);
	if (t->fault_unasked)
		return "generated code raised it, and the program has a handler";
	if (e->owner != t) {
		*tid = e->owner->tid;
		return "another thread took the newest checkpoint";
	}
	*tid = crn_bystander(t);
	if (*tid)
		return "another thread has run since the checkpoint";
	if (crn_effects_check() < 0)
		return e->unrecoverable;
	ret = crn_memory_restorable(crn_agent->session, crn_agent->newest);
	if (ret == CAIRN_EUNSUPPORTED)
		return "a mapping is not tracked, as an earlier line says";
	return ret < 0 ? cairn_strerror(ret) : NULL;
}

/*
 * Signals that were handled since are handled again: they wait until the program's mask lets them
 * in.
 */
static void raise_again(void)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->signal_count; i++) {
		struct crn_signal_log *s = &e->signals[i];

		if (s->sig)
			crn_signal_requeue(crn_agent->pid, s->tid, s->sig, &s->info);
	}
	e->signal_count = 0;
}

/*
 * On the agent's stack. All is checked, so little can fail: a feed may find out only now that it
 * has missed something. Then nothing has changed, and it returns why.
 */
static int go_back(
	struct crn_crash *crash, enum crn_rung rung, const struct crn_suspect *suspect)
{
	struct crn_recover *r = crn_agent->recover;
	struct crn_restored restored = {0};
	bool others = false;
	char peer[96];
	uint64_t ns;
	int ret;

	crn_inverses_open_memory();
	ret = crn_memory_restore(crn_agent->session, crn_agent->newest, NULL, &restored);
	if (ret < 0)
		return ret;
	crn_effects_undo();
	if (rung == CRN_RUNG_ALL) {
		unsigned count = crn_suspects_reset_all(&others);

		crn_format(peer, sizeof(peer), "unknown: all %u sockets read are reset%s", count,
			others ? ", other input that was read is dropped" : "");
	} else if (rung == CRN_RUNG_AGAIN) {
		crn_format(peer, sizeof(peer), "descriptor %d (its input is given again)",
			suspect->fd);
	} else {
		crn_suspect_reset(suspect, peer, sizeof(peer));
	}
	if (!crn_planted(CRN_PLANT_EPOLL))
		crn_epoll_rearm();
	if (!crn_planted(CRN_PLANT_SIGNALS))
		raise_again();
	crn_ladder_climbed(rung, suspect);
	crash->thread->interval = crn_agent->effects->interval;
	crash->thread->fault.frame = 0;
	crn_agent->effects->waits_again = crn_agent->effects->at_wait;
	ns = crn_clock_kernel_ns() - crash->started_ns;
	r->recovery_ns += ns;
	r->recovery_ns_last = ns;
	crn_report_recovery(crash, restored.pages, ns, peer);
	crn_stat_update(crn_agent->sites, true);
	crn_effects_unlock();
	crn_resume(crash->thread, &crash->thread->context);
}

/* What is carried over to the other stack. */
struct journey {
	struct crn_crash crash;
	enum crn_rung rung;
	struct crn_suspect suspect;
};

static int arrive(const struct journey *from)
{
	struct journey j = *from;

	return go_back(&j.crash, j.rung, &j.suspect);
}

/* Returns, on the stack that it has come from, only if it cannot go back: why. */
static int leave_stack(uint8_t *top, const struct journey *j)
{
	int (*there)(const struct journey *from) = arrive;
	int ret;

	__asm__ volatile("movq %%rsp, %%rbx\n\t"
			 "movq %[top], %%rsp\n\t"
			 "andq $-16, %%rsp\n\t"
			 "call *%[there]\n\t"
			 "movq %%rbx, %%rsp"
			 : "=a"(ret), "+D"(j), [top] "+r"(top), [there] "+r"(there)
			 :
			 : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
	return ret;
}

static bool recover_state(void)
{
	if (!crn_agent->recover && crn_agent->session)
		crn_agent->recover = crn_effects_alloc(sizeof(*crn_agent->recover));
	return crn_agent->recover != NULL;
}

static void refuse(const struct crn_crash *crash, const char *why, int tid)
{
	crn_report_refusal(crash, why, tid);
	if (crn_agent->recover)
		crn_agent->recover->refused++;
	if (crn_agent->sites)
		crn_stat_update(crn_agent->sites, true);
}

bool crn_fault(struct crn_thread *t, int sig, siginfo_t *info, void *ucontext)
{
	const ucontext_t *uc = ucontext;
	struct journey j = {.crash = {.thread = t, .sig = sig, .address = (uintptr_t)info->si_addr,
		.pc = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP]}};
	bool locked = false;
	const char *why;
	int tid = 0;

	if (!crn_agent || !crn_agent->config.recover || !is_recoverable_signal(sig, info) ||
		crn_fault_is_own(t, sig))
		return false;
	j.crash.started_ns = crn_clock_kernel_ns();
	/*
	 * SAFETY: nothing may interrupt a restore; but a tracker that works by signals must still
	 * be told of the writes that the restore makes, so these two stay open.
	 */
	crn_signals_block();
	crn_signal_mask(SIG_UNBLOCK, 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1));
	if (crn_agent->effects && !t->in_agent && !t->in_vfork) {
		crn_effects_lock(); /* other threads stop at their next call */
		locked = true;
	}
	why = obstacle(&j.crash, &tid);
	if (!recover_state() && !why)
		why = "the engine is out of memory";
	if (!why) {
		crn_suspect_find(&j.suspect);
		j.rung = crn_ladder_next(&j.suspect, &why);
	}
	if (!why) {
		/*
		 * A fault of our own from here on is a bug of Cairn and must not come in here
		 * again, to wait for ever.
		 */
		t->in_agent = 1;
		/* crn_resume builds its frame at the very top */
		why = cairn_strerror(leave_stack(t->stack_top - 1024, &j));
		t->in_agent = 0;
	}
	/* The program dies of it, or handles it: nothing is taken back, so what it sent is sent. */
	if (locked)
		crn_hold_send();
	refuse(&j.crash, why, tid);
	if (locked)
		crn_effects_unlock();
	return false;
}
