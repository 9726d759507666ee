/* SPDX-License-Identifier: MIT */
/*
 * One system call of the program, before and after it runs: look up its row, let its hook do what
 * the row's effect demands, and take the checkpoints that follow from it.
 *
 * A call costs only what is asked for. Without a session only sites are checked, without --recover
 * no hook runs, and a call that changes nothing runs without an after-hook.
 */
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/hold.h"
#include "effects/hooks.h"
#include "os/call_memory.h"
#include "os/proc.h"
#include "sites/sites.h"
#include "session/session.h"

/*
 * The calls that a table entry names are declared by hooks.h; these turn a row's words into a
 * struct.
 */
#define CRN_SITE_OF_NONE_SITE CRN_CALL_NONE_SITE
#define CRN_SITE_OF_WAIT CRN_CALL_WAIT
#define CRN_SITE_OF_SEND CRN_CALL_SEND
#define CRN_SITE_OF_MAPS CRN_CALL_MAPS

static const struct crn_row rows[] = {
#define CRN_CALL(nr, name, effect, site, hook) \
	[nr] = { #name, &crn_hook_##hook, CRN_EFFECT_##effect, CRN_SITE_OF_##site },
#include "effects.def"
#undef CRN_CALL
};

/* What is not in the table may do anything. */
static const struct crn_row unknown = { "unknown", &crn_hook_plain, CRN_EFFECT_OUTPUT,
	CRN_CALL_NONE_SITE };

const struct crn_row *crn_row_of(long nr)
{
	if (nr < 0 || (size_t)nr >= CRN_ARRAY_SIZE(rows) || !rows[nr].name)
		return &unknown;
	return &rows[nr];
}

/*
 * Errors that say that the call has done nothing at all. Any other may have been seen by somebody.
 */
static bool did_nothing(long result)
{
	switch (result) {
	case -EAGAIN:
	case -EBADF:
	case -ENOENT:
	case -EINVAL:
	case -ENOTSOCK:
	case -ENOTTY:
	case -EACCES:
	case -EPERM:
	case -ENOSYS:
	case -ECHILD:
	case -ESRCH:
	case -EEXIST:
	case -ENOTDIR:
	case -EISDIR:
	case -EOPNOTSUPP:
	case -ENOPROTOOPT:
	case -EAFNOSUPPORT:
	case -EMFILE:
	case -ENFILE:
	case -ENOTCONN:
	case -EISCONN:
	case -EALREADY:
	case -EADDRINUSE:
	case -EADDRNOTAVAIL:
	case -ENOMEM:
	case -ELOOP:
	case -ENAMETOOLONG: case -EROFS: case -ENOTEMPTY: case -EDESTADDRREQ: case -EMSGSIZE:
		return true;
	}
	return false;
}

bool crn_site_configured(enum crn_site_kind kind)
{
	const struct crn_config *config = &crn_agent->config;

	for (uint32_t i = 0; i < config->site_count; i++)
		if (config->sites[i].kind == kind)
			return true;
	return false;
}

bool crn_row_is_site(const struct crn_row *row)
{
	if (row->site == CRN_CALL_WAIT)
		return crn_site_configured(CRN_SITE_WAIT);
	return row->site == CRN_CALL_SEND && crn_site_configured(CRN_SITE_OUTPUT);
}

/* Does anything ask for a session at all? If not, the program keeps io_uring and the rest. */
static bool agent_has_work(void)
{
	return crn_agent->config.site_count || crn_agent->session;
}

/*
 * A filter that is about to be installed was not written for the calls that a checkpoint makes: the
 * first one would be the program's death. Asking whether filters are there at all passes no filter.
 */
static bool installs_filter(const struct crn_call *call)
{
	if (call->nr == SYS_prctl && call->args[0] == PR_SET_SECCOMP)
		return call->args[1] == SECCOMP_MODE_STRICT || call->args[2];
	if (call->nr != SYS_seccomp)
		return false;
	return call->args[0] == SECCOMP_SET_MODE_STRICT ||
		(call->args[0] == SECCOMP_SET_MODE_FILTER && call->args[2]);
}

/* Whose effective rights may be fewer behind this call? capset's argument is not looked at. */
static bool gives_up_rights(const struct crn_call *call)
{
	switch (call->nr) {
	case SYS_setuid:
		return (uint32_t)call->args[0];
	case SYS_setreuid:
	case SYS_setresuid:
		return (uint32_t)call->args[1] + 1 > 1; /* neither root nor -1, "as it is" */
	case SYS_unshare:
		return call->args[0] & CLONE_NEWUSER;
	case SYS_setns:
		return !call->args[1] || call->args[1] & CLONE_NEWUSER;
	case SYS_capset:
		return true;
	}
	return false;
}

/* Its tracer will be told of every signal, also of ours, and may know nothing of being one. */
static bool asks_to_be_traced(const struct crn_call *call)
{
	return call->nr == SYS_ptrace && call->args[0] == PTRACE_TRACEME;
}

static bool changes_root(const struct crn_call *call)
{
	return call->nr == SYS_chroot || call->nr == SYS_pivot_root;
}

/* What had been held was sent before this call, or closed for good: a checkpoint must follow. */
static bool uncovered(const struct crn_effects *e)
{
	return e->let_go || (e->hold && e->hold->uncovered);
}

static bool goes_out(const struct crn_call *call)
{
	return call->effect == CRN_EFFECT_OUTPUT || call->effect == CRN_EFFECT_HELD;
}

/* The first checkpoint was taken just now, behind a wait whose hook has not run. */
static void note_first(const struct crn_call *call)
{
	const struct crn_effects *e = crn_agent->effects;

	if (!e || !e->open || call->result < 0)
		return;
	crn_effects_lock();
	crn_wait_note(call);
	crn_effects_unlock();
}

/* What follows from a call that has its result: checkpoints. */
static void finish(struct crn_call *call, const struct crn_row *row)
{
	struct crn_effects *e = crn_agent->effects;
	uint64_t before = crn_sites_taken();
	bool open = e && e->open;

	crn_timer_turn(call);
	if (crn_row_is_site(row) && call->result >= 0) {
		if (row->site == CRN_CALL_WAIT) {
			if (crn_call_waits(call, row))
				crn_site_hit(call, CRN_SITE_WAIT);
		} else if (open ? goes_out(call) : crn_site_is_outgoing(call)) {
			crn_site_hit(call, CRN_SITE_OUTPUT);
		}
	}
	if (!open)
		note_first(call);
	if (!open || crn_sites_taken() != before)
		return;
	/*
	 * A call that fails may have changed the first ones of several mappings, or cost what was
	 * kept to undo earlier calls.
	 */
	if ((call->effect == CRN_EFFECT_OUTPUT &&
		    (!did_nothing(call->result) || row->site == CRN_CALL_MAPS ||
			    e->unrecoverable[0])) || uncovered(e))
		crn_site_output(call);
}

/* A wait that is entered once more after a restore completes no wake-up. */
static void count_wakeup(struct crn_effects *e)
{
	crn_effects_lock();
	e->waited = true;
	if (!e->waits_again)
		e->wakeups++;
	e->waits_again = false;
	crn_effects_unlock();
}

/*
 * Will the program sleep, or look at what it watches? Whoever watches a file that is kept open has
 * to be told first that it was closed: it may be the program itself.
 */
static bool looks_up(struct crn_call *call, const struct crn_row *row)
{
	enum crn_fd_kind kind;

	switch (call->nr) {
	case SYS_rt_sigtimedwait:
		return true;
	case SYS_read:
	case SYS_readv:
	case SYS_preadv2:
		kind = crn_fd_look((int)call->args[0])->kind;
		return kind == CRN_FD_INOTIFY ||
			(kind >= CRN_FD_STREAM && !crn_fd_never_waits((int)call->args[0]));
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
		return !(call->args[call->nr == SYS_recvmsg ? 2 : 3] & MSG_DONTWAIT) &&
			!crn_fd_never_waits((int)call->args[0]);
	case SYS_poll:
		return call->args[2] != 0;
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
		return call->args[3] != 0;
	}
	return crn_call_sleeps(call) || crn_call_waits(call, row);
}

/*
 * Will somebody else see it, or the program see how much space there is? Whoever acts on that must
 * find closed what the program has closed before. Not a look for children or signals, which may
 * bring nothing.
 */
static bool is_seen(const struct crn_call *call, const struct crn_row *row)
{
	if (crn_call_wakes(call) || call->nr == SYS_statfs || call->nr == SYS_fstatfs)
		return true;
	return call->effect == CRN_EFFECT_OUTPUT && row->hook != &crn_hook_wait4 &&
		row->hook != &crn_hook_waitid && row->hook != &crn_hook_take_signal;
}

static enum crn_verdict before_with_session(struct crn_call *call, const struct crn_row *row)
{
	struct crn_effects *e = crn_agent->effects;
	enum crn_verdict verdict = CRN_CALL_RUN;

	if (e->open && crn_call_waits(call, row))
		count_wakeup(e);
	/* First, because it may take a checkpoint, which closes pages. */
	if (e->open && crn_hold_concerns(call, row) && crn_hold_call(call, row))
		return CRN_CALL_ANSWERED;
	if (e->open && e->keeps_files && looks_up(call, row))
		crn_site_commit(call);
	if (e->kernel_needs_open_pages) {
		struct crn_in_flight now = {.nr = call->nr};

		crn_copy(now.args, call->args, sizeof(now.args));
		crn_output_memory_of(&now);
	}
	if (row->hook == &crn_hook_madvise)
		crn_madvise_prepare(call);
	if (!e->open) {
		/* The first checkpoint may be on its way. */
		call->thread->interval = e->interval + 1;
		return verdict;
	}
	crn_effects_lock();
	call->thread->interval = e->interval;
	call->flushes = e->hold ? e->hold->flushes : 0;
	if (row->hook->before)
		verdict = row->hook->before(call);
	else if (row->hook->after)
		verdict = CRN_CALL_RUN_THEN;
	if (e->keeps_files && verdict != CRN_CALL_ANSWERED && is_seen(call, row))
		crn_effects_close_kept();
	crn_effects_unlock();
	if (verdict == CRN_CALL_RUN && (call->effect == CRN_EFFECT_OUTPUT || uncovered(e) ||
			(row->effect == CRN_EFFECT_INPUT && e->hold && e->hold->used)))
		verdict = CRN_CALL_RUN_THEN;
	return verdict;
}

/*
 * Does the kernel write memory for this call that a checkpoint of another thread must leave open?
 * Then it stays on its thread's list (in_flight.c) until it is over.
 */
static bool writes_memory(const struct crn_call *call, const struct crn_row *row)
{
	return (crn_call_writes(call->nr) || row->hook == &crn_hook_birth) &&
		crn_output_matters();
}

/*
 * A thread that wakes up while another one recovers must stop at the lock before anything of the
 * program runs in it (recover/bystander.c), also if it went to sleep before there was a session.
 */
static bool others_may_recover(void)
{
	return crn_agent->config.recover && crn_agent->thread_count > 1;
}

static void after_with_session(struct crn_call *call, const struct crn_row *row)
{
	struct crn_effects *e = crn_agent->effects;

	if (!e || !e->open)
		return;
	crn_effects_lock();
	call->thread->interval = e->interval;
	if (row->hook->after)
		row->hook->after(call);
	crn_effects_unlock();
}

/* The first call of a forked child that has input to be given: from here on it is given. */
static void inherit(struct crn_call *call)
{
	crn_site_commit(call);
	if (crn_agent->left_input)
		crn_warn("replayed input was pending at the fork: this child does not see it");
	crn_agent->left_input = NULL;
}

enum crn_verdict crn_call_before(struct crn_call *call)
{
	const struct crn_row *row = crn_row_of(call->nr);
	enum crn_verdict verdict = CRN_CALL_RUN;

	if (!crn_agent || call->thread->in_vfork)
		return CRN_CALL_RUN;
	call->effect = row->effect;
	if (crn_agent->config.recover)
		crn_memory_marked(call);
	if (crn_memory_limit_call(call))
		return CRN_CALL_ANSWERED;
	if (row->hook == &crn_hook_process_exit) {
		crn_hold_flush();
		crn_sites_exit();
	}
	if (!agent_has_work())
		return CRN_CALL_RUN;
	if (crn_refused(call, row))
		return CRN_CALL_ANSWERED;
	/* Behind a change of the root, what feeds need of /sys is gone as well. */
	if (changes_root(call) ? crn_proc_keep() : gives_up_rights(call))
		crn_site_rights_end();
	if (!crn_agent->sites) {
		if (crn_agent->left_input)
			inherit(call);
		else if (crn_agent->config.recover && row->effect == CRN_EFFECT_INPUT)
			crn_site_first_input(call);
	}
	if (installs_filter(call))
		crn_sites_end("the program installs a seccomp filter",
			"it dies if they are forbidden");
	if (writes_memory(call, row) ? crn_output_ready()
				     : crn_agent->session && crn_agent->effects)
		verdict = before_with_session(call, row);
	if (verdict == CRN_CALL_ANSWERED)
		return verdict;
	if ((row->site == CRN_CALL_MAPS || row->hook == &crn_hook_madvise) && crn_map_call(call)) {
		if (verdict == CRN_CALL_RUN_THEN)
			after_with_session(call, row);
		return CRN_CALL_ANSWERED;
	}
	if (verdict == CRN_CALL_RUN && writes_memory(call, row))
		verdict = CRN_CALL_RUN_THEN;
	if (verdict == CRN_CALL_RUN && call->nr != SYS_rt_sigreturn &&
		(crn_site_configured(CRN_SITE_TIMER) || others_may_recover()))
		verdict = CRN_CALL_RUN_THEN;
	if (verdict == CRN_CALL_RUN &&
		(crn_row_is_site(row) || changes_root(call) || asks_to_be_traced(call) ||
			(row->site == CRN_CALL_MAPS && crn_agent->session)))
		verdict = CRN_CALL_RUN_THEN;
	return verdict;
}

void crn_call_answered(struct crn_call *call)
{
	if (crn_agent && !call->thread->in_vfork && agent_has_work())
		finish(call, crn_row_of(call->nr));
}

void crn_call_process_dies(void)
{
	if (crn_agent)
		crn_sites_exit();
}

/* crn_map_call's calls tell by themselves. */
static void tell_of_map(const struct crn_call *call)
{
	if (call->nr == SYS_mmap && (unsigned long)call->result < -4095ul)
		crn_maps_added(crn_agent->session, (int)call->args[2], (int)call->args[3],
			(uintptr_t)call->result, (size_t)call->args[1]);
	else if (call->nr != SYS_mmap)
		crn_maps_changed(crn_agent->session);
}

/* No number is left for a descriptor, or no space in a file system. */
static bool lacks_room(long result)
{
	return result == -EMFILE || result == -ENFILE || result == -ENOSPC || result == -EDQUOT;
}

/* The program has closed or unmapped something that the agent keeps: is it better off without? */
static bool room_found(const struct crn_call *call)
{
	struct crn_effects *e = crn_agent->effects;
	bool found;

	if (!lacks_room(call->result))
		return false;
	crn_effects_lock();
	found = e->hold && e->hold->used;
	found |= crn_effects_settle();
	found |= crn_effects_close_kept();
	e->let_go |= found;
	crn_effects_unlock();
	return found;
}

void crn_call_after(struct crn_call *call)
{
	const struct crn_row *row = crn_row_of(call->nr);
	struct crn_effects *e;

	if (!crn_agent || call->thread->in_vfork)
		return;
	e = crn_agent->effects;
	if (e && e->open && ((e->hold && crn_hold_missed(call, row)) || room_found(call))) {
		call->again = true;
		return;
	}
	if (row->site == CRN_CALL_MAPS && crn_memory_found(call)) {
		const long *a = call->args;

		call->result = crn_sys6(call->nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	}
	if (row->site == CRN_CALL_MAPS && crn_agent->session)
		tell_of_map(call);
	after_with_session(call, row);
	if (call->again)
		return;
	if (asks_to_be_traced(call) && call->result == 0)
		crn_sites_traced();
	finish(call, row);
	if (changes_root(call) && call->result == 0)
		crn_sites_root_changed();
}
