/* SPDX-License-Identifier: MIT */
/*
 * The program's limit on its address space. RLIMIT_AS counts reserved memory, also that of the
 * agent and the engine, which is a thousand times what a program with a limit of its own may allow
 * (vsftpd: 200 MB). So our share is added to the limit that the program sets, as far as the program
 * may raise it, and subtracted from the limit that it is told. Programs that it executes start with
 * the sum.
 */
#include <sys/resource.h>
#include "effects/hooks.h"

static uint64_t ours(void)
{
	struct crn_range own[2];
	uint64_t n = crn_session_reserved();

	crn_agent_memory(own);
	for (size_t i = 0; i < CRN_ARRAY_SIZE(own); i++)
		n += own[i].end - own[i].begin;
	return n;
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

	/* Who has lowered it for good cannot raise it, so our share stays what it was. */
	if (!a->space_ours)
		a->space_ours = ours();
	limit.rlim_cur = with(wanted->rlim_cur, a->space_ours);
	limit.rlim_max = with(wanted->rlim_max, a->space_ours);
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

static long change(uintptr_t to, uintptr_t old)
{
	struct rlimit wanted, was, said;
	long ret;

	if (to && crn_user_read(&wanted, to, sizeof(wanted)) < 0)
		return -EFAULT;
	ret = crn_sys4(SYS_prlimit64, 0, RLIMIT_AS, NULL, &was);
	said = told(was);
	if (ret == 0 && to)
		ret = wanted.rlim_cur <= wanted.rlim_max ? set(&wanted, &was) : -EINVAL;
	return ret < 0 || !old ? ret : crn_user_write(old, &said, sizeof(said));
}

bool crn_space_limit_call(struct crn_call *call)
{
	const long *a = call->args;

	if (call->nr == SYS_setrlimit && (unsigned)a[0] == RLIMIT_AS && a[1])
		call->result = change((uintptr_t)a[1], 0);
	else if (call->nr == SYS_getrlimit && (unsigned)a[0] == RLIMIT_AS && a[1])
		call->result = change(0, (uintptr_t)a[1]);
	else if (call->nr == SYS_prlimit64 && (unsigned)a[1] == RLIMIT_AS &&
		((int)a[0] == 0 || (int)a[0] == crn_agent->pid)) {
		call->result = change((uintptr_t)a[2], (uintptr_t)a[3]);
		if (a[2])
			crn_call_raise(call); /* no hook comes by */
	} else {
		return false;
	}
	return true;
}
