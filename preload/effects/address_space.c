/* SPDX-License-Identifier: MIT */
/*
 * The program's limits on its address space and its data. RLIMIT_AS counts reserved memory, also
 * that of the agent and the engine, which is a thousand times what a program with a limit of its
 * own may allow (vsftpd: 200 MB). So our share is added to the limit that the program sets, as far
 * as the program may raise it, and subtracted from the limit that it is told. Programs that it
 * executes start with the sum.
 *
 *	kernel's limit = told + space_added
 *
 * Before the first site only the agent is there: the soft limit is for that, and the hard one,
 * which a process may not raise later, leaves room for the engine. A session raises the soft one.
 *
 * RLIMIT_DATA does not count what a tracker has closed by mprotect. All of it is opened before that
 * limit changes, since it may not be possible later. Checkpoints close it again if there is room.
 */
#include <sys/resource.h>
#include "base/log.h"
#include "effects/hooks.h"
#include "os/memory.h"

static uint64_t agent_bytes(void)
{
	struct crn_range own[2];
	uint64_t n = 0;

	crn_agent_memory(own);
	for (size_t i = 0; i < CRN_ARRAY_SIZE(own); i++)
		n += own[i].end - own[i].begin;
	return n;
}

static uint64_t ours(void)
{
	return agent_bytes() + crn_session_reserved();
}

/* The same at all times, so that a hard limit which is set twice is lowered by what was asked. */
static uint64_t ours_at_most(void)
{
	return agent_bytes() + CRN_RESERVE_MAX;
}

/* The program's limits as the kernel is to have them, and back. */
static uint64_t with(uint64_t limit, uint64_t more)
{
	return limit < RLIM_INFINITY - more ? limit + more : RLIM_INFINITY;
}

static uint64_t without(uint64_t limit, uint64_t more)
{
	return limit == RLIM_INFINITY ? limit : limit > more ? limit - more : 0;
}

/* What the program has set. */
static struct rlimit told(struct rlimit limit)
{
	limit.rlim_cur = without(limit.rlim_cur, crn_agent->space_added[0]);
	limit.rlim_max = without(limit.rlim_max, crn_agent->space_added[1]);
	return limit;
}

/*
 * Without the right to raise a limit that somebody has set before (ulimit -v), a program gets what
 * this one leaves of our share; what it asks for itself must be within the limit that it knows.
 */
static long set(const struct rlimit *wanted, const struct rlimit *was)
{
	struct crn_agent *a = crn_agent;
	struct rlimit limit;
	long ret;

	limit.rlim_cur = with(wanted->rlim_cur, ours());
	limit.rlim_max = with(wanted->rlim_max, ours_at_most());
	ret = crn_sys4(SYS_prlimit64, 0, RLIMIT_AS, &limit, NULL);
	if (ret == -EPERM && wanted->rlim_max <= told(*was).rlim_max) {
		limit.rlim_max = was->rlim_max;
		limit.rlim_cur = CRN_MIN(limit.rlim_cur, limit.rlim_max);
		ret = crn_sys4(SYS_prlimit64, 0, RLIMIT_AS, &limit, NULL);
	}
	if (ret < 0)
		return ret;
	a->space_added[0] = limit.rlim_cur - wanted->rlim_cur;
	a->space_added[1] = limit.rlim_max - wanted->rlim_max;
	return 0;
}

/*
 * The soft limit with `more` for us, or as much of that as may be had; what the program is told
 * stays. Bytes that are missing, which the engine takes from the program.
 */
static uint64_t make_room(uint64_t more)
{
	struct rlimit limit, said, wide;

	if (crn_sys4(SYS_prlimit64, 0, RLIMIT_AS, NULL, &limit) < 0 ||
		limit.rlim_cur == RLIM_INFINITY)
		return 0;
	said = told(limit);
	wide = (struct rlimit){ with(said.rlim_cur, more), with(said.rlim_max, more) };
	wide.rlim_max = CRN_MAX(wide.rlim_max, limit.rlim_max);
	if (crn_sys4(SYS_prlimit64, 0, RLIMIT_AS, &wide, NULL) < 0) {
		wide.rlim_max = limit.rlim_max;
		wide.rlim_cur = CRN_MIN(wide.rlim_cur, wide.rlim_max);
		if (crn_sys4(SYS_prlimit64, 0, RLIMIT_AS, &wide, NULL) < 0)
			return more;
	}
	crn_agent->space_added[0] = wide.rlim_cur - said.rlim_cur;
	crn_agent->space_added[1] = wide.rlim_max - said.rlim_max;
	return more - CRN_MIN(more, crn_agent->space_added[0]);
}

void crn_space_open(void)
{
	(void)make_room(ours_at_most());
}

void crn_space_settle(bool opened)
{
	uint64_t missing = make_room(ours());

	if (missing && opened)
		crn_warn("RLIMIT_AS (ulimit -v) cannot be raised: the engine takes %zu MiB of it "
			 "from the program", (size_t)(missing >> 20));
}

static long change(uintptr_t to, uintptr_t old)
{
	struct rlimit wanted, was, said;
	long ret;

	if (to && crn_user_read(&wanted, to, sizeof(wanted)) < 0)
		return -EFAULT;
	crn_maps_hold(); /* no session is being opened */
	ret = crn_sys4(SYS_prlimit64, 0, RLIMIT_AS, NULL, &was);
	said = told(was);
	if (ret == 0 && to)
		ret = wanted.rlim_cur <= wanted.rlim_max ? set(&wanted, &was) : -EINVAL;
	crn_maps_release();
	return ret < 0 || !old ? ret : crn_user_write(old, &said, sizeof(said));
}

static long change_data(uintptr_t to, uintptr_t old)
{
	struct rlimit wanted, was;
	int err = 0;
	long ret;

	if (crn_user_read(&wanted, to, sizeof(wanted)) < 0)
		return -EFAULT;
	if (crn_agent->session)
		err = crn_data_limit_changing(crn_agent->session);
	if (err < 0)
		crn_warn("RLIMIT_DATA changes while protected memory cannot be opened: %s",
			cairn_strerror(err));
	ret = crn_sys4(SYS_prlimit64, 0, RLIMIT_DATA, &wanted, &was);
	return ret < 0 || !old ? ret : crn_user_write(old, &was, sizeof(was));
}

bool crn_memory_limit_call(struct crn_call *call)
{
	const long *a = call->args;
	bool ours = (int)a[0] == 0 || (int)a[0] == crn_agent->pid;

	if (call->nr == SYS_setrlimit && (unsigned)a[0] == RLIMIT_DATA && a[1])
		call->result = change_data((uintptr_t)a[1], 0);
	else if (call->nr == SYS_prlimit64 && (unsigned)a[1] == RLIMIT_DATA && ours && a[2])
		call->result = change_data((uintptr_t)a[2], (uintptr_t)a[3]);
	else if (call->nr == SYS_setrlimit && (unsigned)a[0] == RLIMIT_AS && a[1])
		call->result = change((uintptr_t)a[1], 0);
	else if (call->nr == SYS_getrlimit && (unsigned)a[0] == RLIMIT_AS && a[1])
		call->result = change(0, (uintptr_t)a[1]);
	else if (call->nr == SYS_prlimit64 && (unsigned)a[1] == RLIMIT_AS && ours)
		call->result = change((uintptr_t)a[2], (uintptr_t)a[3]);
	else
		return false;
	if (call->nr == SYS_prlimit64 && a[2])
		crn_call_raise(call); /* no hook comes by */
	return true;
}
