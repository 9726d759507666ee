/* SPDX-License-Identifier: MIT */
/* Results inside the engine: >= 0 or a negative code, as in cairn.h. Never -1, never errno. */
#ifndef CRN_STATUS_H
#define CRN_STATUS_H

#include <errno.h>
#include "cairn/cairn.h"

/* Hand a failure to the caller; the value is lost otherwise, so use it for int results only. */
#define CRN_TRY(expr)                      \
	do {                               \
		int crn_try_ = (expr);     \
		if (crn_try_ < 0)          \
			return crn_try_;   \
	} while (0)

#endif
