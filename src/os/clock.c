/* SPDX-License-Identifier: MIT */
#include <stdbool.h>
#include <cpuid.h>
#include "os/clock.h"
#include "os/sys.h"

struct kernel_time {
	int64_t seconds, nanoseconds;
};

uint64_t crn_clock_kernel_ns(void)
{
	struct kernel_time t = { 0, 0 };

	crn_sys2(SYS_clock_gettime, 1 /* CLOCK_MONOTONIC */, &t);
	return (uint64_t)t.seconds * 1000000000ull + (uint64_t)t.nanoseconds;
}

/* The counter runs at one rate in all power states, and this thread may read it. */
static bool usable(void)
{
	unsigned a, b, c, d;
	int allowed = 1;

	if (crn_sys2(SYS_prctl, 25 /* PR_GET_TSC */, &allowed) >= 0 && allowed != 1)
		return false;
	if (!__get_cpuid(0x80000007u, &a, &b, &c, &d))
		return false;
	return d & 1u << 8;
}

/* Both scales at one moment: of a few tries the one that took the least time in between. */
static void moment(uint64_t *tsc, uint64_t *ns)
{
	uint64_t best = ~0ull;

	for (int i = 0; i < 8; i++) {
		uint64_t before = crn_clock_ticks();
		uint64_t now = crn_clock_kernel_ns();
		uint64_t took = crn_clock_ticks() - before;

		if (took >= best)
			continue;
		best = took;
		*tsc = before + took / 2;
		*ns = now;
	}
}

static void calibrate(struct crn_clock *c)
{
	uint64_t tsc = 0, ns = 0;

	moment(&c->tsc, &c->ns);
	do
		moment(&tsc, &ns);
	while (ns - c->ns < 250000);
	/*
	 * 64 bits are enough unless we slept for seconds in between; then the next user asks the
	 * kernel.
	 */
	if (tsc > c->tsc && ns - c->ns < 1ull << 32)
		c->mult = ((ns - c->ns) << 32) / (tsc - c->tsc);
}

void crn_clock_init(struct crn_clock *c)
{
	/* A child of fork has the same counter: it need not measure again. */
	static struct crn_clock known;

	*c = known;
	if (!usable()) {
		c->mult = 0;
	} else if (!c->mult) {
		calibrate(c);
		known = *c;
	}
}
