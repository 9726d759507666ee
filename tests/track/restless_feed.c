/* SPDX-License-Identifier: MIT */
/*
 * restless_feed FEED: there is always somebody of whom feed perf does not know whether he writes,
 * and each look takes long, as on a busy machine. The session begins in bounded time all the same:
 * with the next feed, and the figures say why; or not at all, if perf was named.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include "../lib/harness.h"
#include "../lib/refused_call.h"
#include "track/feeds/births.h"

#define LOOK_NS     100000000ull
#define LOOKS_AUTO  32  /* two seconds, and some that are looked at for other reasons */
#define LOOKS_NAMED 112 /* ten */

static uint64_t looks;

void __real_crn_births_settle(struct crn_births *b);
void __wrap_crn_births_settle(struct crn_births *b);
void __wrap_crn_births_settle(struct crn_births *b)
{
	__real_crn_births_settle(b);
	b->strangers = true;
	looks++;
}

uint64_t __real_crn_clock_kernel_ns(void);
uint64_t __wrap_crn_clock_kernel_ns(void);
uint64_t __wrap_crn_clock_kernel_ns(void)
{
	return __real_crn_clock_kernel_ns() + looks * LOOK_NS;
}

static void expect_scan(cairn_t *c)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	if (!looks)
		test_skip(s.feed_why);
	if (strcmp(s.feed, "scan") || strcmp(s.feed_why, "perf: it never comes to rest"))
		test_fail("feed %s (%s)", s.feed, s.feed_why);
	CHECK_OK(cairn_close(c));
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	bool any = argc == 2 && !strcmp(argv[1], "auto");
	cairn_t *c;
	int rc;

	o.tracker = "async";
	o.feed = argv[1];
	o.surface = "none";
	refuse_call(SYS_bpf, EPERM);
	rc = cairn_open(&c, &o);
	if (any) {
		CHECK_RC(rc, 0);
		expect_scan(c);
	} else {
		CHECK_RC(rc, CAIRN_ENOTRACK);
		if (!looks)
			test_skip("feed perf");
	}
	if (looks > (any ? LOOKS_AUTO : LOOKS_NAMED))
		test_fail("looked %llu times", (unsigned long long)looks);
	return 0;
}
