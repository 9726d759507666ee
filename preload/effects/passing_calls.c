/* SPDX-License-Identifier: MIT */
/*
 * Calls that pass: gate.S makes them without their hooks, which would have nothing to do. A server
 * makes several for each request, and a hook costs more than the way to it: registers saved and put
 * back, rows and a struct crn_pending fetched into the cache.
 *
 * Listed are calls of which intercept/ and crn_call_before want nothing, whatever their arguments,
 * but for what `passes` asks. So they pass in a vfork child and in a handler as well.
 */
#include "base/check.h"
#include "base/copy.h"
#include "effects/effects.h"
#include "effects/hooks.h"
#include "os/call_memory.h"

static const uint16_t listed[] = {
	SYS_read, SYS_write, SYS_stat, SYS_fstat, SYS_lstat, SYS_lseek, SYS_pread64, SYS_pwrite64,
	SYS_readv, SYS_writev, SYS_access, SYS_sched_yield, SYS_sendfile, SYS_connect, SYS_sendto,
	SYS_recvfrom, SYS_sendmsg, SYS_recvmsg, SYS_shutdown, SYS_getsockname, SYS_getpeername,
	SYS_fsync, SYS_fdatasync, SYS_readlink, SYS_gettimeofday, SYS_getrusage, SYS_getuid,
	SYS_geteuid, SYS_getppid, SYS_gettid, SYS_time, SYS_futex, SYS_clock_gettime, SYS_epoll_ctl,
	SYS_openat, SYS_newfstatat, SYS_preadv, SYS_pwritev, SYS_recvmmsg, SYS_sendmmsg,
	SYS_getrandom, SYS_statx,
};

/* A timer must know the call that it cuts short; a hook, of what memory it must open. */
static bool passes(long nr)
{
	return !crn_agent->config.recover && !crn_site_configured(CRN_SITE_TIMER) &&
		!crn_row_is_site(crn_row_of(nr)) &&
		!(crn_call_writes(nr) && crn_output_matters());
}

void crn_calls_passing(uint8_t *out)
{
	crn_fill(out, 0, CRN_PASSING_END);
	for (size_t i = 0; i < CRN_ARRAY_SIZE(listed); i++) {
		CRN_ASSERT(listed[i] < CRN_PASSING_END);
		out[listed[i]] = passes(listed[i]);
	}
}
