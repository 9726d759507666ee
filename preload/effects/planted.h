/* SPDX-License-Identifier: MIT */
/*
 * Bugs that tests plant to see that they are caught. A second agent, built only for the tests with
 * CRN_PLANTED, leaves out the step that CAIRN_PLANT in its environment names. In the real agent
 * this is nothing.
 */
#ifndef CRN_PLANTED_H
#define CRN_PLANTED_H

/* Beyond the kinds of inverses (enum crn_inverse_kind). */
enum crn_plant {
	CRN_PLANT_STREAMS = 100, /* input is not given again */
	CRN_PLANT_EPOLL,         /* consumed edges do not come back */
	CRN_PLANT_SIGNALS,       /* delivered signals are not raised again */
	CRN_PLANT_OUTPUTS,       /* no checkpoint follows an output */
	CRN_PLANT_HELD,          /* a restore does not forget held bytes */
	CRN_PLANT_CREDIT,        /* send buffers are believed to be empty */
	CRN_PLANT_DUPLICATE,     /* there is no high number for a connection that is closed */
	CRN_PLANT_EARLY,         /* bytes are sent when they are taken */
	CRN_PLANT_RULES,         /* outputs of another kind do not wait for held bytes */
	CRN_PLANT_MOVE,          /* bytes for a closed connection stay at its number */
	CRN_PLANT_SELF,          /* a process that talks to itself is not noticed */
	CRN_PLANT_REAPED,        /* children that were waited for are not told of again */
};

#ifdef CRN_PLANTED
#include "os/descriptor.h"

static inline bool crn_planted(int what)
{
	char text[16];
	int n = 0;

	if (crn_environment("CAIRN_PLANT", text, sizeof(text)) <= 0)
		return false;
	for (const char *p = text; *p >= '0' && *p <= '9'; p++)
		n = n * 10 + (*p - '0');
	return n == what;
}
#else
#define crn_planted(what) false
#endif

#endif
