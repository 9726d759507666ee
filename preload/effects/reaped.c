/* SPDX-License-Identifier: MIT */
/*
 * Children that have ended and were waited for. Only the parent learns of that, so it is input: how
 * a child ended is kept, and reported again after a restore to the next call that would have found
 * it. If it were an output, each handler of SIGCHLD would have a checkpoint taken in the middle of
 * what it has interrupted (held_wakeups.c explains what that does to a recovery).
 *
 * The call may not ask how the child ended. So the kernel is asked before the call, without taking
 * the child, and is believed if the call then takes that child. If the end is still not known, or a
 * child has stopped or continued, the call stays an output.
 */
#include <signal.h>
#include <sys/wait.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/hooks.h"

/* Whom a call waits for, as waitid says it. */
struct wanted {
	int type; /* idtype_t */
	long id;
};

static struct wanted of_pid(long pid)
{
	return pid == -1 ? (struct wanted){P_ALL, 0}
		: pid > 0 ? (struct wanted){P_PID, pid} : (struct wanted){P_PGID, -pid};
}

static int group_of(struct wanted w)
{
	return w.type != P_PGID ? 0 : w.id ? (int)w.id : (int)crn_sys1(SYS_getpgid, 0);
}

static bool matches(const struct crn_reaped *r, struct wanted w)
{
	return !r->taken && (w.type == P_ALL || (w.type == P_PID && r->pid == w.id) ||
		(w.type == P_PGID && r->group && r->group == group_of(w)));
}

static struct crn_reaped *find(struct wanted w)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->reaped_count; i++)
		if (matches(&e->reaped[i], w))
			return &e->reaped[i];
	return NULL;
}

bool crn_reaped_pending(int pid)
{
	return find(of_pid(pid)) != NULL;
}

void crn_reaped_commit(void)
{
	struct crn_effects *e = crn_agent->effects;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < e->reaped_count; i++)
		if (!e->reaped[i].taken)
			e->reaped[kept++] = e->reaped[i];
	e->reaped_count = kept;
}

void crn_reaped_rewind(void)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->reaped_count; i++)
		e->reaped[i].taken = false;
}

/* ---- before: tell again, or look ahead ------------------------------------------------------- */

/* scratch[0]: the child that has ended, 0: none yet; [1] how, [2] whose, [3] its group. */
static void look_ahead(struct crn_call *call, struct wanted w)
{
	siginfo_t info = {0};

	call->scratch[0] = 0;
	if (crn_sys5(SYS_waitid, w.type, w.id, &info, WEXITED | WNOHANG | WNOWAIT, 0) < 0 ||
		!info.si_pid)
		return;
	call->scratch[0] = (uint64_t)info.si_pid;
	call->scratch[1] = info.si_code == CLD_EXITED ? (uint64_t)(info.si_status & 0xff) << 8
		: (uint64_t)info.si_status | (info.si_code == CLD_DUMPED ? 0x80 : 0);
	call->scratch[2] = info.si_uid;
	call->scratch[3] = (uint64_t)crn_sys1(SYS_getpgid, info.si_pid);
}

/* To a pointer of the program's, which may be NULL. */
static bool told(long to, const void *what, size_t size)
{
	return !to || crn_user_write((uintptr_t)to, what, size) == 0;
}

static enum crn_verdict answer(struct crn_call *call, struct crn_reaped *r, bool written, long ok)
{
	call->result = written ? ok : -EFAULT;
	call->effect = CRN_EFFECT_INPUT;
	r->taken = true;
	return CRN_CALL_ANSWERED;
}

static enum crn_verdict wait4_before(struct crn_call *call)
{
	struct wanted w = of_pid((int)call->args[0]);
	struct crn_reaped *r = find(w);

	if (!r) {
		look_ahead(call, w);
		return CRN_CALL_RUN_THEN;
	}
	return answer(call, r, told(call->args[1], &r->status, sizeof(r->status)) &&
		told(call->args[3], &r->usage, sizeof(r->usage)), r->pid);
}

