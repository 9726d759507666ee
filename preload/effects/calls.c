/* SPDX-License-Identifier: MIT */
/*
 * One system call of the program, before and after it runs: look up its row, let its hook do what
 * the row's effect demands, and take the checkpoints that follow from it.
 *
 * A call costs what is asked for: without a session nothing but sites is looked at, without
 * --recover no hook runs, and a call that changes nothing runs without an after-hook.
 */
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include "effects/effects.h"
#include "effects/hooks.h"
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
#define NO_OUT {CRN_OUT_END, 0, 0, 0}
#define BYTES(a, n) {CRN_OUT_BYTES, a, n, 0}
#define FIXED(a, size) {CRN_OUT_FIXED, a, 0, size}
#define ARRAY(a, n, size) {CRN_OUT_ARRAY, a, n, size}
#define SOCKLEN(a, p) {CRN_OUT_SOCKLEN, a, p, 0}
#define IOVEC(a, n) {CRN_OUT_IOVEC, a, n, 0}
#define MSGHDR(a) {CRN_OUT_MSGHDR, a, 0, 0}
#define MMSGHDR(a, n) {CRN_OUT_MMSGHDR, a, n, 0}
#define FDSET(a) {CRN_OUT_FDSET, a, 0, 0}
#define IOCTL(a) {CRN_OUT_IOCTL, a, 0, 0}
#define LOOSE(a) {CRN_OUT_LOOSE, a, 0, 0}

static const struct crn_row rows[] = {
#define CRN_CALL(nr, name, effect, site, hook, ...) \
	[nr] = {#name, &crn_hook_##hook, CRN_EFFECT_##effect, CRN_SITE_OF_##site, {__VA_ARGS__}},
#include "effects.def"
#undef CRN_CALL
};

/* What is not in the table may do anything. */
static const struct crn_row unknown = { "unknown", &crn_hook_plain, CRN_EFFECT_OUTPUT,
	CRN_CALL_NONE_SITE, { NO_OUT } };

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

static bool site_configured(enum crn_site_kind kind)
{
	const struct crn_config *config = &crn_agent->config;

	for (uint32_t i = 0; i < config->site_count; i++)
		if (config->sites[i].kind == kind)
			return true;
	return false;
}

/* Is this row's return something that takes (or may take) a checkpoint, recovery aside? */
static bool is_site(const struct crn_row *row)
{
	if (row->site == CRN_CALL_WAIT)
		return site_configured(CRN_SITE_WAIT);
	return row->site == CRN_CALL_SEND && site_configured(CRN_SITE_OUTPUT);
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

/* What follows from a call that has its result: checkpoints. */
static void finish(struct crn_call *call, const struct crn_row *row)
{
	struct crn_effects *e = crn_agent->effects;
	uint64_t before = crn_sites_taken();
	bool open = e && e->open;

	if (is_site(row) && call->result >= 0) {
		if (row->site == CRN_CALL_WAIT)
			crn_site_hit(call, CRN_SITE_WAIT);
		else if (open ? call->effect == CRN_EFFECT_OUTPUT : crn_site_is_outgoing(call))
			crn_site_hit(call, CRN_SITE_OUTPUT);
	}
	if (!open || crn_sites_taken() != before)
		return;
	if (call->effect == CRN_EFFECT_OUTPUT && !did_nothing(call->result))
		crn_site_output(call);
}

static enum crn_verdict before_with_session(struct crn_call *call, const struct crn_row *row)
{
	struct crn_effects *e = crn_agent->effects;
	enum crn_verdict verdict = CRN_CALL_RUN;

	if (e->kernel_needs_open_pages)
		crn_output_memory_of(call, row);
	if (row->hook == &crn_hook_madvise)
		crn_madvise_prepare(call);
	if (!e->open)
		return verdict;
	crn_effects_lock();
	call->thread->interval = e->interval;
	if (row->site == CRN_CALL_WAIT)
		e->wakeups++;
	if (row->hook->before)
		verdict = row->hook->before(call);
	else if (row->hook->after)
		verdict = CRN_CALL_RUN_THEN;
	crn_effects_unlock();
	if (verdict == CRN_CALL_RUN && call->effect == CRN_EFFECT_OUTPUT)
		verdict = CRN_CALL_RUN_THEN;
	return verdict;
}

/*
 * The buffers of a call were opened before it; while it sleeps, a checkpoint of another thread
 * closes their pages again, and the kernel then refuses to write there. Such a call is made again:
 * where calls sleep, EFAULT means that nothing was delivered. A pointer that is bad for its own
 * reasons keeps failing and is believed. Not covered: a buffer of several pages of which only a
 * later one was closed (a short count), and calls that consume before they fail (wait4's status).
 */
#define AGAIN_MAX 8

static bool closed_meanwhile_possible(const struct crn_row *row)
{
	const struct crn_effects *e = crn_agent->effects;

	return e && e->kernel_needs_open_pages && row->outs[0].kind != CRN_OUT_END;
}

static bool make_again(struct crn_call *call, const struct crn_row *row)
{
	struct crn_thread *t = call->thread;

	if (call->result != -EFAULT || !closed_meanwhile_possible(row) ||
		t->faults_in_row == AGAIN_MAX) {
		t->faults_in_row = 0;
		return false;
	}
	t->faults_in_row++;
	call->again = true;
	return true;
}

enum crn_verdict crn_call_before(struct crn_call *call)
{
	const struct crn_row *row = crn_row_of(call->nr);
	enum crn_verdict verdict = CRN_CALL_RUN;

	if (!crn_agent || call->thread->in_vfork)
		return CRN_CALL_RUN;
	call->effect = row->effect;
	if (row->hook == &crn_hook_process_exit)
		crn_sites_exit();
	if (!agent_has_work())
		return CRN_CALL_RUN;
	if (crn_refused(call, row))
		return CRN_CALL_ANSWERED;
	if (installs_filter(call))
		crn_sites_end("the program installs a seccomp filter");
	if (crn_agent->session && crn_agent->effects)
		verdict = before_with_session(call, row);
	if (verdict == CRN_CALL_ANSWERED) {
		finish(call, row);
		return verdict;
	}
	if (verdict == CRN_CALL_RUN && closed_meanwhile_possible(row))
		verdict = CRN_CALL_RUN_THEN;
	if (verdict == CRN_CALL_RUN &&
		(is_site(row) || (row->site == CRN_CALL_MAPS && crn_agent->session)))
		verdict = CRN_CALL_RUN_THEN;
	return verdict;
}

void crn_call_after(struct crn_call *call)
{
	const struct crn_row *row = crn_row_of(call->nr);
	struct crn_effects *e;

	if (!crn_agent || call->thread->in_vfork)
		return;
	e = crn_agent->effects;
	if (make_again(call, row))
		return;
	if (row->site == CRN_CALL_MAPS && crn_agent->session)
		crn_maps_changed(crn_agent->session);
	if (e && e->open) {
		crn_effects_lock();
		call->thread->interval = e->interval;
		if (row->hook->after)
			row->hook->after(call);
		crn_effects_unlock();
	}
	finish(call, row);
}
