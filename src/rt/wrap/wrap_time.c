/* SPDX-License-Identifier: MIT */
/* Clocks, timers and dates. */
#include <signal.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <threads.h>
#include <time.h>
#define WRAPPED_time CRN_WRAPPER
#define WRAPPERS_KEEP crn_reach_keep
#include "rt/wrap/wrap.h"
#include "rt/wrap/reach.h"

int timespec_getres(struct timespec *to, int base);

#include "rt/wrap/wrapped.def"

#define BOUNCE 256

/* It is given much room most of the time, and writes little. */
WRAPPER(size_t, strftime, char *to, size_t n, const char *format, const struct tm *tm)
{
	char bounce[BOUNCE];
	size_t len = strftime(bounce, CRN_MIN(n, sizeof(bounce)), format, tm);

	if (len) {
		place(to, bounce, len + 1);
		return len;
	}
	keep(to, n);
	return strftime(to, n, format, tm);
}