static enum crn_verdict waitid_before(struct crn_call *call)
{
	struct wanted w = {(int)call->args[0], (int)call->args[1]};
	struct crn_reaped *r = (call->args[3] & WEXITED) ? find(w) : NULL;
	siginfo_t info = {.si_signo = SIGCHLD};
	enum crn_verdict verdict;

	if (!r) {
		look_ahead(call, w);
		return CRN_CALL_RUN_THEN;
	}
	info.si_pid = r->pid;
	info.si_uid = r->uid;
	info.si_code = WIFEXITED(r->status) ? CLD_EXITED
		: WCOREDUMP(r->status) ? CLD_DUMPED : CLD_KILLED;
	info.si_status = WIFEXITED(r->status) ? WEXITSTATUS(r->status) : WTERMSIG(r->status);
	verdict = answer(call, r, told(call->args[2], &info, sizeof(info)) &&
		told(call->args[4], &r->usage, sizeof(r->usage)), 0);
	if (call->args[3] & WNOWAIT)
		r->taken = false;
	return verdict;
}

/* ---- after: keep ----------------------------------------------------------------------------- */

/* False: there is no room. */
static bool keep(const struct crn_call *call, int pid, int status, struct wanted w, long usage)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_reaped *r = &e->reaped[e->reaped_count];
	bool seen = call->scratch[0] == (uint64_t)pid;

	if (e->reaped_count == CRN_REAPED_MAX)
		return false;
	*r = (struct crn_reaped){.pid = pid, .status = status, .taken = true};
	r->uid = seen ? (uint32_t)call->scratch[2] : 0;
	r->group = seen ? (int)call->scratch[3] : group_of(w);
	if (usage && crn_user_read(&r->usage, (uintptr_t)usage, sizeof(r->usage)) < 0)
		return false;
	e->reaped_count++;
	return true;
}

static void wait4_after(struct crn_call *call)
{
	struct wanted w = of_pid((int)call->args[0]);
	int status;

	if (call->result <= 0) {
		call->effect = CRN_EFFECT_NONE;
		return;
	}
	if (call->args[1]) {
		if (crn_user_read(&status, (uintptr_t)call->args[1], sizeof(status)) < 0)
			return;
	} else if (call->scratch[0] == (uint64_t)call->result &&
		!(call->args[2] & (WUNTRACED | WCONTINUED))) {
		status = (int)call->scratch[1];
	} else {
		return;
	}
	if ((WIFEXITED(status) || WIFSIGNALED(status)) &&
		keep(call, (int)call->result, status, w, call->args[3]))
		call->effect = CRN_EFFECT_INPUT;
}
const struct crn_hook crn_hook_wait4 = {wait4_before, wait4_after};

static void waitid_after(struct crn_call *call)
{
	struct wanted w = {(int)call->args[0], (int)call->args[1]};
	siginfo_t info = {0};

	if (call->args[2] && call->result == 0 &&
		crn_user_read(&info, (uintptr_t)call->args[2], sizeof(info)) < 0)
		return;
	if (call->result != 0 || (call->args[3] & WNOWAIT) || (call->args[2] && !info.si_pid)) {
		call->effect = CRN_EFFECT_NONE;
		return;
	}
	/* The one that had ended before; by a descriptor of its own it is not found again. */
	if (info.si_pid && call->scratch[0] == (uint64_t)info.si_pid && w.type <= P_PGID &&
		(info.si_code == CLD_EXITED || info.si_code == CLD_KILLED ||
			info.si_code == CLD_DUMPED) &&
		keep(call, info.si_pid, (int)call->scratch[1], w, call->args[4]))
		call->effect = CRN_EFFECT_INPUT;
}
const struct crn_hook crn_hook_waitid = {waitid_before, waitid_after};

/* A child that is to be told of again is, to the program, not yet waited for. */
static enum crn_verdict kill_before(struct crn_call *call)
{
	if ((int)call->args[0] <= 0 || !crn_reaped_pending((int)call->args[0]))
		return CRN_CALL_RUN_THEN;
	call->result = (unsigned long)call->args[1] <= 64 ? 0 : -EINVAL;
	call->effect = CRN_EFFECT_NONE;
	return CRN_CALL_ANSWERED;
}
const struct crn_hook crn_hook_kill = {kill_before, NULL};
