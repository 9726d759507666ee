/* SPDX-License-Identifier: MIT */
/*
 * The program's limit of its address space. RLIMIT_AS counts what is reserved, also by the agent
 * and the engine: a thousand times what a program allows itself that limits itself (vsftpd: 200
 * MB). So what is ours is added to the limit that the program sets, and taken off the one that it
 * is told. What it executes starts with the sum.
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

static long change(uintptr_t to, uintptr_t old)
{
	uint64_t *more = &crn_agent->space_added, before = *more;
	struct rlimit wanted, was;
	long ret;

	if (to) {
		if (crn_user_read(&wanted, to, sizeof(wanted)) < 0)
			return -EFAULT;
		/* Who has lowered it for good cannot raise it, so what was added stays. */
		if (!before)
			*more = ours();
		wanted.rlim_cur = with(wanted.rlim_cur, *more);
		wanted.rlim_max = with(wanted.rlim_max, *more);
	}
	ret = crn_sys4(SYS_prlimit64, 0, RLIMIT_AS, to ? &wanted : NULL, &was);
	if (ret < 0)
		*more = before;
	if (ret < 0 || !old)
		return ret;
	was.rlim_cur = without(was.rlim_cur, before);
	was.rlim_max = without(was.rlim_max, before);
	return crn_user_write(old, &was, sizeof(was));
}

bool crn_space_limit_call(struct crn_call *call)
{
	const long *a = call->args;

	if (call->nr == SYS_setrlimit && (unsigned)a[0] == RLIMIT_AS && a[1])
		call->result = change((uintptr_t)a[1], 0);
	else if (call->nr == SYS_getrlimit && (unsigned)a[0] == RLIMIT_AS && a[1])
		call->result = change(0, (uintptr_t)a[1]);
	else if (call->nr == SYS_prlimit64 && (unsigned)a[1] == RLIMIT_AS &&
		((int)a[0] == 0 || (int)a[0] == crn_agent->pid))
		call->result = change((uintptr_t)a[2], (uintptr_t)a[3]);
	else
		return false;
	return true;
}
