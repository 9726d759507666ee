/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "base/bits.h"
#include "base/copy.h"
#include "os/descriptor.h"
#include "os/limits.h"
#include "os/memory.h"
#include "os/sys.h"

#define LIFT_TRIES 20

static bool lift(int resource, struct crn_limit *was)
{
	struct crn_limit most = { UINT64_MAX, UINT64_MAX };

	if (crn_sys4(SYS_prlimit64, 0, resource, NULL, was) < 0 || was->soft == UINT64_MAX)
		return false;
	if (crn_sys4(SYS_prlimit64, 0, resource, &most, NULL) >= 0)
		return true;
	most.soft = most.hard = was->hard;
	return was->soft < was->hard && crn_sys4(SYS_prlimit64, 0, resource, &most, NULL) >= 0;
}

static void settle(int resource, const struct crn_limit *was)
{
	crn_sys4(SYS_prlimit64, 0, resource, was, NULL);
}

void crn_limits_lift(struct crn_limits *l)
{
	l->space_lifted = lift(RLIMIT_AS, &l->space);
	l->data_lifted = lift(RLIMIT_DATA, &l->data);
}

void crn_limits_settle(const struct crn_limits *l)
{
	if (l->space_lifted)
		settle(RLIMIT_AS, &l->space);
	if (l->data_lifted)
		settle(RLIMIT_DATA, &l->data);
}

int crn_limits_leave(size_t space, size_t data)
{
	size_t left = crn_memory_space_left();
	uint64_t limit = crn_memory_data_limit();

	if (left < CRN_SPACE_MAX && left < space)
		return -ENOMEM;
	return data && limit != UINT64_MAX && crn_memory_data_used() + data > limit ? -ENOMEM : 0;
}

bool crn_limits_data(void)
{
	struct crn_limit limit;

	return crn_sys4(SYS_prlimit64, 0, RLIMIT_DATA, NULL, &limit) >= 0 &&
		limit.soft != UINT64_MAX;
}

uint64_t crn_memory_data_limit(void)
{
	struct crn_limit limit;

	return crn_sys4(SYS_prlimit64, 0, RLIMIT_DATA, NULL, &limit) < 0 ? UINT64_MAX : limit.hard;
}

uint64_t crn_memory_data_used(void)
{
	char text[2048];
	long n = crn_file_read("/proc/self/status", text, sizeof(text) - 1);
	uint64_t kib = 0;
	const char *s;

	if (n < 0)
		return 0;
	text[n] = 0;
	for (s = text; *s && !crn_starts_with(s, "VmData:"); s++)
		;
	for (; *s && *s != '\n'; s++)
		kib = *s >= '0' && *s <= '9' ? kib * 10 + (uint64_t)(*s - '0') : kib;
	return kib << 10;
}

/* Other threads may do the same, and seem to have no limit, or no lower one, meanwhile. */
int crn_memory_reopen(void *addr, size_t len, int prot)
{
	struct crn_limit was;
	int err = -ENOMEM;

	for (unsigned tries = 0; tries < LIFT_TRIES && err == -ENOMEM; tries++) {
		bool lifted = tries && lift(RLIMIT_DATA, &was);

		err = crn_memory_protect(addr, len, prot);
		if (lifted)
			settle(RLIMIT_DATA, &was);
	}
	return err;
}

int crn_memory_commit_own(void *addr, size_t len)
{
	return crn_memory_reopen(addr, len, PROT_READ | PROT_WRITE) < 0 ? -ENOMEM : 0;
}
